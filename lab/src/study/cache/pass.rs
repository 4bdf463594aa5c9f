//! One run with so many threads: codec and zswap in turns, slice by slice.
//!
//! ```text
//!   pages of a thread   | slice 0 | 1 | 2 | ... | 31 |
//!   codec               .. 3 .. 4 ..                     at the same time others are at the same
//!   zswap               .... 13 ... 14 ..                step; a third of the pages apart, so that
//!   bare                ...... 24 .... 25                nobody finds a page in the CPU's cache
//! ```
//!
//! What disturbs the machine for longer than a few milliseconds disturbs all sides.
//!
//! Invariant: a time counts only if every page came back, and if the zswap sorted the pages as the
//! study did: same-filled, compressible, huge.

use super::pages::{Order, Pages, Part};
use crate::apparatus::gate::Gate;
use crate::apparatus::ours;
use crate::ground::LabError;
use crate::pages::PAGE_SIZE;
use crate::rows::Row;
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::Instant;
use zsmalloc::{Memory, MemoryConfig};
use zswap::{Area, GroupId, Loaded, Zswap};

const NAME: &str = "zswap";
/// In the first pass neither side finds memory that was touched before.
const PASSES: [&str; 2] = ["fresh", "again"];
/// Parts of a thread's pages that sides take turns at.
const SLICES: usize = 32;

/// Who works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Codec,
    Zswap,
    /// The codec without the copy.
    Bare,
}

impl Side {
    const ALL: [Side; 3] = [Side::Codec, Side::Zswap, Side::Bare];

