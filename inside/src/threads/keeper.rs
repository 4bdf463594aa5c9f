//! The pager of a process that folds without userfaultfd.
//!
//! ```text
//!   while much is left of the limit           it looks now and then
//!   then                                      groups close, rest, and leave for the store
//! ```
//!
//! A forked child has all of its parent's memory, tables and store, and a pager of its own.
//!
//! Threads make the room that they need at once. So that a process which rests gives up some too, a
//! pager counts what has left other processes, and owes its part of it.
//!
//! Invariant: what uses our heap is done under the lock of the state, so that a forked child finds
//! the heap whole. Lock: that of the state, for one step.

use super::disk::{count_written, store};
use super::figures::{Used, publish};
use super::manners::{be_prompt, leave_descriptors, name};
use super::pager::open_board;
use super::sharing::Sharing;
use super::tending::Tending;
use crate::arena::{self, Fold};
use crate::board::{Board, Slot, State, Way, refusals};
use crate::kernel::{Resident, faults};
use crate::places::PAGE;
use crate::ways::{Pick, Writer};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};

/// Pages that rest take this part of the limit, in bounds.
const RESTING_PART: u64 = 8;
const RESTING_MIN: u64 = 2 << 20; // 2 MiB
const RESTING_MAX: u64 = 64 << 20; // 64 MiB
/// How often memory is looked for that was touched without a word.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Groups of the shelf that are tried at a time: a millisecond of work.
const TRIES_AT_ONCE: usize = 512; // 128 MiB of memory
/// How often to look whether the store holds what it does not need.
const TIDY_EVERY: Duration = Duration::from_millis(100);
/// Pages that leave for the store until it is looked whether some are to go on to the disk.
const AT_ONCE: usize = 64;
/// The most bytes that are to leave because others have left other processes, and the most that
/// were given up beyond a part and count later.
const OWED_MAX: i64 = 2 << 20; // 2 MiB
/// Fewer bytes are not worth a step.
const OWED_MIN: i64 = 64 << 10; // 64 KiB
/// They leave while there is less room than so many margins.
const OWED_MARGINS: i64 = 4;
/// Compaction looks after so many pages have left.
const COMPACT_AFTER: u64 = 1 << 14;

static BOARD: AtomicPtr<Board> = AtomicPtr::new(std::ptr::null_mut());

struct Keeper {
    board: &'static Board,
    slot: &'static Slot,
    resident: Resident,
    looked: Instant,
    /// Groups of the shelf that are to be tried again, whether others still have them.
    tries: usize,
    tidied: Instant,
    compacted_at: u64,
    /// Pages that had left other processes, and this one, at the last look.
    left_before: [u64; 2],
    /// Bytes that this one is to give up; less than nothing if it gave up more than its part.
    owed: i64,
    sharing: Sharing,
    /// It was looked whether memory is to be guarded, when this process began to fold or went on.
    is_guarded: bool,
    /// If there is a disk.
    writer: Option<Writer>,
    tending: Tending,
}

/// The thread's work, which does not end.
pub(crate) extern "C" fn run() {
    leave_descriptors();
    name("ramfold-pager");
    be_prompt();
    let Some(mut keeper) = arena::with(Keeper::new) else { return };
    loop {
        keeper.look();
    }
}

fn board() -> Option<&'static Board> {
    // relaxed: one thread of a process uses it, and a child has its parent's.
    let known = BOARD.load(Ordering::Relaxed);
    // SAFETY: what is there was leaked, and a child has it too.
    if let Some(board) = unsafe { known.as_ref() } {
        return Some(board);
    }
    let board = open_board()?;
    let board = Box::leak(Box::new(board));
    // relaxed: as above.
    BOARD.store(board, Ordering::Relaxed);
    Some(board)
}

impl Keeper {
    fn new(state: &mut arena::State) -> Option<Keeper> {
        let board = board()?;
        let slot = board.claim(u64::from(std::process::id()))?;
        slot.set_way(Way::Closed);
        if let Some(fold) = &mut state.fold {
            fold.move_to(slot);
            fold.store.begin_anew();
        }
        let resident = match Resident::open() {
            Ok(resident) => resident,
            Err(error) => {
                slot.set_state(State::Unfolded(error.raw_os_error().unwrap_or(libc::EIO)));
                return None;
            }
        };
        let now = Instant::now();
        Some(Keeper {
            board,
            slot,
            resident,
            looked: now,
            tries: 0,
            tidied: now,
            compacted_at: 0,
            left_before: left(board, slot),
            owed: 0,
            sharing: Sharing::default(),
            is_guarded: false,
            writer: board.backing().map(Writer::new),
            tending: Tending::default(),
        })
    }

