//! One device, shown to people in lines that add up.
//!
//! ```text
//!   size   = compressed + huge + same-filled + holes                  in pages
//!   held   = objects + free frames + metadata + on the move           in bytes
//! ```
//!
//! Invariant: each block begins with a sum and lists every part of it once. Its lines fit a
//! terminal. The lines before have addresses and paths, which stay whole. Locks: none.

use host::PAGE_SIZE;
use serde_json::Value;

use super::tiers;
use super::title::{put, title};
use super::width::fitted;
use crate::line::size::{count, human, plural};

/// The table of one device.
pub(super) fn render(stat: &Value) -> String {
    let figures = Figures(stat);
    let (mut head, mut text) = (String::new(), String::new());
    title(&mut head, stat);
    if figures.get("initstate") == 0 {
        put(&mut text, format_args!("  no size yet; disksize gives it one"));
        return head + &text;
    }
    disk(&mut text, &figures);
    failures(&mut text, &figures);
    memory(&mut text, &figures);
    limit(&mut text, &figures);
    target(&mut text, &figures);
    tiers::put(&mut text, &stat["tiers"]);
    notices(&mut text, stat);
    head + &fitted(&text)
}

/// How many times larger the stored pages are than the memory that they take.
pub(super) fn ratio(stored: u64, held: u64) -> String {
    if stored == 0 || held == 0 {
        return "-".to_owned();
    }
    format!("{:.2}", stored as f64 / held as f64)
}

struct Figures<'a>(&'a Value);

impl Figures<'_> {
    fn get(&self, name: &str) -> u64 {
        self.0[name].as_u64().unwrap_or(0)
    }

    fn stored_pages(&self) -> u64 {
        self.get("orig_data_size") / PAGE_SIZE as u64
    }

    /// Blocks of the backing device in use.
    fn written_back(&self) -> u64 {
        self.0["bd_stat"]["bd_count"].as_u64().unwrap_or(0)
    }

    /// Pages that are neither huge nor same-filled nor on the backing device. While requests run,
    /// the counters are not of one moment, so the difference is kept from falling below 0.
    fn compressed_pages(&self) -> u64 {
        let others = self.get("huge_pages") + self.get("same_pages") + self.written_back();
        self.stored_pages().saturating_sub(others)
    }

    /// Why there is no data in memory.
    fn without_data(&self) -> &'static str {
        match (self.stored_pages(), self.written_back(), self.get("same_pages")) {
            (0, ..) => "nothing is stored",
            (_, 0, _) => "all same-filled",
            (_, _, 0) => "all written back",
            _ => "on disk or same-filled",
        }
    }
}

fn disk(text: &mut String, figures: &Figures<'_>) {
    let pages = figures.get("disksize") / PAGE_SIZE as u64;
    let holes = pages.saturating_sub(figures.stored_pages());
    let row = |text: &mut String, name: &str, pages: u64, note: &str| {
        let bytes = human(pages * PAGE_SIZE as u64);
        put(text, format_args!("{name:<16} {bytes:>10} {pages:>11} {:<5} {note}", unit(pages)));
    };
    text.push('\n');
    row(text, "size", pages, "what clients see");
    row(text, "  compressed", figures.compressed_pages(), "");
    let shared = &figures.0["shared"];
    if let Some(pages) = shared["pages"].as_u64() {
        let saved = human(shared["saved_bytes"].as_u64().unwrap_or(0));
        let objects = count(shared["objects"].as_u64().unwrap_or(0), "object");
        row(text, "    of it shared", pages, &format!("in {objects}; saves {saved}"));
    }
    let units = &figures.0["units"];
    if let Some(pages) = units["pages"].as_u64().filter(|&pages| pages > 0) {
        let dead = count(units["dead_pages"].as_u64().unwrap_or(0), "page");
        let units = count(units["units"].as_u64().unwrap_or(0), "unit");
        row(text, "    of it packed", pages, &format!("in {units}; {dead} dead"));
    }
    row(text, "  huge", figures.get("huge_pages"), "incompressible, stored as they are");
    row(text, "  same-filled", figures.get("same_pages"), "one repeated word, not stored");
    if figures.written_back() > 0 {
        let path = figures.0["backing_dev"].as_str().unwrap_or("the backing device");
        row(text, "  written back", figures.written_back(), &format!("in {path}"));
    }
    row(text, "  holes", holes, "never written, or discarded");
    let pending = figures.0["bd_stat"]["bd_pending"].as_u64().unwrap_or(0);
    if pending > 0 {
        let pending = count(pending, "block");
        put(
            text,
            format_args!("backing device   {pending} in use for no page: being freed or written"),
        );
    }
    let quarantined = figures.0["bd_stat"]["bd_quarantined"].as_u64().unwrap_or(0);
    if quarantined > 0 {
        let blocks = count(quarantined, "block");
        let why = "not used again: a write had no reply";
        put(text, format_args!("backing device   {blocks} {why}"));
    }
    remote_backing(text, &figures.0["remote_backing"]);
}

