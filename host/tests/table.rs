//! Claims, each about an invariant (T1 to T3) of a table
//! - A table agrees, after every step, with a twin of plain numbers and one `bool` per page.
//! - `held_bytes` is exact after racing touches and discards.
//! - The kernel counts the same pages as held.
//! - Entries keep their addresses, and read as zeros until a thread stores to them.
//!
//! Lock: none; a table has no locks, only bits and a counter.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "the helpers of tests may")]

use proptest::prelude::*;
use ramfold_host::{FailureInjector, HostError, PAGE_SIZE, Table};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::SeqCst};

/// Not a whole number of pages.
const LEN: usize = if cfg!(miri) { 1100 } else { 5000 };
/// Pages, the last one short.
const PAGES: usize = LEN.div_ceil(512);

#[derive(Debug, Clone)]
enum Step {
    Store { at: usize, value: u64 },
    Touch { entries: Range<usize> },
    Discard { entries: Range<usize> },
}

fn entries() -> impl Strategy<Value = Range<usize>> {
    let any = (0..=LEN, 0..=LEN).prop_map(|(one, other)| one.min(other)..one.max(other));
    let paged = (0..PAGES, 0..=PAGES).prop_map(|(one, other)| {
        let (low, high) = (one.min(other) * 512, one.max(other) * 512);
        low..high.min(LEN)
    });
    prop_oneof![any, paged]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..LEN, 1_u64..).prop_map(|(at, value)| Step::Store { at, value }),
        1 => entries().prop_map(|entries| Step::Touch { entries }),
        2 => entries().prop_map(|entries| Step::Discard { entries }),
    ]
}

struct Twins {
    table: Table<AtomicU64>,
    values: Vec<u64>,
    held: Vec<bool>,
}

impl Twins {
    const PER_PAGE: usize = PAGE_SIZE / 8;

    fn new() -> Twins {
        let held = vec![false; PAGES];
        Twins { table: Table::reserve(LEN).unwrap(), values: vec![0; LEN], held }
    }

    fn run(&mut self, step: &Step) {
        match step.clone() {
            Step::Store { at, value } => {
                self.touch(at..at + 1);
                self.table[at].store(value, SeqCst);
                self.values[at] = value;
            }
            Step::Touch { entries } => self.touch(entries),
            Step::Discard { entries } => self.discard(entries),
        }
    }

    fn touch(&mut self, entries: Range<usize>) {
        self.table.touch(entries.clone());
        for at in entries {
            self.held[at / Self::PER_PAGE] = true;
        }
    }

    fn discard(&mut self, entries: Range<usize>) {
        let released = self.table.discard(entries.clone()).expect("nothing injects failures here");
        let mut expected = 0;
        for (page, held) in self.held.iter_mut().enumerate() {
            let on_page = page * Self::PER_PAGE..((page + 1) * Self::PER_PAGE).min(LEN);
            if entries.start <= on_page.start && on_page.end <= entries.end {
                self.values[on_page].fill(0);
                expected += u64::from(std::mem::take(held)) * PAGE_SIZE as u64;
            }
        }
        assert_eq!(released, expected, "bytes released by discarding {entries:?}");
    }

