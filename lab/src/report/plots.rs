//! The charts: which fields of which rows make a curve, and which published table stands beside it.
//!
//! ```text
//!   Plot    a study, a place on the x axis for each row, a field for y
//!   Pick    the rows of one curve, by what their fields say
//!   Shown   a published table's rows as places, one of its columns as figures
//! ```

use super::drawing::chart::Origin;
use crate::rows::Row;

/// A chart of one study.
pub(crate) struct Plot {
    /// Names the section of the page.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// What its records are charted as.
    pub(crate) study: &'static str,
    pub(crate) places: &'static [&'static str],
    /// The place of a row, in words of `places`.
    pub(crate) place: fn(&Row) -> Option<String>,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    /// The field with the figure; `_min` and `_max` beside it are its spread.
    pub(crate) field: &'static str,
    /// What a field's number becomes: parts in a hundred, for example.
    pub(crate) turn: fn(f64) -> f64,
    pub(crate) logarithmic: bool,
    pub(crate) published: &'static [Shown],
    pub(crate) picks: &'static [Pick],
    /// What a reader must know who compares the curves.
    pub(crate) note: &'static str,
}

/// Rows that make a curve.
pub(crate) struct Pick {
    pub(crate) name: &'static str,
    pub(crate) origin: Origin,
    /// Fields with what they must say; `-` is null.
    pub(crate) wants: &'static [(&'static str, &'static str)],
}

/// A published curve: rows of a table with the places that they have here.
pub(crate) struct Shown {
    pub(crate) name: &'static str,
    pub(crate) table: &'static str,
    pub(crate) column: &'static str,
    pub(crate) rows: &'static [(&'static str, &'static str)],
    /// What a printed number becomes.
    pub(crate) turn: fn(f64) -> f64,
}

impl Pick {
    pub(crate) fn takes(&self, row: &Row) -> bool {
        self.wants.iter().all(|(field, want)| said(row, field).as_deref().unwrap_or("-") == *want)
    }
}

/// What a field says, as text; `None` where it is null or not there.
pub(crate) fn said(row: &Row, field: &str) -> Option<String> {
    let value = row.get(field);
    value.as_str().map(str::to_owned).or_else(|| (!value.is_null()).then(|| value.to_string()))
}

const fn ours(name: &'static str, wants: &'static [(&'static str, &'static str)]) -> Pick {
    Pick { name, origin: Origin::Ours, wants }
}

const fn kernel(name: &'static str, wants: &'static [(&'static str, &'static str)]) -> Pick {
    Pick { name, origin: Origin::Kernel, wants }
}

const fn as_printed(
    name: &'static str,
    table: &'static str,
    column: &'static str,
    rows: &'static [(&'static str, &'static str)],
) -> Shown {
    Shown { name, table, column, rows, turn: same }
}

const KERNELS_ZRAM: Pick =
    kernel("the kernel's zram", &[("backend", "kernel-zram"), ("algorithm", "lz4")]);
const SLOT_AFTER_SLOT: Pick =
    ours("slot after slot", &[("backend", "zram"), ("free", "slots"), ("algorithm", "lz4")]);
const IN_THE_CALL: Pick =
    ours("all in the call", &[("backend", "zram"), ("free", "sync"), ("algorithm", "lz4")]);
const AS_A_WHOLE: Pick =
    ours("handed over as a whole", &[("backend", "zram"), ("free", "range"), ("algorithm", "lz4")]);
const SLOTS_QUEUED: Pick = ours(
    "slots queued (256 KiB of buffers)",
    &[("backend", "zram"), ("free", "entries"), ("algorithm", "lz4"), ("buffer_bytes", "262144")],
);

const SIZES: &[&str] = &["64", "128", "192", "256", "512", "1024"];
const SIZE_ROWS: &[(&str, &str)] = &[
    ("64MB", "64"),
    ("128MB", "128"),
    ("192MB", "192"),
    ("256MB", "256"),
    ("512MB", "512"),
    ("1024MB", "1024"),
];
const NUMBERS: &[&str] = &["1", "2", "3", "4"];
const NUMBER_ROWS: &[(&str, &str)] =
    &[("single", "1"), ("multi 2p", "2"), ("multi 3p", "3"), ("multi 4p", "4")];

