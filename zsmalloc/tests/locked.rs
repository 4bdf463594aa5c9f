//! A program that locks its memory (`mlockall`) goes on, and pays for what is in use.
//!
//! Each test locks the memory of a process, so each runs itself in a child; in a memory cgroup, as
//! what goes wrong here fills the machine.
#![cfg(not(any(loom, shuttle, miri)))]

use host::PAGE_SIZE;
use ramfold_zsmalloc::{Handle, Memory, MemoryConfig, Pool, PoolConfig};
use rustix::mm::{MlockAllFlags, mlockall, munlockall};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

const CHILD: &str = "RAMFOLD_LOCKED_CHILD";
const GROUPS: &str = "/sys/fs/cgroup/memory";
const GROUP_BYTES: u64 = 600 << 20;
const MIB: u64 = 1 << 20;

/// A memory cgroup, version 1, that goes away.
struct Group(PathBuf);

impl Group {
    /// `None`, with a word, where we may not make one.
    fn new(name: &str) -> Option<Group> {
        let path = PathBuf::from(GROUPS).join(format!("ramfold-{name}-{}", std::process::id()));
        let made = std::fs::create_dir(&path).map(|()| Group(path.clone()));
        let limit = |group: &Group| {
            std::fs::write(group.0.join("memory.limit_in_bytes"), GROUP_BYTES.to_string())
        };
        match made.and_then(|group| limit(&group).map(|()| group)) {
            Ok(group) => Some(group),
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "CI has memory cgroups: {error}");
                eprintln!("skipped: needs a memory cgroup: {}: {error}", path.display());
                None
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// True in the child, which is in a cgroup; elsewhere runs it, and wants its last words.
fn in_a_child(test: &str) -> bool {
    if let Some(group) = std::env::var_os(CHILD) {
        std::fs::write(PathBuf::from(group).join("cgroup.procs"), "0").expect("the group is ours");
        return true;
    }
    let Some(group) = Group::new(test) else { return false };
    let this = std::env::current_exe().expect("this test's path");
    let mut command = Command::new(this);
    command.args([test, "--exact", "--nocapture"]).env(CHILD, &group.0);
    let child = command.output().expect("a child");
    let words = String::from_utf8_lossy(&child.stderr).into_owned();
    if words.contains("skipped: ") {
        assert!(std::env::var_os("CI").is_none(), "CI may lock memory");
        eprintln!("{words}");
    } else {
        assert!(child.status.success() && words.contains("as told"), "{child:?}");
    }
    false
}

/// False, with a word, where that is not allowed.
fn lock_all(flags: MlockAllFlags) -> bool {
    let locked = mlockall(flags);
    if let Err(error) = &locked {
        eprintln!("skipped: needs the right to lock memory: {error}");
    }
    locked.is_ok()
}

fn memory() -> Arc<Memory> {
    Memory::new(MemoryConfig::for_disk(1 << 30)).expect("address space")
}

fn pool(memory: &Arc<Memory>) -> Arc<Pool> {
    Pool::new(Arc::clone(memory), PoolConfig::default()).expect("a pool")
}

fn store(pool: &Arc<Pool>, bytes: u64) -> Vec<Handle> {
    let object = [7; 1500];
    (0..bytes / 1500).map(|_| pool.alloc(&object).expect("room")).collect()
}

fn free(pool: &Arc<Pool>, objects: Vec<Handle>) {
    objects.into_iter().for_each(|object| pool.free_handle(object).expect("the pool's"));
}

/// What the system counts beyond what the memory does, in bytes.
fn beyond(memory: &Memory) -> u64 {
    let resident = memory.resident_bytes(&[]).expect("smaps");
    resident.checked_sub(memory.mapped_bytes()).expect("nothing is counted that is not there")
}

/// Mappings of the process in the memory's ranges.
fn mappings(memory: &Memory) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let start = |line: &str| usize::from_str_radix(line.split('-').next()?, 16).ok();
    let inside = |start: &usize| memory.ranges().iter().any(|range| range.contains(start));
    maps.lines().filter_map(start).filter(inside).count()
}

/// The story: `mlockall` in a program that had made a memory filled 5/4 of the machine, and the
/// out-of-memory killer came.
#[test]
fn a_program_that_locks_its_memory_ends_normally() {
    if !in_a_child("a_program_that_locks_its_memory_ends_normally") {
        return;
    }
    let memory = memory();
    let pool = pool(&memory);
    let first = store(&pool, 64 * MIB);
    assert_eq!(beyond(&memory), 0, "before, all that is there is counted");
    assert!(!memory.was_locked());
    if !lock_all(MlockAllFlags::CURRENT) {
        return;
    }
    // An eighth more than is online at most, and the steps of the zones and of the tables.
    let online = memory.zone_counts().online_frames() * PAGE_SIZE as u64;
    let (locked, used) = (beyond(&memory), memory.mapped_bytes());
    assert!(used + locked <= online / 8 * 9 + 10 * MIB, "{locked} bytes beyond {used}");
    let second = store(&pool, 64 * MIB);
    assert!(beyond(&memory) <= locked, "what is opened since is not locked: {}", beyond(&memory));
    free(&pool, first);
    free(&pool, second);
    drop(pool);
    memory.release(0);
    assert!(beyond(&memory) <= locked);
    assert!(mappings(&memory) < 200, "{} mappings", mappings(&memory));
    assert!(memory.was_locked());
    munlockall().expect("it was locked");
    assert!(memory.was_locked(), "what was filled is still there");
    memory.release(0);
    assert_eq!(memory.free_bytes_held(), 0, "all goes back that was in use");
    eprintln!("as told");
}

#[test]
fn a_program_that_locks_what_it_will_have_ends_normally() {
    if !in_a_child("a_program_that_locks_what_it_will_have_ends_normally") {
        return;
    }
    if !lock_all(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE) {
        return;
    }
    let memory = memory();
    let pool = pool(&memory);
    let objects = store(&pool, 64 * MIB);
    assert_eq!(beyond(&memory), 0, "nothing of it is locked");
    free(&pool, objects);
    memory.release(0);
    assert_eq!((beyond(&memory), memory.free_bytes_held()), (0, 0));
    eprintln!("as told");
}
