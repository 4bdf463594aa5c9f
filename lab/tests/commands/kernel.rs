//! The kernel as a peer: measured on the same pages, and left as found, also when killed.
//!
//! A zram0 that somebody uses is no reason to skip: the lab adds a device of its own.

use crate::support::{json, lab, measured, number, rows, succeed};
use crate::teardown::has_userfault;
use serde_json::Value;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One zram for all tests of this file.
static DEVICE: Mutex<()> = Mutex::new(());

const CLUSTER: &str = "/proc/sys/vm/page-cluster";
const ZSWAP: &str = "/sys/module/zswap/parameters";
const SWAPS: &str = "/proc/swaps";
const BLOCK: &str = "/sys/block";
const RESET: &str = "/sys/block/zram0/reset";
const DISKSIZE: &str = "/sys/block/zram0/disksize";

/// A short study beside the kernel's zram.
const KERNELS_CHAIN: [&str; 7] =
    ["chain", "--quick", "--mib", "1", "--chain-order", "2", "--vs-kernel"];

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Files of a directory whose names begin so, with what is in each of `inside`, if anything.
fn files(directory: &str, prefix: &str, inside: &[&str]) -> Vec<(String, Vec<String>)> {
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = files.map(|file| file.path().to_string_lossy().into_owned());
    let ours = paths.filter(|path| path[directory.len() + 1..].starts_with(prefix));
    let with = |path: String| {
        let texts = inside.iter().map(|name| read(&format!("{path}{name}"))).collect();
        (path, texts)
    };
    let mut all: Vec<_> = ours.map(with).collect();
    all.sort();
    all
}

/// Everything of the system that a lab may change.
#[derive(Debug, PartialEq)]
struct Found {
    devices: Vec<(String, Vec<String>)>,
    swaps: String,
    cluster: String,
    zswap: Vec<(String, Vec<String>)>,
    swap_files: Vec<(String, Vec<String>)>,
    groups: Vec<(String, Vec<String>)>,
}

impl Found {
    fn now() -> Found {
        Found {
            devices: files(BLOCK, "zram", &["/disksize", "/comp_algorithm"]),
            swaps: read(SWAPS),
            cluster: read(CLUSTER),
            zswap: files(ZSWAP, "", &[""]),
            swap_files: files("/var/tmp", "ramfold-lab-", &[]),
            groups: files(&own_group(), "ramfold-lab-", &[]),
        }
    }

    /// Whether a lab has a job in a group.
    fn a_job_runs(&self) -> bool {
        Found::now().groups != self.groups
    }

    /// Whether a lab has data in a device of the kernel's.
    fn a_device_is_sized(&self) -> bool {
        Found::now().devices != self.devices
    }

    fn is_so_again(&self) {
        assert_eq!(Found::now(), *self);
    }
}

/// The memory cgroup of version 1 that this process is in, where there is one.
fn own_group() -> String {
    let groups = read("/proc/self/cgroup");
    let path = groups.lines().find_map(|line| line.split_once(":memory:")).map_or("", |it| it.1);
    let own = format!("/sys/fs/cgroup/memory{}", path.trim_end_matches('/'));
    if Path::new(&own).exists() { own } else { "/sys/fs/cgroup/memory".to_owned() }
}

/// Whether there is a kernel peer; in CI there must be.
fn has_peer() -> bool {
    let root = std::fs::metadata("/proc/self").is_ok_and(|meta| {
        use std::os::unix::fs::MetadataExt;
        meta.uid() == 0
    });
    let absent = !std::path::Path::new("/sys/class/zram-control").exists();
    let has = root && !absent && read(SWAPS).lines().count() <= 1;
    assert!(has || absent || std::env::var("CI").is_err(), "nothing is to be swapped on");
    if !has {
        println!("skipped: needs root, the kernel's zram, and no swap");
    }
    has
}

