//! How many pages a fault brings in: more and more while a thread walks.
//!
//! ```text
//!   touch 7: one page      touch 8, where that ended: two      touch 10: four      ... 64
//! ```
//!
//! Several walks go on at the same time, so the ends of the last few are known.
//!
//! Invariant: a window is 1 to `WINDOW_MAX` pages. Lock: none; one thread has it.

use crate::places::{PAGE, page_in_group};
use crate::ways::WINDOW_MAX;

/// Walks that are known at the same time.
const WALKS: usize = 8;

#[derive(Debug, Clone, Copy, Default)]
struct Walk {
    /// Where the last fault's pages ended.
    end: usize,
    window: usize,
}

/// The last few walks.
#[derive(Debug, Default)]
pub(crate) struct Streaks {
    walks: [Walk; WALKS],
    next: usize,
}

impl Streaks {
    /// The window for a fault at `address`, and the walk that it belongs to, if it is known.
    pub(crate) fn window(&self, address: usize) -> (usize, Option<usize>) {
        let walk = self.walks.iter().position(|walk| walk.end == address);
        let window = walk.map_or(1, |walk| self.walks[walk].window * 2);
        (window.clamp(1, WINDOW_MAX), walk)
    }

    /// Pages of a group came with that window, as bits, the one at `address` among them. A fault
    /// that has to be tried again changes nothing here.
    pub(crate) fn came(
        &mut self,
        (window, walk): (usize, Option<usize>),
        address: usize,
        pages: u64,
    ) {
        let walk = walk.unwrap_or_else(|| {
            self.next = (self.next + 1) % WALKS;
            self.next
        });
        let after = (pages >> page_in_group(address)).trailing_ones() as usize;
        self.walks[walk] = Walk { end: address + after * PAGE, window };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::bits;

    #[test]
    fn a_walk_takes_longer_steps_and_a_jump_takes_one_page() {
        let mut streaks = Streaks::default();
        let mut at = 128 * PAGE;
        for expected in [1, 2, 4, 8, 16, 32] {
            let (window, walk) = streaks.window(at);
            assert_eq!(window, expected);
            assert_eq!(streaks.window(at).0, window, "it is tried again");
            streaks.came((window, walk), at, bits(page_in_group(at), window));
            at += window * PAGE;
            let other = streaks.window(at * 7 + PAGE);
            assert_eq!(other.0, 1, "no walk goes there");
            streaks.came(other, 3 * at, 1);
        }
    }

    #[test]
    fn a_walk_that_was_cut_short_goes_on_where_it_ended() {
        let mut streaks = Streaks::default();
        // Pages before the one that was touched came too, and one more that is apart.
        streaks.came(streaks.window(0x5000), 0x5000, 0b1_0011_1111);
        let walk = streaks.window(0x6000);
        assert_eq!(walk.0, 2);
        streaks.came(walk, 0x6000, bits(6, 1));
        assert_eq!(streaks.window(0x7000).0, 4);
    }
}
