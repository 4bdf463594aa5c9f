//! The kernel as a peer: measured on the same pages, and left as found, also when killed.

use crate::compact::FIELDS;
use crate::support::{golden, json, lab, measured, number, rows, succeed};
use crate::teardown::has_userfault;
use serde_json::Value;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One zram for all tests of this file.
static DEVICE: Mutex<()> = Mutex::new(());

const CLUSTER: &str = "/proc/sys/vm/page-cluster";
const DISKSIZE: &str = "/sys/block/zram0/disksize";
const SWAPS: &str = "/proc/swaps";
const ALGORITHM: &str = "/sys/block/zram0/comp_algorithm";

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Whether there is a kernel peer; in CI there must be.
fn has_peer() -> bool {
    let root = std::fs::metadata("/proc/self").is_ok_and(|meta| {
        use std::os::unix::fs::MetadataExt;
        meta.uid() == 0
    });
    let has = root && read(DISKSIZE).trim() == "0";
    let absent = !std::path::Path::new("/sys/class/zram-control").exists();
    assert!(has || absent || std::env::var("CI").is_err(), "zram0 is to be free");
    if !has {
        println!("skipped: needs root and a free zram0");
    }
    has
}

#[test]
fn the_kernel_stores_the_same_pages() {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    if !has_peer() {
        return;
    }
    let arguments = ["chain", "--quick", "--mib", "2", "--chain-order", "3", "--vs-kernel"];
    let document = json("vs-kernel", &arguments);
    let of = |store: &str| -> &Value {
        rows(&document).iter().find(|row| row["store"] == store).expect(store)
    };
    let (kernel, ours) = (of("kernel-zram"), of("zram"));
    for field in ["orig_data_size", "same_pages"] {
        assert_eq!(kernel[field], ours[field], "{field}");
    }
    assert!(kernel["mem_used_total"].as_u64() >= kernel["compr_data_size"].as_u64());
    assert_eq!(read(DISKSIZE).trim(), "0", "not reset");
}

/// Both are left with the same pages; what the kernel does not count is null.
#[test]
fn the_kernel_compacts_what_is_left_of_the_same_pages() {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    if !has_peer() {
        return;
    }
    let arguments = ["compact", "--quick", "--discard", "90", "--busy", "0", "--vs-kernel"];
    let document = json("compact-vs-kernel", &arguments);
    let [ours, kernel] = rows(&document) else { panic!("two rows, not {document}") };
    assert_eq!((&ours["store"], &kernel["store"]), (&"zram".into(), &"kernel-zram".into()));
    golden(kernel, &FIELDS);
    measured(kernel, &FIELDS[10..16]);
    assert!(number(kernel, "pages_compacted") > 0.0, "{kernel}");
    assert!(number(kernel, "freed_bytes") > 0.0, "{kernel}");
    assert!(kernel["chain_order"].is_null());
    assert_eq!(read(DISKSIZE).trim(), "0", "not reset");
}

/// Processes whose memory is in the kernel's swap, and nothing of that left behind.
#[test]
fn the_kernel_tears_down_what_it_swapped_out() {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    if !has_peer() {
        return;
    }
    let arguments = ["teardown", "--quick", "--threads", "2", "--mib", "2", "--vs-kernel"];
    let document = json("teardown-vs-kernel", &arguments);
    let kernel = rows(&document).iter().find(|row| row["backend"] == "kernel-zram");
    let kernel = kernel.expect("a row of the kernel's");
    golden(kernel, &crate::teardown::FIELDS);
    measured(kernel, &crate::teardown::MEASURED);
    assert!(number(kernel, "drain_ms") >= number(kernel, "teardown_ms"), "{kernel}");
    assert_eq!(read(SWAPS).lines().count(), 1, "still swapping");
    assert_eq!(read(DISKSIZE).trim(), "0", "not reset");
}

