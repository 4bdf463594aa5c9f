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
    /// The window for a fault at `address`, and the walk that it belongs to.
    pub(crate) fn window(&mut self, address: usize) -> (usize, usize) {
        let known = self.walks.iter().position(|walk| walk.end == address);
        let walk = known.unwrap_or_else(|| {
            self.next = (self.next + 1) % WALKS;
            self.walks[self.next] = Walk { end: 0, window: 0 };
            self.next
        });
        let window = (self.walks[walk].window * 2).clamp(1, WINDOW_MAX);
        self.walks[walk].window = window;
        (window, walk)
    }

    /// Pages of a group came, as bits, the one at `address` among them.
    pub(crate) fn came(&mut self, walk: usize, address: usize, pages: u64) {
        let after = (pages >> page_in_group(address)).trailing_ones() as usize;
        self.walks[walk].end = address + after * PAGE;
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
            streaks.came(walk, at, bits(page_in_group(at), window));
            at += window * PAGE;
            let (other, walk) = streaks.window(at * 7 + PAGE);
            assert_eq!(other, 1, "no walk goes there");
            streaks.came(walk, 3 * at, 1);
        }
    }

    #[test]
    fn a_walk_that_was_cut_short_goes_on_where_it_ended() {
        let mut streaks = Streaks::default();
        let (_, walk) = streaks.window(0x5000);
        // Pages before the one that was touched came too, and one more that is apart.
        streaks.came(walk, 0x5000, 0b1_0011_1111);
        let (window, walk) = streaks.window(0x6000);
        assert_eq!(window, 2);
        streaks.came(walk, 0x6000, bits(6, 1));
        assert_eq!(streaks.window(0x7000).0, 4);
    }
}
