//! What a thread fills, gives up, and leaves behind.
//!
//! ```text
//!   free      what                 giving up                          left until freed
//!   sync      region               Teardown::Sync                     nothing
//!   range     region               Teardown::Range                    its range, pending bytes
//!   slots     device, area         slot after slot, at once           nothing
//!   handles   device, area         slot after slot, objects later     values in a queue
//!   entries   device, area         slot after slot, all of it later   values in a queue
//! ```
//!
//! The last three are study S3's own: memory has been swapped to a device, and the client of the
//! device frees slot after slot. A part of a device that all threads share, or an area of a cache
//! that they share, stands for the region then; it has no pages to page.
//!
//! Invariant: what is given up was read back equal before, every page of it, and is in the store.

use super::case::{Case, Free, Shape};
use super::late::{Areas, Late};
use crate::apparatus::ours::{self, Backend, Layout};
use crate::apparatus::paging::{self, Source};
use crate::ground::{LabError, clock};
use crate::pages::PAGE_SIZE;
use crate::rows::Row;
use region::{Pager, Region, RegionConfig, StoreConfig, Teardown};
use std::fs;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use zram::study::Study;
use zram::{Zram, ZramConfig};
use zsmalloc::deferred::Meters;
use zswap::{Area, GroupId, Loaded, Zswap};

/// What all threads share: where folded pages go.
pub(super) struct Store {
    pager: Arc<Pager>,
    cache: Option<Arc<Zswap>>,
    /// Where slots are freed: as many pages for each thread.
    device: Option<Arc<Zram>>,
    /// The areas of the cache, where they are emptied page by page, one for each thread.
    areas: Areas,
    /// Where pages of areas are queued.
    late: Option<Arc<Late>>,
}

pub(super) enum Held {
    Region(Region, Teardown),
    Slots(Arc<Zram>, Range<u64>),
    Area(Area),
    /// Emptied later; of this thread.
    Late(Arc<Late>, Area, u32),
}

