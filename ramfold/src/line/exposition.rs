//! Figures for monitoring: the text formats of Prometheus and OpenMetrics.
//!
//! ```text
//!   {"name":"zram0","huge_pages":2,..} --FAMILIES--> ramfold_stored_bytes{device="zram0",..} 8192
//! ```
//!
//! Everything comes from the object that `stat --json` prints, so the two cannot disagree. There
//! are no ratios, because the reader divides.
//!
//! Invariants
//! - The kinds of `ramfold_stored_bytes` add up to what is stored, and the parts of
//!   `ramfold_held_bytes` to what is held.
//! - A counter goes down only when its device is reset, or its server starts anew.
//! - A figure that could not be measured has no line.
//!
//! Locks: none.

use std::fmt::Write;

use serde_json::Value;
use serve::metrics::MetricsFormat;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// One metric, with a line for each of its rows and devices.
struct Family {
    /// Without the ending `_total` of a counter.
    name: &'static str,
    counts: bool,
    help: &'static str,
    /// The label of the rows, if there are several.
    label: &'static str,
    rows: &'static [Row],
}

/// A value of the label, the place of a number in the object, and what to multiply it by.
struct Row(&'static str, &'static str, u64);

const fn gauge(name: &'static str, help: &'static str, rows: &'static [Row]) -> Family {
    Family { name, counts: false, help, label: "", rows }
}

const fn counter(name: &'static str, help: &'static str, rows: &'static [Row]) -> Family {
    Family { name, counts: true, help, label: "", rows }
}

const fn by(label: &'static str, family: Family) -> Family {
    Family { label, ..family }
}

const FAMILIES: [Family; 20] = [
    gauge("ramfold_disk_bytes", "Size of the disk.", &[Row("", "/disksize", 1)]),
    by(
        "kind",
        gauge(
            "ramfold_stored_bytes",
            "Bytes of pages as clients wrote them, by how they are stored.",
            &[
                Row("compressed", "/compressed_pages", PAGE),
                Row("huge", "/huge_pages", PAGE),
                Row("same_filled", "/same_pages", PAGE),
                Row("written_back", "/bd_stat/bd_count", PAGE),
            ],
        ),
    ),
    gauge(
        "ramfold_compressed_bytes",
        "Bytes of compressed and huge objects in memory.",
        &[Row("", "/compr_data_size", 1)],
    ),
    gauge(
        "ramfold_shared_page_bytes",
        "Bytes of pages as clients wrote them that share an object with equal ones.",
        &[Row("", "/shared/pages", PAGE)],
    ),
    gauge(
        "ramfold_shared_saved_bytes",
        "Bytes of objects that sharing equal pages saves.",
        &[Row("", "/shared/saved_bytes", 1)],
    ),
    gauge(
        "ramfold_unit_page_bytes",
        "Bytes of pages as clients wrote them that are in a unit with their neighbours.",
        &[Row("", "/units/pages", PAGE)],
    ),
    gauge(
        "ramfold_unit_dead_bytes",
        "Bytes of pages, as clients wrote them, that units have for nothing.",
        &[Row("", "/units/dead_pages", PAGE)],
    ),
    by(
        "part",
        gauge(
            "ramfold_held_bytes",
            "Bytes of memory that are held for the disk, by what for.",
            &[
                Row("objects", "/object_bytes_resident", 1),
                Row("free", "/free_bytes_held", 1),
                Row("metadata", "/metadata_bytes", 1),
                Row("pending", "/pending_bytes", 1),
            ],
        ),
    ),
    gauge(
        "ramfold_memory_limit_bytes",
        "The most bytes that objects may take; 0 is no limit.",
        &[Row("", "/mem_limit", 1)],
    ),
    gauge(
        "ramfold_memory_target_bytes",
        "The bytes at which the memory of objects is held.",
        &[Row("", "/memory_target/target_bytes", 1)],
    ),
    gauge(
        "ramfold_memory_used_bytes",
        "Bytes of all frames that have objects, as the kernel counts them.",
        &[Row("", "/mem_used_total", 1)],
    ),
    gauge(
        "ramfold_memory_used_max_bytes",
        "The most that ramfold_memory_used_bytes was.",
        &[Row("", "/mem_used_max", 1)],
    ),
    gauge(
        "ramfold_connections",
        "NBD connections to the device.",
        &[Row("", "/server/connections_to_device", 1)],
    ),
    gauge(
        "ramfold_process_anonymous_bytes",
        "Anonymous memory of the server, which is the same for all its devices.",
        &[Row("", "/anonymous_bytes", 1)],
    ),
    by(
        "direction",
        counter(
            "ramfold_failed_requests",
            "Requests that failed.",
            &[Row("read", "/io_stat/failed_reads", 1), Row("write", "/io_stat/failed_writes", 1)],
        ),
    ),
    by(
        "cause",
        counter(
            "ramfold_troubles",
            "Refusals and failures, by cause.",
            &[
                Row("over_limit", "/trouble_stat/over_limit", 1),
                Row("no_memory", "/trouble_stat/no_memory", 1),
                Row("damaged", "/trouble_stat/damaged", 1),
                Row("backing_full", "/trouble_stat/backing_full", 1),
                Row("backing_no_space", "/trouble_stat/backing_no_space", 1),
                Row("backing_failed", "/trouble_stat/backing_failed", 1),
            ],
        ),
    ),
    counter(
        "ramfold_written_back_bytes",
        "Bytes that were written to the backing device.",
        &[Row("", "/bd_stat/bd_writes", PAGE)],
    ),
    counter(
        "ramfold_read_back_bytes",
        "Bytes that were read from the backing device.",
        &[Row("", "/bd_stat/bd_reads", PAGE)],
    ),
    counter(
        "ramfold_compacted_bytes",
        "Bytes of frames that compaction freed.",
        &[Row("", "/pages_compacted", PAGE)],
    ),
    counter(
        "ramfold_huge_stored_bytes",
        "Bytes of pages that were stored uncompressed since the start.",
        &[Row("", "/huge_pages_since", PAGE)],
    ),
];

