//! What a run took: sums over all processes, also those that have ended.
//!
//! Invariant: a process is counted once. Its slot is made free when it has been counted. Locks:
//! none.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use inside::board::{Board, Slot};

use super::tree;
use crate::line::size::human;

/// Sums of a run.
pub(super) struct Tally {
    started: Instant,
    /// The most that all processes had in memory at one look, in bytes.
    peak: u64,
    /// The most that they would have had.
    unfolded: u64,
    /// Of processes that have ended.
    ended: Sums,
    running: Sums,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    pages_out: u64,
    pages_in: u64,
    faults: u64,
    stall_ns: u64,
}

fn load(word: &AtomicU64) -> u64 {
    // relaxed: figures of a moment ago.
    word.load(Ordering::Relaxed)
}

impl Tally {
    pub(super) fn new(started: Instant) -> Tally {
        let (ended, running) = (Sums::default(), Sums::default());
        Tally { started, peak: 0, unfolded: 0, ended, running }
    }

    /// Adds what the board says now. `outside` are bytes of processes that do not fold.
    pub(super) fn add(&mut self, board: &Board, outside: u64) {
        self.running = Sums::default();
        let (mut now, mut unfolded) = (outside, outside);
        for slot in board.slots() {
            let pid = slot.owner.pid();
            if pid == 0 {
                continue;
            }
            let resident = load(&slot.resident);
            now += resident;
            let saved = load(&slot.orig_data_size).saturating_sub(load(&slot.compr_data_size));
            unfolded += resident + saved;
            self.unfolded = self.unfolded.max(load(&slot.unfolded_peak));
            self.peak = self.peak.max(load(&slot.peak));
            if tree::has_ended(pid as u32) {
                self.ended.add(slot);
                slot.release();
            } else {
                self.running.add(slot);
            }
        }
        self.peak = self.peak.max(now);
        self.unfolded = self.unfolded.max(unfolded);
    }

    /// One line: what it would have taken, what it took, what that cost.
    pub(super) fn line(&self, limit: u64) -> String {
        let sums = self.ended.plus(&self.running);
        let (peak, limit) = (human(self.peak), human(limit));
        if sums.pages_out == 0 {
            return format!("{peak} at most, within the limit of {limit}; nothing was folded");
        }
        let waited = Duration::from_nanos(sums.stall_ns).as_secs_f64();
        let whole = self.started.elapsed().as_secs_f64();
        format!(
            "{peak} at most, with a limit of {limit}, instead of {}; {} pages left and {} came \
             back, by {} faults; threads waited {waited:.1} of {whole:.1} s for room",
            human(self.unfolded),
            sums.pages_out,
            sums.pages_in,
            sums.faults,
        )
    }
}

impl Sums {
    fn add(&mut self, slot: &Slot) {
        *self = self.plus(&Sums {
            pages_out: load(&slot.pages_out),
            pages_in: load(&slot.pages_in),
            faults: load(&slot.stored_faults) + load(&slot.staged_faults),
            stall_ns: load(&slot.stall_ns),
        });
    }

    fn plus(&self, other: &Sums) -> Sums {
        Sums {
            pages_out: self.pages_out + other.pages_out,
            pages_in: self.pages_in + other.pages_in,
            faults: self.faults + other.faults,
            stall_ns: self.stall_ns + other.stall_ns,
        }
    }
}