/// What may be left of it.
pub(super) enum Left {
    Mapped(Range<usize>),
    Slots,
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
                let free = match shape.free {
                    Free::Handles => zswap::study::Free::Handles,
                    _ => zswap::study::Free::AtOnce,
                };
                let deferred = shape.queue(case.bytes() / PAGE_SIZE as u64);
                let study = zswap::study::Study { free, deferred };
                let (memory, bytes) = (pager.memory(), case.bytes());
                Some(ours::cache_for(study, memory, algorithm, *chain_order, bytes)?)
            }
        };
        let areas: Areas = (0..case.threads).map(|_| OnceLock::new()).collect();
        let queued = cache.is_some() && shape.free == Free::Entries;
        let queue = || {
            let config = shape.queue(case.bytes() / PAGE_SIZE as u64);
            Late::new(config, &areas, pager.memory())
        };
        let late = queued.then(queue).transpose()?;
        let on_device = shape.free.is_of_a_device(*backend);
        let device = on_device.then(|| device(shape, case, pager)).transpose()?;
        Ok(Store { pager: Arc::clone(pager), cache, device, areas, late })
    }

    /// The queue of what is freed slot after slot.
    fn queue(&self) -> Option<Meters> {
        let of_device = self.device.as_ref().map(|disk| disk.deferred());
        let of_late = self.late.as_ref().map(|late| late.meters());
        let of_areas = || self.areas.iter().find_map(|area| Some(area.get()?.deferred()));
        of_device.or(of_late).or_else(of_areas)
    }

    /// Whether no value is in a queue.
    pub(super) fn has_nothing_pending(&self) -> bool {
        self.queue().is_none_or(|queue| queue.pending_values == 0)
    }

    /// Values for which a queue had no room.
    pub(super) fn fallbacks(&self) -> Option<u64> {
        self.queue().map(|queue| queue.fallbacks)
    }

    /// Sees that a device that was emptied counts no page.
    pub(super) fn is_empty(&self) -> Result<(), LabError> {
        let left = self.device.as_ref().map_or(0, |disk| disk.mm_stat().0[0]);
        let wrong = || LabError::Wrong(format!("{left} bytes are still stored"));
        (left == 0).then_some(()).ok_or_else(wrong)
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
    /// What thread `thread` has, all of it stored, and how paging went.
    pub(super) fn prepare(
        shape: &Shape,
        case: Case,
        thread: u32,
        store: &Store,
        source: &Source,
    ) -> Result<(Held, Row), LabError> {
        match (shape.free, &store.cache) {
            (Free::Sync | Free::SyncClosed | Free::SyncGuarded, _) => {
                region(shape, Teardown::Sync, case, store, source)
            }
            (Free::Range | Free::RangeClosed | Free::RangeGuarded, _) => {
                region(shape, Teardown::Range, case, store, source)
            }
            (_, Some(cache)) => area(case, cache, thread, store, source),
            (Free::Slots | Free::Handles | Free::Entries, None) => {
                let pages = case.pages() as u64;
                let first = u64::from(thread) * pages;
                slots(store, first..first + pages, source)
            }
        }
    }

    pub(super) fn give_up(self) -> Result<(Left, Span), LabError> {
        match self {
            Held::Region(region, how) => {
                let bytes = region.as_slice().as_ptr_range();
                let left = Left::Mapped(bytes.start.addr()..bytes.end.addr());
                Ok((left, span(|| region.teardown(how))))
            }
            Held::Slots(disk, mut pages) => {
                let mut done = Ok(());
                let mut discard = || pages.try_for_each(|page| disk.discard_pages(page..page + 1));
                let span = span(|| done = discard());
                done.map_err(LabError::store("discard"))?;
                Ok((Left::Slots, span))
            }
            Held::Area(area) => {
                let span = span(|| (0..area.pages()).for_each(|page| area.invalidate(page)));
                Ok((Left::Emptied(area), span))
            }
            Held::Late(late, area, thread) => {
                let span = span(|| late.forget(&area, thread));
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
            Left::Slots | Left::Emptied(_) => Ok(true),
        }
    }

    /// Sees that what counts pages counts none.
    pub(super) fn verify(&self) -> Result<(), LabError> {
        let left = match self {
            Left::Mapped(_) | Left::Slots => 0,
            Left::Emptied(area) => area.stat().stored_pages,
        };
        let wrong = || LabError::Wrong(format!("{left} pages are still stored"));
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
        Region::map(&store.pager, pages * PAGE_SIZE, &config).map_err(paging::refused)?;
    source.fill(region.as_mut_slice())?;
    let out = paging::fold(&region)?;
    let plan = paging::Plan::new(pages, case.run);
    let random = paging::touch(region.as_slice(), plan.random());
    let sequential = paging::touch(region.as_slice(), plan.sequential());
    source.verify(region.as_slice())?;
    paging::fold(&region)?;
    store.all_in_memory()?;
    let mut row = Row::default();
    row.set("pageout_ns_per_page", out.as_nanos() as f64 / pages as f64)
        .set("faultin_ns_per_page", random)
        .set("faultin_sequential_ns_per_page", sequential);
    Ok((Held::Region(region, how), row))
}

/// An empty device with room for all threads' pages.
fn device(shape: &Shape, case: Case, pager: &Arc<Pager>) -> Result<Arc<Zram>, LabError> {
    let free = match shape.free {
        Free::Handles => zram::study::FreeDesign::Handles,
        Free::Entries => zram::study::FreeDesign::Entries,
        _ => zram::study::FreeDesign::Sync,
    };
    let pages = case.bytes() / PAGE_SIZE as u64;
    let Layout { design, shards } = shape.layout;
    let config = ZramConfig {
        algorithm: shape.algorithm.clone(),
        chain_order: shape.chain_order,
        study: Study { design, shards: shards.asked(), free, deferred: shape.queue(pages) },
        ..ZramConfig::new("lab", case.bytes())
    };
    let disk = Zram::new(Arc::clone(pager.memory()), config).map_err(LabError::store("zram"))?;
    Ok(Arc::new(disk))
}

/// A thread's slots of the device that all threads share.
fn slots(store: &Store, pages: Range<u64>, source: &Source) -> Result<(Held, Row), LabError> {
    let no_device = || LabError::Wrong("slots without a device".into());
    let disk = store.device.as_ref().ok_or_else(no_device)?;
    let mut page = vec![0; PAGE_SIZE];
    for number in pages.clone() {
        source.fill_from(number as usize, &mut page)?;
        let written = disk.write_page(number, &page);
        written.map_err(|error| LabError::store("write")(error))?;
    }
    for number in pages.clone() {
        let read = disk.read_page(number, &mut page);
        read.map_err(|error| LabError::store("read")(error))?;
        source.verify_from(number as usize, &page)?;
    }
    Ok((Held::Slots(Arc::clone(disk), pages), Row::default()))
}

/// An area of a cache that holds as many pages.
fn area(
    case: Case,
    cache: &Arc<Zswap>,
    thread: u32,
    store: &Store,
    source: &Source,
) -> Result<(Held, Row), LabError> {
    let area = cache.add_area(case.pages() as u64).map_err(LabError::store("zswap"))?;
    let area = store.areas[thread as usize].get_or_init(|| area).clone();
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
    let held = match &store.late {
        Some(late) => Held::Late(Arc::clone(late), area, thread),
        None => Held::Area(area),
    };
    Ok((held, Row::default()))
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
