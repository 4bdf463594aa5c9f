//! The mounted tree: its files behave as the kernel's do, for the superuser too.
//!
//! Claims: names, modes, lengths and error numbers are those of sysfs. A read shows one moment, and
//! a write is one command. The disk behaves like the file of a block device. Devices are added and
//! removed while others work.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::rig::{Tree, by_io_uring_too, errno, needs_tree, noise, succeed, tool};

const EPERM: i32 = 1;
const EACCES: i32 = 13;
const EBUSY: i32 = 16;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;

const READ_WRITE: [&str; 10] = [
    "disksize",
    "comp_algorithm",
    "recomp_algorithm",
    "backing_dev",
    "writeback_limit",
    "writeback_limit_enable",
    "writeback_batch_size",
    "compressed_writeback",
    "pages_per_pool_page",
    "memory_target",
];
const READ_ONLY: [&str; 5] = ["initstate", "io_stat", "mm_stat", "bd_stat", "debug_stat"];
const WRITE_ONLY: [&str; 8] = [
    "reset",
    "algorithm_params",
    "mem_limit",
    "mem_used_max",
    "compact",
    "idle",
    "writeback",
    "recompress",
];

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("the directory can be listed");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("it is listed").file_name();
    let mut names: Vec<String> =
        entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn names_modes_and_lengths_are_the_kernels() {
    if !needs_tree(&[]) {
        return;
    }
    let tree = Tree::new();
    assert_eq!(names(tree.directory()), ["buddyinfo", "pagetypeinfo", "zram-control", "zram0"]);
    assert_eq!(names(&tree.path("zram-control")), ["hot_add", "hot_remove"]);
    let expected = [("zram-control/hot_add", 0o400), ("zram-control/hot_remove", 0o200)];
    let expected = expected.map(|(name, mode)| (name.to_owned(), mode)).into_iter();
    let own = |list: &'static [&str], mode| list.iter().map(move |n| (format!("zram0/{n}"), mode));
    let attributes =
        own(&READ_WRITE, 0o644).chain(own(&READ_ONLY, 0o444)).chain(own(&WRITE_ONLY, 0o200));
    for (name, mode) in expected.chain(attributes) {
        let found = fs::metadata(tree.path(&name)).expect(&name);
        assert_eq!(found.mode(), 0o100_000 | mode, "{name}");
        assert_eq!((found.len(), found.blocks(), found.uid()), (4096, 0, 0), "{name}");
    }
    assert_eq!(names(&tree.path("zram0")).len(), 23 + 3, "disk, block_state and zsmalloc besides");
    assert_eq!(names(&tree.path("zram0/zsmalloc")), ["classes"]);
    assert_eq!(fs::metadata(tree.disk()).unwrap().len(), 0, "no size yet");
    assert!(tree.read("pagetypeinfo").starts_with("Page block order: 9\n"));
    assert!(tree.read("buddyinfo").starts_with("Node 0, zone   Normal "));
}

#[test]
fn a_device_lives_through_its_files() {
    if !needs_tree(&[]) {
        return;
    }
    let tree = Tree::new();
    assert_eq!((tree.read("zram0/initstate"), tree.read("zram0/disksize")), state("0", "0"));
    assert!(fs::read(tree.disk()).unwrap().is_empty(), "a disk without a size is empty");
    assert_eq!(errno(fs::write(tree.disk(), "x")), ENOSPC);
    tree.write("zram0/comp_algorithm", "zstd");
    tree.write("zram0/disksize", "4M");
    assert_eq!((tree.read("zram0/initstate"), tree.read("zram0/disksize")), state("1", "4194304"));
    assert!(tree.read("zram0/comp_algorithm").contains("[zstd]"));
    assert_eq!(errno(tree.try_write("zram0/disksize", "8M")), EBUSY);
    assert_eq!(fs::metadata(tree.disk()).unwrap().len(), 4 << 20);
    fs::write(tree.disk(), noise(1, 1 << 20)).unwrap();
    assert_eq!(fs::metadata(tree.disk()).unwrap().len(), 4 << 20, "writing it does not cut it");
    assert_eq!((tree.mm_stat("zram0", 1), tree.mm_stat("zram0", 8)), (1 << 20, 256), "all huge");
    assert_eq!(tree.read("zram0/block_state").lines().count(), 256);
    let classes = tree.read("zram0/zsmalloc/classes");
    assert!(classes.contains("obj_allocated") && classes.lines().count() > 100, "{classes}");
    assert!(fs::read(tree.disk()).unwrap()[..1 << 20] == noise(1, 1 << 20));
    tree.check();
    tree.write("zram0/reset", "1");
    assert_eq!((tree.read("zram0/initstate"), tree.read("zram0/disksize")), state("0", "0"));
}

