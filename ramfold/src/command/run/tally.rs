//! What a run took and what that cost: the lines at its end.
//!
//! ```text
//!   PEAK at most, with a limit of LIMIT, instead of UNFOLDED;
//!     N pages left and M came back, by K faults; threads waited W of T s for room
//!     with --backing: ; N pages went to the disk, and M were read from it
//!   above its bound: what does not leave
//!   slow: why, and a limit that would do
//! ```
//!
//! `docs/run.md` says what each figure counts.
//!
//! Invariant: a figure is counted as `docs/run.md` says, and a noun agrees with its number. Locks:
//! none.

use std::time::Duration;

use inside::board::{Board, RunCounts, limit_for};

use super::moment::{Moment, load};
use super::place::Backing;
use crate::line::size::{count, human};

/// A run is slow if its threads waited for this part of the time, in percent,
const SLOW_PERCENT: u64 = 5;
/// or if the store served so many faults a second. Each takes some ten microseconds.
const SLOW_FAULTS: u64 = 5000;
const MIB: u64 = 1 << 20;
/// By so much memory may be above the limit: this part of it, and so many bytes.
const SLACK_PART: u64 = 16;
const SLACK: u64 = 16 * MIB;

/// Sums of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// The most that all processes had in memory at one look, in bytes, or one of them at any time.
    pub(super) peak: u64,
    /// The most that they would have had without folding.
    pub(super) unfolded: u64,
    pub(super) counts: RunCounts,
    /// Why the disk refused pages last: the system's number.
    pub(super) disk_error: u64,
    /// How long the run is.
    pub(super) whole: Duration,
    /// The same for each process that folds, added up.
    pub(super) lived: Duration,
}

impl Tally {
    /// Adds what the board says at this time of the run, and says there what the most was.
    pub(super) fn add(&mut self, board: &Board, now: &Moment, at: Duration) {
        let head = board.head();
        let peaks = board.living().map(|slot| load(&slot.peak));
        let peak = peaks.chain([now.resident, load(&head.peak)]);
        let unfolded = board.living().map(|slot| load(&slot.unfolded_peak));
        let unfolded = unfolded.chain([now.unfolded, load(&head.unfolded_peak)]);
        self.peak = peak.fold(self.peak, u64::max);
        self.unfolded = unfolded.fold(self.unfolded.max(self.peak), u64::max);
        board.raise(self.peak, self.unfolded);
        self.counts = now.counts;
        self.disk_error = load(&head.disk_error);
        let processes = u32::try_from(now.processes).unwrap_or(u32::MAX).max(1);
        self.lived += at.saturating_sub(self.whole) * processes;
        self.whole = at;
    }

    /// One line: what it would have taken, what it took, what that cost.
    pub(super) fn line(&self, limit: u64) -> String {
        let (peak, bound) = (human(self.peak), human(limit));
        let counts = &self.counts;
        if self.peak == 0 {
            return "it ended before its memory was looked at; nothing was folded".to_owned();
        }
        if counts.pages_out == 0 {
            let within = if self.peak <= limit { "within" } else { "over" };
            return format!("{peak} at most, {within} the limit of {bound}; nothing was folded");
        }
        let (left, faults) =
            (count(counts.pages_out, "page"), count(counts.stored_faults, "fault"));
        format!(
            "{peak} at most, with a limit of {bound}, instead of {}; {left} left and {} came back, \
             by {faults}; threads waited {:.1} of {:.1} s for room{}",
            human(self.unfolded),
            counts.pages_in,
            self.waited().as_secs_f64(),
            self.lived.as_secs_f64(),
            self.disk(),
        )
    }

    fn disk(&self) -> String {
        let counts = &self.counts;
        if counts.disk_out == 0 {
            return String::new();
        }
        let out = count(counts.disk_out, "page");
        format!("; {out} went to the disk, and {} were read from it", counts.disk_in)
    }

    /// What the disk refused, as a line.
    pub(super) fn refused_by(&self, backing: &Backing) -> Option<String> {
        backing.refused(self.counts.disk_refused, self.disk_error)
    }

    /// If it was above what a limit promises: what may have been the reason. Of a program that does
    /// not fold the reason is told elsewhere.
    pub(super) fn above(&self, limit: u64) -> Option<String> {
        if self.counts.pages_out == 0 {
            return None;
        }
        let bound = limit + limit / SLACK_PART + SLACK;
        let above = self.peak.checked_sub(bound).filter(|&above| above > 0)?;
        Some(format!(
            "{} above what the limit promises: memory that may be executed, is locked or is shared \
             does not leave, nor do small mappings and programs that do not fold, and what forks \
             copy at once leaves later than it comes",
            human(above)
        ))
    }

    /// If it was slow: why, and what would help on a machine with so many CPUs.
    pub(super) fn slow(&self, cpus: usize) -> Option<String> {
        let percent = percent(self.waited(), self.lived);
        let faults = self.faults_per_second();
        if percent < SLOW_PERCENT && faults < SLOW_FAULTS {
            return None;
        }
        Some(format!(
            "slow, because its memory in use did not fit: threads waited for room {percent} % of \
             the time, and {} a second fetched pages from the store; with --limit {}M nothing \
             would be folded",
            count(faults, "fault"),
            limit_for(self.unfolded, cpus) / MIB,
        ))
    }

