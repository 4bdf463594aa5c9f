//! Our side: regions over one memory, torn down together.
//!
//! ```text
//!   lab                             thread 0 .. thread N-1, a region each
//!    |                               fill, page out and in, page out      <- each at its own pace
//!    |---- barrier: all are out ---------|
//!    |  looks at what they hold          |
//!    |---- barrier -------- gate --------|
//!    |                               teardown                             <- all at that moment
//!    |  looks until the ranges are unmapped and the growth is gone
//! ```
//!
//! Invariant: before the start every page of every region is in its store, and was read back equal.

use super::{Case, Free, GONE, NS_PER_MS, PAGING, PATIENCE};
use crate::clock;
use crate::corpus::PAGE_SIZE;
use crate::error::LabError;
use crate::row::{self, Row};
use crate::stats;
use crate::study::folding;
use crate::study::gate::Gate;
use crate::study::paging::{self, Source};
use codec::Codec;
use region::{Pager, PagerConfig, Region, RegionConfig, Teardown};
use std::fs;
use std::ops::Range;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};
use zsmalloc::{Memory, MemoryConfig};

/// What the memory's worker never bothers to give back.
const KEPT_BYTES: u64 = 1 << 20;

/// How the regions of a case are made.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) algorithm: Codec,
    pub(super) chain_order: u32,
    pub(super) free: Free,
}

/// One case: adds what was measured to `row`.
pub(super) fn measure(
    shape: Shape,
    case: Case,
    source: &Source,
    row: &mut Row,
) -> Result<(), LabError> {
    let memory = Memory::new(MemoryConfig::for_disk(case.bytes()));
    let memory = memory.map_err(LabError::store("memory"))?;
    let pager =
        Pager::new(Arc::clone(&memory), &PagerConfig::default()).map_err(folding::refused)?;
    let empty = resident(&memory)?;
    let crew = Crew {
        shape,
        case,
        source,
        pager: &pager,
        barrier: Barrier::new(case.threads as usize + 1),
        gate: Gate::new(case.threads),
    };
    let (full, ended) = thread::scope(|scope| {
        let threads: Vec<_> = (0..case.threads).map(|_| scope.spawn(|| crew.one())).collect();
        crew.barrier.wait();
        let full = resident(&memory);
        crew.barrier.wait();
        let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| panicked())?);
        (full, joined.collect::<Result<Vec<Ended>, LabError>>())
    });
    let (growth, ended) = (full?.saturating_sub(empty), ended?);
    let start_ns = ended.iter().map(|ended| ended.start_ns).min().unwrap_or(0);
    let end_ns = ended.iter().map(|ended| ended.end_ns).max().unwrap_or(0);
    let ms = |ns: u64| ns.saturating_sub(start_ns) as f64 / NS_PER_MS;
    let ranges: Vec<Range<usize>> = ended.iter().map(|ended| ended.addresses.clone()).collect();
    let freed = wait_until(|| Ok(memory.pending_bytes() == 0 && !is_mapped(&ranges)?))?;
    let left = ((growth as f64 * (1.0 - GONE)) as u64).max(KEPT_BYTES);
    wait_until(|| Ok(memory.free_bytes_held() <= left))?;
    let released = wait_until(|| Ok(resident(&memory)? <= left + empty))?;
    let paging: Vec<Row> = ended.into_iter().map(|ended| ended.paging).collect();
    for field in PAGING {
        let spread = stats::spread(&row::column(&paging, field));
        row.set(field, spread.map(|spread| spread.median));
    }
    row.set("teardown_ms", ms(end_ns))
        .set("freed_ms", ms(freed))
        .set("release_ms", ms(released))
        .set("drain_ms", ms(released))
        .set("growth_bytes", growth);
    Ok(())
}

/// What the threads share.
struct Crew<'a> {
    shape: Shape,
    case: Case,
    source: &'a Source,
    pager: &'a Arc<Pager>,
    barrier: Barrier,
    gate: Gate,
}

/// What a thread found.
struct Ended {
    paging: Row,
    addresses: Range<usize>,
    start_ns: u64,
    end_ns: u64,
}

