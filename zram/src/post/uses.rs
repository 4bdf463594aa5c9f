//! The pages of each algorithm, counted cell by cell.
//!
//! Nothing counts them while they come and go, because that would cost every write and discard. A
//! look at all cells is for the operator, and for the generations of tables.
//!
//! Invariant: a page counts as of the moment at which its cell was locked. A thread that decoded it
//! before that has finished. Leaves that were discarded are not looked at, and a thread may still
//! decode a page of one.
//!
//! Lock: one cell at a time.

use crate::cells::Stored;
use crate::cells::flags::priority;
use crate::device::Zram;
use crate::terms::PRIORITIES;

/// Pages and bytes by the priority of their algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uses {
    /// Objects in memory.
    pub(crate) pages: [u64; PRIORITIES],
    /// Bytes of these objects.
    pub(crate) bytes: [u64; PRIORITIES],
    /// Pages on the backing disk.
    pub(crate) back: [u64; PRIORITIES],
    /// Pages in units.
    pub(crate) in_units: u64,
}

impl Uses {
    /// Counts the pages of a device.
    pub(crate) fn of(zram: &Zram) -> Uses {
        let (mut uses, mut page) = (Uses::default(), 0);
        while page < zram.pages() {
            let absent = zram.slots.absent(page);
            if absent == 0 {
                uses.add(zram, page);
            }
            page += absent.max(1);
        }
        uses
    }

    fn add(&mut self, zram: &Zram, page: u64) {
        // Only objects and pages on the backing disk have an algorithm. A cell that becomes one of
        // them after this glance is written with the first algorithm.
        let peeked = zram.peek(page);
        if matches!(peeked, Stored::Nothing | Stored::Unknown | Stored::Same(_)) {
            return;
        }
        let Some(slot) = zram.slots.lock(page) else { return };
        let at = usize::from(priority(slot.client()));
        match Stored::in_cell(&slot) {
            Stored::Blob { len, .. } => {
                self.pages[at] += 1;
                self.bytes[at] += len as u64;
            }
            Stored::Disk { .. } => self.back[at] += 1,
            Stored::Shared { .. } => self.pages[0] += 1,
            Stored::Unit { .. } => self.in_units += 1,
            Stored::Nothing | Stored::Unknown | Stored::Same(_) => {}
        }
    }

    /// Whether a page needs the algorithm to be read. Blocks of the backing disk do if they are
    /// `compressed`; otherwise they are pages as they are.
    pub(crate) fn needs(&self, priority: u8, compressed: bool) -> bool {
        let at = usize::from(priority);
        self.pages[at] > 0 || compressed && self.back[at] > 0
    }
}
