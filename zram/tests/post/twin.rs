//! All operations of a device on pages, in any order, on a backing disk that fails, against a twin
//! that does not fail.
//!
//! Claims
//! - Every page reads as it was last written, or fails while the backing disk does. It never reads
//!   as anything else.
//! - A page is idle, and on the backing disk, exactly as long as no client uses it.
//! - In half of the runs, pages go to the tiers of a density, and nothing else is seen of them.
//! - The blocks in use are the pages that are there, and `check()` finds nothing.
//! - A device that was reset has nothing, and its backing disk is all free.
//!
//! Covered elsewhere: which pages a mode takes (`write_back`, `recompress`), and threads
//! (`threads`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::devices::{PAGE, PAGES, blocks, config, data, memory};
use crate::ways::{self, Way};
use disk::{Disk, Fault, FaultPlan, FaultSpan, FaultyDisk, RamDisk, Verbs};
use proptest::prelude::*;
use ramfold_zram::{
    Density, Idle, PostError, Recompress, RecompressKind, Selection, TiersConfig, Verdict,
    WriteBack, Zram, ZramConfig,
};
use zsmalloc::{LEAF_CELLS, Memory};

/// Blocks of the backing disk: so few that many runs fill it.
const BLOCKS: u64 = 150;

#[derive(Clone, Debug)]
enum Action {
    Write(u64),
    WritePart(u64, usize),
    Read(u64),
    Discard(u64, u64),
    DiscardLeaf(u64),
    Idle,
    WriteBack(Selection, Option<u64>),
    Recompress(RecompressKind, u8),
    Compact,
    Tend(Density),
    Train,
    Fail(u64, Verbs, FaultSpan),
    Recover,
    Limit(u64),
    Reset,
}

fn selection() -> impl Strategy<Value = Selection> {
    prop_oneof![
        2 => Just(Selection::Idle),
        1 => Just(Selection::Huge),
        1 => Just(Selection::HugeIdle),
        1 => Just(Selection::Incompressible),
        3 => (0..PAGES, 0..PAGES).prop_map(|(a, b)| Selection::Pages(vec![a.min(b)..=a.max(b)])),
    ]
}