impl Crew<'_> {
    /// One thread's part. It goes through all barriers whatever happens: the others wait there.
    fn one(&self) -> Result<Ended, LabError> {
        let prepared = self.prepare();
        self.barrier.wait();
        self.barrier.wait();
        self.gate.pass();
        let (region, paging) = prepared?;
        let addresses = region.as_slice().as_ptr_range();
        let addresses = addresses.start.addr()..addresses.end.addr();
        let how = match self.shape.free {
            Free::Sync => Teardown::Sync,
            Free::Range => Teardown::Range,
        };
        let start_ns = clock::now_ns();
        region.teardown(how);
        let end_ns = clock::now_ns();
        Ok(Ended { paging, addresses, start_ns, end_ns })
    }

    /// A region whose pages are all out, and how paging went.
    fn prepare(&self) -> Result<(Region, Row), LabError> {
        let (pages, shape) = (self.case.pages(), self.shape);
        let config = RegionConfig {
            name: "lab".to_owned(),
            algorithm: shape.algorithm,
            chain_order: shape.chain_order,
            ..RegionConfig::default()
        };
        let mut region =
            Region::map(self.pager, pages * PAGE_SIZE, &config).map_err(folding::refused)?;
        self.source.fill(region.as_mut_slice())?;
        let out = folding::page_out(&region)?;
        let plan = paging::Plan::new(pages, self.case.run);
        let random = paging::touch(region.as_slice(), plan.random());
        let sequential = paging::touch(region.as_slice(), plan.sequential());
        self.source.verify(region.as_slice())?;
        folding::page_out(&region)?;
        let mut row = Row::default();
        row.set("pageout_ns_per_page", out.as_nanos() as f64 / pages as f64)
            .set("faultin_ns_per_page", random)
            .set("faultin_sequential_ns_per_page", sequential);
        Ok((region, row))
    }
}

/// Bytes of the memory that the system counts, frames and tables.
fn resident(memory: &Memory) -> Result<u64, LabError> {
    memory.resident_bytes(&[]).map_err(LabError::io("smaps"))
}

/// Whether all of one of `ranges` is still mapped.
fn is_mapped(ranges: &[Range<usize>]) -> Result<bool, LabError> {
    let maps = fs::read_to_string("/proc/self/maps").map_err(LabError::io("maps"))?;
    let parts: Vec<Range<usize>> = maps.lines().filter_map(addresses).collect();
    let inside = |range: &Range<usize>| {
        let overlap = |part: &Range<usize>| {
            part.end.min(range.end).saturating_sub(part.start.max(range.start))
        };
        parts.iter().map(overlap).sum::<usize>()
    };
    // Who unmaps a range may find part of it taken by somebody else a moment later.
    Ok(ranges.iter().any(|range| inside(range) == range.len()))
}

/// Those of a line of `maps`.
fn addresses(line: &str) -> Option<Range<usize>> {
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

/// Looks until it is so, leaving the CPUs to those who do it; when that was.
fn wait_until(mut done: impl FnMut() -> Result<bool, LabError>) -> Result<u64, LabError> {
    const PAUSE: Duration = Duration::from_micros(200);
    let start = Instant::now();
    while !done()? {
        if start.elapsed() > PATIENCE {
            return Err(LabError::Wrong("what was torn down is still there".into()));
        }
        thread::sleep(PAUSE);
    }
    Ok(clock::now_ns())
}

fn panicked() -> LabError {
    LabError::Store { what: "region".into(), why: "a thread panicked".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_mapped_until_part_of_it_is_not() {
        let memory = host::Swappable::new(16).unwrap();
        let (inside, all) = (memory.addresses(), [memory.addresses()]);
        assert!(is_mapped(&all).unwrap());
        assert!(is_mapped(&[0..4096, inside.start..inside.start + 4096]).unwrap());
        assert!(!is_mapped(&[0..4096]).unwrap(), "nobody maps the first page");
        drop(memory);
        assert!(!is_mapped(&all).unwrap());
    }
}
