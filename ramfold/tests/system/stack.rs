//! Real use of the tree: file systems on a loop device over `disk`, and tests of other projects.
//!
//! ```text
//!   tar, cp, fs_mark, diff -> ext4 or btrfs -> loop device, direct -> zram0/disk -> ramfold
//! ```
//!
//! A short form runs by default. These variables set the long one:
//!
//! | variable | what it sets | long form |
//! |---|---|---|
//! | `RAMFOLD_FS_TREE` | the tree that is copied | a source tree of more than 500 MiB |
//! | `RAMFOLD_FS_SIZE` | MiB of the disk | 8192 |
//! | `RAMFOLD_FS_FILES` | files that fs_mark writes, with 8 threads and with 32 | 16000 |
//! | `RAMFOLD_FS_FILE_BYTES` | bytes in each | 100000 |
//! | `RAMFOLD_FS_BUILD` | a command run in the copy | `make -j2` |
//! | `RAMFOLD_FS_SWAP` | 1: swap is switched on for a moment | |
//!
//! Claim: data that was written is read back, whatever is done to its pages in between.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::rig::{
    Loop, Mount, Tree, by_io_uring_too, from_env, needs, needs_device, needs_tree, succeed, tool,
};

const MIB: u64 = 1 << 20;

fn needs_stack(tools: &[&str]) -> bool {
    needs_tree(&["losetup", "mount", "umount"]) && needs_device("/dev/loop-control") && needs(tools)
}

#[test]
fn ext4_keeps_its_files_while_pages_are_moved() {
    if needs_stack(&["mkfs.ext4", "e2fsck", "tar", "diff", "fs_mark"]) {
        keeps_its_files(&["mkfs.ext4", "-q"], &["e2fsck", "-f", "-n"]);
    }
}

#[test]
fn btrfs_keeps_its_files_while_pages_are_moved() {
    if needs_stack(&["mkfs.btrfs", "btrfs", "tar", "diff", "fs_mark"]) {
        keeps_its_files(&["mkfs.btrfs", "-q"], &["btrfs", "check", "--readonly"]);
    }
}

fn keeps_its_files(mkfs: &[&str], fsck: &[&str]) {
    let source = std::env::var("RAMFOLD_FS_TREE").unwrap_or("/usr/include".into());
    let size = from_env("RAMFOLD_FS_SIZE", 768) * MIB;
    let tree = Tree::new();
    let backing = tree.scratch.large("backing");
    let file = fs::File::create(&backing).expect("a file can be made");
    file.set_len(size).expect("of any length");
    tree.write("zram0/backing_dev", &backing.display().to_string());
    tree.write("zram0/recomp_algorithm", "algo=zstd priority=1");
    tree.write("zram0/disksize", &size.to_string());
    let disk = Loop::direct(&tree.disk());
    let run = |what: &[&str]| succeed(tool(what[0]).args(&what[1..]).arg(&disk.device));
    run(mkfs);
    let sums = {
        let mount = Mount::of(&disk.device, tree.scratch.path("mnt"));
        untar(Path::new(&source), &mount.directory);
        succeed(&mut Command::new("sync"));
        move_pages(&tree);
        write_files(&mount.directory);
        build(&mount.directory);
        compare(&source, &mount.directory);
        sums(&mount.directory)
    };
    run(fsck);
    move_pages(&tree);
    let mount = Mount::of(&disk.device, tree.scratch.path("mnt"));
    assert!(sums == self::sums(&mount.directory), "what was written is read");
    drop(mount);
    tree.check();
    println!("mm_stat {}bd_stat {}", tree.read("zram0/mm_stat"), tree.read("zram0/bd_stat"));
}

/// Through a pipe, as archives are unpacked.
fn untar(source: &Path, target: &Path) {
    let copy = target.join("copy");
    fs::create_dir(&copy).expect("it is empty");
    let script = "tar -C \"$0\" -cf - . | tar -C \"$1\" -xf -";
    succeed(tool("bash").args(["-e", "-o", "pipefail", "-c", script]).arg(source).arg(copy));
}