fn kind() -> impl Strategy<Value = RecompressKind> {
    prop_oneof![
        2 => Just(RecompressKind::All),
        1 => Just(RecompressKind::Idle),
        1 => Just(RecompressKind::Huge),
        1 => Just(RecompressKind::HugeIdle),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    let verbs = prop_oneof![Just(Verbs::All), Just(Verbs::Reads), Just(Verbs::Writes)];
    let span = prop_oneof![Just(FaultSpan::Once), Just(FaultSpan::Forever)];
    prop_oneof![
        20 => (0..PAGES).prop_map(Action::Write),
        6 => (0..PAGES, 0..PAGE).prop_map(|(page, at)| Action::WritePart(page, at)),
        10 => (0..PAGES).prop_map(Action::Read),
        4 => (0..PAGES, 1u64..300).prop_map(|(page, count)| Action::Discard(page, count)),
        1 => (0..PAGES).prop_map(Action::DiscardLeaf),
        4 => Just(Action::Idle),
        8 => (selection(), prop::option::of(0u64..200))
            .prop_map(|(what, max)| Action::WriteBack(what, max)),
        6 => (kind(), 1u8..=2).prop_map(|(kind, priority)| Action::Recompress(kind, priority)),
        2 => Just(Action::Compact),
        6 => prop_oneof![Just(Density::Balanced), Just(Density::Dense)].prop_map(Action::Tend),
        1 => Just(Action::Train),
        3 => (0u64..6, verbs, span)
            .prop_map(|(after, verbs, span)| Action::Fail(after, verbs, span)),
        4 => Just(Action::Recover),
        2 => (0u64..300).prop_map(Action::Limit),
        1 => Just(Action::Reset),
    ]
}

/// The expected state of a page.
#[derive(Clone, Debug, Default)]
struct Page {
    data: Vec<u8>,
    idle: bool,
    back: bool,
}

struct Twin {
    memory: Arc<Memory>,
    disk: Arc<FaultyDisk<RamDisk>>,
    way: Way,
    compressed_writeback: bool,
    tracks_ages: bool,
    zram: Zram,
    pages: BTreeMap<u64, Page>,
    version: u64,
}

/// With tiers a device notes ages, and has a priority that is free for tables.
fn make(
    twin: (&Arc<Memory>, &Arc<FaultyDisk<RamDisk>>),
    way: Way,
    compressed: bool,
    tracks_ages: bool,
) -> Zram {
    let (memory, disk) = twin;
    let codec = |name: &str| Some(name.parse().expect("a codec"));
    let config = ZramConfig {
        compressed_writeback: compressed,
        track_ages: tracks_ages,
        recompression: [codec("zstd:1"), codec("zstd:9"), None],
        ..config(Some(Arc::clone(disk) as Arc<dyn Disk>))
    };
    Zram::new(Arc::clone(memory), way.of(config)).expect("a device")
}

impl Twin {
    fn new(way: Way, worker: bool, compressed_writeback: bool, tracks_ages: bool) -> Twin {
        let (memory, disk) = (memory(worker), blocks(BLOCKS));
        let zram = make((&memory, &disk), way, compressed_writeback, tracks_ages);
        let (pages, version) = (BTreeMap::new(), 0);
        Twin { memory, disk, way, compressed_writeback, tracks_ages, zram, pages, version }
    }

    fn apply(&mut self, action: &Action) {
        self.version += 1;
        match action {
            Action::Write(page) => {
                (*page..(page + 20).min(PAGES)).for_each(|page| self.write(page))
            }
            Action::WritePart(page, at) => self.write_part(*page, *at),
            Action::Read(page) => (*page..(page + 9).min(PAGES)).for_each(|page| self.read(page)),
            Action::Discard(page, count) => self.discard(*page, (page + count).min(PAGES)),
            Action::DiscardLeaf(page) => {
                let start = page / LEAF_CELLS as u64 * LEAF_CELLS as u64;
                self.discard(start, (start + LEAF_CELLS as u64).min(PAGES));
            }
            Action::Idle => self.mark_idle(),
            Action::WriteBack(pages, max_pages) => self.write_back(pages.clone(), *max_pages),
            Action::Recompress(kind, priority) => self.recompress(*kind, *priority),
            Action::Compact => drop(self.zram.compact()),
            Action::Tend(density) => self.tend(*density),
            Action::Train => self.train(),
            Action::Fail(after, verbs, span) => {
                let (after, verbs, span) = (*after, *verbs, *span);
                self.disk.arm(FaultPlan { after, verbs, span, fault: Fault::Backing });
            }
            Action::Recover => self.disk.disarm(),
            Action::Limit(units) => {
                self.zram.set_writeback_limit(*units);
                self.zram.enable_writeback_limit(*units > 100);
            }
            Action::Reset => {
                self.pages.clear();
                let (of, compressed) = ((&self.memory, &self.disk), self.compressed_writeback);
                self.zram = make(of, self.way, compressed, self.tracks_ages);
                assert_eq!(self.zram.bd_stat().count, 0);
            }
        }
    }

    fn write(&mut self, page: u64) {
        let data = data(page, self.version);
        self.zram.write_page(page, &data).expect("room");
        self.pages.insert(page, Page { data, ..Page::default() });
    }

    fn write_part(&mut self, page: u64, at: usize) {
        let len = (PAGE - at).min(100);
        let written = self.zram.write((page * PAGE as u64) + at as u64, &vec![3; len]);
        let was = self
            .pages
            .entry(page)
            .or_insert_with(|| Page { data: vec![0; PAGE], ..Page::default() });
        match written {
            Ok(()) => {
                was.data[at..at + len].fill(3);
                (was.idle, was.back) = (false, false);
            }
            Err(error) => assert!(was.back, "{error}: page {page} is in memory"),
        }
    }

    fn read(&mut self, page: u64) {
        let mut data = vec![1; PAGE];
        let read = self.zram.read_page(page, &mut data);
        match (read, self.pages.get_mut(&page)) {
            (Ok(()), Some(was)) => {
                assert!(data == was.data, "page {page}");
                was.idle = false;
            }
            (Ok(()), None) => assert!(data.iter().all(|&byte| byte == 0), "page {page}"),
            (Err(error), was) => {
                assert!(was.is_some_and(|was| was.back), "{error}: page {page} is in memory");
            }
        }
    }

    fn discard(&mut self, start: u64, end: u64) {
        self.zram.discard_pages(start..end).expect("in range");
        self.pages.retain(|page, _| !(start..end).contains(page));
    }

    fn mark_idle(&mut self) {
        self.zram.mark_idle(Idle::All).expect("nothing to go wrong");
        let is_same = |page: &Page| page.data.chunks(8).all(|word| *word == page.data[..8]);
        for page in self.pages.values_mut() {
            page.idle = !page.back && !is_same(page);
        }
    }

    /// The device decides which pages it writes back, within the request.
    fn write_back(&mut self, pages: Selection, max_pages: Option<u64>) {
        let before = self.back();
        let outcome = self.zram.write_back(&WriteBack { pages, max_pages });
        let after = self.back();
        assert!(after.is_superset(&before), "nothing comes back by itself");
        let more = (after.len() - before.len()) as u64;
        assert!(more <= max_pages.unwrap_or(u64::MAX));
        match outcome {
            Ok(report) => assert_eq!((report.pages, report.used), (more, 0)),
            Err(PostError::NoSpace) => assert_eq!(after.len() as u64, BLOCKS),
            Err(PostError::LimitReached) => assert_eq!(self.zram.writeback_limit(), 0),
            Err(error) => assert!(matches!(error, PostError::Backing(_)), "{error}"),
        }
        for page in after.difference(&before) {
            let was = self.pages.get_mut(page).expect("only what is stored is written back");
            (was.idle, was.back) = (false, true);
        }
    }

    fn recompress(&mut self, kind: RecompressKind, priority: u8) {
        let what = Recompress { kind, ..Recompress::with(priority) };
        let before = self.zram.compr_data_size();
        let report = self.zram.recompress(&what).expect("room");
        assert_eq!(report.used, 0);
        if !self.way.counts_pending() {
            assert_eq!(self.zram.compr_data_size(), before - report.bytes_saved);
        }
        // A page that was tried is not idle.
        let idle = self.states(|state| state.idle);
        for (page, was) in &mut self.pages {
            assert!(was.idle || !idle.contains(page), "page {page}");
            was.idle = idle.contains(page);
        }
    }

    /// Every page is as old as can be. A page that is tended may get the mark of idle pages, and
    /// nothing else is seen of it.
    fn tend(&mut self, density: Density) {
        if !self.tracks_ages {
            return;
        }
        let before = self.zram.compr_data_size();
        let age = Duration::ZERO;
        self.zram.tend(&TiersConfig { age, ..TiersConfig::new(density) }).expect("room");
        if !self.way.counts_pending() {
            assert!(self.zram.compr_data_size() <= before, "tending makes no page larger");
        }
        let idle = self.states(|state| state.idle);
        for (page, was) in &mut self.pages {
            was.idle = idle.contains(page);
        }
    }

    /// There are too few pages, so nothing changes.
    fn train(&mut self) {
        let training = self.zram.train_tables().expect("memory");
        assert_eq!(training.verdict, Verdict::TooFewPages);
    }

    fn states(&self, is_so: impl Fn(&ramfold_zram::BlockState) -> bool) -> BTreeSet<u64> {
        let states = self.zram.block_states(0..PAGES).filter(|state| is_so(state));
        states.map(|state| state.page).collect()
    }

    fn back(&self) -> BTreeSet<u64> {
        self.states(|state| state.written_back)
    }

    fn expect(&mut self) {
        let such = |is_so: fn(&Page) -> bool| -> BTreeSet<u64> {
            self.pages.iter().filter(|(_, page)| is_so(page)).map(|(&page, _)| page).collect()
        };
        assert_eq!(self.states(|state| state.idle), such(|page| page.idle));
        assert_eq!(self.back(), such(|page| page.back));
        self.zram.check().expect("no defect while something is pending");
        self.memory.flush_deferred();
        assert_eq!(self.zram.bd_stat().count, self.back().len() as u64);
        self.zram.check().expect("no defect");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn pages_are_as_they_were_written(
        actions in prop::collection::vec(action(), 1..150),
        way in prop::sample::select(ways::all()),
        worker: bool,
        compressed: bool,
        tiers: bool,
    ) {
        let mut twin = Twin::new(way, worker, compressed, tiers);
        for action in &actions {
            twin.apply(action);
            twin.expect();
        }
        twin.disk.disarm();
        (0..PAGES).for_each(|page| twin.read(page));
        twin.expect();
    }
}
