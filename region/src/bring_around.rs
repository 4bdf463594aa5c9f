//! Bringing in, with a page that somebody waits for, the stored ones around it.
//!
//! ```text
//!   asked for             |  .  .  X  .  |        a quad, or a stretch of 16
//!   stored, in memory     |  o     o  o  |        decoded to their places in one buffer
//!   in place              |  1     2  2  |        the run of the one that is waited for comes last
//! ```
//!
//! How many, `around` says. As in `fault_in`, all of this may run in a signal handler.
//!
//! Locks: the group's is held; a buffer's.

use crate::GROUP_PAGES;
use crate::fault_in::{Arrived, Why};
use crate::folded::Folded;
use crate::group::{Group, Place, bits, runs};
use crate::store::Read;
use host::{PAGE_SIZE, Stop, Transfer};

impl Folded {
    /// How many aligned pages around it a fault is to bring in.
    pub(crate) fn around_pays(&self, index: usize) -> usize {
        let limit = self.limit();
        match self.around.aligned(index, limit.is_some()) {
            around if around > 1 && limit.is_some_and(|limit| self.held() >= limit) => 1,
            around => around,
        }
    }

    /// Brings in the stored ones of `count` aligned pages around one that somebody waits for, as
    /// far as that takes no disk; `None`: it is still to be brought in.
    pub(crate) fn bring_around(
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
        // The last, since who waits is woken by it, and may take the CPU from who serves it.
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
    /// aligned ones around `page`; which, and none where that one cannot be.
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

    /// Puts decoded pages in place, as long as the system has memory; which are there.
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

    /// The same for one run.
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