    fn look(&mut self) {
        let (forks, copied) = arena::patiently(|state| {
            (state.forks, state.fold.as_ref().map_or(0, |fold| fold.copied))
        });
        let said = self.used(forks, copied * PAGE as u64);
        let used = said.bytes;
        let quota = self.board.quota(self.slot);
        // Who ended before that was asked is not among the members any more.
        let quota = self.sharing.quota(self.board.members(), quota);
        let until_folding = self.board.until_folding(used, quota, self.sharing.is_much());
        let begins = arena::patiently(|state| {
            let store = state.fold.as_ref().map(|fold| &fold.store);
            publish(self.slot, said, store);
            self.tell(state);
            state.fold.is_none() && !state.melted && until_folding == 0
        });
        if begins {
            arena::patiently(|state| self.begin(state, quota));
        }
        let millis = match arena::patiently(|state| state.fold.is_some() && !state.melted) {
            true => self.hold(used, quota),
            false => self.board.millis_until(until_folding, 1),
        };
        std::thread::sleep(Duration::from_millis(millis));
    }

    fn tell(&self, state: &arena::State) {
        self.slot.set_state(match &state.fold {
            _ if state.melted => State::Unfolded(refusals::MELTED),
            Some(_) => State::Folding,
            None => State::Watching,
        });
    }

    /// Bytes in memory, and those that are the part of other processes. What forks share is counted
    /// by parts, if there is more than one process. Threads were let copy `copied` bytes of it.
    fn used(&mut self, forks: u32, copied: u64) -> Used {
        let members = self.board.members();
        let others = if self.board.processes() < 2 {
            self.sharing.none(members)
        } else {
            let counted = self.counted();
            self.sharing.look(self.board.is_ample(self.slot, counted), faults(), counted);
            self.sharing.bytes((forks, members), copied, || self.resident.shared())
        };
        self.sharing.used(self.counted(), others)
    }

    /// Bytes in memory, with all that forks share.
    fn counted(&self) -> u64 {
        self.resident.anonymous().unwrap_or(0) * PAGE as u64
    }

    /// Begins to fold.
    fn begin(&self, state: &mut arena::State, quota: u64) {
        let Some(store) = store(self.board) else {
            state.melted = true;
            return;
        };
        let mut fold = Fold::new(store, self.slot);
        fold.set_resting_max(resting_max(quota));
        arena::fold(state, fold);
    }

    /// Keeps the process within `quota`. Returns how long to sleep, in milliseconds.
    fn hold(&mut self, used: u64, quota: u64) -> u64 {
        let margin = (quota / 64).max(1 << 20) as i64;
        let room = quota as i64 - used as i64;
        let shares = self.sharing.is_much();
        // Processes that copy what they share do not all take the same room.
        let takers = if shares { self.board.processes().max(1) } else { 1 };
        let threads = threads();
        let (has_shrunk, shared_by) = (self.sharing.has_shrunk(), self.sharing.shared_by());
        arena::patiently(|state| {
            if let Some(fold) = &mut state.fold {
                fold.set_room(room / (takers * PAGE) as i64);
                fold.shares = shares;
                fold.set_resting_max(resting_max(quota));
                fold.set_threads(threads);
                fold.quota = quota;
                fold.is_written = self.writer.is_some();
                fold.store.set_refuses(self.writer.as_ref().is_some_and(Writer::waits));
                fold.store.set_shared_by(shared_by);
            }
            if self.looked.elapsed() > LOOK_EVERY {
                self.looked = Instant::now();
                arena::look_again(state);
                self.tries = self.tries.max(TRIES_AT_ONCE);
            }
            if let Some(fold) = state.fold.as_ref().filter(|_| has_shrunk) {
                self.tries = fold.shelf.len();
            }
            let tries = self.tries.min(TRIES_AT_ONCE);
            self.tries -= tries;
            arena::try_shelf(state, tries);
            if self.tidied.elapsed() > TIDY_EVERY {
                self.tidied = Instant::now();
                state.fold.iter().for_each(|fold| fold.store.tidy());
            }
            if let Some(fold) = &state.fold {
                self.tending.turn(self.board, &fold.store);
            }
        });
        if !std::mem::replace(&mut self.is_guarded, true) && shares {
            let mut place = Some(0);
            while let Some(from) = place {
                place = arena::patiently(|state| arena::guard(state, from));
            }
        }
        let owed = self.owe(room < margin * OWED_MARGINS);
        let made = if room < margin {
            let lack = (margin + margin / 2 - room) as u64;
            let want = self.board.part(self.slot, lack) as usize / PAGE + 1;
            self.make_room(want.max(owed))
        } else {
            arena::hold(owed)
        };
        if made > 0 {
            self.compact();
            return 0;
        }
        arena::go_on();
        self.board.millis_until(room.max(0) as u64, 2)
    }

