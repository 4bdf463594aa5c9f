//! `lab teardown`: regions that are paged out and dropped together.

/// The fields of a row; those of `MEASURED` and the ratios have `_min` and `_max` besides.
pub(crate) const FIELDS: [&str; 22] = [
    "backend",
    "free",
    "mib",
    "threads",
    "algorithm",
    "corpus",
    "corpus_bytes",
    "runs",
    "teardown_ms",
    "freed_ms",
    "release_ms",
    "drain_ms",
    "pageout_ns_per_page",
    "faultin_ns_per_page",
    "faultin_sequential_ns_per_page",
    "growth_bytes",
    "speedup_vs_kernel",
    "drain_speedup_vs_kernel",
    "pageout_speedup_vs_kernel",
    "faultin_speedup_vs_kernel",
    "faultin_sequential_speedup_vs_kernel",
    "published_speedup",
];
/// What is measured of everybody.
pub(crate) const MEASURED: [&str; 8] = [
    "teardown_ms",
    "freed_ms",
    "release_ms",
    "drain_ms",
    "pageout_ns_per_page",
    "faultin_ns_per_page",
    "faultin_sequential_ns_per_page",
    "growth_bytes",
];