/// Studies that no other test here runs. In CI no program that they need is missing. The long form
/// is `lab all --quick`, which runs each study.
#[test]
fn studies_without_a_test_of_their_own_are_right_in_their_short_form() {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    let found = Found::now();
    let output = lab().args(["all", "--quick", "codecs", "tiers"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    let skipped = said.lines().filter(|line| line.contains("skipped: ")).count();
    let verified = said.lines().filter(|line| line.contains(" rows, verified")).count();
    assert!(verified + skipped >= said.lines().count(), "a line says neither: {said}");
    assert!(verified >= 1, "codecs need neither root nor what a system may lack: {said}");
    found.is_so_again();
}

#[test]
fn the_kernel_stores_the_same_pages() {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    if !has_peer() {
        return;
    }
    let found = Found::now();
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
    found.is_so_again();
}

/// Both are left with the same pages; what the kernel does not count is null.
#[test]
fn the_kernel_compacts_what_is_left_of_the_same_pages() {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    if !has_peer() {
        return;
    }
    let found = Found::now();
    let arguments = ["compact", "--quick", "--discard", "90", "--busy", "0", "--vs-kernel"];
    let document = json("compact-vs-kernel", &arguments);
    let [ours, kernel] = rows(&document) else { panic!("two rows, not {document}") };
    assert_eq!((&ours["store"], &kernel["store"]), (&"zram".into(), &"kernel-zram".into()));
    measured(
        kernel,
        &[
            "compr_data_size",
            "mem_used_before",
            "mem_used_after",
            "freed_bytes",
            "resident_before",
            "resident_after",
        ],
    );
    assert!(number(kernel, "pages_compacted") > 0.0, "{kernel}");
    assert!(number(kernel, "freed_bytes") > 0.0, "{kernel}");
    assert!(kernel["chain_order"].is_null());
    found.is_so_again();
}

/// Processes whose memory is in the kernel's swap, and nothing of that left behind.
#[test]
fn the_kernel_tears_down_what_it_swapped_out() {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    if !has_peer() {
        return;
    }
    let found = Found::now();
    let arguments = ["teardown", "--quick", "--threads", "2", "--mib", "2", "--vs-kernel"];
    let document = json("teardown-vs-kernel", &arguments);
    let kernel = rows(&document).iter().find(|row| row["backend"] == "kernel-zram");
    let kernel = kernel.expect("a row of the kernel's");
    measured(kernel, &crate::teardown::MEASURED);
    assert!(number(kernel, "drain_ms") >= number(kernel, "teardown_ms"), "{kernel}");
    found.is_so_again();
}

/// The same with the kernel's zswap, and the file behind it.
#[test]
fn the_kernel_tears_down_what_it_swapped_out_to_its_zswap() {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    if !has_zswap() {
        return;
    }
    let found = Found::now();
    let arguments = ["teardown", "--backend", "zswap", "--quick", "--threads", "1", "--vs-kernel"];
    let document = json("teardown-vs-kernel-zswap", &[&arguments[..], &["--mib", "4"]].concat());
    let kernel = rows(&document).iter().find(|row| row["backend"] == "kernel-zswap");
    let kernel = kernel.expect("a row of the kernel's");
    measured(kernel, &crate::teardown::MEASURED);
    found.is_so_again();
}

/// SIGTERM while the children's memory is in the kernel's zswap.
#[test]
fn a_killed_lab_ends_the_swap_behind_zswap() {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    if !has_zswap() {
        return;
    }
    let found = Found::now();
    let mut command = lab();
    command.args(["teardown", "--backend", "zswap", "--vs-kernel", "--mib", "32"]);
    command.args(["--threads", "1", "--free", "range", "--runs", "100000"]);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    wait_for(is_swapped_to);
    assert_eq!(Found::now().swap_files.len(), 1 + found.swap_files.len());
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    found.is_so_again();
}

/// The kernel's swap-in beside ours, in every run.
#[test]
fn the_kernel_brings_in_what_it_swapped_out() {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    if has_peer() {
        brings_in("zram");
    }
    if has_zswap() {
        brings_in("zswap");
    }
}

fn brings_in(backend: &str) {
    let found = Found::now();
    let arguments = ["faultin", "--quick", "--mib", "2", "--mode", "signal"];
    let arguments = [&arguments[..], &["--vs-kernel", "--backend", backend]].concat();
    let document = json(&format!("faultin-vs-kernel-{backend}"), &arguments);
    found.is_so_again();
    if !has_userfault(&document) {
        return;
    }
    let (kernel, others): (Vec<_>, Vec<_>) =
        rows(&document).iter().partition(|row| row["handler"] == "kernel");
    assert_eq!((kernel.len(), others.len()), (4, 12), "two orders, one thread and two");
    for row in &kernel {
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
    let found = Found::now();
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
    found.is_so_again();
}

/// A group whose memory and store together have what ours may have.
#[test]
fn the_kernel_runs_a_job_in_as_much_memory() {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    if !has_peer() {
        return;
    }
    if let Some(missing) = crate::run::missing() {
        return println!("skipped: needs {missing}");
    }
    let found = Found::now();
    let arguments = ["run", "--quick", "--job", "sort", "--runs", "1", "--density", "dense"];
    let document = json("run-vs-kernel", &[&arguments[..], &["--vs-kernel"]].concat());
    found.is_so_again();
    let [kernel] = crate::run::of(&document, "kernel-zram")[..] else { panic!("{document}") };
    let algorithm = kernel["algorithm"].as_str().expect("it is named");
    assert!(["zstd", "lz4"].contains(&algorithm), "what is asked for, or what all have");
    measured(kernel, &["group_limit_bytes", "store_bytes", "peak_of_limit"]);
    let held = number(kernel, "group_limit_bytes") + number(kernel, "store_bytes");
    assert_eq!(held, number(kernel, "peak_bytes"));
    let probes = crate::run::of(&document, "kernel-probe");
    assert!((1..=5).contains(&probes.len()), "each probe is kept: {document}");
    let [ours] = crate::run::of(&document, "ramfold")[..] else { panic!("{document}") };
    assert_eq!(ours["limit_bytes"], kernel["limit_bytes"]);
    // The kernel may have killed the job, which then has no time.
    assert_eq!(ours["time_vs_kernel"].is_null(), kernel["wall_s"].is_null(), "{ours}");
}

/// SIGTERM while a job is in a group; then SIGKILL, after which the next lab removes the group.
#[test]
fn a_killed_lab_ends_its_job_and_removes_the_group() {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(missing) = crate::run::missing() {
        return println!("skipped: needs {missing}");
    }
    let found = Found::now();
    let start = || {
        let mut command = lab();
        command.args(["run", "--quick", "--job", "sort", "--runs", "100000"]);
        command.stdout(Stdio::null()).spawn().unwrap()
    };
    let mut child = start();
    wait_for(|| found.a_job_runs());
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    found.is_so_again();
    let mut child = start();
    wait_for(|| found.a_job_runs());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(found.a_job_runs(), "nothing was left");
    succeed(&["run", "--quick", "--job", "sort", "--runs", "1"]);
    found.is_so_again();
}

/// Whether the kernel's zswap is there to be had.
fn has_zswap() -> bool {
    let absent = !std::path::Path::new(ZSWAP).exists();
    if absent {
        println!("skipped: needs zswap");
    }
    !absent && has_peer()
}

/// SIGTERM while its children's memory is swapped out.
#[test]
fn a_killed_lab_ends_its_children_and_the_swap() {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    if !has_peer() {
        return;
    }
    let found = Found::now();
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
    found.is_so_again();
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
    let found = Found::now();
    let mut command = lab();
    command.args(["chain", "--vs-kernel", "--mib", "8", "--chain-order", "2", "--runs", "100000"]);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    wait_for(|| found.a_device_is_sized());
    std::fs::write(CLUSTER, "0").unwrap();
    let second = String::from_utf8(succeed(&KERNELS_CHAIN).stdout).unwrap();
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(15), "ended with {status}");
    assert!(second.contains("kernel-zram: missing (another lab is measuring it)"), "{second}");
    found.is_so_again();
}

/// SIGKILL, after which nothing of the lab's own runs: the next one gives back what is left.
#[test]
fn what_a_lab_left_that_was_killed_outright_is_given_back_by_the_next() {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    if !has_peer() {
        return;
    }
    let backends = if has_zswap() { &["zram", "zswap"][..] } else { &["zram"] };
    for backend in backends {
        let found = Found::now();
        let mut command = lab();
        command.args(["teardown", "--backend", backend, "--vs-kernel", "--mib", "32"]);
        command.args(["--threads", "1", "--free", "range", "--runs", "100000"]);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        wait_for(is_swapped_to);
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert_ne!(Found::now(), found, "nothing was left");
        let next = succeed(&KERNELS_CHAIN);
        let said = String::from_utf8(next.stderr).unwrap();
        assert!(said.contains("giving back what a lab that was killed left"), "{said}");
        found.is_so_again();
    }
}

/// A zram0 with data of somebody else's: a device is added, and removed again.
#[test]
fn a_device_in_use_is_left_alone_and_another_added() {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    if !has_peer() || read(DISKSIZE).trim() != "0" {
        println!("skipped: needs a zram0 to use");
        return;
    }
    std::fs::write(DISKSIZE, "8192").unwrap();
    let found = Found::now();
    let document = json("chain-vs-kernel-added", &KERNELS_CHAIN);
    let stores: Vec<_> = rows(&document).iter().map(|row| row["store"].clone()).collect();
    assert!(stores.contains(&"kernel-zram".into()), "{stores:?}");
    found.is_so_again();
    std::fs::write(RESET, "1").unwrap();
}
