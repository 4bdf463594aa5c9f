//! The columns of ours and of the kernel's that stand beside published tables, and which rows of a
//! record repeat a printed row.
//!
//! ```text
//!   column   name, what a row must say, the fields of one cell
//!   place    printed row -> what a row must say besides
//! ```
//!
//! Invariant: for one place, what a column wants is said by at most one row of a record.

use super::beside::{Column, Place, Way};
use super::markdown::NOT_RECORDED;
use super::student;

const fn column(name: &'static str, wants: Wants, fields: &'static [&'static str]) -> Column {
    Column { name, wants, fields, turn: same, reason: "" }
}

const fn turned(column: Column, turn: fn(f64) -> f64) -> Column {
    Column { turn, ..column }
}

const fn because(column: Column, reason: &'static str) -> Column {
    Column { reason, ..column }
}

fn same(value: f64) -> f64 {
    value
}

fn millions(rate: f64) -> f64 {
    rate / 1e6
}

fn percent(part: f64) -> f64 {
    part * 100.0
}

/// A ratio as S2 prints it: negative is worse.
fn percent_lost(ratio: f64) -> f64 {
    (1.0 - ratio) * 100.0
}

fn place(wants: &[(&'static str, &str)]) -> Option<Place> {
    let wants = wants.iter().map(|&(field, want)| (field, want.to_owned())).collect();
    Some(Place { wants, field: "" })
}

/// `single`, `multi 2p`: so many at once, each of 256 MiB.
pub(crate) fn at_once(row: &str) -> Option<Place> {
    place(&[("threads", number(row)?), ("mib", "256")])
}

/// `64MB`: one of that size.
pub(crate) fn of_size(row: &str) -> Option<Place> {
    place(&[("threads", "1"), ("mib", row.strip_suffix("MB")?)])
}

/// `single`, `multi 2p`: so many threads.
pub(crate) fn threads(row: &str) -> Option<Place> {
    place(&[("threads", number(row)?)])
}

fn number(row: &str) -> Option<&str> {
    if row == "single" { Some("1") } else { row.strip_prefix("multi ")?.strip_suffix('p') }
}

/// `Min alloc-odr4-16`: blocks of order 4 in batches of 16.
pub(crate) fn batch(row: &str) -> Option<Place> {
    let (printed, case) = row.split_once(' ')?;
    let (what, batch) = case.split_once("-odr4-")?;
    let field = match (what, printed) {
        ("alloc", "Min") => "alloc_ns_mean",
        ("alloc", "Stddev") => "alloc_sd",
        ("alloc", "Max") => "alloc_ns_p99",
        ("free", "Min") => "free_ns_mean",
        ("free", "Stddev") => "free_sd",
        ("free", "Max") => "free_ns_p99",
        _ => return None,
    };
    Some(Place { field, ..place(&[("order", "4"), ("batch", batch), ("zone", "shared")])? })
}

/// Until the call returns, and until the system has the memory.
const TIMES: &[&str] = &["teardown_ms", "release_ms"];

const fn times(name: &'static str, wants: Wants) -> Column {
    column(name, wants, TIMES)
}

const SLOTS: Column =
    times("slot after slot, ms: returns / back", &[("backend", "zram"), ("free", "slots")]);
const ENTRIES: Column = times("slots queued (v3), ms", &[("backend", "zram"), ("free", "entries")]);
const ENTRIES_GAIN: Column =
    column("its speed-up over slot after slot", &[("free", "entries")], &["speedup_vs_slots"]);
const HANDLES: Column =
    times("handles queued (allocator only), ms", &[("backend", "zram"), ("free", "handles")]);
const HANDLES_GAIN: Column = column("its speed-up", &[("free", "handles")], &["speedup_vs_slots"]);
const KERNELS_ZRAM: Column = times("the kernel's zram, ms", &[("backend", "kernel-zram")]);
const KERNELS_QUEUE: Column = because(
    times("the kernel's zram with a queue", &[("backend", "kernel-zram"), ("free", "entries")]),
    "Linux 6.18 has none.",
);

pub(crate) const QUEUES: &[Column] =
    &[SLOTS, ENTRIES, ENTRIES_GAIN, HANDLES, HANDLES_GAIN, KERNELS_ZRAM, KERNELS_QUEUE];

pub(crate) const ZRAM: &[Column] = &[
    SLOTS,
    ENTRIES,
    ENTRIES_GAIN,
    HANDLES,
    HANDLES_GAIN,
    times("all in the call, ms: returns / back", &[("backend", "zram"), ("free", "sync")]),
    times("handed over as a whole, ms", &[("backend", "zram"), ("free", "range")]),
    KERNELS_ZRAM,
    KERNELS_QUEUE,
];

pub(crate) const ZSWAP: &[Column] = &[
    times("all in the call, ms: returns / back", &[("backend", "zswap"), ("free", "sync")]),
    times("handed over as a whole, ms", &[("backend", "zswap"), ("free", "range")]),
    times("the kernel's zswap, ms", &[("backend", "kernel-zswap")]),
    times("page after page, ms", &[("backend", "zswap"), ("free", "slots")]),
    times("entries queued (v3), ms", &[("backend", "zswap"), ("free", "entries")]),
    column("its speed-up over page after page", ZSWAP_ENTRIES, &["speedup_vs_slots"]),
    times("handles queued (allocator only), ms", &[("backend", "zswap"), ("free", "handles")]),
    column("its speed-up", ZSWAP_HANDLES, &["speedup_vs_slots"]),
    because(
        times(
            "the kernel's zswap with a queue",
            &[("backend", "kernel-zswap"), ("free", "entries")],
        ),
        "Linux 6.18 has none.",
    ),
];

const ZSWAP_ENTRIES: Wants = &[("backend", "zswap"), ("free", "entries")];
const ZSWAP_HANDLES: Wants = &[("backend", "zswap"), ("free", "handles")];

/// Frees that do not lag, one after the other in random order, by threads that have nothing else
/// in common.
const fn frees(name: &'static str, wants: Wants) -> Column {
    turned(column(name, wants, &["ops_per_s"]), millions)
}

/// A device that several threads empty slot after slot, by lock design.
const fn emptied(name: &'static str, wants: Wants) -> Column {
    column(name, wants, TIMES)
}

const fn gained(name: &'static str, wants: Wants) -> Column {
    column(name, wants, &["speedup_vs_hierarchical"])
}

pub(crate) const LOCKS: &[Column] = &[
    emptied("hierarchical (base), ms: returns / back", BASE_256),
    emptied("class with one shard (S0), ms", ALONE_256),
    gained("its speed-up", ALONE_256),
    gained("class, spread: speed-up", SPREAD_256),
    gained("one lock (S4): speed-up", ONE_LOCK_256),
    times("the kernel's zram, ms", &[("backend", "kernel-zram"), ("mib", "256")]),
    frees("hierarchical, million frees/s", HIERARCHICAL),
    frees("class with one shard, million frees/s", ALONE),
    gained("its speed-up in frees/s", ALONE),
    frees("class, spread, million frees/s", SPREAD),
    gained("speed-up of spread", SPREAD),
    frees("class, spread, release inside, million frees/s", SPREAD_INSIDE),
    gained("one lock (S4): speed-up in frees/s", ONE_LOCK),
    turned(
        column(
            "release outside saves % of the time, one shard (published: 20, 12 CPUs)",
            ALONE,
            &["release_saves_time"],
        ),
        percent,
    ),
    turned(column("release outside saves %, spread", SPREAD, &["release_saves_time"]), percent),
];

/// 1 to 16 at once: the heading of the second table speaks of 16, and its rows end at 4.
pub(crate) const MANY_AT_ONCE: &[(&str, &[Column])] = &[(
    "threads",
    &[
        emptied("64 MiB each: hierarchical (base), ms: returns / back", BASE_64),
        emptied("64 MiB each: class with one shard (S0), ms", ALONE_64),
        gained("64 MiB each: its speed-up", ALONE_64),
        gained("64 MiB each: class, spread: speed-up", SPREAD_64),
        gained("64 MiB each: one lock (S4): speed-up", ONE_LOCK_64),
        times("64 MiB each: the kernel's zram, ms", &[("backend", "kernel-zram"), ("mib", "64")]),
    ],
)];

type Wants = &'static [(&'static str, &'static str)];

const HIERARCHICAL: Wants =
    &[("mix", "free-at-once"), ("release", "outside"), ("design", "hierarchical")];
const ALONE: Wants =
    &[("mix", "free-at-once"), ("release", "outside"), ("design", "class"), ("shards", "one")];
const SPREAD: Wants =
    &[("mix", "free-at-once"), ("release", "outside"), ("design", "class"), ("shards", "spread")];
const SPREAD_INSIDE: Wants =
    &[("mix", "free-at-once"), ("release", "inside"), ("design", "class"), ("shards", "spread")];
const ONE_LOCK: Wants = &[("mix", "free-at-once"), ("release", "outside"), ("design", "pool")];
const BASE_256: Wants = &[("free", "slots"), ("mib", "256"), ("design", "hierarchical")];
const ALONE_256: Wants =
    &[("free", "slots"), ("mib", "256"), ("design", "class"), ("shards", "one")];
const SPREAD_256: Wants =
    &[("free", "slots"), ("mib", "256"), ("design", "class"), ("shards", "spread")];
const ONE_LOCK_256: Wants = &[("free", "slots"), ("mib", "256"), ("design", "pool")];
const BASE_64: Wants = &[("free", "slots"), ("mib", "64"), ("design", "hierarchical")];
const ALONE_64: Wants = &[("free", "slots"), ("mib", "64"), ("design", "class"), ("shards", "one")];
const SPREAD_64: Wants =
    &[("free", "slots"), ("mib", "64"), ("design", "class"), ("shards", "spread")];
const ONE_LOCK_64: Wants = &[("free", "slots"), ("mib", "64"), ("design", "pool")];

pub(crate) const LOCKS_MISSING: &[(&str, &str)] = &[(
    "the kernel's, patched",
    "Linux 6.18 has the base alone, and a free cannot be timed there by itself.",
)];

pub(crate) const MONITOR: &[Column] = &[
    column("no monitor, ns", &[("monitor", "none"), ("lists", "counts")], &["*"]),
    column("monitor walks the lists, ns", &[("monitor", "list-walk")], &["*"]),
    turned(column("difference %", &[("monitor", "list-walk")], &["*_vs_none"]), percent_lost),
    column("monitor reads counts, ns", &[("monitor", "counts")], &["*"]),
    turned(column("its difference %", &[("monitor", "counts")], &["*_vs_none"]), percent_lost),
];

pub(crate) const MONITOR_MISSING: &[(&str, &str)] = &[
    (
        "the minimum and the maximum of single batches",
        "`lab pagealloc` keeps mean, standard deviation and 99th percentile. Beside Min stands our \
         mean, beside Max our 99th percentile.",
    ),
    (
        "the kernel's page allocator",
        "a program cannot time it without what else a system call does.",
    ),
];

const KERNELS_FILE: Wants = &[("mode", "kernel")];
pub(crate) const READS: &[Column] = &[
    column("walks the lists, us", &[("mode", "list-walk")], &["read_us_mean"]),
    column("walks at most 100,000 blocks, us", &[("mode", "list-walk-capped")], &["read_us_mean"]),
    column("reads the counts, us", &[("mode", "counts")], &["read_us_mean"]),
    column("the kernel's own file, us", &[("mode", "kernel")], &["read_us_mean"]),
    column("frames in free pageblocks", &[("mode", "counts")], &["free_pageblock_frames"]),
    column("the kernel's frames in free pageblocks", KERNELS_FILE, &["free_pageblock_frames"]),
];

pub(crate) const STEPS: &[Column] = &[
    turned(column("slot after slot: share %", &[("path", "slots")], &["share"]), percent),
    column("slot after slot: ns a page", &[("path", "slots")], &["ns_per_page"]),
    turned(column("handed over as a whole: share %", &[("path", "range")], &["share"]), percent),
];

pub(crate) const HANDLES_STEPS: &[Column] = &[
    turned(column("handles queued: share %", &[("path", "handles")], &["share"]), percent),
    column("handles queued: ns a page", &[("path", "handles")], &["ns_per_page"]),
];

pub(crate) const ENTRIES_STEPS: &[Column] = &[
    turned(column("slots queued: share %", &[("path", "entries")], &["share"]), percent),
    column("slots queued: ns a page", &[("path", "entries")], &["ns_per_page"]),
];

/// Of all instructions of the path slot after slot.
pub(crate) const MOVED: &[Column] = &[
    turned(column("slot after slot: share %", &[("path", "slots")], &["share"]), percent),
    turned(
        column("slots queued (v3) leave out % of all", &[("path", "entries")], &["leaves_out"]),
        percent,
    ),
    turned(
        column("handles queued leave out % of all", &[("path", "handles")], &["leaves_out"]),
        percent,
    ),
    turned(
        column("handed over as a whole leaves out % of all", &[("path", "range")], &["leaves_out"]),
        percent,
    ),
];

pub(crate) const MM_STAT: &[Way] = &[
    Way { name: "ours", absent: NOT_RECORDED, value: student::mm_stat },
    Way { name: "the kernel's", absent: "it has order 3", value: student::mm_stat_kernel },
];

/// Objects of each class after the work, by class.
pub(crate) const OBJECTS_2: &[(&str, &[Column])] = &[("class", &objects(ORDER_2))];
pub(crate) const OBJECTS_3: &[(&str, &[Column])] = &[("class", &objects(ORDER_3))];

const ORDER_2: Wants = &[("store", "zram"), ("chain_order", "2")];
const ORDER_3: Wants = &[("store", "zram"), ("chain_order", "3")];

const fn objects(wants: Wants) -> [Column; 6] {
    [
        column("ours: size", wants, &["class_size"]),
        column("ours: obj_allocated", wants, &["obj_allocated"]),
        column("ours: obj_used", wants, &["obj_used"]),
        column("ours: pages_used", wants, &["pages_used"]),
        column("ours: pages_per_zspage", wants, &["pages_per_zspage"]),
        column("ours: freeable", wants, &["freeable"]),
    ]
}

pub(crate) const ORDERS: &[Way] = &[
    Way { name: "ours", absent: NOT_RECORDED, value: student::pooled },
    Way { name: "ours, paired", absent: "differences alone are paired", value: student::paired },
];

pub(crate) const FSMARK: &[Way] = &[
    Way { name: "ours", absent: NOT_RECORDED, value: student::fsmark },
    Way { name: "the kernel's", absent: NOT_RECORDED, value: student::fsmark_kernel },
];

pub(crate) const BUILD: &[Way] = &[
    Way { name: "ours", absent: NOT_RECORDED, value: student::build },
    Way { name: "the kernel's", absent: NOT_RECORDED, value: student::build_kernel },
];
