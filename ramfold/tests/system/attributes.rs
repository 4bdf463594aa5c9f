//! Attributes of a running server are set, and `stat` shows them.
//!
//! Claims: the table of docs/zram.md holds through the control socket too. Several devices are told
//! apart. A device that clients use is not taken away from them.

use std::path::Path;

use crate::rig::{Nbd, PAGE_SIZE, Scratch, Server, eventually, noise, ramfold, refusal, succeed};

/// What `set` says.
#[track_caller]
fn set(server: &Server, attribute: &str, value: &[&str]) -> String {
    succeed(ramfold(&["set", server.target(), attribute]).args(value)).trim_end().to_owned()
}

/// What `set` says when it refuses.
#[track_caller]
fn refused(server: &Server, attribute: &str, value: &[&str]) -> String {
    refusal(ramfold(&["set", server.target(), attribute]).args(value))
}

/// A file of this size for pages that are written back.
fn backing(scratch: &Scratch, bytes: u64) -> String {
    let path = scratch.large("backing");
    let file = std::fs::File::create(&path).expect("scratch can be written");
    file.set_len(bytes).expect("a file can be sparse");
    path.to_str().expect("scratch paths are text").to_owned()
}

/// Pages that compress a little, each different.
fn text(number: u64) -> Vec<u8> {
    // Few letters, which help a code of bits more than a code of whole bytes.
    let mut page: Vec<u8> = noise(number, PAGE_SIZE as usize).iter().map(|byte| byte & 7).collect();
    page[2048..].fill(number as u8);
    page
}

#[test]
fn an_attribute_is_printed_as_the_kernel_shows_it() {
    let server = Server::with(&["--size", "1.5M", "--memory-limit", "50%"]);
    let mut client = server.connect();
    client.write(0, &vec![7; 8192]).unwrap();
    let get = |attribute: &str| ramfold(&["get", server.target(), attribute]);
    assert_eq!(succeed(&mut get("disksize")), "1572864\n");
    let mm_stat = succeed(&mut get("zram0/mm_stat"));
    assert_eq!(mm_stat.split_whitespace().count(), 9, "the kernel's columns: {mm_stat}");
    assert_eq!(mm_stat.split_whitespace().next(), Some("8192"), "{mm_stat}");
    assert!(succeed(&mut get("comp_algorithm")).contains("[lz4]"));
    assert!(refusal(&mut get("colour")).contains("there is no attribute \"colour\""));
    assert!(refusal(&mut get("mem_limit")).contains("can only be written"));
    assert!(refusal(&mut get("zram9/mm_stat")).contains("the devices are zram0"));
}

#[test]
fn pages_are_marked_recompressed_written_back_and_read() {
    let scratch = Scratch::new();
    let path = backing(&scratch, 8 << 20);
    let algorithm = "recomp_algorithm=algo=zstd";
    let server = Server::with(&["--size", "4M", "--backing", &path, "--set", algorithm]);
    let mut client = server.connect();
    (0..256).for_each(|number| client.write(number * PAGE_SIZE, &text(number)).unwrap());
    let stat = server.stat();
    assert_eq!(stat["backing_dev"], path, "{stat}");
    assert!(stat["recomp_algorithm"].as_str().is_some_and(|all| all.contains("[zstd]")), "{stat}");
    set(&server, "idle", &["all"]);
    let before = server.figure("compr_data_size");
    let said = set(&server, "recompress", &["type=idle", "priority=1"]);
    assert!(said.contains("smaller"), "{said}");
    assert!(server.figure("compr_data_size") < before);
    assert_eq!(set(&server, "writeback", &["page_indexes=0-127"]), "128 blocks written back");
    assert_eq!(server.stat()["bd_stat"]["bd_count"], 128);
    assert!((0..256).all(|n| client.read(n * PAGE_SIZE, 4096).unwrap() == text(n)), "all intact");
    assert_eq!(server.stat()["bd_stat"]["bd_reads"], 128);
    let table = succeed(&mut ramfold(&["stat", server.target()]));
    assert!(table.contains("written back") && table.contains(&path), "{table}");
    server.check();
}

#[test]
fn a_limit_of_write_back_ends_it_and_counts_down() {
    let scratch = Scratch::new();
    let path = backing(&scratch, 8 << 20);
    let limits = ["--set", "writeback_limit=10", "--set", "writeback_limit_enable=1"];
    let server = Server::with(&[&["--size", "4M", "--backing", &path], &limits[..]].concat());
    let mut client = server.connect();
    (0..64).for_each(|number| client.write(number * PAGE_SIZE, &noise(number, 4096)).unwrap());
    let line = refused(&server, "writeback", &["huge"]);
    assert!(line.contains("writeback_limit"), "{line}");
    assert_eq!(server.figure("writeback_limit"), 0);
    assert_eq!(server.stat()["bd_stat"]["bd_count"], 10);
    assert_eq!(set(&server, "writeback_limit", &["100"]), "writeback_limit is 100");
    assert_eq!(set(&server, "writeback", &["huge"]), "54 blocks written back");
}

#[test]
fn what_is_served_is_neither_reset_nor_removed() {
    let server = Server::of_size("1M");
    for (attribute, value) in [("reset", "1"), ("zram-control/hot_remove", "0")] {
        let line = refused(&server, attribute, &[value]);
        assert!(line.contains("in use by the NBD server"), "{line}");
    }
    for (attribute, value) in [("disksize", "2M"), ("comp_algorithm", "zstd"), ("backing_dev", "x")]
    {
        let line = refused(&server, attribute, &[value]);
        assert!(line.contains("initialised already"), "{attribute}: {line}");
    }
    assert_eq!(server.connect().size(), 1 << 20);
}