/// Recompresses what is there, and writes some of it back.
fn move_pages(tree: &Tree) {
    tree.write("zram0/idle", "all");
    tree.write("zram0/recompress", "type=idle");
    tree.write("zram0/writeback_limit", "4096");
    tree.write("zram0/writeback_limit_enable", "1");
    // The limit ends it, which is an error only of this command.
    let _ = tree.try_write("zram0/writeback", "huge_idle");
    let _ = tree.try_write("zram0/writeback", "idle");
    tree.write("zram0/compact", "1");
}

/// fs_mark syncs each file, with as many threads as the published tests have.
fn write_files(directory: &Path) {
    let files = from_env("RAMFOLD_FS_FILES", 128);
    let bytes = from_env("RAMFOLD_FS_FILE_BYTES", 100_000).to_string();
    for threads in [8, 32] {
        let mut mark = tool("fs_mark");
        mark.current_dir(directory).args(["-s", &bytes, "-k", "-v"]);
        mark.args(["-n", &(files / threads).to_string(), "-t", &threads.to_string()]);
        let directory = directory.join(format!("marks{threads}"));
        println!("{}", succeed(mark.arg("-d").arg(directory)));
    }
}

fn build(directory: &Path) {
    if let Ok(command) = std::env::var("RAMFOLD_FS_BUILD") {
        let copy = directory.join("copy");
        let mut build = Command::new("bash");
        println!("{}", succeed(build.args(["-e", "-c", &command]).current_dir(copy)));
    }
}

fn compare(source: &str, directory: &Path) {
    if std::env::var_os("RAMFOLD_FS_BUILD").is_none() {
        let mut diff = tool("diff");
        diff.args(["--recursive", "--no-dereference", source]);
        succeed(diff.arg(directory.join("copy")));
    }
}

/// The checksum of every file, by name.
fn sums(directory: &Path) -> String {
    let script = "find . -type f -print0 | sort -z | xargs -0 -r sha256sum";
    succeed(tool("bash").args(["-e", "-o", "pipefail", "-c", script]).current_dir(directory))
}

#[test]
fn steps_of_ltp_zram01() {
    if !needs_stack(&["mkfs.ext4", "mkfs.btrfs", "dd"]) {
        return;
    }
    let tree = Tree::new();
    // File systems of the published test, with the sizes it gives them.
    let systems = [(vec!["mkfs.ext4", "-q"], 26_214_400), (vec!["mkfs.btrfs", "-q"], 402_653_184)];
    for (number, (mkfs, bytes)) in systems.into_iter().enumerate() {
        let id = if number == 0 { "0".into() } else { tree.read("zram-control/hot_add") };
        let device = format!("zram{}", id.trim_end());
        let file = |name: &str| format!("{device}/{name}");
        let listed = tree.read(&file("comp_algorithm")).replace(['[', ']'], "");
        for algorithm in listed.split_ascii_whitespace().chain(["lz4"]) {
            tree.write(&file("comp_algorithm"), algorithm);
            let now = tree.read(&file("comp_algorithm"));
            assert!(now.contains(&format!("[{algorithm}]")), "{now}");
        }
        tree.write(&file("disksize"), &bytes.to_string());
        assert_eq!(tree.read(&file("disksize")), format!("{bytes}\n"));
        tree.write(&file("mem_limit"), &format!("{}M", bytes / MIB));
        assert_eq!(tree.mm_stat(&device, 4), bytes);
        fill(&tree, &device, &mkfs);
        tree.write(&file("reset"), "1");
        tree.write("zram-control/hot_remove", id.trim_end());
    }
}

/// Appends zeros a KiB at a time until the file system is full, and looks at what they take.
fn fill(tree: &Tree, device: &str, mkfs: &[&str]) {
    let disk = Loop::direct(&tree.path(&format!("{device}/disk")));
    succeed(tool(mkfs[0]).args(&mkfs[1..]).arg(&disk.device));
    let mount = Mount::of(&disk.device, tree.scratch.path("mnt"));
    let file = mount.directory.join("file");
    let script = "dd if=/dev/zero of=\"$0\" bs=1K status=none 2>/dev/null; sync";
    let _ = tool("sh").args(["-c", script]).arg(&file).status();
    let kib = fs::metadata(&file).expect("it was made").len() / 1024;
    assert!(kib > 0, "something was written");
    let used = tree.mm_stat(device, 3);
    assert!(used > 0, "the file system itself takes something");
    assert!(100 * 1024 * kib / used >= 100, "{kib} KiB take {used} bytes");
}