    /// Pages that are to leave because others have left other processes. No room is lacking when a
    /// pager looks. So without this a process that rests would keep its memory, and one that uses
    /// its own would page out what it needs next. Nothing is owed while there is room.
    fn owe(&mut self, is_short: bool) -> usize {
        let now = left(self.board, self.slot);
        let before = std::mem::replace(&mut self.left_before, now);
        let [others, own] =
            [0, 1].map(|of: usize| now[of].saturating_sub(before[of]) * PAGE as u64);
        let part = self.board.part(self.slot, others + own) as i64;
        self.owed = match is_short {
            true => carried(self.owed, part, own as i64),
            false => 0,
        };
        if self.owed < OWED_MIN { 0 } else { self.owed as usize / PAGE }
    }

    /// Makes about `want` pages leave memory, for the store and from there for the disk. Returns
    /// how many did.
    fn make_room(&mut self, want: usize) -> usize {
        if self.writer.is_none() {
            return arena::hold(want);
        }
        let mut left = 0;
        while left < want {
            let stored = arena::hold(AT_ONCE.min(want - left));
            let pick = arena::patiently(|state| {
                state.fold.as_ref().and_then(|fold| fold.store.overflow(fold.quota))
            });
            let pick = pick.or((stored == 0).then_some(Pick::All));
            let (written, has_room) = pick.map_or((0, true), |pick| self.write_some(pick));
            if written == 0 || has_room {
                arena::go_on();
            }
            if written > 0 {
                // For each batch, one of a window that has few pages left.
                self.write_some(Pick::Sparse);
            }
            if stored + written == 0 {
                break;
            }
            left += stored.max(written);
        }
        left
    }

    /// Writes a batch. Returns how many pages left memory, and whether there is room now. While the
    /// disk works, threads of the program go on.
    fn write_some(&mut self, pick: Pick) -> (usize, bool) {
        let Some(writer) = &mut self.writer else { return (0, true) };
        let begun = arena::patiently(|state| {
            state.fold.as_ref().is_some_and(|fold| fold.store.begin_batch(writer, pick))
        });
        let (mut pages, mut has_room) = (0, true);
        if begun {
            writer.write();
            (pages, has_room) = arena::patiently(|state| {
                let Some(fold) = &mut state.fold else { return (0, true) };
                let before = fold.store.compressed();
                let pages = fold.store.end_batch(writer);
                fold.store.set_refuses(writer.waits());
                fold.room += before.saturating_sub(fold.store.compressed()) as i64 / PAGE as i64;
                (pages, fold.room > 0)
            });
        }
        count_written(self.board, self.slot, writer, pages);
        (pages, has_room)
    }

    fn compact(&mut self) {
        // relaxed: a figure.
        let moved = self.slot.pages_out.load(Ordering::Relaxed);
        if moved - self.compacted_at > COMPACT_AFTER {
            self.compacted_at = moved;
            arena::patiently(|state| {
                if let Some(fold) = &state.fold {
                    fold.store.compact();
                }
            });
        }
    }
}

/// Pages that have left the other processes of a run, and the one of a slot.
fn left(board: &Board, slot: &Slot) -> [u64; 2] {
    let own = slot.counts().pages_out;
    [board.counts().pages_out.saturating_sub(own), own]
}

/// What a process owes after its part of so many bytes, of which it gave up some.
fn carried(owed: i64, part: i64, given: i64) -> i64 {
    (owed + part - given).clamp(-OWED_MAX, OWED_MAX)
}

/// Threads of the process without ours. `None` if the system does not say.
fn threads() -> Option<usize> {
    // The path is short, so nothing of our heap is used, which would need the lock.
    // A directory has a link for itself, one in its parent, and one for each directory in it.
    const LINKS: u64 = 2;
    let links = std::fs::metadata("/proc/self/task").ok()?.nlink();
    usize::try_from(links.checked_sub(LINKS + 1)?).ok()
}

/// Pages that may rest in a process with a quota.
fn resting_max(quota: u64) -> usize {
    (quota / RESTING_PART).clamp(RESTING_MIN, RESTING_MAX) as usize / PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_beyond_a_part_counts_later() {
        assert_eq!(carried(0, 300, 100), 200);
        assert_eq!(carried(200, 0, 500), -300);
        assert_eq!(carried(-300, 400, 0), 100, "less than its part of what left");
        assert_eq!(
            [i64::MAX >> 1, -(i64::MAX >> 1)].map(|it| carried(0, it, 0)),
            [OWED_MAX, -OWED_MAX]
        );
    }
}