    /// Waiting is counted when it ends, so a little more of it may be known than of the time.
    fn waited(&self) -> Duration {
        Duration::from_nanos(self.counts.stall_ns).min(self.lived)
    }

    fn faults_per_second(&self) -> u64 {
        let millis = (self.whole.as_millis() as u64).max(1);
        self.counts.stored_faults.saturating_mul(1000) / millis
    }
}

/// How many percent of the whole a part is.
fn percent(part: Duration, whole: Duration) -> u64 {
    let (part, whole) = (part.as_millis(), whole.as_millis().max(1));
    u64::try_from(part * 100 / whole).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of ten seconds.
    fn tally(pages_out: u64, pages_in: u64, stored_faults: u64, stall_ms: u64) -> Tally {
        let counts = RunCounts {
            pages_out,
            pages_in,
            stored_faults,
            stall_ns: stall_ms * 1_000_000,
            staged_faults: 77,
            first_touches: 88,
            ..RunCounts::default()
        };
        let whole = Duration::from_secs(10);
        Tally { peak: 90 << 20, unfolded: 200 << 20, counts, whole, lived: whole, disk_error: 0 }
    }

    #[test]
    fn the_line_has_what_it_took_and_what_that_cost() {
        assert_eq!(
            tally(7000, 6000, 500, 1500).line(88 << 20),
            "90.0 MiB at most, with a limit of 88.0 MiB, instead of 200.0 MiB; 7000 pages left and \
             6000 came back, by 500 faults; threads waited 1.5 of 10.0 s for room"
        );
        assert_eq!(
            tally(1, 1, 1, 0).line(88 << 20),
            "90.0 MiB at most, with a limit of 88.0 MiB, instead of 200.0 MiB; 1 page left and 1 \
             came back, by 1 fault; threads waited 0.0 of 10.0 s for room"
        );
    }

    #[test]
    fn what_is_above_the_bound_is_told_with_reasons() {
        let told = |limit: u64| tally(7000, 6000, 500, 0).above(limit << 20);
        assert_eq!(told(70), None, "90 MiB is within 70, a sixteenth and 16");
        let over = told(64).expect("it is above");
        assert!(over.starts_with("6.0 MiB above what the limit promises"), "{over}");
    }

    #[test]
    fn the_line_has_what_went_to_the_disk() {
        let mut tally = tally(7000, 6000, 500, 1500);
        (tally.counts.disk_out, tally.counts.disk_in) = (1, 300);
        let end = "for room; 1 page went to the disk, and 300 were read from it";
        assert!(tally.line(88 << 20).ends_with(end));
    }

    #[test]
    fn without_folding_the_line_is_short() {
        let none = tally(0, 0, 0, 0);
        let within = "90.0 MiB at most, within the limit of 96.0 MiB; nothing was folded";
        assert_eq!(none.line(96 << 20), within);
        let over = "90.0 MiB at most, over the limit of 64.0 MiB; nothing was folded";
        assert_eq!(none.line(64 << 20), over, "a program that cannot fold");
        assert_eq!(none.slow(2), None);
        let short = Tally::default().line(64 << 20);
        assert_eq!(short, "it ended before its memory was looked at; nothing was folded");
    }

    #[test]
    fn a_slow_run_says_why_and_what_would_do() {
        assert_eq!(tally(7000, 6000, 49_999, 490).slow(2), None);
        let waits = tally(7000, 6000, 20, 3000).slow(2).expect("it waited");
        assert_eq!(
            waits,
            "slow, because its memory in use did not fit: threads waited for room 30 % of the \
             time, and 2 faults a second fetched pages from the store; with --limit 217M nothing \
             would be folded"
        );
        let faults = tally(7000, 6000, 50_000, 0).slow(2).expect("it fetched");
        assert!(faults.contains("waited for room 0 % of the time, and 5000 faults a"), "{faults}");
        assert!(tally(1, 1, 10, 500).slow(2).expect("5 %").contains("and 1 fault a second"));
    }

    #[test]
    fn time_is_that_of_all_processes_that_fold() {
        let path = std::env::temp_dir().join(format!("ramfold-tally-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let board = Board::create(&path, 9000, "lz4").expect("a board");
        std::fs::remove_file(&path).expect("it is there");
        let mut tally = Tally::default();
        tally.add(&board, &Moment::of(&board), Duration::from_secs(1));
        assert_eq!(tally.lived, Duration::from_secs(1), "a program that begins");
        let slots = [10, 11].map(|pid| board.claim(pid).expect("free"));
        slots[0].publish(500, 400, 100, 800);
        slots[0].publish(300, 400, 100, 600);
        slots[1].publish(250, 0, 0, 250);
        tally.add(&board, &Moment::of(&board), Duration::from_secs(3));
        assert_eq!((tally.lived, tally.whole), (Duration::from_secs(5), Duration::from_secs(3)));
        assert_eq!((tally.peak, tally.unfolded), (550, 850), "both at once");
        slots.iter().for_each(|slot| board.retire(slot));
        let mut late = Tally::default();
        late.add(&board, &Moment::of(&board), Duration::from_secs(4));
        assert_eq!((late.peak, late.unfolded), (550, 850), "the board remembers");
        late.counts.stall_ns = u64::MAX;
        assert_eq!(late.waited(), late.lived, "it cannot be more");
    }
}