/// The connection to a backing device of an NBD server, if it has one.
fn remote_backing(text: &mut String, report: &Value) {
    let Some(connected) = report["connected"].as_bool() else { return };
    let number = |name: &str| report[name].as_u64().unwrap_or(0);
    let state = if connected { "connected" } else { "not connected" };
    let mut told = format!("{state}, {}", count(number("reconnects"), "reconnection"));
    let failed = number("late_requests") + number("refused_requests");
    if failed > 0 {
        told = format!("{told}, {} failed", count(failed, "request"));
    }
    put(text, format_args!("backing server   {told}"));
}

fn unit(pages: u64) -> String {
    format!("page{}", plural(pages))
}

/// Requests that ended in an error, if there were any. Memory was full, or the backing device
/// failed.
fn failures(text: &mut String, figures: &Figures<'_>) {
    let number = |name: &str| figures.0["io_stat"][name].as_u64().unwrap_or(0);
    let (reads, writes) = (number("failed_reads"), number("failed_writes"));
    if reads + writes > 0 {
        let (reads, writes) = (count(reads, "read"), count(writes, "write"));
        let told = format!("{reads} and {writes} ended in an error");
        put(text, format_args!("failed           {told}"));
    }
}

fn memory(text: &mut String, figures: &Figures<'_>) {
    let (held, stored) = (figures.get("accounted_bytes"), figures.get("orig_data_size"));
    let data = figures.get("compr_data_size");
    let overhead = match figures.0["overhead_all_in"].as_f64() {
        Some(fraction) if fraction <= 1.0 => format!("{:.1} % over the data", fraction * 100.0),
        // If there is almost no data, a percentage says nothing.
        Some(_) => format!("{} over the data", human(held.saturating_sub(data))),
        None => figures.without_data().to_owned(),
    };
    text.push('\n');
    bytes(text, "data", data, "what is stored, to the byte");
    bytes(text, "held", held, &format!("ratio {}, {overhead}", ratio(stored, held)));
    bytes(text, "  objects", figures.get("object_bytes_resident"), "frames of the data");
    bytes(text, "  free", figures.get("free_bytes_held"), "frames kept for the next pages");
    bytes(text, "  metadata", figures.get("metadata_bytes"), "tables, buffers, codecs");
    bytes(text, "  moving", figures.get("pending_bytes"), "being freed");
    resident(text, figures);
}

fn resident(text: &mut String, figures: &Figures<'_>) {
    let page_tables = human(figures.get("page_table_bytes"));
    match figures.0["resident_bytes"].as_u64() {
        Some(resident) => {
            bytes(text, "resident", resident, &format!("page tables {page_tables} beside it"))
        }
        None => put(text, format_args!("resident         unknown: /proc/self/smaps is unreadable")),
    }
    if let Some(anonymous) = figures.0["anonymous_bytes"].as_u64() {
        bytes(text, "process", anonymous, "all anonymous memory of the server");
    }
}

fn limit(text: &mut String, figures: &Figures<'_>) {
    let (limit, used) = (figures.get("mem_limit"), figures.get("object_bytes_resident"));
    let most = human(figures.get("mem_used_max"));
    text.push('\n');
    if limit == 0 {
        put(text, format_args!("memory limit           none                   most used {most}"));
        return;
    }
    let percent = used as f64 * 100.0 / limit as f64;
    bytes(text, "memory limit", limit, &format!("{percent:.1} % used, most used {most}"));
    if is_full(figures, used, limit) {
        let refused = figures.0["trouble_stat"]["over_limit"].as_u64().unwrap_or(0);
        let device = figures.0["name"].as_str().unwrap_or("DEVICE");
        put(
            text,
            format_args!(
                "  full: {} refused; raise it (ramfold set TARGET {device}/mem_limit SIZE), or \
                 discard what is not needed (fstrim, blkdiscard)",
                count(refused, "write")
            ),
        );
    }
}

