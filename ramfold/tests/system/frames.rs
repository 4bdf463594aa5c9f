//! What stat --pagetypeinfo prints, compared with what was stored.
//!
//! Claims: the text and the numbers say the same. A frame is counted as what it is: in use, free or
//! gone. A server that cannot answer is told apart from one that has nothing.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;

use serde_json::Value;

use crate::rig::{PAGE_SIZE, Scratch, Server, eventually, noise, ramfold, refusal, succeed};

const PAGEBLOCK: u64 = 512;
/// Pages of noise, each of which takes a frame of its own; no whole number of pageblocks.
const PAGES: u64 = 3000;

#[test]
fn frames_are_those_of_what_is_stored() {
    let server = storing_noise();
    assert_eq!(server.figure("mem_used_total"), PAGES * PAGE_SIZE, "a frame a page");
    let zone = numbers(&server);
    let online = figure(&zone, "online_frames");
    assert_eq!(figure(&zone, "allocated_frames"), PAGES, "{zone}");
    assert_eq!(figure(&zone, "free_frames"), online - PAGES, "{zone}");
    assert_eq!(online, total(&zone["pageblocks_by_type"]) * PAGEBLOCK, "{zone}");
    assert!(
        online < PAGES + 5 * PAGEBLOCK,
        "a pageblock begun for each of 4 zones at most: {zone}"
    );
    assert_eq!(figure(&zone, "mixed_allocations"), 0, "all of it can move: {zone}");
}

#[test]
fn the_text_and_the_numbers_say_the_same() {
    let server = storing_noise();
    let (text, zone) = (text(&server), numbers(&server));
    assert!(text.starts_with("Page block order: 9\nPages per block:  512\n\n"), "{text}");
    let rows = free_rows(&text);
    for (name, blocks) in &rows {
        assert_eq!(zone["free_blocks_by_type"][name], serde_json::json!(blocks), "{name}: {text}");
    }
    let frames = rows.iter().flat_map(|(_, blocks)| blocks.iter().enumerate());
    let frames: u64 = frames.map(|(order, blocks)| blocks << order).sum();
    assert_eq!(frames, figure(&zone, "free_frames"), "{text}");
    let online = pageblocks(&text) * PAGEBLOCK;
    assert_eq!(online, figure(&zone, "online_frames"), "{text}");
    assert_eq!((online - frames) * PAGE_SIZE, server.figure("mem_used_total"), "{text}");
}

#[test]
fn what_is_discarded_is_free_and_then_gone() {
    let server = storing_noise();
    let mut client = server.connect();
    client.trim(0, (PAGES - 1000) as u32 * PAGE_SIZE as u32).unwrap();
    eventually("the frames of 1000 pages", || {
        figure(&numbers(&server), "allocated_frames") == 1000
    });
    client.trim((PAGES - 1000) * PAGE_SIZE, 1000 * PAGE_SIZE as u32).unwrap();
    succeed(&mut ramfold(&["set", server.target(), "compact", "1"]));
    eventually("an empty zone", || figure(&numbers(&server), "online_frames") == 0);
    assert_eq!(server.figure("free_bytes_held"), 0);
    let text = text(&server);
    assert_eq!(pageblocks(&text), 0, "{text}");
    assert!(free_rows(&text).iter().all(|(_, blocks)| blocks.iter().sum::<u64>() == 0), "{text}");
}

#[test]
fn servers_that_do_not_know_the_question_are_named_as_such() {
    let rows = [
        (
            r#"{"error":"this server is too old to know the request"}"#,
            "too old to know the request",
        ),
        (r#"{"error":"not a request: unknown variant `pagetypeinfo`"}"#, "pagetypeinfo"),
        (r#"{"ok":{}}"#, "does not speak ramfold's control protocol"),
        (r#"{"ok":{"text":"Page block order: 9"}}"#, "does not speak ramfold's control protocol"),
    ];
    for (answer, words) in rows {
        let scratch = Scratch::new();
        let path = scratch.path("other.ctl");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(&stream);
            // A ping, which it does not know either, and the question.
            for _ in 0..2 {
                lines.read_line(&mut String::new()).unwrap();
                writeln!(&stream, "{answer}").unwrap();
            }
        });
        let target = path.to_str().unwrap();
        let line = refusal(&mut ramfold(&["stat", target, "--pagetypeinfo"]));
        assert!(line.contains(words), "{answer}: {line}");
    }
}

fn storing_noise() -> Server {
    let server = Server::of_size("64M");
    let pages = noise(1, (PAGES * PAGE_SIZE) as usize);
    assert_eq!(server.connect().write(0, &pages), Ok(()));
    server
}

fn text(server: &Server) -> String {
    succeed(&mut ramfold(&["stat", server.target(), "--pagetypeinfo"]))
}

fn numbers(server: &Server) -> Value {
    let text = succeed(&mut ramfold(&["stat", server.target(), "--pagetypeinfo", "--json"]));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("not JSON: {error}\n{text}"))
}

#[track_caller]
fn figure(zone: &Value, name: &str) -> u64 {
    zone[name].as_u64().unwrap_or_else(|| panic!("no integer {name} in {zone}"))
}

/// The sum of an object's fields.
fn total(of: &Value) -> u64 {
    let fields = of.as_object().expect("a field for each type").values();
    fields.map(|count| count.as_u64().expect("a count")).sum()
}

/// The lines of free blocks: a type's name and its count for each order.
fn free_rows(text: &str) -> Vec<(String, Vec<u64>)> {
    let rows = text.lines().filter_map(|line| line.split_once(", type "));
    let row = |(_, row): (&str, &str)| {
        let mut words = row.split_whitespace();
        let name = words.next().expect("a type's name").to_owned();
        (name, words.map(|count| count.parse().expect("a count")).collect::<Vec<u64>>())
    };
    let rows: Vec<_> = rows.map(row).collect();
    assert!(rows.len() >= 5 && rows.iter().all(|(_, blocks)| blocks.len() == 11), "{text}");
    rows
}

/// The sum of the last line, which counts pageblocks.
fn pageblocks(text: &str) -> u64 {
    let line = text.lines().last().and_then(|line| line.strip_prefix("Node 0, zone   Normal "));
    let counts = line.expect("the line of pageblocks").split_whitespace();
    counts.map(|count| count.parse::<u64>().expect("a count")).sum()
}