fn state(initialised: &str, bytes: &str) -> (String, String) {
    (format!("{initialised}\n"), format!("{bytes}\n"))
}

#[test]
fn modes_hold_for_the_superuser() {
    if !needs_tree(&[]) {
        return;
    }
    let tree = Tree::new();
    for name in WRITE_ONLY {
        assert_eq!(errno(tree.try_read(&format!("zram0/{name}"))), EACCES, "{name}");
    }
    for name in READ_ONLY {
        assert_eq!(errno(tree.try_write(&format!("zram0/{name}"), "1")), EACCES, "{name}");
        let both = OpenOptions::new().read(true).write(true).open(tree.path("zram0").join(name));
        assert_eq!(errno(both), EACCES, "{name}");
    }
    assert_eq!(errno(tree.try_write("zram-control/hot_add", "1")), EACCES);
    assert_eq!(errno(tree.try_read("zram-control/hot_remove")), EACCES);
}

#[test]
fn nothing_can_be_made_renamed_or_removed() {
    if !needs_tree(&[]) {
        return;
    }
    let tree = Tree::with(&["--size", "1M"]);
    let (own, new) = (tree.path("zram0/disksize"), tree.path("zram0/new"));
    assert_eq!(errno(File::create(&new)), EACCES);
    assert_eq!(errno(File::create(tree.path("new"))), EACCES);
    assert_eq!(errno(fs::create_dir(&new)), EPERM);
    assert_eq!(errno(fs::remove_file(&own)), EPERM);
    assert_eq!(errno(fs::remove_dir(tree.path("zram0"))), EPERM);
    assert_eq!(errno(fs::rename(&own, &new)), EPERM);
    assert_eq!(errno(fs::hard_link(&own, &new)), EPERM);
    assert_eq!(errno(symlink("a", &new)), EPERM);
    let open = |path| OpenOptions::new().write(true).open(path).unwrap();
    open(own).set_len(7).expect("cutting a text does nothing");
    assert_eq!(errno(open(tree.disk()).set_len(7)), EINVAL, "a disk keeps its size");
    open(tree.disk()).set_len(0).expect("as > does, and it does nothing");
    assert_eq!(fs::metadata(tree.disk()).unwrap().len(), 1 << 20);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    assert_eq!(errno(fs::set_permissions(tree.disk(), mode)), EPERM);
}

#[test]
fn a_text_is_of_the_moment_it_was_first_read() {
    if !needs_tree(&[]) {
        return;
    }
    let tree = Tree::with(&["--size", "1M"]);
    let mut file = File::open(tree.path("zram0/mm_stat")).unwrap();
    let mut start = [0; 20];
    file.read_exact(&mut start).unwrap();
    fs::write(tree.disk(), noise(1, 8192)).unwrap();
    let mut rest = String::new();
    file.read_to_string(&mut rest).unwrap();
    let text = format!("{}{rest}", String::from_utf8_lossy(&start));
    assert!(text.trim_start().starts_with("0 "), "nothing is stored yet: {text}");
    assert_eq!(text.len(), tree.read("zram0/mm_stat").len());
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut again = String::new();
    file.read_to_string(&mut again).unwrap();
    assert!(again.trim_start().starts_with("8192 "), "from the start it is a new one: {again}");
    let bytes = succeed(tool("dd").arg("bs=1").arg(format!("if={}", file_name(&tree))));
    assert_eq!(bytes, again, "a byte at a time");
}

fn file_name(tree: &Tree) -> String {
    tree.path("zram0/mm_stat").display().to_string()
}

