//! What a run takes at one moment: sums over its processes, from the board.
//!
//! ```text
//!   resident = anonymous memory of processes that fold + that of the others (outside)
//!   unfolded = resident + pages in stores - what these take compressed (held)
//!   disk     = of the pages in stores, those on the disk, which take no memory
//! ```
//!
//! Invariant: a process is counted once. A process that has ended is in the counts alone. Locks:
//! none.

use std::sync::atomic::{AtomicU64, Ordering};

use inside::board::{Board, RunCounts, Slot};

/// Figures of a run. Bytes, unless the name says otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Processes with the library in them.
    pub(crate) processes: u64,
    pub(crate) limit: u64,
    /// Anonymous memory of all processes, `held` included.
    pub(crate) resident: u64,
    /// Of `resident`: that of processes without the library.
    pub(crate) outside: u64,
    /// Pages in the stores, at 4096 bytes each.
    pub(crate) stored: u64,
    /// Of `resident`: those pages, compressed, except those on the disk.
    pub(crate) held: u64,
    /// Of `stored`: pages on the disk.
    pub(crate) disk: u64,
    /// What would be resident without folding.
    pub(crate) unfolded: u64,
    pub(crate) counts: RunCounts,
}

pub(crate) fn load(word: &AtomicU64) -> u64 {
    // relaxed: figures of a moment ago.
    word.load(Ordering::Relaxed)
}

impl Moment {
    /// What the board says now.
    pub(crate) fn of(board: &Board) -> Moment {
        let head = board.head();
        let (limit, outside) = (load(&head.limit), load(&head.outside));
        let none = Moment { limit, outside, resident: outside, unfolded: outside, ..default() };
        let sums = board.living().map(Moment::of_slot).fold(none, |sum, slot| sum.plus(&slot));
        Moment { counts: board.counts(), ..sums }
    }

    /// What the process of a slot says.
    pub(crate) fn of_slot(slot: &Slot) -> Moment {
        let resident = load(&slot.resident).saturating_sub(load(&slot.guessed));
        let stored = load(&slot.orig_data_size);
        let (held, disk) = (load(&slot.compr_data_size), load(&slot.disk));
        let unfolded = resident + stored.saturating_sub(held);
        let counts = slot.counts();
        Moment { processes: 1, resident, stored, held, disk, unfolded, counts, ..default() }
    }

    /// The sums of two; the limit is that of the first.
    fn plus(&self, other: &Moment) -> Moment {
        Moment {
            processes: self.processes + other.processes,
            limit: self.limit,
            resident: self.resident + other.resident,
            outside: self.outside + other.outside,
            stored: self.stored + other.stored,
            held: self.held + other.held,
            disk: self.disk + other.disk,
            unfolded: self.unfolded + other.unfolded,
            counts: self.counts.plus(&other.counts),
        }
    }

    /// The most of each figure in this moment and a later one, and the counts of the later one.
    pub(super) fn most(&self, later: &Moment) -> Moment {
        Moment {
            processes: self.processes.max(later.processes),
            limit: later.limit,
            resident: self.resident.max(later.resident),
            outside: self.outside.max(later.outside),
            stored: self.stored.max(later.stored),
            held: self.held.max(later.held),
            disk: self.disk.max(later.disk),
            unfolded: self.unfolded.max(later.unfolded),
            counts: later.counts,
        }
    }

    /// The figures by name, as reports and `stat` have them.
    pub(crate) fn fields(&self) -> [(&'static str, u64); 17] {
        let counts = &self.counts;
        [
            ("processes", self.processes),
            ("limit", self.limit),
            ("resident", self.resident),
            ("outside", self.outside),
            ("held", self.held),
            ("stored", self.stored),
            ("disk", self.disk),
            ("unfolded", self.unfolded),
            ("pages_out", counts.pages_out),
            ("pages_in", counts.pages_in),
            ("stored_faults", counts.stored_faults),
            ("staged_faults", counts.staged_faults),
            ("first_touches", counts.first_touches),
            ("stall_ns", counts.stall_ns),
            ("disk_out", counts.disk_out),
            ("disk_in", counts.disk_in),
            ("disk_refused", counts.disk_refused),
        ]
    }
}

fn default() -> Moment {
    Moment::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_over_processes_that_run_and_counts_over_all() {
        let path = std::env::temp_dir().join(format!("ramfold-moment-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let board = Board::create(&path, 9000, "lz4").expect("a board");
        std::fs::remove_file(&path).expect("it is there");
        board.head().outside.store(50, Ordering::Relaxed);
        let slots = [10, 11].map(|pid| board.claim(pid).expect("free"));
        slots[0].publish(1000, 800, 200, 1600);
        slots[1].publish(300, 0, 0, 300);
        for slot in slots {
            slot.pages_out.store(7, Ordering::Relaxed);
            slot.stall_ns.store(5, Ordering::Relaxed);
            slot.disk_out.store(3, Ordering::Relaxed);
            slot.disk.store(4096, Ordering::Relaxed);
        }
        let all = Moment::of(&board);
        assert_eq!((all.processes, all.limit, all.resident, all.outside), (2, 9000, 1350, 50));
        assert_eq!((all.stored, all.held, all.unfolded), (800, 200, 1950));
        assert_eq!((all.counts.pages_out, all.counts.stall_ns), (14, 10));
        assert_eq!((all.disk, all.counts.disk_out), (8192, 6));
        board.retire(slots[0]);
        let rest = Moment::of(&board);
        assert_eq!((rest.processes, rest.resident, rest.unfolded), (1, 350, 350));
        assert_eq!(rest.counts, all.counts, "what was counted stays");
        let most = all.most(&rest);
        assert_eq!((most.resident, most.unfolded, most.processes), (1350, 1950, 2));
    }
}
