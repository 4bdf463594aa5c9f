//! What stands beside each published table: rows of which records, in which columns.
//!
//! Invariant: every table of `published.csv` has one entry, in the order of the file.

use super::beside::{Ours, Table};
use super::columns::{
    BUILD, ENTRIES_STEPS, FSMARK, HANDLES_STEPS, LOCKS, LOCKS_MISSING, MANY_AT_ONCE, MM_STAT,
    MONITOR, MONITOR_MISSING, MOVED, OBJECTS_2, OBJECTS_3, ORDERS, QUEUES, READS, STEPS, ZRAM,
    ZSWAP, at_once, batch, of_size, threads,
};
use super::exact;

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
    --rule used-percent --classes --algorithm lzo-rle --vs-kernel --runs 5 --record";
const MONITOR_COMMAND: &str =
    "lab pagealloc --order 4 --batch 1,2,4,8,16,32,64,128,256,512,1024 --record";

const OBJECTS_MISSING: &[(&str, &str)] = &[
    (
        "almost_full and almost_empty of ours",
        "our table has ten groups of fullness, as the kernel's has since Linux 6.3.",
    ),
    ("the kernel's", "this kernel is built without the table, and has one order."),
];

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
        more: OBJECTS_2,
        commands: &[ORDERS_COMMAND],
        missing: OBJECTS_MISSING,
    },
    Table {
        id: "S1-objects-order3",
        ours: Ours::Exact(exact::shape3),
        more: OBJECTS_3,
        commands: &[ORDERS_COMMAND],
        missing: OBJECTS_MISSING,
    },
    Table {
        id: "S1-mm-stat",
        ours: Ours::Worked(MM_STAT),
        commands: &[ORDERS_COMMAND],
        missing: &[("the kernel's", KERNELS_CHAIN)],
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
        missing: &[
            (
                "the same states as in the study",
                "it prints no number of free blocks. Ours are by that number.",
            ),
            (
                "the kernel's own file with as many free blocks as ours, and the other way round",
                "that number is the system's own, and its row has it.",
            ),
        ],
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
        ours: Ours::Alone("step", HANDLES_STEPS),
        commands: &[BREAKDOWN],
        missing: PROFILE_MISSING,
        ..EXACT
    },
    Table {
        id: "S3-profile-v3",
        ours: Ours::Alone("step", ENTRIES_STEPS),
        commands: &[BREAKDOWN],
        missing: PROFILE_MISSING,
        ..EXACT
    },
    Table {
        id: "S3-moved",
        ours: Ours::Alone("step", MOVED),
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
        ours: Ours::Worked(BUILD),
        commands: &[
            "lab fs --fs btrfs,ext4 --workload build --design hierarchical,pool --vs-kernel \
            --runs 5 --record",
        ],
        missing: &[(
            "the kernel's with lock consolidation",
            "Linux 6.18 has a pool lock before class locks, so it stands in the rows without.",
        )],
        ..EXACT
    },
];

const KERNELS_CHAIN: &str = "its chain size is fixed when it is built, so it has one order.";

const PROFILE_MISSING: &[(&str, &str)] = &[(
    "the kernel's own profile",
    "it needs samples of the processor's counters, which these virtual machines do not have.",
)];
