//! The pager of a process that folds without userfaultfd.
//!
//! ```text
//!   under 7/8 of what the process may have    it looks now and then
//!   above it                                  groups close, rest, and leave for the store
//! ```
//!
//! A forked child has all of its parent's memory, tables and store, and a pager of its own.
//!
//! Invariant: what uses our heap is done under the lock of the state, so that a forked child finds
//! the heap whole. Lock: that of the state, for one step.

use super::pager::{leave_descriptors, name, open_board};
use crate::arena::{self, Fold};
use crate::board::{Board, Slot, State, Way, refusals};
use crate::kernel::{Resident, lost};
use crate::places::PAGE;
use crate::ways::Store;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};
use zram::Codec;

/// How fast a program can touch memory, in bytes for each millisecond. The pager sleeps by that.
const TOUCH_SPEED: u64 = 8 << 20;
const SLEEP_MAX: u64 = 50;
/// Pages that rest take this part of the limit, in bounds.
const RESTING_PART: u64 = 8;
const RESTING_MIN: u64 = 2 << 20; // 2 MiB
const RESTING_MAX: u64 = 64 << 20; // 64 MiB
/// How often memory is looked for that was touched without a word.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often to look whether the store holds what it does not need.
const TIDY_EVERY: Duration = Duration::from_millis(100);
/// How often to ask what forks share.
const SHARED_EVERY: Duration = Duration::from_millis(250);
/// Compaction looks after so many pages have left.
const COMPACT_AFTER: u64 = 1 << 14;

static BOARD: AtomicPtr<Board> = AtomicPtr::new(std::ptr::null_mut());

struct Keeper {
    board: &'static Board,
    slot: &'static Slot,
    resident: Resident,
    looked: Instant,
    tidied: Instant,
    compacted_at: u64,
    shared: u64,
    shared_at: Option<Instant>,
}

/// The thread's work, which does not end.
pub(crate) extern "C" fn run() {
    leave_descriptors();
    name("ramfold-pager");
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
            tidied: now,
            compacted_at: 0,
            shared: 0,
            shared_at: None,
        })
    }

    fn look(&mut self) {
        let used = self.used();
        let quota = self.board.quota(self.slot);
        let begins = arena::patiently(|state| {
            self.publish(used, state);
            self.tell(state);
            state.fold.is_none() && !state.melted && used > quota / 8 * 7
        });
        if begins {
            arena::patiently(|state| self.begin(state, quota));
        }
        let millis = match arena::patiently(|state| state.fold.is_some() && !state.melted) {
            true => self.hold(used, quota),
            false => {
                let left = (quota / 8 * 7).saturating_sub(used);
                (left / TOUCH_SPEED).clamp(1, SLEEP_MAX)
            }
        };
        std::thread::sleep(Duration::from_millis(millis));
    }

    fn publish(&self, bytes: u64, state: &arena::State) {
        let held = state.fold.as_ref().map(|fold| fold.store.held()).unwrap_or_default();
        let unfolded = (bytes + held.orig_data_size).saturating_sub(held.compr_data_size);
        self.slot.publish(bytes, held.orig_data_size, held.compr_data_size, unfolded);
    }

    fn tell(&self, state: &arena::State) {
        self.slot.set_state(match &state.fold {
            _ if state.melted => State::Unfolded(refusals::MELTED),
            Some(_) => State::Folding,
            None => State::Watching,
        });
    }

    /// Bytes in memory. What forks share is counted by parts, if there is more than one process.
    fn used(&mut self) -> u64 {
        if self.board.processes() < 2 {
            self.shared = 0;
        } else if self.shared_at.is_none_or(|at| at.elapsed() > SHARED_EVERY) {
            self.shared = self.resident.shared().unwrap_or(0);
            self.shared_at = Some(Instant::now());
        }
        let counted = self.resident.anonymous().unwrap_or(0) * PAGE as u64;
        counted.saturating_sub(self.shared)
    }

    /// Begins to fold.
    fn begin(&self, state: &mut arena::State, quota: u64) {
        // relaxed: written before this process was started.
        let limit = self.board.head().limit.load(Ordering::Relaxed);
        let Ok(codec) = self.board.algorithm().parse::<Codec>() else {
            lost("its algorithm is unknown");
        };
        let Ok(store) = Store::new(codec, 2 * limit) else {
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
        arena::patiently(|state| {
            if let Some(fold) = &mut state.fold {
                fold.room = room / PAGE as i64;
                fold.set_resting_max(resting_max(quota));
            }
            if self.looked.elapsed() > LOOK_EVERY {
                self.looked = Instant::now();
                arena::look_again(state);
            }
            if self.tidied.elapsed() > TIDY_EVERY {
                self.tidied = Instant::now();
                state.fold.iter().for_each(|fold| fold.store.tidy());
            }
        });
        if room < margin {
            let want = (margin + margin / 2 - room) as usize / PAGE;
            if arena::hold(want) > 0 {
                self.compact();
                return 0;
            }
        }
        (room.max(0) as u64 / TOUCH_SPEED).clamp(2, SLEEP_MAX)
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

/// Pages that may rest in a process with a quota.
fn resting_max(quota: u64) -> usize {
    (quota / RESTING_PART).clamp(RESTING_MIN, RESTING_MAX) as usize / PAGE
}
