//! How much memory this process's control groups still allow.
//!
//! ```text
//!    /proc/self/cgroup      0::/user.slice/job       version 2: one hierarchy
//!                           5:cpu,memory:/docker/ab  version 1: the one with the memory controller
//!
//!    <mount>/user.slice/job   limit and usage here,
//!    <mount>/user.slice       here,
//!    <mount>                  and here; the tightest decides
//! ```
//!
//! Inside a container the path may name directories that only the machine outside can see. The root
//! of the mount is then the container's group.
//!
//! Invariant: a file that cannot be read limits nothing. Lock: none.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// Version 1 writes "no limit" as the largest page-aligned number. No real limit is as large as
/// this.
const V1_UNLIMITED: u64 = 1 << 62; // 4 EiB

const _: () = assert!(V1_UNLIMITED < i64::MAX as u64 - 65_535, "no limit, with 64 KiB pages too");

/// The files of one version of control groups.
#[derive(Debug, PartialEq, Eq)]
struct Files {
    mount: &'static str,
    limit: &'static str,
    usage: &'static str,
}

const V2: Files = Files { mount: "/sys/fs/cgroup", limit: "memory.max", usage: "memory.current" };
const V1: Files = Files {
    mount: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
};

/// Bytes that this process may still use before it meets the tightest limit of its groups; `None`
/// if no group has a limit.
pub(crate) fn headroom() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    groups.lines().filter_map(group).filter_map(|(files, path)| tightest(&files, path)).min()
}

/// Directories of this process's control group of version 2 and of those above it, its own first;
/// none that is not there.
pub(crate) fn own_directories() -> Vec<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().filter_map(group).find(|(files, _)| *files == V2);
    let all = own.map(|(files, path)| ancestry(Path::new(files.mount), path)).unwrap_or_default();
    all.into_iter().rev().filter(|directory| directory.is_dir()).collect()
}

/// The group that a line of `/proc/self/cgroup` names, if that group can limit memory.
fn group(line: &str) -> Option<(Files, &str)> {
    let (_number, rest) = line.split_once(':')?;
    let (controllers, path) = rest.split_once(':')?;
    if controllers.is_empty() {
        Some((V2, path))
    } else {
        controllers.split(',').any(|name| name == "memory").then_some((V1, path))
    }
}

fn tightest(files: &Files, path: &str) -> Option<u64> {
    let directories = ancestry(Path::new(files.mount), path);
    directories.iter().filter_map(|directory| headroom_at(directory, files)).min()
}

/// The directories of a group and of all groups above it, `mount` first. Components that climb
/// (`..`) are left out: the kernel shows a group outside our namespace so.
fn ancestry(mount: &Path, path: &str) -> Vec<PathBuf> {
    let mut directories = vec![mount.to_path_buf()];
    for component in Path::new(path).components() {
        if let (Component::Normal(name), Some(above)) = (component, directories.last()) {
            directories.push(above.join(name));
        }
    }
    directories
}

fn headroom_at(directory: &Path, files: &Files) -> Option<u64> {
    let limit = fs::read_to_string(directory.join(files.limit)).ok()?;
    let usage = fs::read_to_string(directory.join(files.usage)).ok()?;
    between(&limit, &usage)
}

/// The bytes between a usage and its limit, as the files write them; `None` for "no limit".
fn between(limit: &str, usage: &str) -> Option<u64> {
    let limit: u64 = limit.trim().parse().ok()?; // "max" is no number
    let usage: u64 = usage.trim().parse().ok()?;
    (limit < V1_UNLIMITED).then(|| limit.saturating_sub(usage))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_name_their_group() {
        assert_eq!(group("0::/a/b.scope"), Some((V2, "/a/b.scope")));
        assert_eq!(group("5:cpu,memory:/docker/x:y"), Some((V1, "/docker/x:y")));
        for line in ["", "5", "5:cpu", "3:cpuset,cpu:/a", "1:name=systemd:/a", "7:memory2:/a"] {
            assert_eq!(group(line), None, "of {line:?}");
        }
    }

    #[test]
    fn every_ancestor_is_asked_and_none_outside_the_mount() {
        let paths = |path| {
            let directories = ancestry(Path::new("/m"), path);
            directories.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(paths("/"), ["/m"]);
        assert_eq!(paths("/a/b"), ["/m", "/m/a", "/m/a/b"]);
        assert_eq!(paths("/../a"), ["/m", "/m/a"]);
        assert_eq!(paths(""), ["/m"]);
    }

    #[test]
    fn headroom_is_limit_less_usage() {
        assert_eq!(between("1000\n", "300\n"), Some(700));
        assert_eq!(between("300", "1000"), Some(0), "over the limit there is none left");
        assert_eq!(between("max\n", "300\n"), None);
        assert_eq!(between("9223372036854771712\n", "300\n"), None, "version 1's no limit");
        for (limit, usage) in [("", "1"), ("1", ""), ("-1", "0"), ("1 2", "0"), ("x", "y")] {
            assert_eq!(between(limit, usage), None, "of {limit:?} and {usage:?}");
        }
    }

    #[test]
    fn the_tightest_of_nested_groups_decides() {
        let root = std::env::temp_dir().join(format!("host-cgroup-{}", std::process::id()));
        let write = |group: &str, limit: &str, usage: &str| {
            let directory = root.join(group);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join(V2.limit), limit).unwrap();
            fs::write(directory.join(V2.usage), usage).unwrap();
        };
        write("a", "5000\n", "4900\n");
        write("a/b", "max\n", "200\n");
        write("a/b/c", "1000\n", "100\n");
        let least = |path| {
            let directories = ancestry(&root, path);
            directories.iter().filter_map(|directory| headroom_at(directory, &V2)).min()
        };
        let found = [least("/a/b/c"), least("/a"), least("/elsewhere")];
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, [Some(100), Some(100), None], "the outer group is nearly full");
    }
}
