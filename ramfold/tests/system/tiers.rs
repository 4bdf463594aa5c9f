//! A server that keeps unused pages in denser tiers.
//!
//! Claims
//! - With `--density`, pages that are not used become denser by themselves, with tables of their
//!   own, and if dense with a dictionary. They read as they were written. `stat` says so, in the
//!   table and in JSON.
//! - An attribute that does the work of tiers, and a chosen algorithm, turn them off with a notice.
//! - Options that contradict each other are refused.
//!
//! No claim is about time: a test waits until what it expects is there.

use std::time::{Duration, Instant};

use crate::notices::says;
use crate::rig::{PAGE_SIZE, Server, ramfold, succeed};
use serde_json::Value;

/// Long enough for any machine.
const LATE: Duration = Duration::from_secs(120);

/// A page of 16 letters in no order, and a part of it again.
fn letters(page: u64) -> Vec<u8> {
    let mut state = page * 2 + 1;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(page | 1);
        0x80 + (state >> 60) as u8
    };
    let mut letters: Vec<u8> = (0..2730).map(|_| next()).collect();
    letters.extend_from_within(..4096 - 2730);
    letters
}

const PAGES: u64 = 2000;

fn fill(server: &Server) {
    let mut client = server.connect();
    (0..PAGES).for_each(|page| client.write(page * PAGE_SIZE, &letters(page)).expect("room"));
}

fn tiers(server: &Server) -> Value {
    server.stat()["tiers"].clone()
}

/// Waits until the tiers are as expected.
fn wait(server: &Server, is_there: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let found = tiers(server);
        if is_there(&found) {
            return found;
        }
        assert!(start.elapsed() < LATE, "{found}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn pages(tiers: &Value, algorithm: &str) -> u64 {
    let rows = tiers["tiers"].as_array().into_iter().flatten();
    let of = rows.filter(|row| row["algorithm"] == algorithm);
    of.filter_map(|row| row["pages"].as_u64()).sum()
}

#[test]
fn pages_that_are_not_used_become_denser_by_themselves() {
    let server = Server::with(&["--size", "16M", "--density", "balanced", "--tier-age", "1"]);
    fill(&server);
    let found = wait(&server, |tiers| pages(tiers, "pagelz") >= PAGES * 9 / 10);
    assert_eq!(found["density"], "balanced", "{found}");
    assert_eq!(found["training"]["verdict"], "adopted", "{found}");
    assert!(found["cpu_us"].as_u64() > Some(0), "{found}");
    let first = pages(&found, "lz4") + pages(&found, "lz4hc");
    assert_eq!(pages(&found, "pagelz") + first, PAGES, "{found}");
    let table = succeed(&mut ramfold(&["stat", server.target()]));
    assert!(table.contains("tiers") && table.contains("pagelz, own 1"), "{table}");
    assert!(table.contains("smaller on 128 pages"), "{table}");
    let mut client = server.connect();
    assert!((0..PAGES).all(|n| client.read(n * PAGE_SIZE, 4096).unwrap() == letters(n)), "intact");
    server.check();
}

/// A page of phrases, none of them twice. Other pages have the same ones.
fn phrases(page: u64) -> Vec<u8> {
    let phrase = |number: u64| {
        let mut state = number * 2 + 1;
        (0..64).map(move |_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(number | 1);
            (state >> 56) as u8
        })
    };
    (0..64).flat_map(|at| phrase((page * 7 + at * 4) % 300)).collect()
}

#[test]
fn a_dense_server_trains_a_dictionary_of_its_pages() {
    let dense = ["--density", "dense", "--tier-age", "1", "--tier-cpu", "100"];
    let server = Server::with(&[&["--size", "16M"], &dense[..]].concat());
    let mut client = server.connect();
    (0..PAGES).for_each(|page| client.write(page * PAGE_SIZE, &phrases(page)).expect("room"));
    let found = wait(&server, |tiers| pages(tiers, "zstd") >= PAGES * 9 / 10);
    assert_eq!(found["dictionary"]["verdict"], "adopted", "{found}");
    let table = succeed(&mut ramfold(&["stat", server.target()]));
    assert!(table.contains("dictionary     adopted: "), "{table}");
    let bytes = server.figure("compr_data_size");
    assert!(bytes < PAGES * 1500, "{bytes}: alone they do not compress");
    assert!((0..PAGES).all(|n| client.read(n * PAGE_SIZE, 4096).unwrap() == phrases(n)), "intact");
    server.check();
}

#[test]
fn a_server_without_the_option_has_no_tiers() {
    let server = Server::with(&["--size", "1M"]);
    assert_eq!(tiers(&server), Value::Null);
    assert!(!succeed(&mut ramfold(&["stat", server.target()])).contains("tiers"));
}

#[test]
fn an_attribute_that_does_their_work_turns_tiers_off() {
    for (attribute, value) in [("idle", "all"), ("recompress", "type=idle")] {
        let server = Server::with(&["--size", "1M", "--density", "dense"]);
        assert_eq!(tiers(&server)["off"], Value::Null);
        // dense has no algorithm that an attribute chose, so recompress is refused. It was written.
        let _ = ramfold(&["set", server.target(), attribute, value]).output().unwrap();
        let why = format!("{attribute} was written");
        assert_eq!(tiers(&server)["off"], why.as_str());
        says(&server, &[&format!("tiers are off, because {why}")]);
        let table = succeed(&mut ramfold(&["stat", server.target()]));
        assert!(table.contains(&why), "{table}");
        server.check();
    }
    let server = Server::with(&["--size", "1M", "--density", "dense"]);
    let _ = ramfold(&["set", server.target(), "idle", "nonsense"]).output().unwrap();
    assert_eq!(
        tiers(&server)["off"],
        Value::Null,
        "a value that is not understood changes nothing"
    );
}

#[test]
fn a_chosen_algorithm_turns_tiers_off() {
    let server = Server::with(&["--size", "1M", "--density", "dense", "--algorithm", "zstd"]);
    says(&server, &["--algorithm turns --density dense off"]);
    assert_eq!(tiers(&server), Value::Null);
    let set = ["--set", "recomp_algorithm=algo=zstd"];
    let server = Server::with(&[&["--size", "1M", "--density", "balanced"], &set[..]].concat());
    says(&server, &["tiers are off, because its algorithms were chosen"]);
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let rows: [(&[&str], &str); 4] = [
        (&["--density", "densest"], "fast, balanced or dense"),
        (&["--density", "dense", "--tier-cpu", "0"], "1..=100"),
        (&["--density", "dense", "--tier-age", "0"], "--tier-age"),
        (&["--writeback", "auto"], "--writeback auto needs --backing"),
    ];
    for (options, expected) in rows {
        let asked = ramfold(&[&["serve", "--size", "1M"], options].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&asked.stderr);
        assert!(!asked.status.success() && said.contains(expected), "{options:?}: {said}");
    }
}