#[test]
fn a_write_is_one_command() {
    if !needs_tree(&[]) {
        return;
    }
    let tree = Tree::new();
    let path = tree.path("zram0/comp_algorithm");
    let mut appended = OpenOptions::new().append(true).open(&path).unwrap();
    appended.write_all(b"zstd").expect("wherever, and without an end of line");
    assert!(tree.read("zram0/comp_algorithm").contains("[zstd]"));
    let mut both = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    both.read_to_string(&mut String::new()).unwrap();
    both.write_all(b"lz4\n").expect("after the text that was read");
    assert!(tree.read("zram0/comp_algorithm").contains("[lz4]"));
    assert_eq!(errno(both.write(b"lz5\n")), EINVAL);
    let mut long = b"4M\n".to_vec();
    long.resize(5000, b' ');
    let mut limit = OpenOptions::new().write(true).open(tree.path("zram0/mem_limit")).unwrap();
    assert_eq!(limit.write(&long).unwrap(), 4096, "a page at most");
}

#[test]
fn hot_add_adds_once_for_each_open() {
    if !needs_tree(&[]) {
        return;
    }
    let tree = Tree::new();
    let mut file = File::open(tree.path("zram-control/hot_add")).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "1\n1\n", "once, however often it is read");
    assert_eq!(tree.read("zram-control/hot_add"), "2\n");
    let remove = |text| tree.try_write("zram-control/hot_remove", text);
    assert_eq!(errno(remove("-1")), EINVAL);
    assert_eq!(errno(remove("one")), EINVAL);
    assert_eq!(errno(remove("7")), ENODEV);
    tree.write("zram1/disksize", "1M");
    let open = File::open(tree.path("zram1/disk")).unwrap();
    assert_eq!(errno(remove("1")), EBUSY);
    drop(open);
    let mut kept = File::open(tree.path("zram1/mm_stat")).unwrap();
    remove("1").expect("a text that is open holds nothing");
    assert!(!tree.path("zram1").exists());
    assert_eq!(errno(kept.read(&mut [0; 8])), ENODEV);
    assert_eq!(tree.read("zram-control/hot_add"), "1\n", "the lowest number that is free");
    assert_eq!(tree.read("zram1/initstate"), "0\n", "a new device");
    assert_eq!(errno(kept.read(&mut [0; 8])), ENODEV, "the open file is the old one's");
}

#[test]
fn the_disk_is_a_block_devices_file() {
    if !needs_tree(&["fallocate", "python3"]) {
        return;
    }
    let tree = Tree::with(&["--size", "64K"]);
    let disk = OpenOptions::new().read(true).write(true).open(tree.disk()).unwrap();
    disk.write_all_at(&noise(1, 65536), 0).unwrap();
    assert_eq!(disk.read_at(&mut [0; 4096], 65000).unwrap(), 536, "short at the end");
    assert_eq!(disk.read_at(&mut [0; 10], 65536).unwrap(), 0, "nothing after it");
    assert_eq!(disk.write_at(&[1; 10], 65530).unwrap(), 6, "short at the end");
    assert_eq!(errno(disk.write_at(&[1; 10], 65536)), ENOSPC);
    disk.sync_all().unwrap();
    let fallocate = |how: &[&str]| {
        let mut command = tool("fallocate");
        succeed(command.args(how).args(["--length", "8192", "--offset", "4096"]).arg(tree.disk()));
    };
    fallocate(&["--punch-hole"]);
    assert_eq!(tree.mm_stat("zram0", 1), 65536 - 8192, "two pages are gone");
    assert_eq!(seek(&tree), "4096 12288 65536 6\n", "a hole, data, the end, and nothing after it");
    fallocate(&["--zero-range", "--keep-size"]);
    let mut bytes = vec![1; 16384];
    disk.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes[4096..12288].iter().all(|&byte| byte == 0), "zeros");
    assert!(bytes[12288..] == noise(1, 65536)[12288..16384], "and no more of them");
    let refused = Command::new("fallocate").args(["-l", "4096"]).arg(tree.disk()).output();
    let said = String::from_utf8(refused.unwrap().stderr).unwrap();
    assert!(said.contains("not supported"), "{said}");
}

/// Where holes and data begin; no tool but a script asks for them one by one.
fn seek(tree: &Tree) -> String {
    let script = "import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
at = lambda start, whence: os.lseek(fd, start, whence)
hole, data, end = at(0, os.SEEK_HOLE), at(4096, os.SEEK_DATA), at(12288, os.SEEK_HOLE)
try:
    at(65536, os.SEEK_DATA)
except OSError as error:
    print(hole, data, end, error.errno)
";
    succeed(tool("python3").args(["-c", script]).arg(tree.disk()))
}