/// The document of the devices of some servers. `stats` are their answers, each under the name of
/// its server, which becomes a label if it is given.
pub(crate) fn render(stats: &[(Option<&str>, &Value)], format: MetricsFormat) -> String {
    let mut text = String::new();
    let devices: Vec<(String, Value)> = stats
        .iter()
        .flat_map(|(server, stat)| {
            let several = stat.as_array().map_or(std::slice::from_ref(*stat), Vec::as_slice);
            several.iter().map(move |device| (labels(*server, device), counted(device)))
        })
        .collect();
    about(&mut text, format);
    FAMILIES.iter().for_each(|family| family.write(&mut text, &devices, format));
    if format == MetricsFormat::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

/// The version of this program.
fn about(text: &mut String, format: MetricsFormat) {
    let (name, kind) = match format {
        MetricsFormat::Prometheus => ("ramfold_build_info", "gauge"),
        MetricsFormat::OpenMetrics => ("ramfold_build", "info"),
    };
    head(text, name, kind, "The version of ramfold.");
    let version = escaped(env!("CARGO_PKG_VERSION"));
    line(text, "ramfold_build_info", &format!("version=\"{version}\""), 1);
}

impl Family {
    fn write(&self, text: &mut String, devices: &[(String, Value)], format: MetricsFormat) {
        let sample =
            if self.counts { format!("{}_total", self.name) } else { self.name.to_owned() };
        let name = match format {
            MetricsFormat::Prometheus => &sample,
            MetricsFormat::OpenMetrics => self.name,
        };
        head(text, name, if self.counts { "counter" } else { "gauge" }, self.help);
        for (labels, device) in devices {
            for Row(value, place, unit) in self.rows {
                let Some(number) = device.pointer(place).and_then(Value::as_u64) else { continue };
                let labels = match self.label {
                    "" => labels.clone(),
                    label => format!("{labels},{label}=\"{value}\""),
                };
                line(text, &sample, &labels, number.saturating_mul(*unit));
            }
        }
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(text: &mut String, name: &str, labels: &str, number: u64) {
    // As above.
    let _ = writeln!(text, "{name}{{{labels}}} {number}");
}

/// The labels that every line of a device has.
fn labels(server: Option<&str>, device: &Value) -> String {
    let name = escaped(device["name"].as_str().unwrap_or_default());
    match server {
        Some(server) => format!("server=\"{}\",device=\"{name}\"", escaped(server)),
        None => format!("device=\"{name}\""),
    }
}

/// The object with the number of pages that are compressed and in memory.
fn counted(device: &Value) -> Value {
    let number = |place| device.pointer(place).and_then(Value::as_u64).unwrap_or(0);
    let stored = number("/orig_data_size") / PAGE;
    let others = ["/huge_pages", "/same_pages", "/bd_stat/bd_count"];
    let others = others.into_iter().map(number).sum();
    let mut counted = device.clone();
    counted["compressed_pages"] = stored.saturating_sub(others).into();
    counted
}

/// The text as the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn device(name: &str) -> Value {
        json!({
            "name": name, "disksize": 40960, "orig_data_size": 28672, "huge_pages": 2,
            "same_pages": 1, "compr_data_size": 9000, "memory_target": null,
            "io_stat": {"failed_reads": 3}, "bd_stat": {"bd_count": 1, "bd_writes": 5},
        })
    }

    #[test]
    fn kinds_add_up_and_what_is_unknown_has_no_line() {
        let one = device("zram0");
        let text = render(&[(None, &one)], MetricsFormat::Prometheus);
        for line in [
            "ramfold_stored_bytes{device=\"zram0\",kind=\"compressed\"} 12288",
            "ramfold_stored_bytes{device=\"zram0\",kind=\"huge\"} 8192",
            "ramfold_stored_bytes{device=\"zram0\",kind=\"same_filled\"} 4096",
            "ramfold_stored_bytes{device=\"zram0\",kind=\"written_back\"} 4096",
            "# TYPE ramfold_failed_requests_total counter",
            "ramfold_failed_requests_total{device=\"zram0\",direction=\"read\"} 3",
            "ramfold_written_back_bytes_total{device=\"zram0\"} 20480",
            "# TYPE ramfold_build_info gauge",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\nis not in\n{text}");
        }
        assert!(!text.contains("ramfold_memory_target_bytes{"), "{text}");
        assert!(!text.contains("# EOF") && text.ends_with('\n'), "{text}");
    }

    #[test]
    fn names_differ_by_format_and_families_stay_together() {
        let (first, second) = (device("a\"b"), json!([device("c"), device("d")]));
        let stats = [(Some("x"), &first), (Some("y"), &second)];
        let text = render(&stats, MetricsFormat::OpenMetrics);
        assert!(text.contains("# TYPE ramfold_failed_requests counter\n"), "{text}");
        assert!(text.contains("{server=\"x\",device=\"a\\\"b\",direction=\"read\"} 3\n"), "{text}");
        assert!(text.contains("# TYPE ramfold_build info\nramfold_build_info{"), "{text}");
        assert!(text.ends_with("\n# EOF\n"), "{text}");
        for family in FAMILIES {
            let of_family =
                |line: &str| line.trim_start_matches("# TYPE ").starts_with(family.name);
            let heads = text.lines().filter(|it| it.starts_with("# TYPE") && of_family(it));
            assert!(heads.count() >= 1, "{} has a type", family.name);
        }
    }
}
