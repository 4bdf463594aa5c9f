//! What each process of a run may have of the limit, and what it does when there is little left.
//!
//! ```text
//!   limit  | others | outside |      this process       | room |
//!                             |<----------- quota ------------>|
//! ```
//!
//! Invariant: what all parts of a lack add up to is the lack, as far as figures of a moment ago
//! say. So processes that share a limit do not all make room for the same lack.
//!
//! Lock: none.

use super::counts::{RunCounts, counts};
use super::reserve::{RESERVE_PART_MAX, SLEEP_MAX, cpus, reserve};
use super::{Board, Slot, State};
use std::sync::atomic::{AtomicU64, Ordering};

/// Processes fold from half of the limit on if copies of all that they share would not fit.
const COPIES_PART: u64 = 2;
/// One that has less than this part of the limit folds only when it has 7/8 of what is left.
const SMALL_PART: u64 = 32;

/// Odd, so that a process counts in whichever slot it is.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

fn load(word: &AtomicU64) -> u64 {
    // relaxed: a figure of a moment ago.
    word.load(Ordering::Relaxed)
}

impl Board {
    /// Slots that have had an owner, and free ones among them.
    fn reached(&self) -> &[Slot] {
        let reached = load(&self.head().reached) as usize;
        self.slots().get(..reached).unwrap_or(self.slots())
    }

    /// The slots of processes.
    pub fn living(&self) -> impl Iterator<Item = &Slot> {
        self.reached().iter().filter(|slot| slot.owner.pid() != 0)
    }

    /// Bytes that the process of `slot` may have in memory: what the others leave of the limit.
    pub fn quota(&self, slot: &Slot) -> u64 {
        let others = self.living().filter(|other| !std::ptr::eq(*other, slot));
        let used: u64 = others.map(|it| load(&it.resident)).sum();
        let head = self.head();
        load(&head.limit).saturating_sub(used + load(&head.outside))
    }

    /// What all processes have counted, also those that have ended.
    pub fn counts(&self) -> RunCounts {
        let past = counts(self.head().past.each_ref());
        self.living().map(Slot::counts).fold(past, |sum, counts| sum.plus(&counts))
    }

    /// How many processes have a slot.
    pub fn processes(&self) -> usize {
        self.living().count()
    }

    /// Whether all processes have asked what they share since one came or ended. Until then, what
    /// they say may count memory twice that forks share, or not at all.
    pub fn is_settled(&self) -> bool {
        let members = self.members();
        self.living().map(|slot| load(&slot.members)).all(|known| known == 0 || known == members)
    }

    /// A number that changes when a process comes or ends.
    pub fn members(&self) -> u64 {
        let pids = self.reached().iter().map(|slot| slot.owner.pid());
        pids.fold(0, |members, pid| members.wrapping_mul(MIX).wrapping_add(pid))
    }

    /// Of so much that all processes lack, what the process of `slot` has to give up: it is to all
    /// as what it has is to what all have that fold.
    pub fn part(&self, slot: &Slot, lack: u64) -> u64 {
        let folding = self.living().filter(|it| it.state() == State::Folding);
        let all: u64 = folding.map(|it| load(&it.resident)).sum();
        let own = load(&slot.resident);
        if own >= all {
            lack
        } else {
            (u128::from(lack) * u128::from(own)).div_ceil(all.into()) as u64
        }
    }

    /// Whether all processes would fit if each had for itself what forks share, and so much were
    /// left that none folds. The process of `slot` has `counted` bytes in this way.
    pub fn is_ample(&self, slot: &Slot, counted: u64) -> bool {
        let others = self.living().filter(|other| !std::ptr::eq(*other, slot));
        let others: u64 = others.map(|it| load(&it.resident) + load(&it.shared)).sum();
        let head = self.head();
        let (limit, speed) = (load(&head.limit), load(&head.speed));
        counted + others + load(&head.outside) + reserve(limit, speed) <= limit
    }

    /// How many bytes a process that has `used` of its `quota` may take until it folds. 0 if it is
    /// to fold now. `shares` says whether it shares memory.
    pub fn until_folding(&self, used: u64, quota: u64, shares: bool) -> u64 {
        let limit = load(&self.head().limit);
        let copies: u64 = self.living().map(|it| load(&it.shared)).sum();
        let is_too_much = shares && used + copies > quota;
        let reserve = match (used < limit / SMALL_PART, is_too_much) {
            (true, _) => quota / RESERVE_PART_MAX,
            (false, false) => reserve(limit, load(&self.head().speed)),
            (false, true) => limit / COPIES_PART,
        };
        quota.saturating_sub(used).saturating_sub(reserve)
    }

    /// How many CPUs there are beyond one for each process that folds. Small ones do not count,
    /// because most of them wait for another. Others may be busy too, but they do not wait for
    /// pages.
    pub fn spare_cpus(&self) -> usize {
        let least = load(&self.head().limit) / SMALL_PART;
        let folding = self.living().filter(|slot| slot.state() == State::Folding);
        let busy = folding.filter(|slot| load(&slot.resident) >= least).count();
        cpus(load(&self.head().speed)).saturating_sub(busy)
    }

    /// For how many milliseconds a pager may sleep, `least` or more, if programs may touch `left`
    /// bytes until it is needed.
    pub fn millis_until(&self, left: u64, least: u64) -> u64 {
        (left / load(&self.head().speed).max(1)).clamp(least, SLEEP_MAX)
    }
}