/// Whether the next page may find no room. It may need a whole zspage.
fn is_full(figures: &Figures<'_>, used: u64, limit: u64) -> bool {
    const ZSPAGE_FRAMES_MAX: u64 = 16;
    let refused = figures.0["trouble_stat"]["over_limit"].as_u64().unwrap_or(0) > 0;
    used >= limit || refused && used + ZSPAGE_FRAMES_MAX * PAGE_SIZE as u64 > limit
}

/// What is the matter with the server, and what helps.
fn notices(text: &mut String, stat: &Value) {
    let lines = stat["server"]["notices"].as_array().into_iter().flatten();
    let mut lines = lines.filter_map(Value::as_str).peekable();
    if lines.peek().is_some() {
        text.push('\n');
    }
    lines.for_each(|line| put(text, format_args!("! {line}")));
}

/// The memory target, if there is one.
fn target(text: &mut String, figures: &Figures<'_>) {
    let target = &figures.0["memory_target"];
    let Some(wanted) = target["target_bytes"].as_u64() else { return };
    let number = |name: &str| target[name].as_u64().unwrap_or(0);
    let recompressed = count(number("recompressed_pages"), "page");
    let written = number("written_back_pages");
    bytes(text, "memory target", wanted, &format!("{recompressed} denser, {written} written back"));
    if target["reached"] == false {
        let why = target["why"].as_str().unwrap_or("it does not say why");
        put(text, format_args!("  not reached    {why}"));
    }
}

