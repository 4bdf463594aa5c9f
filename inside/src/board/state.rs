//! What a process of a run does, and how, as words of its slot.
//!
//! Invariant: a word of 0 is what a slot says that was claimed and says nothing yet. Lock: none.

use super::Slot;
use std::sync::atomic::Ordering;

/// How the memory of a process folds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The kernel tells of faults: userfaultfd.
    Faults,
    /// Pages that are out are closed, and a touch is a signal.
    Closed,
}

impl Way {
    /// The word of a slot. A slot that says nothing is of a process that has faults.
    pub(super) fn word(self) -> u64 {
        u64::from(self == Way::Closed)
    }

    /// What a word of a slot says.
    pub(super) fn of(word: u64) -> Way {
        if word == 0 { Way::Faults } else { Way::Closed }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Way::Faults => "userfaultfd",
            Way::Closed => "closed",
        }
    }
}

/// Bits of a state, below its error.
const STATE_BITS: u32 = 8;

const _: () = assert!(STATE_BITS + i32::BITS <= u64::BITS, "an error fits above a state");

/// What a process does about its memory. As a word:
///
/// ```text
///   bits   63 .. 8         7 .. 0
///          error if 2      0 watching, 1 folding, 2 unfolded
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It is under its limit, and nothing is folded.
    Watching,
    /// Its cold pages leave.
    Folding,
    /// It cannot fold. The number is the system's error.
    Unfolded(i32),
}

impl State {
    /// The word of a slot.
    pub(super) fn word(self) -> u64 {
        match self {
            State::Watching => 0,
            State::Folding => 1,
            State::Unfolded(errno) => 2 | u64::from(errno as u32) << STATE_BITS,
        }
    }

    /// What a word of a slot says.
    pub(super) fn of(word: u64) -> State {
        match word & ((1 << STATE_BITS) - 1) {
            0 => State::Watching,
            1 => State::Folding,
            _ => State::Unfolded((word >> STATE_BITS) as u32 as i32),
        }
    }
}

impl Slot {
    /// Says what the process does.
    pub fn set_state(&self, state: State) {
        // relaxed: it stands alone.
        self.state.store(state.word(), Ordering::Relaxed);
    }

    /// What the process does.
    pub fn state(&self) -> State {
        // relaxed: it stands alone.
        State::of(self.state.load(Ordering::Relaxed))
    }

    /// Says how the process folds.
    pub fn set_way(&self, way: Way) {
        // relaxed: it stands alone.
        self.way.store(way.word(), Ordering::Relaxed);
    }

    /// How the process folds.
    pub fn way(&self) -> Way {
        // relaxed: it stands alone.
        Way::of(self.way.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let errors = [0, 1, libc::EPERM, 255, 256, i32::MAX, -1].map(State::Unfolded);
        for state in [State::Watching, State::Folding].into_iter().chain(errors) {
            assert_eq!(State::of(state.word()), state);
        }
        for way in [Way::Faults, Way::Closed] {
            assert_eq!(Way::of(way.word()), way);
        }
    }
}
