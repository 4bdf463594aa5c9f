//! The first lines of what `stat` prints of a device: what it is, and where it is served.
//!
//! Locks: none.

use std::fmt::Write;

use serde_json::Value;
use zram::study::Study;

use crate::line::output::one_line;
use crate::line::size::count;

/// Writes them.
pub(super) fn title(text: &mut String, stat: &Value) {
    let word = |name: &str| stat[name].as_str().unwrap_or("?");
    let (name, algorithm, order) = (word("name"), word("algorithm"), &stat["chain_order"]);
    let server = &stat["server"];
    let (pid, clients) = (&server["pid"], &server["connections"]);
    let studied = studied(stat);
    let shuffled = if stat["shuffle"] == "auto" { ", shuffled where it pays" } else { "" };
    put(
        text,
        format_args!(
            "{name}: {algorithm}{shuffled}, chain order {order}{studied}; pid {pid}, {clients} \
             connected"
        ),
    );
    for uri in server["uris"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        put(text, format_args!("  {uri}"));
    }
    for door in server["vhost_user"].as_array().into_iter().flatten() {
        put(text, format_args!("  vhost-user {}", machine(door)));
    }
    for door in server["ublk"].as_array().into_iter().flatten() {
        put(text, format_args!("  block device {}", block(door)));
    }
    tree(text, &server["tree"]);
}

/// A socket for virtual machines, and the one that has the disk.
fn machine(door: &Value) -> String {
    let path = one_line(door["path"].as_str().unwrap_or("?"));
    let queues = count(door["queues"].as_u64().unwrap_or(0), "queue");
    match door["machine"].as_str() {
        Some(machine) => format!("{path}: {machine}, {queues}"),
        None => format!("{path}: no machine"),
    }
}

/// A block device.
fn block(door: &Value) -> String {
    let path = one_line(door["path"].as_str().unwrap_or("?"));
    format!("{path}, {}", count(door["queues"].as_u64().unwrap_or(0), "queue"))
}

/// Where a tree is mounted, and how its requests come.
fn tree(text: &mut String, tree: &Value) {
    let word = |name: &str| tree[name].as_str().map(one_line);
    let Some((directory, way)) = word("directory").zip(word("requests_by")) else { return };
    let why = word("why_not_io_uring").map(|why| format!(" ({why})")).unwrap_or_default();
    put(text, format_args!("  {directory}, requests by {way}{why}"));
}

/// The designs that the device has for a study.
fn studied(stat: &Value) -> String {
    let default = Study::default();
    let of = |name: &str, default: &str, words: &str| {
        let chosen = stat[name].as_str().filter(|chosen| *chosen != default);
        chosen.map(|chosen| format!(", {words} {chosen}")).unwrap_or_default()
    };
    of("design", default.design.name(), "lock design")
        + &of("free", default.free.name(), "frees by")
}

/// Appends a line. Writing to a string cannot fail.
pub(super) fn put(text: &mut String, line: std::fmt::Arguments<'_>) {
    let _ = writeln!(text, "{}", one_line(line.to_string().trim_end_matches(' ')));
}
