//! What stat, set, check and estimate print, compared with what was written.
//!
//! Invariant: each figure is compared with a number that the test knows from another source.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::rig::{
    PAGE_SIZE, Scratch, Server, Stopped, from_env, needs, noise, ramfold, real_files, succeed,
};

const STAT_FIELDS: [&str; 21] = [
    "chain_order",
    "disksize",
    "initstate",
    "orig_data_size",
    "compr_data_size",
    "mem_used_total",
    "mem_limit",
    "mem_used_max",
    "same_pages",
    "pages_compacted",
    "compaction_yields",
    "huge_pages",
    "huge_pages_since",
    "object_bytes_resident",
    "free_bytes_held",
    "metadata_bytes",
    "pending_bytes",
    "accounted_bytes",
    "resident_bytes",
    "page_table_bytes",
    "overhead_all_in",
];

const METADATA_FIELDS: [&str; 6] =
    ["slot_table", "handle_table", "descriptors", "frame_table", "buffers", "codec_contexts"];

const ROW_FIELDS: [&str; 8] = [
    "chain_order",
    "compr_data_size",
    "object_bytes_resident",
    "metadata_bytes",
    "huge_pages",
    "ratio",
    "compress_ns_per_page",
    "decompress_ns_per_page",
];

#[test]
fn an_empty_disk_has_every_figure() {
    let server = Server::with(&["--size", "1G", "--name", "empty0"]);
    let stat = server.stat();
    for field in STAT_FIELDS {
        let nothing_stored = field == "overhead_all_in";
        assert_eq!(stat[field].is_number(), !nothing_stored, "{field}: {stat}");
    }
    for field in METADATA_FIELDS {
        assert!(stat["metadata"][field].is_u64(), "metadata.{field}: {stat}");
    }
    assert!(stat["overhead_all_in"].is_null(), "nothing is stored: {stat}");
    assert_eq!((&stat["name"], &stat["algorithm"]), (&"empty0".into(), &"lz4".into()), "{stat}");
    assert_eq!((&stat["chain_order"], &stat["disksize"]), (&3.into(), &(1 << 30).into()), "{stat}");
}

#[test]
fn the_figures_count_what_was_written() {
    let server = Server::of_size("64M");
    let mut client = server.connect();
    client.write(0, &noise(1, 100 * PAGE_SIZE as usize)).unwrap();
    client.write(1 << 20, &vec![7; 50 * PAGE_SIZE as usize]).unwrap();
    assert_eq!(server.figure("huge_pages"), 100, "noise is stored as it is");
    assert_eq!(server.figure("same_pages"), 50, "one word repeated");
    assert_eq!(server.figure("orig_data_size"), 150 * PAGE_SIZE, "both count");
    assert_eq!(server.figure("compr_data_size"), 100 * PAGE_SIZE);
    client.trim(0, 1 << 20).unwrap();
    assert_eq!(server.figure("huge_pages"), 0, "discarded");
    assert_eq!(server.figure("orig_data_size"), 50 * PAGE_SIZE);
}

#[test]
fn every_byte_is_in_one_counter() {
    let server = filled(32);
    let stat = server.stat();
    let number = |name: &str| stat[name].as_u64().unwrap_or_else(|| panic!("{name} in {stat}"));
    let counters = ["object_bytes_resident", "free_bytes_held", "metadata_bytes", "pending_bytes"];
    let sum: u64 = counters.iter().map(|name| number(name)).sum();
    assert_eq!(sum, number("accounted_bytes"), "{stat}");
    let parts = METADATA_FIELDS.iter().map(|name| stat["metadata"][name].as_u64().unwrap());
    assert_eq!(parts.sum::<u64>(), number("metadata_bytes"), "{stat}");
    let overhead = number("accounted_bytes") as f64 / number("compr_data_size") as f64 - 1.0;
    let printed = stat["overhead_all_in"].as_f64().unwrap();
    assert!((printed - overhead).abs() < 1e-3, "{printed} is not {overhead}: {stat}");
}

#[test]
fn the_system_agrees_with_the_counters() {
    let server = filled(64);
    let (accounted, resident) = (server.figure("accounted_bytes"), server.figure("resident_bytes"));
    let apart = accounted.abs_diff(resident);
    assert!(apart * 100 <= accounted, "{accounted} accounted, {resident} resident, over 1 % apart");
}

/// A server with a disk full of real files.
fn filled(mib: u64) -> Server {
    let server = Server::of_size(&format!("{mib}M"));
    let image = server.scratch.large("image");
    real_files(&image, mib);
    let mut client = server.connect();
    let image = std::fs::read(&image).expect("the image was written");
    for (number, chunk) in image.chunks(1 << 20).enumerate() {
        assert_eq!(client.write((number as u64) << 20, chunk), Ok(()), "MiB {number}");
    }
    server
}

