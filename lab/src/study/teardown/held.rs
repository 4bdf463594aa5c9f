//! What a thread fills, gives up, and leaves behind.
//!
//! ```text
//!   free      what                 giving up                          left until freed
//!   sync      region               Teardown::Sync                     nothing
//!   range     region               Teardown::Range                    its range, pending bytes
//!   slots     device, area         slot after slot, at once           nothing
//!   handles   device               slot after slot, objects later     values in its queue
//!   entries   device               slot after slot, all of it later   values in its queue
//! ```
//!
//! The last three are study S3's own: memory has been swapped to a device, and the client of the
//! device frees slot after slot. A device, or an area of a cache, stands for the region then; it
//! has no pages to page.
//!
//! Invariant: what is given up was read back equal before, every page of it, and is in the store.

use super::case::{Case, Free, Shape};
use crate::apparatus::folding;
use crate::apparatus::ours::{self, Backend};
use crate::apparatus::paging::{self, Source};
use crate::ground::{LabError, clock};
use crate::pages::PAGE_SIZE;
use crate::rows::Row;
use region::{Pager, Region, RegionConfig, StoreConfig, Teardown};
use std::fs;
use std::ops::Range;
use std::sync::Arc;
use zram::study::Study;
use zram::{Zram, ZramConfig};
use zswap::{Area, GroupId, Loaded, Zswap};

/// What all threads share: where folded pages go.
pub(super) struct Store {
    pager: Arc<Pager>,
    cache: Option<Arc<Zswap>>,
}

pub(super) enum Held {
    Region(Region, Teardown),
    Device(Box<Zram>),
    Area(Area),
}

/// What may be left of it.
pub(super) enum Left {
    Mapped(Range<usize>),
    Queued(Box<Zram>),
    Emptied(Area),
}

/// When it was given up.
pub(super) struct Span {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
}

impl Store {
    pub(super) fn new(shape: &Shape, case: Case, pager: &Arc<Pager>) -> Result<Store, LabError> {
        let Shape { backend, algorithm, chain_order, .. } = shape;
        let cache = match *backend {
            Backend::Zram => None,
            Backend::Zswap => {
                Some(ours::cache(pager.memory(), algorithm, *chain_order, case.bytes())?)
            }
        };
        Ok(Store { pager: Arc::clone(pager), cache })
    }

    /// Of a region.
    fn config(&self) -> StoreConfig {
        let over = |cache: &Arc<Zswap>| StoreConfig::Zswap {
            cache: Arc::clone(cache),
            group: GroupId::ROOT,
        };
        self.cache.as_ref().map_or(StoreConfig::Zram, over)
    }

    /// Sees that pages are in memory, all of them.
    fn all_in_memory(&self) -> Result<(), LabError> {
        let out = self.cache.as_ref().map_or(0, |cache| cache.stat().written_back_pages);
        let wrong = || LabError::Wrong(format!("{out} pages were written back"));
        (out == 0).then_some(()).ok_or_else(wrong)
    }
}

impl Held {
    /// Something that is stored as a whole, and how paging went.
    pub(super) fn prepare(
        shape: &Shape,
        case: Case,
        store: &Store,
        source: &Source,
    ) -> Result<(Held, Row), LabError> {
        let device = |free| device(shape, free, case, &store.pager, source);
        match (shape.free, &store.cache) {
            (Free::Sync | Free::SyncClosed, _) => {
                region(shape, Teardown::Sync, case, store, source)
            }
            (Free::Range | Free::RangeClosed, _) => {
                region(shape, Teardown::Range, case, store, source)
            }
            (_, Some(cache)) => area(case, cache, source),
            (Free::Slots, None) => device(zram::study::Free::Sync),
            (Free::Handles, None) => device(zram::study::Free::Handles),
            (Free::Entries, None) => device(zram::study::Free::Entries),
        }
    }

    pub(super) fn give_up(self) -> Result<(Left, Span), LabError> {
        match self {
            Held::Region(region, how) => {
                let bytes = region.as_slice().as_ptr_range();
                let left = Left::Mapped(bytes.start.addr()..bytes.end.addr());
                Ok((left, span(|| region.teardown(how))))
            }
            Held::Device(disk) => {
                let mut done = Ok(());
                let span = span(|| done = disk.discard_pages(0..disk.pages()));
                done.map_err(LabError::store("discard"))?;
                Ok((Left::Queued(disk), span))
            }
            Held::Area(area) => {
                let span = span(|| (0..area.pages()).for_each(|page| area.invalidate(page)));
                Ok((Left::Emptied(area), span))
            }
        }
    }
}

impl Left {
    /// Whether nothing is left.
    pub(super) fn is_nothing(&self) -> Result<bool, LabError> {
        match self {
            Left::Mapped(range) => is_mapped(range).map(|mapped| !mapped),
            Left::Queued(disk) => Ok(disk.deferred().pending_values == 0),
            Left::Emptied(_) => Ok(true),
        }
    }

    /// Values for which a queue had no room.
    pub(super) fn fallbacks(&self) -> Option<u64> {
        match self {
            Left::Mapped(_) | Left::Emptied(_) => None,
            Left::Queued(disk) => Some(disk.deferred().fallbacks),
        }
    }