/// The same with the kernel's zswap, and the file behind it.
#[test]
fn the_kernel_tears_down_what_it_swapped_out_to_its_zswap() {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    if !has_zswap() {
        return;
    }
    let found = zswap_settings();
    let arguments = ["teardown", "--backend", "zswap", "--quick", "--threads", "1", "--vs-kernel"];
    let document = json("teardown-vs-kernel-zswap", &[&arguments[..], &["--mib", "4"]].concat());
    let kernel = rows(&document).iter().find(|row| row["backend"] == "kernel-zswap");
    let kernel = kernel.expect("a row of the kernel's");
    golden(kernel, &crate::teardown::FIELDS);
    measured(kernel, &crate::teardown::MEASURED);
    assert_eq!(read(SWAPS).lines().count(), 1, "still swapping");
    assert_eq!(zswap_settings(), found);
    assert_eq!(swap_files(), 0);
}

/// SIGTERM while the children's memory is in the kernel's zswap.
#[test]
fn a_killed_lab_ends_the_swap_behind_zswap() {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    if !has_zswap() {
        return;
    }
    let found = zswap_settings();
    let mut command = lab();
    command.args(["teardown", "--backend", "zswap", "--vs-kernel", "--mib", "32"]);
    command.args(["--threads", "1", "--free", "range", "--runs", "100000"]);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    wait_for(is_swapped_to);
    assert_eq!(swap_files(), 1);
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    assert_eq!(read(SWAPS).lines().count(), 1, "still swapping");
    assert_eq!(zswap_settings(), found);
    assert_eq!(swap_files(), 0);
}

/// The kernel's swap-in beside ours, in every run.
#[test]
fn the_kernel_brings_in_what_it_swapped_out() {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    if has_peer() {
        brings_in("zram");
    }
    if has_zswap() {
        let found = zswap_settings();
        brings_in("zswap");
        assert_eq!(zswap_settings(), found);
        assert_eq!(swap_files(), 0);
    }
}

fn brings_in(backend: &str) {
    let cluster = read(CLUSTER);
    let arguments = ["faultin", "--quick", "--mib", "2", "--mode", "signal"];
    let arguments = [&arguments[..], &["--vs-kernel", "--backend", backend]].concat();
    let document = json(&format!("faultin-vs-kernel-{backend}"), &arguments);
    assert_eq!(read(SWAPS).lines().count(), 1, "still swapping");
    assert_eq!(read(DISKSIZE).trim(), "0", "not reset");
    assert_eq!(read(CLUSTER), cluster, "page-cluster is not as found");
    if !has_userfault(&document) {
        return;
    }
    let (kernel, others): (Vec<_>, Vec<_>) =
        rows(&document).iter().partition(|row| row["handler"] == "kernel");
    assert_eq!((kernel.len(), others.len()), (4, 12), "two orders, one thread and two");
    for row in &kernel {
        golden(row, &crate::faultin::FIELDS);
        measured(row, &["faultin_ns_per_page", "pages_per_s"]);
        assert_eq!(row["backend"], format!("kernel-{backend}"));
        assert_eq!(row["runs"], 2);
        assert_eq!(row["page_cluster"], 0, "it was to bring in one page a fault");
        assert!(row["mode"].is_null() && row["time_vs_kernel"].is_null(), "{row}");
    }
    for row in others.iter().filter(|row| row["handler"] == "region") {
        let same = |other: &&&Value| ["order", "threads"].iter().all(|&it| other[it] == row[it]);
        let kernel = kernel.iter().find(same).unwrap();
        let ns = |row, of| number(row, &format!("faultin_ns_per_page_{of}"));
        let (least, most) =
            (ns(row, "min") / ns(kernel, "max"), ns(row, "max") / ns(kernel, "min"));
        measured(row, &["time_vs_kernel"]);
        let (min, max) = (number(row, "time_vs_kernel_min"), number(row, "time_vs_kernel_max"));
        const ROUNDING: f64 = 1.0 + 1e-9;
        let within = least <= min * ROUNDING && max <= most * ROUNDING;
        assert!(within, "{least} to {most}: {row}");
    }
}