    fn compare(&self) {
        let held = self.held.iter().filter(|held| **held).count() * PAGE_SIZE;
        assert_eq!(self.table.held_bytes(), held as u64);
        for (at, value) in self.values.iter().enumerate() {
            assert_eq!(self.table[at].load(SeqCst), *value, "entry {at}");
        }
        self.table.check().unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

    #[test]
    fn a_table_agrees_with_its_naive_twin(steps in prop::collection::vec(step(), 1..40)) {
        let mut twins = Twins::new();
        for step in &steps {
            twins.run(step);
            twins.compare();
        }
    }
}

#[test]
fn an_index_past_the_end_finds_nothing() {
    let table: Table<AtomicU32> = Table::reserve(3).unwrap();
    assert_eq!(table.len(), 3);
    assert!(table.get(2).is_some_and(|entry| entry.load(SeqCst) == 0), "fresh entries are zero");
    assert!(table.get(3).is_none());
    assert!(table.get(usize::MAX).is_none());
}

#[test]
#[should_panic(expected = "entry 3 lies past the table's 3")]
fn indexing_past_the_end_is_a_broken_caller() {
    let table: Table<AtomicU32> = Table::reserve(3).unwrap();
    table[3].load(SeqCst);
}

#[test]
#[should_panic(expected = "lie past the table")]
fn touching_past_the_end_is_a_broken_caller() {
    Table::<AtomicU32>::reserve(3).unwrap().touch(0..4);
}

#[test]
fn impossible_lengths_are_refused() {
    for len in [0, usize::MAX, isize::MAX as usize / 8] {
        let refused = Table::<AtomicU64>::reserve(len).expect_err("no such table");
        assert!(matches!(refused, HostError::Size { .. }), "{len} entries: {refused}");
    }
}

/// The story: a leaf of 512 words may be one entry, and so may a byte. Entries of every size lie
/// side by side, or an index would reach into its neighbour.
#[test]
fn entries_of_every_size_lie_side_by_side() {
    fn distance<T: ramfold_host::Zeroed>() -> usize {
        let table: Table<T> = Table::reserve(4).unwrap();
        let address = |at| std::ptr::from_ref(table.get(at).unwrap()).addr();
        address(3) - address(2)
    }
    let found = [
        distance::<AtomicU8>(),
        distance::<AtomicU16>(),
        distance::<AtomicU32>(),
        distance::<AtomicU64>(),
        distance::<[AtomicU32; 4]>(),
        distance::<[AtomicU64; 512]>(),
    ];
    assert_eq!(found, [1, 2, 4, 8, 16, 4096]);
}

#[test]
fn held_bytes_are_exact_after_racing_touches_and_discards() {
    const ROUNDS: usize = if cfg!(miri) { 10 } else { 3000 };
    let table: Table<AtomicU64> = Table::reserve(130 * 512).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let table = &table;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let page = (round * 7 + thread * 31) % 128;
                    table.touch(page * 512..(page + 2) * 512);
                    if round % 3 == thread % 3 {
                        table.discard(page * 512..(page + 3) * 512).unwrap();
                    }
                }
            });
        }
    });
    table.check().expect("the counter agrees with the bits after the race");
    table.discard(0..table.len()).unwrap();
    assert_eq!(table.held_bytes(), 0, "a discarded table holds nothing");
}

#[test]
fn an_injected_discard_changes_nothing() {
    let faults = FailureInjector::new();
    let table: Table<AtomicU64> = Table::with_faults(512, faults.clone()).unwrap();
    table.touch(0..1);
    table[0].store(7, SeqCst);
    faults.arm(1);
    assert!(matches!(table.discard(0..512), Err(HostError::Injected(_))));
    assert_eq!(table[0].load(SeqCst), 7, "a failed discard leaves its entries");
    assert_eq!(table.held_bytes(), PAGE_SIZE as u64);
    assert_eq!(table.discard(0..512).unwrap(), PAGE_SIZE as u64, "and can be tried again");
}

#[cfg(not(miri))]
#[test]
fn what_is_held_is_what_the_kernel_counts() {
    let table: Table<AtomicU64> = Table::reserve(1 << 24).unwrap();
    let rss = || ramfold_host::smaps::rss_of(&[table.range()]).unwrap();
    assert_eq!(rss(), 0, "128 MiB of table cost nothing until touched");
    for at in (0..1 << 24).step_by(512 * 64) {
        table.touch(at..at + 1);
        table[at].store(1, SeqCst);
    }
    assert_eq!(table.held_bytes(), 512 * PAGE_SIZE as u64);
    assert_eq!(rss(), table.held_bytes());
    assert_eq!(table.discard(0..1 << 23).unwrap(), 256 * PAGE_SIZE as u64);
    assert_eq!(rss(), table.held_bytes());
    assert_eq!(table[0].load(SeqCst), 0, "a discarded entry is zero");
}

#[test]
fn an_empty_touch_holds_nothing() {
    let table: Table<AtomicU64> = Table::reserve(LEN).expect("address space");
    table.touch(1389..1389);
    assert_eq!(table.held_bytes(), 0);
}
