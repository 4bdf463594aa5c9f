//! An estimate as a table for people and as JSON for programs.
//!
//! Invariant: both say the same. `ratio` is the bytes of the pages divided by all bytes that they
//! took, with metadata. If only a sample was stored, both say so.
//!
//! Locks: none.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;

use host::PAGE_SIZE;
use serde_json::{Value, json};

use super::sample::Sample;
use super::trial::Row;
use crate::line::size::{count, human};

/// The pages that were stored, and what they took.
pub(super) struct Estimate {
    pub(super) sample: Sample,
    pub(super) same_pages: u64,
    /// Pages of the sample that equal an earlier one, without the same-filled ones.
    pub(super) equal_pages: u64,
    /// Pages of a process that could not be read.
    pub(super) unread: u64,
    pub(super) rows: Vec<Row>,
}

/// The estimate as JSON. If only a sample was stored, `pages` and the figures after it are about
/// the sample, and `every` is greater than 1.
pub(super) fn document(estimate: &Estimate) -> Value {
    let rows: Vec<Value> = estimate.rows.iter().map(|row| row_document(estimate, row)).collect();
    json!({
        "pages": estimate.sample.pages(),
        "same_pages": estimate.same_pages,
        "equal_pages": estimate.equal_pages,
        "sampled": estimate.sample.is_partial(),
        "every": estimate.sample.every(),
        "unread_pages": estimate.unread,
        "rows": rows,
    })
}

fn row_document(estimate: &Estimate, row: &Row) -> Value {
    json!({
        "algorithm": row.setting.codec.algorithm().name(),
        "level": row.setting.codec.level(),
        "chain_order": row.setting.chain_order,
        "compr_data_size": row.compr_data_size,
        "object_bytes_resident": row.object_bytes_resident,
        "metadata_bytes": row.metadata_bytes,
        "huge_pages": row.huge_pages,
        "ratio": ratio(estimate, row),
        "compress_ns_per_page": row.compress_ns,
        "decompress_ns_per_page": row.decompress_ns,
    })
}

/// Bytes of pages for each byte that they took, with metadata.
fn ratio(estimate: &Estimate, row: &Row) -> f64 {
    bytes(estimate) as f64 / row.takes().max(1) as f64
}

fn bytes(estimate: &Estimate) -> u64 {
    estimate.sample.pages() * PAGE_SIZE as u64
}

/// Lines for people. The last one says which way to choose.
pub(super) fn table(estimate: &Estimate) -> String {
    let mut text = headline(estimate);
    put(&mut text, HEADER.map(str::to_owned));
    for row in &estimate.rows {
        put(&mut text, cells(estimate, row));
    }
    let advice = advice(estimate);
    text + "\nTakes: frames and metadata. Times: the codec alone, us per page. \
            Every page was read back and compared.\n"
        + &advice
}

const HEADER: [&str; 8] =
    ["ALGORITHM", "ORDER", "HUGE", "COMPRESSED", "TAKES", "RATIO", "COMPRESS", "DECOMPRESS"];

fn headline(estimate: &Estimate) -> String {
    let (pages, same) = (estimate.sample.pages(), estimate.same_pages);
    let equal = equal(estimate);
    let (pages, taken) = (count(pages, "page"), human(bytes(estimate)));
    let mut text = format!("{pages} ({taken}), {same} same-filled, {equal}");
    if estimate.sample.is_partial() {
        let every = estimate.sample.every();
        text += &format!("; a sample, one page of every {every}, because all would not fit");
    }
    if estimate.unread > 0 {
        text += &format!("; {} more could not be read", count(estimate.unread, "page"));
    }
    text + "\n\n"
}

/// A sample misses most of the pages that equal another, so it tells the least that there are.
fn equal(estimate: &Estimate) -> String {
    let least = if estimate.sample.is_partial() { "at least " } else { "" };
    let equal = estimate.equal_pages;
    let percent = 100.0 * equal as f64 / estimate.sample.pages().max(1) as f64;
    format!("{least}{equal} equal to an earlier one ({percent:.1} %)")
}

fn cells(estimate: &Estimate, row: &Row) -> [String; 8] {
    let us = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| format!("{:.2}", ns as f64 / 1e3));
    [
        row.setting.codec.to_string(),
        row.setting.chain_order.to_string(),
        row.huge_pages.to_string(),
        human(row.compr_data_size),
        human(row.takes()),
        format!("{:.2}", ratio(estimate, row)),
        us(row.compress_ns),
        us(row.decompress_ns),
    ]
}

fn put(text: &mut String, cells: [String; 8]) {
    let [name, order, huge, compressed, takes, ratio, compress, decompress] = cells;
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{name:<10} {order:>5} {huge:>9} {compressed:>11} {takes:>11} {ratio:>7} \
         {compress:>9} {decompress:>11}"
    );
}

/// With so many pages, a device's own tables and buffers are a small part of what it takes: 4 MiB.
const ENOUGH_PAGES: u64 = 1024;

fn advice(estimate: &Estimate) -> String {
    let smallest = estimate.rows.iter().min_by_key(|row| row.takes());
    let gains = smallest.is_some_and(|row| row.takes() < bytes(estimate));
    match (gains, few(estimate, smallest)) {
        (true, few) => few + &choices(estimate),
        (false, few) if few.is_empty() => {
            "nothing is gained: every way takes more than the pages themselves\n".to_owned()
        }
        (false, few) => few,
    }
}