/// SIGTERM while memory of the lab's own is swapped out.
#[test]
fn a_killed_lab_ends_the_swap_that_its_own_memory_is_in() {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    if !has_peer() {
        return;
    }
    let cluster = read(CLUSTER);
    let mut command = lab();
    command.args(["faultin", "--vs-kernel", "--mib", "32", "--mode", "signal"]);
    command.args(["--threads", "2", "--around", "off", "--runs", "100000"]);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    wait_for(|| is_swapped_to() || child.try_wait().unwrap().is_some());
    if let Some(status) = child.try_wait().unwrap() {
        assert!(status.success(), "ended with {status}");
        println!("skipped: needs userfaultfd, without which the kernel stands beside nothing");
        return;
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    assert_eq!(read(SWAPS).lines().count(), 1, "still swapping");
    assert_eq!(read(DISKSIZE).trim(), "0", "not reset");
    assert_eq!(read(CLUSTER), cluster, "page-cluster is not as found");
}

/// Whether the kernel's zswap is there to be had; where it is there at all, CI must have it.
fn has_zswap() -> bool {
    let absent = zswap_settings().is_empty();
    let has = has_peer() && !absent && read(SWAPS).lines().count() <= 1;
    assert!(has || absent || std::env::var("CI").is_err(), "zswap is to be free");
    if !has {
        println!("skipped: needs root, zswap, and no swap");
    }
    has
}

fn zswap_settings() -> Vec<(std::path::PathBuf, String)> {
    let files = std::fs::read_dir("/sys/module/zswap/parameters").into_iter().flatten().flatten();
    let mut all: Vec<_> =
        files.map(|file| (file.path(), read(&file.path().to_string_lossy()))).collect();
    all.sort();
    all
}

/// Files that a lab swaps to.
fn swap_files() -> usize {
    let files = std::fs::read_dir("/var/tmp").into_iter().flatten().flatten();
    files.filter(|file| file.file_name().to_string_lossy().starts_with("ramfold-lab-")).count()
}

/// SIGTERM while its children's memory is swapped out.
#[test]
fn a_killed_lab_ends_its_children_and_the_swap() {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    if !has_peer() {
        return;
    }
    let cluster = read(CLUSTER);
    let mut command = lab();
    command.args(["teardown", "--vs-kernel", "--mib", "64", "--threads", "2", "--runs", "100000"]);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    wait_for(is_swapped_to);
    let pid = child.id().to_string();
    let children = read(&format!("/proc/{pid}/task/{pid}/children"));
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    for child in children.split_whitespace() {
        let command = read(&format!("/proc/{child}/cmdline"));
        assert!(!command.contains("teardown-inside"), "{child} still runs");
    }
    assert_eq!(read(SWAPS).lines().count(), 1, "still swapping");
    assert_eq!(read(DISKSIZE).trim(), "0", "not reset");
    assert_eq!(read(CLUSTER), cluster, "page-cluster is not as found");
}

/// Whether anything is in the swap: the fourth column, kilobytes in use.
fn is_swapped_to() -> bool {
    let used = |line: &str| line.split_whitespace().nth(3).is_some_and(|used| used != "0");
    read(SWAPS).lines().skip(1).any(used)
}

fn wait_for(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "the kernel's turn never came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// SIGTERM in the middle of a measurement, after somebody changed a setting meanwhile; a second
/// lab that wants the device is told who has it.
#[test]
fn a_killed_lab_leaves_everything_as_found() {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    if !has_peer() {
        return;
    }
    let (cluster, algorithm) = (read(CLUSTER), read(ALGORITHM));
    let mut command = lab();
    command.args(["chain", "--vs-kernel", "--mib", "8", "--chain-order", "2", "--runs", "100000"]);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    wait_for(|| read(DISKSIZE).trim() != "0");
    std::fs::write(CLUSTER, "0").unwrap();
    let quick = ["chain", "--quick", "--mib", "1", "--chain-order", "2", "--vs-kernel"];
    let second = String::from_utf8(succeed(&quick).stdout).unwrap();
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(15), "ended with {status}");
    assert!(second.contains("kernel-zram: missing (another lab is measuring it)"), "{second}");
    assert_eq!(read(DISKSIZE).trim(), "0", "not reset");
    assert_eq!(read(ALGORITHM), algorithm);
    assert_eq!(read(CLUSTER), cluster, "page-cluster is not as found");
}
