//! Bring a page that a thread waits for, together with stored pages around it.
//!
//! ```text
//!   asked for             |  .  .  X  .  |        a quad, or a stretch of 16
//!   stored, in memory     |  o     o  o  |        decoded to their places in one buffer
//!   in place              |  1     2  2  |        the run with the page waited for comes last
//! ```
//!
//! The room `neighbours` says how many.
//!
//! Locks: the group's is held; a buffer's.

use super::arrival::{Arrived, Why};
use crate::places::{Group, Place, bits, runs};
use crate::resources::Read;
use crate::state::Folded;
use crate::terms::GROUP_PAGES;
use host::{PAGE_SIZE, Stop, Transfer};

impl Folded {
    /// Brings in those of `count` aligned pages around a page that are stored, as far as that takes
    /// no disk. A thread waits for the page. `None` means that the page is still to be brought in.
    pub(super) fn bring_around(
        &self,
        page: usize,
        count: usize,
        group: &mut Group,
    ) -> Option<Arrived> {
        let (index, at) = (page / GROUP_PAGES, page % GROUP_PAGES);
        let wanted = group.stored_around(at, count);
        if wanted.count_ones() == 1 {
            return None;
        }
        let mut buffer = self.shared.buffers.get();
        let decoded = self.decode_around(page, count, wanted, &mut buffer);
        let run = runs(decoded).find(|&(first, count)| (first..first + count).contains(&at))?;
        let mut arrived = self.fill_runs(page, count, decoded & !bits(run.0, run.1), &buffer);
        // This run comes last, because it wakes the thread that waits, which may take this CPU.
        let (own, transfer) = self.fill_run(page, count, run, &buffer);
        arrived |= own;
        self.account_arrival(index, group, arrived, Place::Stored, Some(bits(at, 1)));
        if arrived & bits(at, 1) == 0 {
            return None;
        }
        self.account_fault(Place::Stored, Why::Fault);
        let woken = at < run.0 + transfer.pages;
        let after = (arrived >> at).trailing_ones() as usize;
        Some(if woken { Arrived::Pages(after) } else { Arrived::Present })
    }

    /// Decodes those of `wanted` that the store has in memory, each to its place among the `count`
    /// aligned pages around `page`. Returns which were decoded. None were if `page` itself cannot
    /// be decoded.
    fn decode_around(&self, page: usize, count: usize, wanted: u64, buffer: &mut [u8]) -> u64 {
        let (base, at) = (page - page % GROUP_PAGES, page % GROUP_PAGES);
        let mut decodes = |at: usize| {
            let data = &mut buffer[at % count * PAGE_SIZE..][..PAGE_SIZE];
            self.store.read(base + at, data) == Read::Done
        };
        if !decodes(at) {
            return 0;
        }
        let others = runs(wanted & !bits(at, 1)).flat_map(|(first, count)| first..first + count);
        others.filter(|&at| decodes(at)).fold(bits(at, 1), |all, at| all | bits(at, 1))
    }

    /// Puts decoded pages in place, as long as the system has memory. Returns which are in place.
    fn fill_runs(&self, page: usize, count: usize, decoded: u64, buffer: &[u8]) -> u64 {
        let mut arrived = 0;
        for run in runs(decoded) {
            let (there, transfer) = self.fill_run(page, count, run, buffer);
            arrived |= there;
            if transfer.stop == Some(Stop::NoMemory) {
                break;
            }
        }
        arrived
    }

    /// Puts one run of decoded pages in place.
    fn fill_run(
        &self,
        page: usize,
        count: usize,
        (first, pages): (usize, usize),
        buffer: &[u8],
    ) -> (u64, Transfer) {
        let to = page - page % GROUP_PAGES + first;
        let data = &buffer[first % count * PAGE_SIZE..][..pages * PAGE_SIZE];
        let transfer = self.put(to, data);
        (bits(first, self.settle_arrival(to, transfer)), transfer)
    }
}