fn bytes(text: &mut String, name: &str, bytes: u64, note: &str) {
    put(text, format_args!("{name:<16} {:>10} {:17} {note}", human(bytes), ""));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::stat::width::COLUMNS;
    use serde_json::json;

    fn example() -> Value {
        json!({
            "name": "zram0", "initstate": 1, "algorithm": "lz4", "chain_order": 3,
            "disksize": 100 * 4096, "orig_data_size": 60 * 4096, "compr_data_size": 40_000,
            "mem_limit": 1 << 20, "mem_used_max": 65536, "same_pages": 10, "huge_pages": 5,
            "object_bytes_resident": 49_152, "free_bytes_held": 4096, "metadata_bytes": 1000,
            "pending_bytes": 10, "accounted_bytes": 54_258,
            "resident_bytes": 54_258, "page_table_bytes": 8192, "overhead_all_in": 0.356_45,
            "server": {"pid": 1, "connections": 2, "uris": ["nbd+unix:///zram0?socket=/s"]},
        })
    }

    /// The numbers before "pages" in the lines of the first block.
    fn pages(text: &str) -> Vec<u64> {
        let lines = text.lines().filter(|line| line.contains(" page"));
        let number = |line: &str| line.split(" page").next()?.split(' ').next_back()?.parse().ok();
        lines.filter_map(number).collect()
    }

    #[test]
    fn kinds_of_pages_add_up_to_the_size() {
        let text = render(&example());
        let pages = pages(&text);
        assert_eq!(pages, [100, 45, 5, 10, 40], "{text}");
        assert_eq!(pages[0], pages[1..].iter().sum::<u64>(), "{text}");
    }

    #[test]
    fn a_socket_for_machines_shows_who_has_it_and_a_block_device_its_queues() {
        let mut stat = example();
        stat["server"]["vhost_user"] = json!([{"path": "/v", "machine": null, "queues": 0}]);
        assert!(render(&stat).contains("\n  vhost-user /v: no machine\n"), "{}", render(&stat));
        let used = json!([{"path": "/v", "machine": "pid 7", "queues": 2}]);
        stat["server"]["vhost_user"] = used;
        assert!(render(&stat).contains("\n  vhost-user /v: pid 7, 2 queues\n"));
        stat["server"]["ublk"] = json!([{"path": "/dev/ublkb3", "queues": 2}]);
        assert!(render(&stat).contains("\n  block device /dev/ublkb3, 2 queues\n"));
    }

    #[test]
    fn a_backing_server_shows_its_connection() {
        let mut stat = example();
        assert!(!render(&stat).contains("backing server"));
        stat["remote_backing"] = json!({"connected": true, "reconnects": 1});
        let text = render(&stat);
        assert!(text.contains("backing server   connected, 1 reconnection\n"), "{text}");
        let report = json!({"connected": false, "reconnects": 0, "late_requests": 2,
            "refused_requests": 3});
        stat["remote_backing"] = report;
        let text = render(&stat);
        let told = "backing server   not connected, 0 reconnections, 5 requests failed\n";
        assert!(text.contains(told), "{text}");
    }

    #[test]
    fn pages_on_the_backing_device_are_a_kind_of_their_own() {
        let mut stat = example();
        stat["bd_stat"] = json!({"bd_count": 20, "bd_reads": 1, "bd_writes": 21});
        stat["backing_dev"] = "/swap/file".into();
        let text = render(&stat);
        let pages = pages(&text);
        assert_eq!(pages, [100, 25, 5, 10, 20, 40], "{text}");
        assert!(text.contains("in /swap/file"), "{text}");
        assert!(!text.contains("in use for no page"), "{text}");
        stat["bd_stat"]["bd_pending"] = 512.into();
        let text = render(&stat);
        assert!(text.contains("512 blocks in use for no page: being freed or written"), "{text}");
        assert!(!text.contains("not used again"), "{text}");
        stat["bd_stat"]["bd_quarantined"] = 1.into();
        let text = render(&stat);
        assert!(text.contains("1 block not used again: a write had no reply"), "{text}");
    }

    #[test]
    fn designs_of_a_study_are_told_and_defaults_are_not() {
        let mut stat = example();
        (stat["design"], stat["free"]) = ("class".into(), "range".into());
        assert!(render(&stat).starts_with("zram0: lz4, chain order 3; pid 1"));
        (stat["design"], stat["free"]) = ("pool".into(), "sync".into());
        let told = "zram0: lz4, chain order 3, lock design pool, frees by sync; pid 1";
        assert!(render(&stat).starts_with(told));
    }

    #[test]
    fn errors_are_told_where_there_were_any() {
        let mut stat = example();
        stat["io_stat"] = json!({"failed_reads": 0, "failed_writes": 0});
        assert!(!render(&stat).contains("failed"));
        stat["io_stat"]["failed_reads"] = 3.into();
        let text = render(&stat);
        assert!(text.contains("3 reads and 0 writes ended in an error"), "{text}");
        stat["io_stat"] = json!({"failed_reads": 0, "failed_writes": 1});
        assert!(render(&stat).contains("0 reads and 1 write ended in an error"));
    }

    #[test]
    fn a_target_is_told_where_there_is_one() {
        let mut stat = example();
        assert!(!render(&stat).contains("target"));
        stat["memory_target"] = json!({"target_bytes": 1 << 20, "reached": true, "why": null,
            "recompressed_pages": 7, "written_back_pages": 3});
        let text = render(&stat);
        for words in ["memory target", "7 pages denser, 3 written back\n"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!text.contains("not reached"), "{text}");
        stat["memory_target"]["reached"] = false.into();
        stat["memory_target"]["why"] = "the backing device is full; start with a larger one".into();
        let text = render(&stat);
        assert!(text.contains("not reached    the backing device is full; start"), "{text}");
    }

    #[test]
    fn size_limit_and_overhead_are_told() {
        let text = render(&example());
        for words in ["ratio 4.53", "35.6 %", "4.7 % used", "memory limit", "what clients see"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(text.lines().all(|line| line.trim_end() == line), "no line ends in blanks: {text}");
    }

    /// A disk whose pages were all written back used to say that nothing is stored.
    #[test]
    fn where_the_pages_are_is_told_when_none_is_in_memory() {
        let mut stat = example();
        stat["compr_data_size"] = 0.into();
        stat["overhead_all_in"] = Value::Null;
        let rows = [
            (0, 0, 0, "nothing is stored"),
            (60, 0, 60, "all same-filled"),
            (60, 60, 0, "all written back"),
            (60, 50, 10, "on disk or same-filled"),
        ];
        for (pages, written_back, same, words) in rows {
            stat["orig_data_size"] = (pages * 4096).into();
            stat["bd_stat"] = json!({"bd_count": written_back});
            (stat["same_pages"], stat["huge_pages"]) = (same.into(), 0.into());
            let text = render(&stat);
            assert!(text.contains(&format!(", {words}\n")), "{words}: {text}");
        }
    }

    /// A disk with almost nothing on it used to be "115674.3 % over the data".
    #[test]
    fn what_is_held_for_little_data_is_told_in_bytes() {
        let mut stat = example();
        stat["compr_data_size"] = 100.into();
        stat["overhead_all_in"] = (54_258.0 / 100.0 - 1.0).into();
        let text = render(&stat);
        assert!(text.contains("ratio 4.53, 52.9 KiB over the data"), "{text}");
        assert!(!text.contains("% over"), "{text}");
    }

    /// "100 % used" did not say what to do about it.
    #[test]
    fn a_limit_that_is_reached_is_told_with_what_helps() {
        let mut stat = example();
        assert!(!render(&stat).contains("full:"));
        stat["object_bytes_resident"] = stat["mem_limit"].clone();
        let text = render(&stat);
        assert!(
            text.contains("100.0 % used") && text.contains("0 writes refused; raise it"),
            "{text}"
        );
        stat["object_bytes_resident"] = ((1 << 20) - 8 * 4096).into();
        assert!(!render(&stat).contains("full:"), "no write was refused");
        stat["trouble_stat"] = json!({"over_limit": 3});
        let text = render(&stat);
        assert!(
            text.contains("3 writes refused") && text.contains("zram0/mem_limit SIZE"),
            "{text}"
        );
    }

    #[test]
    fn what_is_the_matter_is_told_last() {
        let mut stat = example();
        stat["server"]["notices"] = json!(["zram0: it burns; put it out"]);
        assert!(render(&stat).ends_with("\n\n! zram0: it burns; put it out\n"));
    }

    /// With figures as large as a machine has them.
    #[test]
    fn every_line_fits_eighty_columns() {
        let mut stat = example();
        let many = 1_u64 << 41;
        let fields = stat.as_object_mut().expect("an object");
        for (_, value) in fields.iter_mut().filter(|(_, value)| value.is_u64()) {
            *value = many.into();
        }
        stat["chain_order"] = 3.into();
        stat["shuffle"] = "auto".into();
        stat["shared"] = json!({"pages": many, "saved_bytes": many, "objects": 1 << 30});
        stat["units"] = json!({"pages": many, "units": 1 << 28, "dead_pages": 1 << 28});
        stat["bd_stat"] = json!({"bd_count": 9, "bd_pending": 1 << 28, "bd_quarantined": 1 << 28});
        stat["backing_dev"] = "/var/lib/somewhere/deep/with a long name of a file".into();
        stat["io_stat"] = json!({"failed_reads": 1_u64 << 40, "failed_writes": 1_u64 << 40});
        stat["trouble_stat"] = json!({"over_limit": 1_u64 << 40});
        stat["memory_target"] = json!({"target_bytes": many, "reached": false,
            "recompressed_pages": 1 << 30, "written_back_pages": 1 << 30,
            "why": "the backing device is full; start with a larger one, or with none at all"});
        let off = "its algorithms were chosen by somebody long ago";
        stat["tiers"] = json!({"density": "balanced", "denser_pages": 1 << 30, "off": off,
            "cpu_us": 1_u64 << 40, "faster_pages": 1 << 30});
        stat["anonymous_bytes"] = many.into();
        stat["server"]["notices"] = json!(["zram0: it burns; ".to_owned() + &"put ".repeat(40)]);
        let text = render(&stat);
        let blocks = text.lines().skip_while(|line| !line.is_empty());
        for line in blocks {
            assert!(line.chars().count() <= COLUMNS, "{line:?}\n{text}");
        }
        let plain = render(&example());
        assert!(plain.lines().all(|line| !line.starts_with("     ")), "nothing breaks: {plain}");
    }

    /// A path may have anything in it.
    #[test]
    fn what_is_from_outside_stays_on_its_line() {
        let mut stat = example();
        stat["bd_stat"] = json!({"bd_count": 1});
        stat["backing_dev"] = "/a\n\x1b[31m".into();
        let text = render(&stat);
        assert!(text.contains("1 page  in /a\\n\\u{1b}[31m\n"), "{text}");
    }

    #[test]
    fn an_answer_without_figures_is_no_crash() {
        let empty = render(&json!({}));
        assert!(empty.contains("no size yet"), "{empty}");
        let text = render(&json!({"initstate": 1}));
        assert!(text.contains("memory limit") && text.contains("none"), "{text}");
    }
}