    /// Sees that what counts pages counts none.
    pub(super) fn verify(&self) -> Result<(), LabError> {
        let left = match self {
            Left::Mapped(_) => 0,
            Left::Queued(disk) => disk.mm_stat().0[0],
            Left::Emptied(area) => area.stat().stored_pages,
        };
        let wrong = || LabError::Wrong(format!("{left} bytes or pages are still stored"));
        (left == 0).then_some(()).ok_or_else(wrong)
    }
}

fn span(work: impl FnOnce()) -> Span {
    let start_ns = clock::now_ns();
    work();
    Span { start_ns, end_ns: clock::now_ns() }
}

/// A region whose pages are all out.
fn region(
    shape: &Shape,
    how: Teardown,
    case: Case,
    store: &Store,
    source: &Source,
) -> Result<(Held, Row), LabError> {
    let pages = case.pages();
    let config = RegionConfig {
        name: "lab".to_owned(),
        store: store.config(),
        algorithm: shape.algorithm.clone(),
        chain_order: shape.chain_order,
        ..RegionConfig::default()
    };
    let mut region =
        Region::map(&store.pager, pages * PAGE_SIZE, &config).map_err(folding::refused)?;
    source.fill(region.as_mut_slice())?;
    let out = folding::page_out(&region)?;
    let plan = paging::Plan::new(pages, case.run);
    let random = paging::touch(region.as_slice(), plan.random());
    let sequential = paging::touch(region.as_slice(), plan.sequential());
    source.verify(region.as_slice())?;
    folding::page_out(&region)?;
    store.all_in_memory()?;
    let mut row = Row::default();
    row.set("pageout_ns_per_page", out.as_nanos() as f64 / pages as f64)
        .set("faultin_ns_per_page", random)
        .set("faultin_sequential_ns_per_page", sequential);
    Ok((Held::Region(region, how), row))
}

/// A device that holds as many pages.
fn device(
    shape: &Shape,
    free: zram::study::Free,
    case: Case,
    pager: &Arc<Pager>,
    source: &Source,
) -> Result<(Held, Row), LabError> {
    let deferred = shape.queue(case.pages() as u64);
    let config = ZramConfig {
        algorithm: shape.algorithm.clone(),
        chain_order: shape.chain_order,
        study: Study { free, deferred, ..Study::default() },
        ..ZramConfig::new("lab", (case.pages() * PAGE_SIZE) as u64)
    };
    let disk = Zram::new(Arc::clone(pager.memory()), config).map_err(LabError::store("zram"))?;
    let mut page = vec![0; PAGE_SIZE];
    for number in 0..case.pages() {
        source.fill_from(number, &mut page)?;
        let written = disk.write_page(number as u64, &page);
        written.map_err(|error| LabError::store("write")(error))?;
    }
    for number in 0..case.pages() {
        let read = disk.read_page(number as u64, &mut page);
        read.map_err(|error| LabError::store("read")(error))?;
        source.verify_from(number, &page)?;
    }
    Ok((Held::Device(Box::new(disk)), Row::default()))
}

/// An area of a cache that holds as many pages.
fn area(case: Case, cache: &Arc<Zswap>, source: &Source) -> Result<(Held, Row), LabError> {
    let area = cache.add_area(case.pages() as u64).map_err(LabError::store("zswap"))?;
    let mut page = vec![0; PAGE_SIZE];
    for number in 0..case.pages() {
        source.fill_from(number, &mut page)?;
        let stored = area.store(number as u64, &page, GroupId::ROOT);
        stored.map_err(|error| LabError::store("store")(error))?;
    }
    for number in 0..case.pages() {
        let read = area.peek(number as u64, &mut page).map_err(LabError::store("peek"))?;
        source.verify_from(number, &page)?;
        if read != Loaded::Memory {
            return Err(LabError::Wrong(format!("page {number} is not in memory")));
        }
    }
    Ok((Held::Area(area), Row::default()))
}

/// Whether all of `range` is still mapped. When it is unmapped, another mapping may take part of it
/// a moment later.
fn is_mapped(range: &Range<usize>) -> Result<bool, LabError> {
    let maps = fs::read_to_string("/proc/self/maps").map_err(LabError::io("maps"))?;
    let overlap =
        |part: Range<usize>| part.end.min(range.end).saturating_sub(part.start.max(range.start));
    let mapped: usize = maps.lines().filter_map(addresses).map(overlap).sum();
    Ok(mapped == range.len())
}

/// Those of a line of `maps`.
fn addresses(line: &str) -> Option<Range<usize>> {
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_mapped_until_part_of_it_is_not() {
        let memory = host::Swappable::new(16).unwrap();
        let all = memory.addresses();
        assert!(is_mapped(&all).unwrap());
        assert!(is_mapped(&(all.start..all.start + 4096)).unwrap());
        assert!(!is_mapped(&(0..4096)).unwrap(), "nobody maps the first page");
        drop(memory);
        assert!(!is_mapped(&all).unwrap());
    }
}