    /// The slice it works on at a step.
    fn slice(self, step: usize) -> usize {
        (step + self as usize * SLICES / Side::ALL.len()) % SLICES
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Op {
    Store,
    Load,
}

/// What is measured.
#[derive(Clone, Copy)]
pub(super) struct Case {
    pub(super) threads: u32,
    pub(super) order: Order,
    pub(super) run: u32,
    pub(super) chain_order: u32,
}

/// What a thread works with.
struct Worker<'p> {
    part: Part<'p>,
    pages: &'p Pages<'p>,
    area: &'p Area,
    order: Vec<usize>,
}

/// From when to when a step of a thread was.
type Span = [Instant; 2];

/// A row for each pass and direction.
pub(super) fn measure(pages: &Pages<'_>, case: Case) -> Result<Vec<Row>, LabError> {
    let (zswap, area) = cache(pages, case.chain_order)?;
    let worker = |own| {
        let part = Part::new(pages, own);
        let order = part.order(case.order, case.run);
        Worker { part, pages, area: &area, order }
    };
    let mut workers: Vec<Worker<'_>> = pages.parts(case.threads).into_iter().map(worker).collect();
    let ns_per_page = |ns: f64| f64::from(case.threads) * ns / pages.count() as f64;
    let mut rows = Vec::new();
    for pass in PASSES {
        let stores = time(&mut workers, Op::Store)?.map(ns_per_page);
        check_sorting(&zswap, pages)?;
        rows.push(row("store", pass, case, stores));
        let loads = time(&mut workers, Op::Load)?.map(ns_per_page);
        check_empty(&zswap)?;
        rows.push(row("load", pass, case, loads));
    }
    let [same, huge] = pages.same_and_huge();
    for row in &mut rows {
        row.set("pages", pages.count()).set("same_pages", same).set("huge_pages", huge);
    }
    Ok(rows)
}

/// Has every side go over all pages; gives the nanoseconds of each, from the first thread's start
/// to the last one's end, step by step.
fn time(workers: &mut [Worker<'_>], op: Op) -> Result<[f64; Side::ALL.len()], LabError> {
    let steps: Vec<(usize, Side)> =
        (0..SLICES).flat_map(|step| Side::ALL.map(|side| (step, side))).collect();
    let gates: Vec<Gate> = steps.iter().map(|_| Gate::new(workers.len() as u32)).collect();
    let (steps, gates) = (&steps[..], &gates[..]);
    let done: Vec<Result<Vec<Span>, LabError>> = thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .map(|worker| scope.spawn(move || worker.go(op, steps, gates)))
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let spans = done.into_iter().collect::<Result<Vec<_>, LabError>>()?;
    let mut ns = [0.0; Side::ALL.len()];
    for (index, (_, side)) in steps.iter().enumerate() {
        let start = spans.iter().map(|spans| spans[index][0]).min();
        let end = spans.iter().map(|spans| spans[index][1]).max();
        ns[*side as usize] += start.zip(end).map_or(f64::NAN, |(a, b)| (b - a).as_nanos() as f64);
    }
    Ok(ns)
}

impl Worker<'_> {
    /// Goes through every gate, also after something failed: others wait there.
    fn go(
        &mut self,
        op: Op,
        steps: &[(usize, Side)],
        gates: &[Gate],
    ) -> Result<Vec<Span>, LabError> {
        let (mut spans, mut done) = (Vec::with_capacity(steps.len()), Ok(()));
        for ((step, side), gate) in steps.iter().zip(gates) {
            let slice = self.slice(side.slice(*step));
            gate.pass();
            let start = Instant::now();
            if done.is_ok() {
                done = self.step(op, *side, slice);
            }
            spans.push([start, Instant::now()]);
        }
        done.map(|()| spans)
    }

    /// Places of a slice in the order.
    fn slice(&self, slice: usize) -> Range<usize> {
        let pages = self.order.len();
        pages * slice / SLICES..pages * (slice + 1) / SLICES
    }

    fn step(&mut self, op: Op, side: Side, slice: Range<usize>) -> Result<(), LabError> {
        let first = self.part.first();
        let own = first + slice.start..first + slice.end;
        match (op, side) {
            (Op::Store, Side::Codec) => self.part.store(own),
            (Op::Store, Side::Zswap) => self.store(own),
            (Op::Store, Side::Bare) => self.part.compress(own),
            (Op::Load, Side::Codec) => self.part.load(&self.order[slice]),
            (Op::Load, Side::Zswap) => self.load(slice),
            (Op::Load, Side::Bare) => Ok(()),
        }
    }

    fn store(&self, own: Range<usize>) -> Result<(), LabError> {
        for page in own {
            let stored = self.area.store(page as u64, self.pages.page(page), GroupId::ROOT);
            stored.map_err(|error| LabError::store(format!("{NAME}: store of {page}"))(error))?;
        }
        Ok(())
    }

    fn load(&self, slice: Range<usize>) -> Result<(), LabError> {
        let mut data = [0; PAGE_SIZE];
        for &page in &self.order[slice] {
            let loaded = self.area.load(page as u64, &mut data);
            match loaded.map_err(|error| LabError::store(format!("{NAME}: load"))(error))? {
                Loaded::Memory => self.pages.verify(page, &data)?,
                lost => return Err(LabError::Wrong(format!("page {page} is elsewhere: {lost:?}"))),
            }
        }
        Ok(())
    }
}

fn cache(pages: &Pages<'_>, chain_order: u32) -> Result<(Arc<Zswap>, Area), LabError> {
    let bytes = (pages.count() * PAGE_SIZE) as u64;
    // A worker would give frames back to the system between two passes, or not, as time passes.
    let config = MemoryConfig { worker: false, ..MemoryConfig::for_disk(bytes) };
    let memory = Memory::new(config).map_err(LabError::store(NAME))?;
    let zswap = ours::cache(&memory, pages.codec(), chain_order, bytes)?;
    let area = zswap.add_area(pages.count() as u64).map_err(LabError::store(NAME))?;
    Ok((zswap, area))
}

/// What is timed must be what the zswap stores: both sort pages by the same rule.
fn check_sorting(zswap: &Zswap, pages: &Pages<'_>) -> Result<(), LabError> {
    let (stat, [same, huge]) = (zswap.stat(), pages.same_and_huge());
    let ours = [pages.count() as u64, same, huge];
    let stored = [stat.stored_pages, stat.same_filled_pages, stat.stored_incompressible_pages];
    let wrong = || format!("(all, same-filled, huge) pages are {ours:?} here, {stored:?} there");
    (ours == stored).then_some(()).ok_or_else(|| LabError::Wrong(wrong()))
}

fn check_empty(zswap: &Zswap) -> Result<(), LabError> {
    let stat = zswap.stat();
    let left = stat.stored_pages + stat.disk_pages + stat.compr_data_size;
    let wrong = || LabError::Wrong(format!("{left} pages and bytes are left of what was loaded"));
    (left == 0).then_some(()).ok_or_else(wrong)
}

fn row(op: &str, pass: &str, case: Case, [codec, zswap, bare]: [f64; 3]) -> Row {
    let mut row = Row::default();
    row.set("op", op)
        .set("pass", pass)
        .set("order", case.order.name())
        .set("threads", case.threads)
        .set("run", case.run)
        .set("ns_per_page", zswap)
        .set("codec_ns_per_page", codec)
        .set("bare_ns_per_page", if op == "store" { bare } else { f64::NAN });
    row
}
