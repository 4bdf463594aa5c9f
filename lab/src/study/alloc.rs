//! Study `alloc`: a pool against malloc, mimalloc and jemalloc, holding the same objects.
//!
//! ```text
//!   this process                        a child of the same program, one per measurement
//!   corpus -> lz4 -> objects --stdin--> objects, tables of slots; baseline of resident memory
//!   rows  <------------------stdout---  fill, churn, churn_compact, half, compact, refill
//!                                       zsmalloc: Pool;  malloc: Box<[u8]>, libc's or preloaded
//! ```
//!
//! - `fill`: every object is allocated and copied, in order. `churn`: 10 N times a random slot is
//!   freed and gets a random object. `half`: a random half is freed. `refill`: it is stored again.
//! - `churn_compact` and `compact`: the pool is compacted. Of the others each is asked to give back
//!   what it holds free by its own call: `malloc_trim`, `mi_collect`, jemalloc's purge. Before
//!   that they are left alone for a while and given a little work, which is when they give back
//!   what they put off. `MALLOC_CONF` has jemalloc do that in its background thread, and within
//!   that while instead of ten seconds; the rest is everybody's default.
//!
//! `resident_bytes` is the growth of the child's anonymous memory since just before `fill`, the
//! same for all. Pages of allocator, metadata and payload count. The table of pointers or handles
//! (8 bytes each), the copy of the corpus and page tables do not. Times are per operation of a
//! thread, and include the copy and the page faults. They are taken over batches of 512: `churn`
//! frees as many and then fills their slots, and each of the two is timed.
//!
//! `accounted_bytes` is the pool's own count. It consists of the payload and of parts:
//! `slack_bytes` of slots in use, `unused_bytes` of touched frames, and so on. A note has them in
//! hundredths of the payload.
//!
//! Rows are medians over the runs, with minimum and maximum.
//!
//! These figures do not show programs whose objects differ in lifetime, or objects below 32 bytes.

use crate::apparatus::objects::Objects;
use crate::frame::{Lab, Report, Study, note, present};
use crate::ground::LabError;
use crate::pages::{Corpus, PAGE_SIZE};
use crate::rows::{Field, Format, Row, fields};
use clap::{ArgMatches, Args, FromArgMatches};
use peers::{Peer, Starter};
use plan::{Plan, ZSMALLOC};
use zsmalloc::Rule;

mod child;
mod holder;
mod parts;
mod peers;
mod phase;
mod plan;

pub(super) use child::INSIDE;

pub(super) const STUDY: Study = Study {
    name: "alloc",
    about: "Memory and time of a pool beside malloc, mimalloc and jemalloc, same objects",
    options: Options::augment_args,
    fields: &FIELDS,
    vs_kernel: false,
    run,
};

/// Options of `lab alloc`.
#[derive(Args, Debug)]
struct Options {
    /// Allocators beside ours
    #[arg(
        long,
        value_name = "NAME[,NAME]",
        value_delimiter = ',',
        default_value = "malloc,mimalloc,jemalloc"
    )]
    peers: Vec<Peer>,
    /// Threads; each has its own share of the slots
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: Vec<u32>,
    /// Chain order of our pool; the default is that of a pool
    #[arg(long, value_name = "N", default_value = "4",
          value_parser = clap::value_parser!(u32).range(0..=4))]
    chain_order: u32,
    /// How the classes of our pool are chosen: least-waste, used-percent, fitted
    #[arg(long, value_name = "RULE", default_value = "fitted")]
    rule: Rule,
    /// Use the first N MiB of the corpus [default: 256, or all of a smaller one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65536))]
    mib: Option<u64>,
}

const DEFAULT_BYTES: u64 = 256 << 20;
const QUICK_BYTES: u64 = 4 << 20;

fn run(matches: &ArgMatches, lab: &Lab) -> Result<Report, LabError> {
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?;
    let default = if lab.quick() { QUICK_BYTES } else { DEFAULT_BYTES };
    let synthetic = options.mib.map_or(default, |mib| mib << 20);
    let corpus = Corpus::open(lab.corpus_file(), synthetic)?;
    let most = default as usize / PAGE_SIZE;
    let pages = options.mib.map_or(Ok(corpus.pages().min(most)), |mib| corpus.pages_in(mib))?;
    let objects = Objects::of(&corpus, pages)?;
    let mut notes = vec![peers::CONDITIONS.to_owned()];
    let all = || std::iter::once(None).chain(options.peers.iter().copied().map(Some));
    let cases: Vec<(u32, Option<Peer>)> = options
        .threads
        .iter()
        .flat_map(|&threads| all().map(move |peer| (threads, peer)))
        .collect();
    let name = |&(threads, peer): &(u32, Option<Peer>)| {
        format!("{threads} threads, {}", peer.map_or(ZSMALLOC, Peer::name))
    };
    let mut missing = Vec::new();
    let mut runs = lab.interleaved(&cases, name, |&(threads, peer), run| {
        let Options { chain_order, rule, .. } = options;
        let plan = Plan { threads, run, chain_order, rule, rest: peers::rest(lab.quick()) };
        let starter = Starter { plan, objects: &objects, cleanup: &lab.cleanup };
        let Some(peer) = peer else { return starter.pool() };
        // One that is missing is not asked for again.
        if missing.contains(&peer) {
            return Ok(Vec::new());
        }
        let rows = present(starter.peer(peer), &mut notes)?;
        missing.extend(rows.is_none().then_some(peer));
        Ok(rows.unwrap_or_default())
    })?;
    for row in &mut runs {
        let ours = row.is("allocator", ZSMALLOC);
        row.set("chain_order", ours.then_some(options.chain_order))
            .set("rule", ours.then(|| options.rule.name()))
            .set("corpus", corpus.name.as_str())
            .set("corpus_bytes", pages * PAGE_SIZE);
    }
    let rows = fields::medians(&FIELDS, &runs);
    ratios(&rows, &mut notes);
    Ok(Report { corpus: Some(corpus), rows, runs, notes })
}