#[test]
fn classes_have_the_kernels_columns() {
    let server = filled(32);
    let text = succeed(&mut ramfold(&["stat", server.target(), "--classes"]));
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let header: Vec<&str> = lines.next().expect("a header").split_whitespace().collect();
    assert_eq!(header[..2], ["class", "size"], "{text}");
    assert_eq!(header.last(), Some(&"freeable"), "{text}");
    let at = |name: &str| header.iter().position(|column| *column == name).unwrap();
    let (allocated, used) = (at("obj_allocated"), at("obj_used"));
    let (pages, per_zspage) = (at("pages_used"), at("pages_per_zspage"));

    let mut sums = vec![0; header.len()];
    let mut total = None;
    for line in lines {
        let columns: Vec<&str> = line.split_whitespace().collect();
        if columns[0] == "Total" {
            total = Some(columns[1..].iter().map(|c| c.parse().unwrap()).collect::<Vec<u64>>());
            continue;
        }
        let row: Vec<u64> = columns.iter().map(|c| c.parse().unwrap()).collect();
        assert_eq!(row.len(), header.len(), "{line}");
        assert!(row[used] <= row[allocated], "{line}");
        assert_eq!(row[pages] % row[per_zspage], 0, "whole zspages: {line}");
        assert!(row[used] * row[1] <= row[pages] * PAGE_SIZE, "objects fit: {line}");
        sums.iter_mut().zip(&row).for_each(|(sum, value)| *sum += value);
    }
    let stat = server.stat();
    let number = |name: &str| stat[name].as_u64().unwrap();
    assert_eq!(sums[pages] * PAGE_SIZE, number("mem_used_total"), "{text}\n{stat}");
    let stored = number("orig_data_size") / PAGE_SIZE - number("same_pages");
    assert_eq!(sums[used], stored, "one object for each stored page\n{text}\n{stat}");
    let total = total.expect("a line of totals");
    assert!(total.contains(&sums[used]) && total.contains(&sums[pages]), "{total:?}: {text}");
}

#[test]
fn attributes_take_effect() {
    let server = filled(16);
    let set = |attribute, value| {
        succeed(&mut ramfold(&["set", server.target(), attribute, value]));
    };
    set("mem_limit", "32M");
    assert_eq!(server.figure("mem_limit"), 32 << 20);
    server.connect().trim(0, 12 << 20).unwrap();
    let (max, used) = (server.figure("mem_used_max"), server.figure("mem_used_total"));
    assert!(used < max, "a maximum outlives what it counted: {used} < {max}");
    set("mem_used_max", "0");
    set("compact", "1");
    let after = server.figure("mem_used_max");
    assert!(after < max, "the maximum starts anew: {after} < {max}");
    server.check();
}

#[test]
fn running_servers_are_listed_and_found_by_name() {
    let scratch = Scratch::new();
    let (runtime, _server) = listed(&scratch, "listed0");
    let stat = succeed(ramfold(&["stat", "listed0", "--json"]).env("XDG_RUNTIME_DIR", &runtime));
    assert_eq!(parse(&stat)["name"], "listed0");
    let socket = runtime.join("ramfold/listed0.sock");
    assert!(socket.exists(), "the documented place: {}", socket.display());
    let uri = format!("nbd+unix:///listed0?socket={}", socket.display());
    assert_eq!(parse(&succeed(&mut ramfold(&["stat", &uri, "--json"])))["name"], "listed0");
}

#[test]
fn a_server_that_does_not_answer_is_not_listed_as_none() {
    let scratch = Scratch::new();
    let (runtime, server) = listed(&scratch, "silent0");
    let _stopped = Stopped::new(server.0.id());
    let output = ramfold(&["stat"]).env("XDG_RUNTIME_DIR", &runtime).output().unwrap();
    let says = |text: &[u8], words: &str| String::from_utf8_lossy(text).contains(words);
    assert!(!output.status.success() && says(&output.stderr, "silent0 does not answer"));
    assert!(!says(&output.stdout, "No server runs"), "one does");
}

/// A runtime directory, and a server of this name that is in its list.
fn listed(scratch: &Scratch, name: &str) -> (PathBuf, Killed) {
    let runtime = scratch.path("run");
    std::fs::create_dir(&runtime).expect("a directory");
    let mut command = Command::new(crate::rig::BINARY);
    command.args(["serve", "--size", "1M", "--name", name]).env("XDG_RUNTIME_DIR", &runtime);
    let server = Killed(command.stdout(Stdio::null()).spawn().expect("a server"));
    let list = || succeed(ramfold(&["stat"]).env("XDG_RUNTIME_DIR", &runtime)).contains(name);
    crate::rig::eventually("the server in the list", list);
    (runtime, server)
}