/// Clients are told the algorithm, in whichever way it was set.
#[test]
fn the_export_is_described_as_it_is() {
    let server = Server::with(&["--size", "1M", "--set", "comp_algorithm=zstd"]);
    let told = Nbd::listed(server.socket()).expect("it lists its exports");
    assert_eq!(told, "zram0ramfold, compressed with zstd");
}

#[test]
fn several_devices_are_told_apart() {
    let server = Server::of_size("1M");
    assert_eq!(set(&server, "zram-control/hot_add", &["1"]), "zram1 was added");
    let line = refused(&server, "mem_limit", &["1M"]);
    assert!(line.contains("zram0, zram1"), "{line}");
    set(&server, "zram1/comp_algorithm", &["zstd"]);
    let said = set(&server, "zram1/algorithm_params", &["algo=zstd", "level=1000"]);
    assert!(said.contains("will be refused") && said.contains("1000"), "{said}");
    set(&server, "zram1/algorithm_params", &["algo=zstd", "level=3"]);
    set(&server, "zram1/disksize", &["8M"]);
    let all = succeed(&mut ramfold(&["stat", server.target(), "--json"]));
    let all: serde_json::Value = serde_json::from_str(&all).unwrap();
    let sizes: Vec<u64> =
        all.as_array().unwrap().iter().filter_map(|one| one["disksize"].as_u64()).collect();
    assert_eq!(sizes, [1 << 20, 8 << 20], "{all}");
    let table = succeed(&mut ramfold(&["stat", server.target()]));
    assert!(table.contains("zram0: lz4") && table.contains("zram1: zstd"), "{table}");
    let classes = succeed(&mut ramfold(&["stat", server.target(), "--classes"]));
    assert!(classes.contains("zram0\n") && classes.contains("zram1\n"), "{classes}");
    server.check();
    set(&server, "zram-control/hot_remove", &["1"]);
    assert_eq!(server.figure("disksize"), 1 << 20, "one device is one object");
}

#[test]
fn settings_that_cannot_be_end_the_start() {
    let start = |words: &[&str]| {
        let scratch = Scratch::new();
        let socket = scratch.path("disk.sock");
        let socket = socket.to_str().unwrap();
        let line = refusal(ramfold(&["serve", "--size", "1M", "--unix", socket]).args(words));
        assert!(!Path::new(socket).exists(), "{line}");
        line
    };
    assert!(start(&["--backing", "/nonexistent/file"]).contains("/nonexistent/file"));
    assert!(start(&["--backing", "/dev/null"]).contains("neither a block device nor a file"));
    assert!(start(&["--set", "colour=red"]).contains("colour"));
    assert!(start(&["--set", "mm_stat=1"]).contains("mm_stat"));
    assert!(start(&["--set", "comp_algorithm"]).contains("no value"));
    assert!(start(&["--set", "comp_algorithm=best"]).contains("best"));
    assert!(start(&["--set", "algorithm_params=level=1000000"]).contains("levels"));
}

#[test]
fn ages_are_noted_where_they_are_asked_for() {
    let server = Server::of_size("1M");
    let line = refused(&server, "idle", &["60"]);
    assert!(line.contains("write all"), "{line}");
    let server = Server::with(&["--size", "1M", "--track-ages"]);
    server.connect().write(0, &noise(1, 4096)).unwrap();
    set(&server, "idle", &["60"]);
    set(&server, "idle", &["0"]);
}

#[test]
fn a_memory_target_is_held_by_itself() {
    let scratch = Scratch::new();
    let path = backing(&scratch, 64 << 20);
    let target = ["--memory-target", "4M", "--set", "recomp_algorithm=algo=zstd"];
    let server = Server::with(&[&["--size", "64M", "--backing", &path], &target[..]].concat());
    let mut client = server.connect();
    (0..4096).for_each(|number| client.write(number * PAGE_SIZE, &text(number)).unwrap());
    let used = server.figure("object_bytes_resident");
    assert!(used <= (4 << 20) + (4 << 20) / 20, "{used} bytes, 5 % over the target at most");
    let stat = server.stat();
    assert_eq!(stat["memory_target"]["target_bytes"], 4 << 20, "{stat}");
    assert!(stat["memory_target"]["written_back_pages"].as_u64() > Some(0), "{stat}");
    assert!((0..4096).all(|n| client.read(n * PAGE_SIZE, 4096).unwrap() == text(n)), "all intact");
    let table = succeed(&mut ramfold(&["stat", server.target()]));
    assert!(table.contains("memory target") && table.contains("written back"), "{table}");
    server.check();
}

/// The server was started without a target.
#[test]
fn a_memory_target_starts_changes_and_ends_while_the_server_runs() {
    let scratch = Scratch::new();
    let path = backing(&scratch, 64 << 20);
    let server = Server::with(&["--size", "64M", "--backing", &path]);
    let mut client = server.connect();
    (0..4096).for_each(|number| client.write(number * PAGE_SIZE, &text(number)).unwrap());
    assert_eq!(server.stat()["memory_target"], serde_json::Value::Null);
    for (words, bytes) in [("4M", 4 << 20), ("1.5M", 3 << 19)] {
        let said = set(&server, "memory_target", &[words]);
        assert!(said.contains(&format!("({bytes} bytes)")), "{said}");
        eventually("the target is reached", || server.figure("object_bytes_resident") <= bytes);
        assert_eq!(server.stat()["memory_target"]["target_bytes"], bytes);
    }
    set(&server, "memory_target", &["0"]);
    assert_eq!(server.stat()["memory_target"], serde_json::Value::Null);
    assert!((0..4096).all(|n| client.read(n * PAGE_SIZE, 4096).unwrap() == text(n)), "all intact");
    server.check();
}
