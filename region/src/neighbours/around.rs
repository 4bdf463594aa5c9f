//! Fault-around: how many pages to bring in at a fault.
//!
//! A walk:
//!
//! ```text
//!   fault at 7   8        10         14        22       38              64        200
//!   pages    1   2        4          8         16       26 of 32        64        1
//!            `-> next 8   `-> next 10   `-> next 14     `-> to the group's end    not the next
//! ```
//!
//! A fault on the page after those brought in last shows that they were wanted. It doubles the
//! number, up to a whole group. Any other fault starts again with one page. When a walk ends, up to
//! 63 pages have come for nothing. As a rule that is no more than were wanted before.
//!
//! Only a thread that serves its own fault brings in more than 16 pages at once. If another thread
//! serves it, it goes on as soon as it has its page, so the others must come by the same call.
//!
//! ```text
//!   63                        8 7        0
//!  +---------------------------+----------+
//!  |  page after the last 56   | asked 8  |   a window; asked 0 = nothing was brought in yet
//!  +---------------------------+----------+
//! ```
//!
//! There are several such windows, because threads may each walk their own part. A window is chosen
//! by CPU, or by thread if another thread serves it. Windows are hints: two threads that mix them
//! up bring in too few pages or too many, but never wrong ones.
//!
//! For any other fault, stored pages around it may come: those of its aligned quad of 4 pages or of
//! its stretch of 16. They come if `density` has measured that they are wanted and `worth` says
//! that they pay. Otherwise one page comes. Neighbours that do not pay cost two loads and a few
//! comparisons.
//!
//! Invariant: a window asks for 1 to 64 pages and `aligned` for 1, 4 or 16, whatever the words say.
//! So any thread may change a window at any time, and no content depends on it.

use super::density::{Density, is_watched};
use super::worth::Worth;
use crate::places::QUAD_PAGES;
use crate::terms::{GROUP_PAGES, Quads};
use host::cpu;
use host::fault::Asker;
use std::sync::atomic::{AtomicU64, Ordering};

const WINDOWS: usize = 8;
const COUNT_BITS: u32 = 8;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1; // 255

const _: () = assert!(GROUP_PAGES < 1 << COUNT_BITS, "the number of pages fits its bits");

/// Two cache lines, because processors fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Window(AtomicU64);

/// What a region knows about how it is touched.
pub(crate) struct Around {
    windows: [Window; WINDOWS],
    quads: Quads,
    pub(crate) density: Density,
    pub(crate) worth: Worth,
}

impl Around {
    /// Nothing is known yet except costs.
    pub(crate) fn new(quads: Quads, worth: Worth) -> Around {
        let (windows, density) = Default::default();
        Around { windows, quads, density, worth }
    }

    /// How many aligned pages a fault in a group brings in around its page, as far as they are
    /// stored. `limited` says whether the region has a limit.
    pub(crate) fn aligned(&self, group: usize, limited: bool) -> usize {
        match self.quads {
            Quads::Never => 1,
            Quads::Always => QUAD_PAGES,
            Quads::Measured => match self.worth.pages_at_once(self.density.per_cent(), limited) {
                pages if pages > 1 && is_watched(group) => 1,
                pages => pages,
            },
        }
    }

    /// The window of the asking thread's walk: that of its CPU, or of its number if another thread
    /// serves it. The serving thread stays on one CPU.
    pub(crate) fn window(&self, asker: Asker) -> &Window {
        let number = match asker {
            Asker::Toucher | Asker::Denied | Asker::Guarded => cpu::current_hint(),
            Asker::Message { thread } => thread as usize,
        };
        &self.windows[number % WINDOWS]
    }

    /// How many of the `asked` pages from `page` on lie in its group.
    pub(crate) fn cut(page: usize, asked: usize) -> usize {
        asked.min(GROUP_PAGES - page % GROUP_PAGES)
    }
}

impl Window {
    /// How many pages to bring in from `page` on. The group may have fewer of them.
    pub(crate) fn ask(&self, page: usize) -> usize {
        // relaxed: a hint.
        let word = self.0.load(Ordering::Relaxed);
        let (next, count) = unpack(word);
        let asked = if next == page && count > 0 { 2 * count } else { 1 };
        asked.min(GROUP_PAGES)
    }

    /// Notes that `done` of the `asked` pages from `page` on were brought in.
    pub(crate) fn tell(&self, page: usize, asked: usize, done: usize) {
        // relaxed: a hint.
        self.0.store(pack(page + done.max(1), asked), Ordering::Relaxed);
    }
}

/// The word of a window: the page after those brought in, and how many were asked for.
fn pack(next: usize, asked: usize) -> u64 {
    (next as u64) << COUNT_BITS | asked as u64
}

fn unpack(word: u64) -> (usize, usize) {
    ((word >> COUNT_BITS) as usize, (word & COUNT_MASK) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    proptest! {
        #[test]
        fn a_window_has_its_fields_back(next in 0usize..1 << 56, asked in 0..=GROUP_PAGES) {
            prop_assert_eq!(unpack(pack(next, asked)), (next, asked));
        }
    }

    /// The numbers of pages brought in along a walk of faults.
    fn walk(faults: &[usize]) -> Vec<usize> {
        let window = Window::default();
        let step = |&page: &usize| {
            let asked = window.ask(page);
            let done = Around::cut(page, asked);
            window.tell(page, asked, done);
            done
        };
        faults.iter().map(step).collect()
    }

    #[test]
    fn a_sequence_doubles_and_a_jump_starts_again() {
        assert_eq!(walk(&[7, 8, 10, 14, 22, 38, 64, 200, 201]), [1, 2, 4, 8, 16, 26, 64, 1, 2]);
        assert_eq!(walk(&[61, 62, 64, 68, 76, 92, 124, 128, 192]), [1, 2, 4, 8, 16, 32, 4, 64, 64]);
        assert_eq!(walk(&[5, 900, 17, 3]), [1, 1, 1, 1]);
    }

    #[test]
    fn threads_that_are_served_by_another_have_walks_of_their_own() {
        let around = Around::new(Quads::Never, Worth::measured(Duration::ZERO));
        let [one, other] = [7, 8].map(|thread| around.window(Asker::Message { thread }));
        one.tell(10, 1, 1);
        other.tell(500, 4, 4);
        assert_eq!((one.ask(11), other.ask(504), one.ask(504)), (2, 8, 1));
    }
}
