//! `lab cache`: a zswap beside its codec.

use crate::support::{json, lab, measured, number, rows};
use serde_json::Value;

#[test]
fn every_store_and_load_stands_beside_the_codec() {
    let document = json("cache", &["cache", "--quick", "--mib", "1", "--order", "random,stored"]);
    assert_eq!(rows(&document).len(), 16, "two orders, threads, passes, directions");
    for row in rows(&document) {
        measured(row, &["ns_per_page", "codec_ns_per_page", "ratio", "excess_ns_per_page"]);
        assert_eq!(row["pages"], 256);
        let (store, several) = (row["op"] == "store", row["threads"] != 1);
        assert_eq!(row["bare_ns_per_page"].is_number(), store, "{row}");
        for field in ["speedup", "codec_speedup", "scaling"] {
            assert_eq!(row[field].is_number(), several, "{field} of {row}");
        }
    }
}

/// Pages of three kinds, more threads than pages in a slice, another algorithm.
#[test]
fn pages_are_counted_by_what_becomes_of_them() {
    let file = crate::support::Scratch::new("cache-corpus");
    let mut bytes = vec![0; 1 << 20];
    let mut state = 1_u64;
    for byte in &mut bytes[..40 * 4096] {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *byte = (state >> 56) as u8;
    }
    bytes[200 * 4096..].chunks_mut(4096).for_each(|page| page[7] = 1);
    std::fs::write(&file.0, bytes).unwrap();
    let corpus = ["--corpus", file.0.to_str().unwrap()];
    let some = ["cache", "--quick", "--mib", "1", "--threads", "3", "--algorithm", "zstd"];
    let document = json("cache-kinds", &[&some[..], &corpus[..]].concat());
    assert_eq!(rows(&document).len(), 4);
    for row in rows(&document) {
        let counts = ["same_pages", "huge_pages"].map(|field| number(row, field));
        assert_eq!(counts, [160.0, 40.0], "{row}");
        assert_eq!(row["scaling"], Value::Null, "no run with one thread");
    }
    let output = lab().args(["cache", "--mib", "2"]).args(corpus).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("holds 1.0 MiB"));
}
