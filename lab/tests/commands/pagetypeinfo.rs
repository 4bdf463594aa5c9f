//! `lab pagetypeinfo`: every mode at every size, and the kernel's own where it can be read.

use crate::support::{json, measured, number, rows, succeed};
use serde_json::Value;

const KERNEL: &str = "/proc/pagetypeinfo";

fn kernel_is_readable() -> bool {
    std::fs::read(KERNEL).is_ok()
}

#[test]
fn every_mode_is_measured_at_every_size_beside_the_kernel() {
    let document = json("pagetypeinfo", &["pagetypeinfo", "--quick", "--free-blocks", "500,5000"]);
    assert!(document["machine"]["corpus"].is_null(), "no page is stored");
    let (kernel, ours): (Vec<&Value>, Vec<&Value>) =
        rows(&document).iter().partition(|row| row["mode"] == "kernel");
    let keys: Vec<(&str, u64)> = ours
        .iter()
        .map(|row| (row["mode"].as_str().unwrap(), row["free_blocks"].as_u64().unwrap()))
        .collect();
    let modes = ["counts", "list-walk", "list-walk-capped"];
    let expected = [500, 5000].map(|size| modes.map(|mode| (mode, size)));
    assert_eq!(keys, expected.as_flattened());
    for row in ours {
        measured(
            row,
            &[
                "reads",
                "read_us_mean",
                "read_us_p50",
                "read_us_p99",
                "read_us_max",
                "writer_ops_per_s",
                "writer_vs_alone",
            ],
        );
        assert!(number(row, "writer_ops_per_s_min") > 0.0, "nobody wrote: {row}");
        let whole = number(row, "free_pageblock_frames_min");
        assert!(whole >= 0.0 && whole % 512.0 == 0.0, "pageblocks are whole: {row}");
    }
    assert_eq!(kernel.len(), usize::from(kernel_is_readable()));
    for row in kernel {
        measured(row, &["reads", "read_us_mean", "read_us_p50", "read_us_p99", "read_us_max"]);
        assert!(number(row, "free_blocks") > 0.0, "{row}");
        measured(row, &["free_pageblock_frames"]);
        assert!(row["writer_ops_per_s"].is_null(), "the writer is at our zone: {row}");
    }
}

#[test]
fn sentences_say_how_reading_grows_what_was_published_and_what_is_missing() {
    let arguments = ["pagetypeinfo", "--quick", "--mode", "counts", "--runs", "1", "--corpus", "x"];
    let said = String::from_utf8(succeed(&arguments).stdout).unwrap();
    for sentence in ["counts: 10000 free blocks / 1000 = ", "published (S2", "no page is stored"] {
        assert!(said.contains(sentence), "{sentence} is not in {said}");
    }
    let missing = said.contains(&format!("{KERNEL}: missing"));
    assert_eq!(missing, !kernel_is_readable(), "{said}");
}
