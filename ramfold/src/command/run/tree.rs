//! The processes of a run: which of them have ended, and which do not fold.
//!
//! ```text
//!   has a place on the board     it folds, or says why it cannot
//!      .. and is silent          it has executed a program without the library: its place is freed
//!   has none for a while         the library is not in it; what it takes is taken off the limit
//! ```
//!
//! Invariant: a program that does not fold is named once. Locks: none.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use host::WITNESS_NAME;
use inside::board::{Board, SLOTS, Slot, State};

use super::moment::load;
use super::process::{self, Process};
use super::unfolded;
use crate::line::output::complain;

/// A process has so long to claim a slot, and to say something again.
const PATIENCE: Duration = Duration::from_millis(300);
/// It is not said to fail without a reason that can be seen before this. On a machine with too much
/// to do, the library may take that long to begin.
const LONG_PATIENCE: Duration = Duration::from_secs(3);

/// The processes of a run.
pub(super) struct Tree {
    root: u32,
    library: PathBuf,
    quiet: bool,
    /// When each process without a slot was first seen.
    seen: HashMap<u32, Instant>,
    /// What each process with a slot last said, and when that was first seen.
    said: HashMap<u32, (u64, Instant)>,
    named: HashSet<String>,
}

impl Tree {
    pub(super) fn new(root: u32, library: &Path, quiet: bool) -> Tree {
        let (seen, said, named) = Default::default();
        Tree { root, library: library.to_owned(), quiet, seen, said, named }
    }

    /// Looks at all processes, frees places on the board, and says there what the rest takes.
    pub(super) fn look(&mut self, board: &Board) {
        retire_ended(board);
        let all = process::all();
        let ours = members(board, Some(self.root), &all);
        self.seen.retain(|pid, _| ours.iter().any(|(process, _)| process.pid == *pid));
        self.said.retain(|pid, _| ours.iter().any(|(process, _)| process.pid == *pid));
        let mut outside = 0;
        for (process, slot) in ours {
            let slot = slot.filter(|slot| !self.has_left(board, slot));
            outside += match slot.map(Slot::state) {
                Some(State::Unfolded(errno)) => {
                    self.name(process, &unfolded::refused(errno));
                    0
                }
                Some(State::Watching | State::Folding) => 0,
                None => self.without(board, process),
            };
        }
        // relaxed: a figure.
        board.head().outside.store(outside, Ordering::Relaxed);
    }

    /// Whether the process of a slot has executed a program without the library. Then the slot is
    /// freed. A process that is stopped is silent too, but our threads are in it.
    fn has_left(&mut self, board: &Board, slot: &Slot) -> bool {
        let (pid, looks) = (slot.owner.pid() as u32, load(&slot.looks));
        let said = self.said.entry(pid).or_insert_with(|| (looks, Instant::now()));
        if said.0 != looks {
            *said = (looks, Instant::now());
        }
        let silent = said.1.elapsed() > PATIENCE && !process::has_pager(pid);
        // It may have executed a program with the library since.
        let left = silent && load(&slot.looks) == looks;
        if left {
            board.retire(slot);
        }
        left
    }

    /// What a process without a slot takes, once it has had time to claim one.
    fn without(&mut self, board: &Board, process: &Process) -> u64 {
        let pid = process.pid;
        let since = *self.seen.entry(pid).or_insert_with(Instant::now);
        // On a busy machine a new process may wait that long for a processor.
        if since.elapsed() <= PATIENCE || process.is_waiting {
            return 0;
        }
        let is_folding = process::has_pager(pid);
        if is_folding && !unfolded::is_of_another_run(pid, &self.library) {
            return 0;
        }
        // One of another run folds, and needs no advice.
        if !is_folding && !self.named.contains(&process.name) {
            let unknown = (since.elapsed() > LONG_PATIENCE).then_some(unfolded::UNKNOWN);
            let why = unfolded::not_loaded(pid, &self.library, is_full(board)).or(unknown);
            if let Some(why) = why {
                self.name(process, &format!("{why}; what it takes is taken off the limit"));
            }
        }
        process::anonymous(pid)
    }

    fn name(&mut self, process: &Process, why: &str) {
        if self.named.insert(process.name.clone()) && !self.quiet {
            let (name, pid) = (&process.name, process.pid);
            complain(&format!("{name} (process {pid}) does not fold: {why}"));
        }
    }
}

/// Frees the slots of processes that have ended.
fn retire_ended(board: &Board) {
    let ended = board.living().filter(|slot| process::has_ended(slot.owner.pid() as u32));
    ended.for_each(|slot| board.retire(slot));
}

/// Whether no slot is free.
pub(crate) fn is_full(board: &Board) -> bool {
    board.processes() == SLOTS
}

/// The processes from `root` on, and from each process on that has a slot, because these may have
/// lost their parents. `all` are those of the machine. The witnesses of signals are left out: they
/// are processes of ours, small, and end with their run.
pub(crate) fn members<'a>(
    board: &'a Board,
    root: Option<u32>,
    all: &'a [Process],
) -> Vec<(&'a Process, Option<&'a Slot>)> {
    let slots: HashMap<u32, &Slot> =
        board.living().map(|slot| (slot.owner.pid() as u32, slot)).collect();
    let ours = process::descendants(slots.keys().copied().chain(root), all);
    let living = all.iter().filter(|process| !process.is_zombie && ours.contains(&process.pid));
    let living = living.filter(|process| process.name != WITNESS_NAME);
    living.map(|process| (process, slots.get(&process.pid).copied())).collect()
}