fn same(value: f64) -> f64 {
    value
}

fn percent_over_one(ratio: f64) -> f64 {
    (ratio - 1.0) * 100.0
}

fn percent(ratio: f64) -> f64 {
    ratio * 100.0
}

fn opposite(percent: f64) -> f64 {
    -percent
}

fn field<const N: usize>(row: &Row, names: [&str; N]) -> Option<String> {
    let parts: Option<Vec<String>> = names.iter().map(|name| said(row, name)).collect();
    Some(parts?.join(" "))
}

const TEARDOWN_NOTE: &str = "Published: munmap on a Raspberry Pi 4B. Ours and the kernel's: a \
     region's drop and munmap, on the machine named below. Compare the shapes and the ratios, not \
     the milliseconds.";

const JOBS: &[&str] =
    &["sort", "pyfork", "sqlite", "numpy", "node", "java", "gxx", "redis", "pytest"];
const PROGRAMS: &[Pick] = &[
    kernel(
        "the kernel's zram and group: 70 % of the peak",
        &[("form", "kernel-zram"), ("limit_percent", "70"), ("algorithm", "lz4")],
    ),
    kernel(
        "the kernel's zram and group: 50 %",
        &[("form", "kernel-zram"), ("limit_percent", "50"), ("algorithm", "lz4")],
    ),
    ours(
        "ramfold run: 125 %, lz4",
        &[("form", "ramfold"), ("limit_percent", "125"), ("algorithm", "lz4")],
    ),
    ours(
        "ramfold run: 70 %, lz4",
        &[("form", "ramfold"), ("limit_percent", "70"), ("algorithm", "lz4")],
    ),
    ours(
        "ramfold run: 50 %, zstd",
        &[("form", "ramfold"), ("limit_percent", "50"), ("algorithm", "zstd")],
    ),
];
const PROGRAMS_NOTE: &str = "A limit is a part of what the plain job takes at most. With the \
     kernel, group and zram together have as much. A job that the kernel killed has no mark. The \
     lines between jobs only lead the eye.";