/// A message if there are too few pages to tell.
fn few(estimate: &Estimate, smallest: Option<&Row>) -> String {
    let pages = estimate.sample.pages();
    let Some(row) = smallest.filter(|_| pages < ENOUGH_PAGES) else { return String::new() };
    format!(
        "{} {} too few to tell: {} of the {} that they take at least are metadata, which grows \
         much slower than what is stored; give {ENOUGH_PAGES} pages or more\n",
        count(pages, "page"),
        if pages == 1 { "is" } else { "are" },
        human(row.metadata_bytes),
        human(row.takes()),
    )
}

/// The smallest way, and the fastest.
fn choices(estimate: &Estimate) -> String {
    let name = |row: &Row| {
        let (codec, order) = (&row.setting.codec, row.setting.chain_order);
        format!("--algorithm {codec} --chain-order {order} ({})", human(row.takes()))
    };
    let smallest = estimate.rows.iter().min_by_key(|row| row.takes()).map(name);
    let fastest = fastest(&estimate.rows).map(name);
    match (smallest, fastest) {
        (Some(small), Some(fast)) => format!("smallest: {small}; fastest: {fast}\n"),
        (Some(small), None) => format!("smallest: {small}\n"),
        _ => String::new(),
    }
}

/// The smallest row of the fastest algorithm. Its time is the sum over all its rows in both
/// directions, because the chain order does not affect it.
fn fastest(rows: &[Row]) -> Option<&Row> {
    let mut times = BTreeMap::new();
    for row in rows {
        let time = times.entry(row.setting.codec.algorithm().name()).or_insert(0);
        *time += row.compress_ns? + row.decompress_ns.unwrap_or(0);
    }
    rows.iter().max_by_key(|row| {
        let time = times[row.setting.codec.algorithm().name()];
        (Reverse(time), Reverse(row.takes()))
    })
}

#[cfg(test)]
mod tests {
    use super::super::device::Setting;
    use super::super::sample::Sample;
    use super::*;
    use codec::{Algorithm, Codec};

    fn row(algorithm: Algorithm, chain_order: u32, takes: u64, ns: Option<u64>) -> Row {
        Row {
            setting: Setting { codec: Codec::new(algorithm), chain_order },
            compr_data_size: takes - 100,
            object_bytes_resident: takes - 50,
            metadata_bytes: 50,
            huge_pages: 1,
            compress_ns: ns,
            decompress_ns: ns,
        }
    }

    fn estimate(sample: Sample) -> Estimate {
        let rows = vec![
            row(Algorithm::Lz4, 3, 20_000, Some(1100)),
            row(Algorithm::Lz4, 2, 30_000, Some(900)),
            row(Algorithm::Zstd, 3, 10_000, Some(5000)),
        ];
        Estimate { sample, same_pages: 3, equal_pages: 2, unread: 0, rows }
    }

    /// One page used to be estimated "at ratio 0.03", with an algorithm recommended for it.
    #[test]
    fn what_gains_nothing_is_not_recommended_and_few_pages_are_said_to_be() {
        let one = table(&estimate(Sample::of(1, 1)));
        let last = one.lines().last().unwrap();
        assert!(last.starts_with("1 page is too few to tell: 50 B of the 9.8 KiB"), "{one}");
        assert!(!one.contains("smallest:"), "{one}");
        let some = table(&estimate(Sample::of(10, 1)));
        let words = ["10 pages are too few to tell", "smallest: --algorithm zstd"];
        assert!(words.iter().all(|words| some.contains(words)), "{some}");
        let mut noise = estimate(Sample::of(2048, 1));
        assert!(!table(&noise).contains("too few"), "8 MiB are enough");
        noise.rows.iter_mut().for_each(|row| row.object_bytes_resident = 2048 * 4096);
        let noise = table(&noise);
        assert!(noise.ends_with("every way takes more than the pages themselves\n"), "{noise}");
        assert!(!noise.contains("smallest:"), "{noise}");
    }

    #[test]
    fn the_advice_names_the_smallest_and_the_fastest() {
        let text = table(&estimate(Sample::of(10, 1)));
        let last = text.lines().last().unwrap();
        assert!(last.contains("smallest: --algorithm zstd --chain-order 3"), "{last}");
        assert!(last.contains("fastest: --algorithm lz4 --chain-order 3"), "{last}");
        assert!(text.contains("10 pages (40.0 KiB), 3 same-filled, 2 equal"), "{text}");
    }

    #[test]
    fn a_sample_says_that_it_is_one() {
        let whole = document(&estimate(Sample::of(10, 1)));
        assert_eq!((&whole["sampled"], &whole["pages"]), (&false.into(), &10.into()));
        let part = estimate(Sample::of(10, 4));
        let text = table(&part);
        assert!(text.contains("one page of every 4"), "{text}");
        assert!(text.contains("at least 2 equal to an earlier one (20.0 %)"), "{text}");
        assert_eq!(document(&part)["every"], 4);
    }

    #[test]
    fn what_was_not_timed_is_null() {
        let mut estimate = estimate(Sample::of(10, 1));
        estimate.rows = vec![row(Algorithm::Lz4, 0, 4096, None)];
        assert!(document(&estimate)["rows"][0]["compress_ns_per_page"].is_null());
        let last = table(&estimate);
        assert!(last.lines().last().unwrap().starts_with("smallest: --algorithm lz4"), "{last}");
    }
}