#[test]
fn steps_of_ltp_zram02_with_100_gib() {
    if !needs_stack(&["mkswap", "swapon", "swapoff", "blkid"]) {
        return;
    }
    let tree = Tree::new();
    tree.write("zram0/disksize", "107374182400");
    tree.write("zram0/mem_limit", "1M");
    assert_eq!(fs::metadata(tree.disk()).unwrap().len(), 107_374_182_400);
    let disk = Loop::direct(&tree.disk());
    succeed(tool("mkswap").arg(&disk.device));
    let found = succeed(tool("blkid").args(["-p", "-o", "value", "-s", "TYPE", &disk.device]));
    assert_eq!(found, "swap\n");
    // Swapping to it is not supported; switching it on and off has to work all the same.
    if from_env("RAMFOLD_FS_SWAP", 0) == 1 {
        succeed(tool("swapon").args(["--priority", "0", &disk.device]));
        succeed(tool("swapoff").arg(&disk.device));
    }
    drop(disk);
    assert!(tree.mm_stat("zram0", 3) <= MIB, "{}", tree.read("zram0/mm_stat"));
    tree.write("zram0/reset", "1");
    tree.write("zram-control/hot_remove", "0");
}

#[test]
fn steps_of_ltp_zram03() {
    if !needs_stack(&["python3"]) {
        return;
    }
    let tree = Tree::new();
    let mib = from_env("RAMFOLD_FS_SIZE", 64);
    tree.write("zram0/disksize", &format!("{mib}M"));
    let script = "import mmap, os, sys
size = int(sys.argv[2]) << 20
fd = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(fd, size)
m.write(b'a' * (size - 1) + b'\\0')
m.flush(); m.close(); os.close(fd)
fd = os.open(sys.argv[1], os.O_RDONLY)
m = mmap.mmap(fd, size, prot=mmap.PROT_READ)
chunk = 1 << 20
assert all(m[at:at + chunk] == b'a' * chunk for at in range(0, size - chunk, chunk))
assert m[size - chunk:] == b'a' * (chunk - 1) + b'\\0'
";
    succeed(tool("python3").args(["-c", script]).arg(tree.disk()).arg(mib.to_string()));
    let pages = mib * MIB / 4096;
    assert_eq!(tree.mm_stat("zram0", 1), mib * MIB, "every page is stored");
    assert_eq!(tree.mm_stat("zram0", 6), pages - 1, "all but the last are one byte repeated");
    assert!(tree.mm_stat("zram0", 2) > 0 && tree.mm_stat("zram0", 3) > 0);
    tree.write("zram0/reset", "1");
    let after = tree.read("zram0/mm_stat");
    let stored = after.split_ascii_whitespace().enumerate().filter(|(column, _)| *column != 3);
    assert!({ stored }.all(|(_, number)| number == "0"), "but for the limit: {after}");
    tree.write("zram-control/hot_remove", "0");
}

#[test]
fn steps_of_the_kernels_own_tests() {
    if !needs_stack(&["mkfs.ext2", "mkswap", "dd"]) {
        return;
    }
    let tree = Tree::new();
    tree.write("zram0/comp_algorithm", "lz4");
    tree.write("zram0/disksize", "2097152");
    tree.write("zram0/mem_limit", "2M");
    fill(&tree, "zram0", &["mkfs.ext2", "-q", "-F"]);
    tree.write("zram0/reset", "1");
    tree.write("zram0/disksize", "1048576");
    tree.write("zram0/mem_limit", "1M");
    let disk = Loop::direct(&tree.disk());
    succeed(tool("mkswap").arg(&disk.device));
    drop(disk);
    tree.write("zram0/reset", "1");
}

by_io_uring_too!(
    ext4_keeps_its_files_while_pages_are_moved,
    btrfs_keeps_its_files_while_pages_are_moved,
    steps_of_ltp_zram01,
    steps_of_ltp_zram02_with_100_gib,
    steps_of_ltp_zram03,
    steps_of_the_kernels_own_tests,
);