/// A child that ends with the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Both fail only when the child has ended and been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("not JSON: {error}\n{text}"))
}

#[test]
fn tables_for_people_name_the_figures() {
    let server = filled(4);
    let table = succeed(&mut ramfold(&["stat", server.target()]));
    assert!(table.contains("zram0") && table.contains("lz4"), "{table}");
}

#[test]
fn estimates_try_every_algorithm_and_chain() {
    let scratch = Scratch::new();
    let image = scratch.large("image");
    let mib = from_env("RAMFOLD_ESTIMATE_MIB", 8);
    real_files(&image, mib);
    let text = succeed(&mut ramfold(&["estimate", image.to_str().unwrap(), "--json"]));
    let estimate = parse(&text);
    assert_eq!(estimate["pages"], mib << 8, "{estimate}");
    assert!(estimate["same_pages"].is_u64(), "{estimate}");
    let rows = estimate["rows"].as_array().expect("an array of rows");
    for row in rows {
        let numbers = ROW_FIELDS.iter().all(|field| row[field].is_number());
        assert!(numbers && row["algorithm"].is_string(), "{row}");
        assert!(row["ratio"].as_f64() > Some(1.0), "files of /usr compress: {row}");
    }
    for algorithm in ["lzo-rle", "lzo", "lz4", "lz4hc", "zstd", "deflate", "pagelz"] {
        for order in 2..=4 {
            let fits = |row: &&Value| row["algorithm"] == algorithm && row["chain_order"] == order;
            assert!(rows.iter().any(|row| fits(&row)), "no row {algorithm} {order}: {estimate}");
        }
    }
}

/// Trained on some pages, measured on others, and used by a server.
#[test]
fn a_dictionary_saves_what_it_says() {
    let scratch = Scratch::new();
    let (pages, dictionary) = (scratch.path("pages"), scratch.path("dict"));
    let words = ["timestamp", "identifier", "description", "quantity", "warehouse", "customer"];
    let record = |number: usize| {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        format!("{{\"{}\": {}}}, ", words[mixed % words.len()], mixed % 100_003)
    };
    let text: Vec<u8> = (0..80_000).map(record).flat_map(String::into_bytes).collect();
    std::fs::write(&pages, &text).unwrap();
    let (pages, dictionary) = (pages.to_str().unwrap(), dictionary.to_str().unwrap());
    let report = succeed(&mut ramfold(&["train", pages, "-o", dictionary, "--size", "4K"]));
    assert!(report.contains("% saved") && report.contains("--dictionary"), "{report}");
    assert!(std::fs::metadata(dictionary).unwrap().len() <= 4 << 10);
    let stored = |options: &[&str]| {
        let server = Server::with(&[&["--size", "1M", "--algorithm", "zstd"], options].concat());
        let mut client = server.connect();
        client.write(0, &text[..1 << 20]).unwrap();
        assert!(client.read(0, 1 << 20).unwrap() == text[..1 << 20], "it came back changed");
        server.check();
        server.figure("compr_data_size")
    };
    let (without, with) = (stored(&[]), stored(&["--dictionary", dictionary]));
    assert!(with < without, "{with} bytes with the dictionary, {without} without");
}

#[test]
fn a_live_process_can_be_estimated() {
    let child = Killed(Command::new("sleep").arg("600").spawn().unwrap());
    let text = succeed(&mut ramfold(&["estimate", "--pid", &child.0.id().to_string(), "--json"]));
    let estimate = parse(&text);
    assert!(estimate["pages"].as_u64() > Some(0), "{estimate}");
}

/// Pages that were read and never written are the system's only page of zeros, and take no memory.
#[test]
fn a_page_that_was_only_read_is_not_counted() {
    if !needs(&["python3"]) {
        return;
    }
    let script = "import mmap, sys\n\
        m = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
        sum(m[at] for at in range(0, 64 << 20, 4096))\n\
        print('ready', flush=True)\n\
        sys.stdin.read()";
    let mut child = Command::new("python3");
    child.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = Killed(child.spawn().unwrap());
    let mut ready = [0; 6];
    child.0.stdout.take().unwrap().read_exact(&mut ready).unwrap();
    let pid = child.0.id().to_string();
    let estimate = parse(&succeed(&mut ramfold(&["estimate", "--pid", &pid, "--json"])));
    let pages = estimate["pages"].as_u64().unwrap();
    assert!(pages > 0 && pages < 16_384 / 2, "{pages} pages of a process that wrote few");
}