/// Every chart of the report, in its order.
pub(crate) const PLOTS: &[Plot] = &[
    Plot {
        id: "teardown-size",
        title: "S3: teardown of memory that is compressed, by size",
        study: "teardown",
        places: SIZES,
        place: |row| (said(row, "threads")? == "1").then(|| said(row, "mib"))?,
        x: "MiB of one region",
        y: "ms until the call returns",
        field: "teardown_ms",
        turn: same,
        logarithmic: true,
        published: &[
            as_printed("published: base", "S3-test2", "base", SIZE_ROWS),
            as_printed("published: deferred", "S3-test2", "patched", SIZE_ROWS),
        ],
        picks: &[KERNELS_ZRAM, SLOT_AFTER_SLOT, IN_THE_CALL, SLOTS_QUEUED, AS_A_WHOLE],
        note: TEARDOWN_NOTE,
    },
    Plot {
        id: "teardown-release",
        title: "S3: until the system has the memory back, by size",
        study: "teardown",
        places: SIZES,
        place: |row| (said(row, "threads")? == "1").then(|| said(row, "mib"))?,
        x: "MiB of one region",
        y: "ms from the start of the drop",
        field: "release_ms",
        turn: same,
        logarithmic: true,
        published: &[],
        picks: &[KERNELS_ZRAM, SLOT_AFTER_SLOT, IN_THE_CALL, AS_A_WHOLE],
        note: "The studies do not print this figure. It is what a deferred free does not shorten.",
    },
    Plot {
        id: "teardown-number",
        title: "S3: teardown of 256 MiB each, by number at once",
        study: "teardown",
        places: NUMBERS,
        place: |row| (said(row, "mib")? == "256").then(|| said(row, "threads"))?,
        x: "regions dropped at the same moment",
        y: "ms until the call returns",
        field: "teardown_ms",
        turn: same,
        logarithmic: true,
        published: &[
            as_printed("published: base", "S3-test1", "base", NUMBER_ROWS),
            as_printed("published: deferred", "S3-test1", "patched", NUMBER_ROWS),
        ],
        picks: &[KERNELS_ZRAM, SLOT_AFTER_SLOT, IN_THE_CALL, AS_A_WHOLE],
        note: TEARDOWN_NOTE,
    },
    Plot {
        id: "locks",
        title: "S0 and S4: frees at once, by lock design",
        study: "locks",
        places: &["1", "2", "4", "8"],
        place: |row| field(row, ["threads"]),
        x: "threads (processes in the study)",
        y: "times the rate of the hierarchical design",
        field: "speedup_vs_hierarchical",
        turn: same,
        logarithmic: false,
        published: &[
            as_printed("published: S0 on an i7-12700", "S0-i7", "speedup", NUMBER_ROWS),
            as_printed("published: S0 on a Raspberry Pi 4B", "S0-pi", "speedup", NUMBER_ROWS),
        ],
        picks: &[
            ours(
                "hierarchical (the study's base)",
                &[("design", "hierarchical"), ("mix", "free-at-once"), ("release", "outside")],
            ),
            ours(
                "pool: one lock (S4)",
                &[("design", "pool"), ("mix", "free-at-once"), ("release", "outside")],
            ),
            ours(
                "class, with shards of our own",
                &[
                    ("design", "class"),
                    ("shards", "spread"),
                    ("mix", "free-at-once"),
                    ("release", "outside"),
                ],
            ),
        ],
        note: "Two CPUs, so more than two threads share them. By default our class design also \
               spreads each class over shards, which the study does not.",
    },
    Plot {
        id: "density",
        title: "S1: memory over the compressed bytes, by chain order",
        study: "chain",
        places: &["2", "3", "4"],
        // Small pools waste more: one size of corpus makes a curve.
        place: |row| {
            (said(row, "corpus_bytes")? == "268435456").then(|| said(row, "chain_order"))?
        },
        x: "chain order (2 is chains of up to 4 pages)",
        y: "% above the compressed bytes",
        field: "overhead_mem_used",
        turn: percent,
        logarithmic: false,
        published: &[],
        picks: &[ours(
            "the kernel's rule: least waste",
            &[("store", "zram"), ("algorithm", "lz4"), ("fill", "whole"), ("rule", "least-waste")],
        )],
        note: "By the averages of its five runs the study has 4.3, 2.2 and 1.9 %, after a build of \
               Linux on ext4.",
    },
    Plot {
        id: "pagetypeinfo",
        title: "S2: one read of pagetypeinfo, by free blocks",
        study: "pagetypeinfo",
        places: &["1000", "10000", "100000", "1000000"],
        place: |row| field(row, ["free_blocks"]),
        x: "free blocks of the zone",
        y: "us a read, on average",
        field: "read_us_mean",
        turn: same,
        logarithmic: true,
        published: &[],
        picks: &[
            ours("walks the lists", &[("mode", "list-walk")]),
            ours("walks at most 100,000 blocks", &[("mode", "list-walk-capped")]),
            ours("reads the counts", &[("mode", "counts")]),
        ],
        note: "The study has no number of blocks beside its figures: 700.9 us became 268.6 after a \
               boot, and 28.7 ms became 269.8 us after a build.",
    },
    Plot {
        id: "alloc-monitor",
        title: "S2: allocation of order 4 while a monitor reads",
        study: "pagealloc",
        places: &["1", "4", "16", "64", "256", "1024"],
        place: |row| (said(row, "order")? == "4").then(|| said(row, "batch"))?,
        x: "blocks in a batch",
        y: "% slower than without a monitor",
        field: "alloc_ns_mean_vs_none",
        turn: percent_over_one,
        logarithmic: false,
        published: &[
            Shown {
                name: "published: list walk",
                table: "S2-alloc-monitor",
                column: "vanilla monitor difference",
                rows: ALLOC_ROWS,
                turn: opposite,
            },
            Shown {
                name: "published: counts",
                table: "S2-alloc-monitor",
                column: "patched monitor difference",
                rows: ALLOC_ROWS,
                turn: opposite,
            },
        ],
        picks: &[
            ours("list walk", &[("monitor", "list-walk"), ("zone", "shared")]),
            ours("counts", &[("monitor", "counts"), ("zone", "shared")]),
        ],
        note: "Published: the smallest time of the runs, on an i7-12700. Ours: the mean, because \
               most allocations meet no read, so that the smallest shows none.",
    },
    Plot {
        id: "hit-rates",
        title: "Which page leaves next: hits of the order, by trace",
        study: "writeback",
        places: &["zipf", "scan", "shift", "mixed"],
        place: |row| (said(row, "in_use_pages")? == "0").then(|| said(row, "trace"))?,
        x: "trace of accesses",
        y: "% of accesses that find their page in memory",
        field: "hit_rate",
        turn: percent,
        logarithmic: false,
        published: &[],
        picks: &[
            ours("zswap with S3-FIFO", &[("store", "zswap"), ("policy", "s3-fifo")]),
            ours("zswap in the kernel's order", &[("store", "zswap"), ("policy", "kernel-order")]),
            ours("LRU, simulated", &[("store", "simulated"), ("policy", "lru")]),
            ours("the optimum, simulated", &[("store", "simulated"), ("policy", "optimum")]),
        ],
        note: "The lines between traces only lead the eye.",
    },
    Plot {
        id: "faults",
        title: "A fault that brings a page back, by order and threads",
        study: "faultin",
        places: &["random 1", "random 2", "sequential 1", "sequential 2"],
        place: |row| field(row, ["order", "threads"]),
        x: "order of the touches, and threads",
        y: "ns a page",
        field: "faultin_ns_per_page",
        turn: same,
        logarithmic: true,
        published: &[],
        picks: &[
            kernel(
                "swap on the kernel's zram, read alone",
                &[("handler", "kernel"), ("page_cluster", "0")],
            ),
            ours(
                "in a signal handler, page by page",
                &[("handler", "region"), ("mode", "signal"), ("around", "off")],
            ),
            ours(
                "in a signal handler, with neighbours",
                &[("handler", "region"), ("mode", "signal"), ("around", "on")],
            ),
            ours(
                "by a thread, with neighbours",
                &[("handler", "region"), ("mode", "thread"), ("around", "on")],
            ),
        ],
        note: "The lines between places only lead the eye.",
    },
    Plot {
        id: "programs",
        title: "Whole programs in less memory, by job",
        study: "run",
        places: JOBS,
        place: |row| field(row, ["job"]),
        x: "job",
        y: "times the plain job's time",
        field: "time_vs_plain",
        turn: same,
        logarithmic: true,
        published: &[],
        picks: PROGRAMS,
        note: PROGRAMS_NOTE,
    },
    Plot {
        id: "programs-closed",
        title: "Whole programs in less memory, without userfaultfd",
        study: "run, closed",
        places: JOBS,
        place: |row| field(row, ["job"]),
        x: "job",
        y: "times the plain job's time",
        field: "time_vs_plain",
        turn: same,
        logarithmic: true,
        published: &[],
        picks: PROGRAMS,
        note: PROGRAMS_NOTE,
    },
];

const ALLOC_ROWS: &[(&str, &str)] = &[
    ("Min alloc-odr4-1", "1"),
    ("Min alloc-odr4-4", "4"),
    ("Min alloc-odr4-16", "16"),
    ("Min alloc-odr4-64", "64"),
    ("Min alloc-odr4-256", "256"),
    ("Min alloc-odr4-1024", "1024"),
];