#[test]
fn a_disk_can_be_mapped_and_read_past_the_page_cache() {
    if !needs_tree(&["python3"]) {
        return;
    }
    let tree = Tree::with(&["--size", "4M"]);
    // What LTP's zram03 does, smaller: a shared mapping filled, and read back.
    let script = "import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(fd, 4 << 20)
m.write(b'a' * ((4 << 20) - 1) + b'\\0')
m.flush(); m.close(); os.close(fd)
fd = os.open(sys.argv[1], os.O_RDONLY)
m = mmap.mmap(fd, 4 << 20, prot=mmap.PROT_READ)
assert m[:] == b'a' * ((4 << 20) - 1) + b'\\0'
";
    succeed(tool("python3").args(["-c", script]).arg(tree.disk()));
    const O_DIRECT: i32 = 0o40000;
    let direct = OpenOptions::new().read(true).custom_flags(O_DIRECT).open(tree.disk()).unwrap();
    let mut bytes = vec![0; 8192];
    direct.read_exact_at(&mut bytes, 4096).unwrap();
    assert!(bytes.iter().all(|&byte| byte == b'a'));
    assert!(tree.mm_stat("zram0", 6) >= 1023, "pages of one byte are same-filled");
}

#[test]
fn reset_of_an_open_device_names_who_has_it_open() {
    if !needs_tree(&["sleep"]) {
        return;
    }
    let tree = Tree::with(&["--size", "1M"]);
    let spawn = |disk| Command::new("sleep").arg("60").stdin(disk).spawn().unwrap();
    let mut holder = spawn(File::open(tree.disk()).unwrap());
    assert_eq!(errno(tree.try_write("zram0/reset", "1")), EBUSY);
    assert_eq!(errno(tree.try_write("zram-control/hot_remove", "0")), EBUSY);
    let own = format!("pid {}", std::process::id());
    crate::rig::eventually("the log to say who", || tree.process.said().contains(&own));
    holder.kill().unwrap();
    holder.wait().unwrap();
    tree.write("zram0/reset", "1");
    for _ in 0..100 {
        tree.write("zram0/disksize", "1M");
        fs::write(tree.disk(), [1; 4096]).unwrap();
        tree.write("zram0/reset", "1"); // the file was closed a moment ago
    }
}

#[test]
fn devices_come_and_go_while_others_work() {
    if !needs_tree(&[]) {
        return;
    }
    let tree = Tree::with(&["--size", "16M"]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let work = scope.spawn(|| work_until(&tree, &stop));
        for _ in 0..4 {
            let added: Vec<String> =
                (0..16).map(|_| tree.read("zram-control/hot_add").trim_end().to_owned()).collect();
            for id in &added {
                tree.write(&format!("zram{id}/disksize"), "64M");
                fs::write(tree.path(&format!("zram{id}/disk")), noise(2, 65536)).unwrap();
            }
            for id in &added {
                tree.write("zram-control/hot_remove", id);
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(work.join().unwrap() > 0, "it worked meanwhile");
    });
    assert_eq!(names(tree.directory()).len(), 4, "only the first device is left");
    tree.check();
}

/// Writes and reads the first device; how often.
fn work_until(tree: &Tree, stop: &AtomicBool) -> u64 {
    let disk = OpenOptions::new().read(true).write(true).open(tree.disk());
    let disk = disk.expect("root may");
    let mut bytes = vec![0; 65536];
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        let data = noise(rounds, 65536);
        let at = rounds % 256 * 65536;
        disk.write_all_at(&data, at).expect("there is room");
        disk.read_exact_at(&mut bytes, at).expect("it was written");
        assert!(bytes == data, "round {rounds}");
        rounds += 1;
    }
    rounds
}

by_io_uring_too!(
    names_modes_and_lengths_are_the_kernels,
    a_device_lives_through_its_files,
    modes_hold_for_the_superuser,
    nothing_can_be_made_renamed_or_removed,
    a_text_is_of_the_moment_it_was_first_read,
    a_write_is_one_command,
    hot_add_adds_once_for_each_open,
    the_disk_is_a_block_devices_file,
    a_disk_can_be_mapped_and_read_past_the_page_cache,
    reset_of_an_open_device_names_who_has_it_open,
    devices_come_and_go_while_others_work,
);