impl Slot {
    /// Says how many bytes were the part of others among these processes of the run, and how many
    /// more were, but may have been copied since.
    pub fn shares(&self, bytes: u64, guessed: u64, members: u64) {
        // relaxed: figures that stand alone.
        self.shared.store(bytes, Ordering::Relaxed);
        // relaxed: as above.
        self.guessed.store(guessed, Ordering::Relaxed);
        // relaxed: as above.
        self.members.store(members, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn board(name: &str, limit: u64) -> Board {
        let file = format!("board-shares-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(file);
        let board = Board::create(&path, limit, "lz4").expect("a board");
        std::fs::remove_file(&path).expect("it is there");
        board
    }

    fn process(board: &Board, pid: u64, resident: u64) -> &Slot {
        let slot = board.claim(pid).expect("free");
        slot.resident.store(resident, Ordering::Relaxed);
        slot.set_state(State::Folding);
        slot
    }

    #[test]
    fn processes_share_what_all_lack() {
        let board = board("part", 1000);
        let first = process(&board, 1, 600);
        assert_eq!(board.part(first, 77), 77, "it is alone");
        let (second, third) = (process(&board, 2, 300), process(&board, 3, 100));
        assert_eq!([first, second, third].map(|it| board.part(it, 1000)), [600, 300, 100]);
        assert_eq!([first, second, third].map(|it| board.part(it, 1)), [1, 1, 1], "never nothing");
        second.set_state(State::Watching);
        assert_eq!([first, third].map(|it| board.part(it, 700)), [600, 100]);
    }

    #[test]
    fn members_change_when_a_process_comes_or_ends() {
        let board = board("members", 1000);
        let nobody = board.members();
        let first = process(&board, 1, 0);
        let one = board.members();
        let second = process(&board, 2, 0);
        let both = board.members();
        first.owner.release();
        let other = board.members();
        process(&board, 3, 0);
        let all = [nobody, one, both, other, board.members()];
        assert!((0..5).all(|at| !all[..at].contains(&all[at])), "{all:?}");
        second.members.store(other, Ordering::Relaxed);
        assert!(!board.is_settled(), "the third came");
        second.members.store(board.members(), Ordering::Relaxed);
        assert!(board.is_settled(), "the third does not ask");
        second.owner.release();
        board.slots()[0].owner.release();
        assert_eq!(board.members(), nobody);
    }

    #[test]
    fn a_pager_sleeps_as_long_as_all_cpus_need() {
        let board = board("sleep", 1 << 30);
        board.head().speed.store(16 * MIB, Ordering::Relaxed);
        let rows = [(0, 1), (15, 1), (32, 2), (160, 10), (799, 49), (800, 50), (9999, 50)];
        assert_eq!(rows.map(|(left, _)| board.millis_until(left * MIB, 1)), rows.map(|row| row.1));
        assert_eq!(board.millis_until(0, 2), 2);
    }

    #[test]
    fn cpus_are_spare_while_fewer_processes_fold() {
        let board = board("spare", 800);
        board.head().speed.store(16 * MIB, Ordering::Relaxed);
        let first = process(&board, 1, 100);
        assert_eq!(board.spare_cpus(), 1, "two CPUs");
        let second = process(&board, 2, 800 / SMALL_PART - 1);
        assert_eq!(board.spare_cpus(), 1, "the second is small");
        second.resident.store(800 / SMALL_PART, Ordering::Relaxed);
        assert_eq!(board.spare_cpus(), 0);
        first.set_state(State::Watching);
        assert_eq!(board.spare_cpus(), 1);
        board.head().speed.store(8 * MIB, Ordering::Relaxed);
        assert_eq!(board.spare_cpus(), 0, "one CPU");
        first.set_state(State::Folding);
        assert_eq!(board.spare_cpus(), 0, "and two processes");
    }

    #[test]
    fn a_process_folds_when_the_reserve_is_left() {
        let board = board("begin", 800);
        let left = |used, quota| board.until_folding(used, quota, false);
        // Alone. So little is below what a CPU touches, so the reserve is an eighth.
        assert_eq!([600, 699, 700, 900].map(|used| left(used, 800)), [100, 1, 0, 0]);
        // Others have 400 of it.
        assert_eq!([200, 299, 300].map(|used| left(used, 400)), [100, 1, 0]);
        // It is small: the others would have to give up more.
        assert_eq!([10, 20, 21].map(|used| left(used, 24)), [11, 1, 0]);
    }

    #[test]
    fn there_is_ample_room_if_copies_of_all_that_is_shared_fit_above_the_reserve() {
        let board = board("ample", 800);
        let [first, second] = [1, 2].map(|pid| process(&board, pid, 100));
        [first, second].iter().for_each(|it| it.shared.store(100, Ordering::Relaxed));
        board.head().outside.store(50, Ordering::Relaxed);
        // An eighth is the reserve: 100, 50 and 200 of the other one leave 450.
        assert_eq!([450, 451].map(|counted| board.is_ample(first, counted)), [true, false]);
        second.owner.release();
        assert!(board.is_ample(first, 650));
    }

    #[test]
    fn processes_whose_copies_would_not_fit_fold_from_half_of_the_limit_on() {
        let board = board("copies", 800);
        let [first, second] = [1, 2].map(|pid| process(&board, pid, 100));
        let left = |used, quota, shares| board.until_folding(used, quota, shares);
        [first, second].iter().for_each(|it| it.shared.store(250, Ordering::Relaxed));
        // The second has 100: 100 and 500 of copies fit in 700.
        assert_eq!([100, 200].map(|used| left(used, 700, true)), [500, 400]);
        // 300 and 500 do not.
        assert_eq!([250, 299, 300].map(|used| left(used, 700, true)), [50, 1, 0]);
        assert_eq!(left(300, 700, false), 300, "it shares nothing");
        second.owner.release();
        assert_eq!(left(300, 700, true), 300, "what has ended copies nothing");
    }
}