/// What is compared between the allocators, and in which phases.
const COMPARED: [(&str, &str); 5] = [
    ("fill", "resident_bytes"),
    ("churn_compact", "resident_bytes"),
    ("compact", "resident_bytes"),
    ("refill", "resident_bytes"),
    ("churn", "replace_ns"),
];

/// Says how the pool compares with every other, and how its own count compares with the system's.
fn ratios(rows: &[Row], notes: &mut Vec<String>) {
    for row in rows.iter().filter(|row| row.is("allocator", ZSMALLOC)) {
        let text = |row: &Row, field| row.get(field).as_str().unwrap_or("").to_owned();
        let phase = text(row, "phase");
        let same = |other: &&Row| {
            other.is("phase", &phase) && other.get("threads") == row.get("threads") && other != &row
        };
        for (_, field) in COMPARED.iter().filter(|(at, _)| *at == phase) {
            for other in rows.iter().filter(same) {
                let Some((a, b)) = row.number(field).zip(other.number(field)) else { continue };
                let (threads, peer) = (row.get("threads"), text(other, "allocator"));
                let ratio = a / b;
                note(
                    notes,
                    format!("{phase}, threads {threads}: zsmalloc / {peer} = {ratio:.3} ({field})"),
                );
            }
        }
        if let Some((own, seen)) = row.number("accounted_bytes").zip(row.number("resident_bytes")) {
            let (threads, over) = (row.get("threads"), (seen / own - 1.0) * 100.0);
            note(
                notes,
                format!("{phase}, threads {threads}: resident is {over:+.2} % of accounted"),
            );
        }
        if let Some(parts) = parts::in_words(row) {
            note(notes, format!("{phase}, threads {}: {parts}", row.get("threads")));
        }
    }
}

const FIELDS: [Field; 26] = [
    Field::key("allocator").shown("allocator", Format::Plain),
    Field::key("phase").shown("phase", Format::Plain),
    Field::key("threads").shown("threads", Format::Plain),
    Field::key("chain_order").shown("order", Format::Plain),
    Field::key("rule"),
    Field::key("corpus"),
    Field::key("corpus_bytes"),
    Field::key("objects"),
    Field::key("give_back"),
    Field::measured("alloc_ns").shown("alloc ns", Format::Fixed(1)),
    Field::measured("free_ns").shown("free ns", Format::Fixed(1)),
    Field::measured("replace_ns").shown("alloc + free ns", Format::Fixed(1)),
    Field::measured("compact_ms").shown("compact ms", Format::Fixed(1)),
    Field::measured("resident_bytes").shown("resident MiB", Format::Mib),
    Field::measured("payload_bytes").shown("payload MiB", Format::Mib),
    Field::measured("overhead_all_in").shown("all-in over %", Format::Percent),
    Field::measured("accounted_bytes"),
    Field::measured("slack_bytes"),
    Field::measured("unused_bytes"),
    Field::measured("free_bytes_held"),
    Field::measured("frame_table_bytes"),
    Field::measured("cell_table_bytes"),
    Field::measured("descriptor_bytes"),
    Field::measured("class_bytes"),
    Field::measured("page_table_bytes").shown("page tables MiB", Format::Mib),
    Field::of_run("library"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn row(allocator: &str, phase: &str, resident: u64, replace_ns: f64) -> Row {
        let mut row = Row::default();
        row.set("allocator", allocator).set("phase", phase).set("threads", 1);
        row.set("resident_bytes", resident).set("replace_ns", replace_ns);
        row
    }

    #[test]
    fn ratios_are_of_the_same_phase_and_name_the_peer() {
        let mut ours = row(ZSMALLOC, "compact", 60, f64::NAN);
        ours.set("accounted_bytes", 50);
        let rows = [
            ours,
            row(ZSMALLOC, "churn", 90, 150.0),
            row("malloc", "compact", 100, f64::NAN),
            row("malloc", "churn", 120, 300.0),
        ];
        let mut notes = Vec::new();
        ratios(&rows, &mut notes);
        let expected = [
            "compact, threads 1: zsmalloc / malloc = 0.600 (resident_bytes)",
            "compact, threads 1: resident is +20.00 % of accounted",
            "churn, threads 1: zsmalloc / malloc = 0.500 (replace_ns)",
        ];
        assert_eq!(notes, expected);
    }
}
