//! What the order knows of one cell: a word in a table beside the cells.
//!
//! ```text
//!   31..30 | 29..28    | 27    | 26..22     | 21..0
//!   state  | frequency | ring  | generation | block     gone, live, loaded
//!   state  | frequency | stamp: evictions of its group before its own   evicted
//!
//!               Orders::push                  Orders::load
//!     gone  ----------------->  live  --------------------------->  loaded
//!       ^  <------- remove ------' ^ `-victims, then evicted-. ^ `-- its token is dropped --.
//!       |                          `------- push -------------+-'                            |
//!       `---- remove ----------------------------------  evicted  <-------------------------'
//! ```
//!
//! Invariants
//! - W1 the word of a cell names block B if and only if B has exactly one token of the cell that
//!   was not dropped. The block numbers of the hands are an exception, because hands have no
//!   tokens.
//! - W2 a live word has its leaf's generation. Otherwise its leaf was detached, and the word counts
//!   as gone.
//! - W3 a word of zero is gone and names no block. Table memory is zero when it is fresh.

use crate::terms::GroupId;

/// Which of a group's rings. S3-FIFO's paper calls them queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// S3-FIFO's small ring: pages that were stored once.
    Small,
    /// S3-FIFO's main ring, and the only ring of the kernel's order.
    Main,
}

impl Which {
    pub(super) const BOTH: [Which; 2] = [Which::Small, Which::Main];
}

/// What is known of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing.
    Gone,
    /// Its page is in memory.
    Live,
    /// Its page was loaded. The token still marks its place.
    Loaded,
    /// Its page went to disk, or was loaded and its token was dropped. These are S3-FIFO's ghosts.
    Evicted,
}

/// The packed word; see the module's picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Word(pub(super) u32);

/// Bits of a block's number.
pub(super) const BLOCK_BITS: u32 = 22; // 2^32 tokens, 16 GiB of them
const GENERATION_BITS: u32 = 5;
const GENERATION_SHIFT: u32 = BLOCK_BITS; // 22
const RING_SHIFT: u32 = GENERATION_SHIFT + GENERATION_BITS; // 27
const FREQUENCY_SHIFT: u32 = RING_SHIFT + 1; // 28
const FREQUENCY_BITS: u32 = 2;
const STATE_SHIFT: u32 = FREQUENCY_SHIFT + FREQUENCY_BITS; // 30
const _: () = assert!(STATE_SHIFT + 2 == u32::BITS, "the fields fill the word");

/// The most a frequency counts, as in S3-FIFO.
pub(super) const FREQUENCY_MAX: u32 = (1 << FREQUENCY_BITS) - 1; // 3
/// Generations of a leaf.
pub(super) const GENERATIONS: u32 = 1 << GENERATION_BITS; // 32
/// Stamps count evictions modulo this.
pub(super) const STAMPS: u32 = 1 << FREQUENCY_SHIFT; // 2^28

const _: () = assert!(GroupId::COUNT < 1 << BLOCK_BITS, "hands are numbers of blocks");

impl Word {
    /// Only the place of an old token is known. Block 0 means that there is none.
    pub(super) fn gone(block: u32) -> Word {
        Word(block)
    }

    pub(super) fn live(block: u32, which: Which, generation: u32, frequency: u32) -> Word {
        debug_assert!(block < 1 << BLOCK_BITS, "a block's number");
        debug_assert!(generation < GENERATIONS, "a generation");
        debug_assert!(frequency <= FREQUENCY_MAX, "a frequency");
        let ring = (which as u32) << RING_SHIFT;
        let word = block | generation << GENERATION_SHIFT | ring | frequency << FREQUENCY_SHIFT;
        Word(word | (State::Live as u32) << STATE_SHIFT)
    }

    pub(super) fn evicted(stamp: u32, frequency: u32) -> Word {
        debug_assert!(frequency <= FREQUENCY_MAX, "a frequency");
        let known = (stamp % STAMPS) | frequency << FREQUENCY_SHIFT;
        Word(known | (State::Evicted as u32) << STATE_SHIFT)
    }

    /// The same token, for a page that was loaded or is back.
    pub(super) fn with_state(self, state: State) -> Word {
        debug_assert!(self.state() != State::Evicted, "a stamp is no place");
        Word((self.0 % (1 << STATE_SHIFT)) | (state as u32) << STATE_SHIFT)
    }

    /// The same word, with the token in another block.
    pub(super) fn with_block(self, block: u32) -> Word {
        debug_assert!(self.state() != State::Evicted && block < 1 << BLOCK_BITS, "a place");
        Word(self.0 >> BLOCK_BITS << BLOCK_BITS | block)
    }

    /// The same word, used once more.
    pub(super) fn used(self) -> Word {
        let more = u32::from(self.frequency() < FREQUENCY_MAX);
        Word(self.0 + (more << FREQUENCY_SHIFT))
    }

    pub(super) fn state(self) -> State {
        match self.0 >> STATE_SHIFT {
            0 => State::Gone,
            1 => State::Live,
            2 => State::Loaded,
            _ => State::Evicted,
        }
    }

    /// The block that has the cell's token; 0 for none.
    pub(super) fn block(self) -> u32 {
        match self.state() {
            State::Evicted => 0,
            _ => self.0 % (1 << BLOCK_BITS),
        }
    }

    pub(super) fn generation(self) -> u32 {
        self.0 >> GENERATION_SHIFT & (GENERATIONS - 1)
    }

    pub(super) fn which(self) -> Which {
        Which::BOTH[(self.0 >> RING_SHIFT & 1) as usize]
    }

    pub(super) fn frequency(self) -> u32 {
        self.0 >> FREQUENCY_SHIFT & FREQUENCY_MAX
    }

    /// Evictions before this one, modulo [`STAMPS`].
    pub(super) fn stamp(self) -> Option<u32> {
        (self.state() == State::Evicted).then_some(self.0 % STAMPS)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_field_comes_back(
            block in 0u32..1 << BLOCK_BITS,
            main in any::<bool>(),
            generation in 0..GENERATIONS,
            frequency in 0..=FREQUENCY_MAX,
            stamp in any::<u32>(),
        ) {
            let which = Which::BOTH[usize::from(main)];
            for state in [State::Live, State::Loaded, State::Gone] {
                let word = Word::live(block, which, generation, frequency).with_state(state);
                prop_assert_eq!(word.state(), state);
                prop_assert_eq!((word.block(), word.which()), (block, which));
                prop_assert_eq!((word.generation(), word.frequency()), (generation, frequency));
                prop_assert_eq!(word.stamp(), None);
                let used = word.used();
                prop_assert_eq!(used.frequency(), (frequency + 1).min(FREQUENCY_MAX));
                prop_assert_eq!((used.state(), used.block()), (state, block));
            }
            let ghost = Word::evicted(stamp, frequency);
            prop_assert_eq!(ghost.frequency(), frequency);
            prop_assert_eq!((ghost.state(), ghost.block()), (State::Evicted, 0));
            prop_assert_eq!(ghost.stamp(), Some(stamp % STAMPS));
            prop_assert_eq!(Word::gone(block).block(), block);
        }
    }

    #[test]
    fn fresh_memory_is_gone_and_in_no_block() {
        assert_eq!((Word::default().state(), Word::default().block()), (State::Gone, 0));
    }
}
