//! Account: pages are in place, and the group, the counters, the density and the queue are told.
//!
//! Invariant: a page is accounted for under the lock under which it was put in place (F1 of
//! `folded`).
//!
//! Locks: the group's is held; under it the queue's.

use super::arrival::{Arrived, Why};
use crate::places::{Group, Place, bits};
use crate::resources::Count;
use crate::state::Folded;
use crate::terms::GROUP_PAGES;
use host::{Stop, Transfer};
use std::time::Duration;

/// How often the system refuses a mapping before the process ends: at a millisecond a try, a minute
/// divided by the threads that wait.
const MAPPING_TRIES: u32 = 60_000;
const NO_MAPPING: &str = "the process has no mapping left, or its RLIMIT_DATA is used up, so a \
                          page cannot come back; raise vm.max_map_count or the limit. The page is";

impl Folded {
    /// Pages were transferred from a place to memory.
    pub(super) fn arrive(
        &self,
        page: usize,
        group: &mut Group,
        place: Place,
        transfer: Transfer,
        why: Why,
    ) -> Arrived {
        let arrived = self.settle_arrival(page, transfer);
        let (index, at) = (page / GROUP_PAGES, page % GROUP_PAGES);
        if arrived == 0 {
            // There was no memory, or no mapping.
            if !why.is_optional() {
                self.wait_for_system(page, transfer.stop == Some(Stop::NoMapping));
            }
            return Arrived::Later;
        }
        let touched = match why {
            Why::Fault => Some(bits(at, 1)),
            Why::Along => Some(0),
            Why::Pin | Why::Ahead | Why::Beside => None,
        };
        self.account_arrival(index, group, bits(at, arrived), place, touched);
        self.account_fault(place, why);
        if transfer.pages == 0 { Arrived::Present } else { Arrived::Pages(arrived) }
    }

    /// How many pages are in memory after a transfer. They are fewer if the system had no memory.
    pub(super) fn settle_arrival(&self, page: usize, transfer: Transfer) -> usize {
        match transfer.stop {
            None | Some(Stop::NoMemory | Stop::NoMapping) => transfer.pages,
            // The page is there already, and what is in memory is the valid content.
            Some(Stop::Present) => transfer.pages + 1,
            Some(Stop::Busy | Stop::Hole | Stop::Broken(_)) => {
                self.end("a page cannot be put in place", page)
            }
        }
    }

    /// Waits for a moment, because the system has no memory or no mapping for a page that must
    /// come. The pager's thread soon closes neighbours of what is closed, and later faults open
    /// whole groups. If that does not help for long, the process ends.
    fn wait_for_system(&self, page: usize, no_mapping: bool) {
        if no_mapping && self.shared.mappings.note_refusal() > MAPPING_TRIES {
            self.end(NO_MAPPING, page);
        }
        if self.span.closes() && !self.span.is_mapped() {
            self.end("memory of a region was unmapped or moved by other code; the page is", page);
        }
        self.shared.work.raise();
        std::thread::sleep(Duration::from_millis(1));
    }

    /// Accounts for pages of a group that are now in memory. If a fault brought them, `touched` has
    /// the page that its thread waits for.
    pub(super) fn account_arrival(
        &self,
        index: usize,
        group: &mut Group,
        pages: u64,
        place: Place,
        touched: Option<u64>,
    ) {
        let count = u64::from(pages.count_ones());
        if place == Place::Stored {
            self.tell_density(index, group, pages, touched.unwrap_or(0));
        }
        let (copies_before, before) = (group.dead_copies(), group.resident());
        group.arrive(pages);
        self.chunks.changed(index, before, group.resident());
        let dead = group.dead_copies() & !copies_before;
        self.counters.add(Count::Resident, count);
        let from = match place {
            Place::Untouched | Place::Resident | Place::Gone => None,
            Place::Staged => Some(Count::Staged),
            Place::Stored => Some(Count::Stored),
        };
        if let Some(from) = from {
            self.counters.sub(from, count);
            self.counters.add(Count::PagesIn, count);
            if let Some(touched) = touched {
                let along = pages & !touched;
                self.counters.add(Count::PagesAround, u64::from(along.count_ones()));
            }
        }
        if dead != 0 {
            self.counters.add(Count::DeadCopies, u64::from(dead.count_ones()));
        }
        if dead != 0 && copies_before == 0 {
            self.dirty.mark(index);
        }
        self.list(index, group);
    }

    /// Tells the density that stored pages of a group arrive. One of them may have been touched.
    fn tell_density(&self, index: usize, group: &mut Group, pages: u64, touched: u64) {
        let (density, stored) = (&self.around.density, group.stored());
        if pages & touched != 0 {
            density.touched(index, group.trials_mut(), touched.trailing_zeros() as usize, stored);
        }
        density.spoil(index, group.trials_mut(), pages);
    }

    /// A page that a thread waited for came from `place`.
    pub(super) fn account_fault(&self, place: Place, why: Why) {
        let counter = match place {
            Place::Untouched | Place::Resident | Place::Gone => Count::FirstTouches,
            Place::Staged => Count::StagedFaults,
            Place::Stored => Count::StoredFaults,
        };
        self.counters.add(counter, u64::from(why == Why::Fault));
    }
}
