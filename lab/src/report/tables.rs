//! What stands beside each published table: rows of which records, in which columns.
//!
//! Invariant: every table of `published.csv` has one entry, in the order of the file.

use super::beside::{Column, Ours, Place, Table, Way};
use super::markdown::NOT_RECORDED;
use super::{exact, student};

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
fn at_once(row: &str) -> Option<Place> {
    place(&[("threads", number(row)?), ("mib", "256")])
}

/// `64MB`: one of that size.
fn of_size(row: &str) -> Option<Place> {
    place(&[("threads", "1"), ("mib", row.strip_suffix("MB")?)])
}

/// `single`, `multi 2p`: so many threads.
fn threads(row: &str) -> Option<Place> {
    place(&[("threads", number(row)?)])
}

fn number(row: &str) -> Option<&str> {
    if row == "single" { Some("1") } else { row.strip_prefix("multi ")?.strip_suffix('p') }
}

/// `Min alloc-odr4-16`: blocks of order 4 in batches of 16.
fn batch(row: &str) -> Option<Place> {
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

const QUEUES: &[Column] =
    &[SLOTS, ENTRIES, ENTRIES_GAIN, HANDLES, HANDLES_GAIN, KERNELS_ZRAM, KERNELS_QUEUE];

const ZRAM: &[Column] = &[
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

const ZSWAP: &[Column] = &[
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

const LOCKS: &[Column] = &[
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
const MANY_AT_ONCE: &[(&str, &[Column])] = &[(
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

const LOCKS_MISSING: &[(&str, &str)] = &[(
    "the kernel's, patched",
    "Linux 6.18 has the base alone, and a free cannot be timed there by itself.",
)];

const MONITOR: &[Column] = &[
    column("no monitor, ns", &[("monitor", "none"), ("lists", "counts")], &["*"]),
    column("monitor walks the lists, ns", &[("monitor", "list-walk")], &["*"]),
    turned(column("difference %", &[("monitor", "list-walk")], &["*_vs_none"]), percent_lost),
    column("monitor reads counts, ns", &[("monitor", "counts")], &["*"]),
    turned(column("its difference %", &[("monitor", "counts")], &["*_vs_none"]), percent_lost),
];

const MONITOR_MISSING: &[(&str, &str)] = &[
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

const READS: &[Column] = &[
    column("walks the lists, us", &[("mode", "list-walk")], &["read_us_mean"]),
    column("walks at most 100,000 blocks, us", &[("mode", "list-walk-capped")], &["read_us_mean"]),
    column("reads the counts, us", &[("mode", "counts")], &["read_us_mean"]),
    column("the kernel's own file, us", &[("mode", "kernel")], &["read_us_mean"]),
];

const STEPS: &[Column] = &[
    turned(column("slot after slot: share %", &[("path", "slots")], &["share"]), percent),
    column("slot after slot: ns a page", &[("path", "slots")], &["ns_per_page"]),
    turned(column("handed over as a whole: share %", &[("path", "range")], &["share"]), percent),
];

const ORDERS: &[Way] = &[
    Way { name: "ours", absent: NOT_RECORDED, value: student::pooled },
    Way { name: "ours, paired", absent: "differences alone are paired", value: student::paired },
];

const FSMARK: &[Way] = &[
    Way { name: "ours", absent: NOT_RECORDED, value: student::fsmark },
    Way { name: "the kernel's", absent: NOT_RECORDED, value: student::fsmark_kernel },
];

const BREAKDOWN: &str = "lab breakdown --corpus /tmp/corpus.bin --record";
const LOCKS_COMMANDS: &[&str] = &[
    "lab teardown --vs-kernel --mib 256 --threads 1,2,4 --free slots \
        --design hierarchical,pool,class --shards one,spread --algorithm lzo-rle \
        --corpus /tmp/corpus.bin --record",
    "lab teardown --vs-kernel --mib 64 --threads 1,2,4,8,16 --free slots \
        --design hierarchical,pool,class --shards one,spread --algorithm lzo-rle \
        --corpus /tmp/corpus.bin --record",
    "lab locks --threads 1,2,4,8 --corpus /tmp/corpus.bin --record",
];
const NUMBERS_COMMAND: &str = "lab teardown --vs-kernel --mib 256 --threads 1,2,3 \
    --free slots,entries,handles,sync,range --buffer-bytes 256K --corpus /tmp/corpus.bin --record";
const SIZES_COMMAND: &str = "lab teardown --vs-kernel --mib 64,128,192,256,512,1024 --threads 1 \
    --free slots,entries,handles,sync,range --buffer-bytes 256K --corpus /tmp/corpus.bin --record";
const ZSWAP_NUMBERS_COMMAND: &str = "lab teardown --backend zswap --vs-kernel --mib 256 \
    --threads 1,2,3 --free slots,entries,handles,sync,range --buffer-bytes 256K --algorithm lzo \
    --corpus /tmp/corpus.bin --record";
const ZSWAP_SIZES_COMMAND: &str = "lab teardown --backend zswap --vs-kernel \
    --mib 64,128,256,512,1024 --threads 1 --free slots,entries,handles,sync,range \
    --buffer-bytes 256K --algorithm lzo --corpus /tmp/corpus.bin --record";
const ORDERS_COMMAND: &str = "lab fs --workload untar,build --copies 4 --chain-order 2,3,4 \
    --algorithm lzo-rle --runs 5 --record";
const MONITOR_COMMAND: &str =
    "lab pagealloc --order 4 --batch 1,2,4,8,16,32,64,128,256,512,1024 --record";

const OBJECTS_MISSING: &[(&str, &str)] = &[(
    "objects and pages of each class after a build",
    "`lab fs` does not keep the table of classes, so no command measures it yet. Sizes and chain \
     lengths do not depend on what is stored, and those are ours.",
)];

const GEOMETRY_MISSING: &[(&str, &str)] = &[(
    "the kernel's",
    "Linux 6.18 has the later rule and a fixed chain of 8 pages. A test compares all classes of \
     our tables with the kernel's.",
)];

const EXACT: Table =
    Table { id: "", ours: Ours::Nothing, more: &[], commands: &[], missing: GEOMETRY_MISSING };

/// Every published table.
pub(crate) const TABLES: &[Table] = &[
    Table {
        id: "S0-pi",
        ours: Ours::Beside(threads, LOCKS),
        more: MANY_AT_ONCE,
        commands: LOCKS_COMMANDS,
        missing: LOCKS_MISSING,
    },
    Table {
        id: "S0-i7",
        ours: Ours::Beside(threads, LOCKS),
        more: MANY_AT_ONCE,
        commands: LOCKS_COMMANDS,
        missing: LOCKS_MISSING,
    },
    Table { id: "S1-waste-96", ours: Ours::Exact(exact::waste), ..EXACT },
    Table { id: "S1-classes-by-order", ours: Ours::Exact(exact::unique), ..EXACT },
    Table { id: "S1-merge-example", ours: Ours::Exact(exact::order2), ..EXACT },
    Table { id: "S1-tail-order2", ours: Ours::Exact(exact::order2), ..EXACT },
    Table { id: "S1-tail-order3", ours: Ours::Exact(exact::order3), ..EXACT },
    Table { id: "S1-tail-order4", ours: Ours::Exact(exact::order4), ..EXACT },
    Table {
        id: "S1-objects-order2",
        ours: Ours::Exact(exact::shape2),
        commands: &[],
        missing: OBJECTS_MISSING,
        ..EXACT
    },
    Table {
        id: "S1-objects-order3",
        ours: Ours::Exact(exact::shape3),
        commands: &[],
        missing: OBJECTS_MISSING,
        ..EXACT
    },
    Table {
        id: "S1-mm-stat",
        ours: Ours::Worked(&[Way { name: "ours", absent: NOT_RECORDED, value: student::mm_stat }]),
        commands: &[ORDERS_COMMAND],
        missing: &[
            (
                "mem_limit, same_pages, pages_compacted and huge_pages of ours",
                "`lab fs` does not keep them.",
            ),
            ("the kernel's", KERNELS_CHAIN),
        ],
        ..EXACT
    },
    Table {
        id: "S1-ttest-order3",
        ours: Ours::Worked(ORDERS),
        commands: &[ORDERS_COMMAND],
        missing: &[("the kernel's", KERNELS_CHAIN)],
        ..EXACT
    },
    Table {
        id: "S1-ttest-order4",
        ours: Ours::Worked(ORDERS),
        commands: &[ORDERS_COMMAND],
        missing: &[("the kernel's", KERNELS_CHAIN)],
        ..EXACT
    },
    Table {
        id: "S2-reads",
        ours: Ours::Alone("free_blocks", READS),
        commands: &["lab pagetypeinfo --record"],
        missing: &[(
            "the same states as in the study",
            "it prints no number of free blocks. Ours are by that number.",
        )],
        ..EXACT
    },
    Table {
        id: "S2-alloc-monitor",
        ours: Ours::Beside(batch, MONITOR),
        commands: &[MONITOR_COMMAND],
        missing: MONITOR_MISSING,
        ..EXACT
    },
    Table {
        id: "S2-free-monitor",
        ours: Ours::Beside(batch, MONITOR),
        commands: &[MONITOR_COMMAND],
        missing: MONITOR_MISSING,
        ..EXACT
    },
    Table {
        id: "S3-test1",
        ours: Ours::Beside(at_once, ZRAM),
        commands: &[NUMBERS_COMMAND],
        missing: &[],
        ..EXACT
    },
    Table {
        id: "S3-test2",
        ours: Ours::Beside(of_size, ZRAM),
        commands: &[SIZES_COMMAND],
        missing: &[],
        ..EXACT
    },
    Table {
        id: "S3-test3",
        ours: Ours::Beside(at_once, ZSWAP),
        commands: &[ZSWAP_NUMBERS_COMMAND],
        missing: &[],
        ..EXACT
    },
    Table {
        id: "S3-test4",
        ours: Ours::Beside(of_size, ZSWAP),
        commands: &[ZSWAP_SIZES_COMMAND],
        missing: &[],
        ..EXACT
    },
    Table {
        id: "S3-profile-base",
        ours: Ours::Alone("step", STEPS),
        commands: &[BREAKDOWN],
        missing: PROFILE_MISSING,
        ..EXACT
    },
    Table {
        id: "S3-profile-allocator-only",
        ours: Ours::Nothing,
        commands: &[],
        missing: &[(
            "a path that queues handles",
            "`lab breakdown` has the paths slots, range and drop, and none that queues.",
        )],
        ..EXACT
    },
    Table {
        id: "S3-profile-v3",
        ours: Ours::Nothing,
        commands: &[],
        missing: &[(
            "a path that queues slots",
            "`lab breakdown` has the paths slots, range and drop, and none that queues.",
        )],
        ..EXACT
    },
    Table {
        id: "S3-moved",
        ours: Ours::Alone("step", STEPS),
        commands: &[BREAKDOWN],
        missing: PROFILE_MISSING,
        ..EXACT
    },
    Table {
        id: "S3-v3-against-allocator-only",
        ours: Ours::Beside(of_size, QUEUES),
        commands: &[SIZES_COMMAND],
        missing: &[],
        ..EXACT
    },
    Table {
        id: "S4-fsmark",
        ours: Ours::Worked(FSMARK),
        commands: &["lab fs --fs btrfs,ext4 --design hierarchical,pool,class --threads 32 \
            --files 80000 --size 10G --vs-kernel --record"],
        missing: &[(
            "the kernel's with lock consolidation",
            "Linux 6.18 has a pool lock before class locks, so it stands in the rows without.",
        )],
        ..EXACT
    },
    Table {
        id: "S4-build",
        ours: Ours::Worked(&[Way { name: "ours", absent: NOT_RECORDED, value: student::build }]),
        commands: &[
            "lab fs --fs btrfs,ext4 --workload build --design hierarchical,pool --vs-kernel \
            --runs 5 --record",
        ],
        missing: &[(
            "user and sys",
            "`lab fs` times the wall clock alone, so no command measures them yet.",
        )],
        ..EXACT
    },
];

const KERNELS_CHAIN: &str = "its chain size is fixed when it is built, so it has one order.";

const PROFILE_MISSING: &[(&str, &str)] = &[(
    "the kernel's own profile",
    "it needs samples of the processor's counters, which these virtual machines do not have.",
)];
