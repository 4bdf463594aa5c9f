//! An engine in the hands of an heir: a forked child that goes on with its copy of our memory.
//!
//! ```text
//!   book, trays, store, queues     stay as they are, copy-on-write
//!   descriptor, files              are the parent's: new ones take their places
//!   registered ranges              none in the child: each is registered again, if it is there
//! ```
//!
//! The kernel has left some memory out (`MADV_DONTFORK`), and made some empty
//! (`MADV_WIPEONFORK`). Pages of such memory that are out are forgotten.
//!
//! Invariant: when `inherit` is done, the book is true of the child (B1, B2), so the program's
//! thread may go on.
//!
//! Lock: the engine's state, for all of it.

use super::engine::{Engine, State};
use super::leaving::Leaving;
use crate::floor::gate;
use crate::kernel::{Mapping, Resident, Uffd, lost};
use crate::places::{News, PAGE};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// How often a range is asked for again that the parent has not given up yet, by moments of 1 ms.
const PATIENCE: u32 = 20_000;

impl Engine {
    /// Goes on in a child, whose memory is in `mappings`. The pages `early` are in place, although
    /// the book says that they are out.
    ///
    /// # Safety
    ///
    /// - The process is a child whose copy of the engine is whole.
    /// - No other thread uses the engine, and no thread of the program runs.
    pub(crate) unsafe fn inherit(
        engine: *mut Engine,
        (uffd, resident): (Uffd, Resident),
        mappings: &[Mapping],
        early: &[usize],
    ) {
        // SAFETY: the caller's contract: nothing else refers to the engine.
        let engine = unsafe { &mut *engine };
        // The numbers in the old ones are of the parent's table: they are not to be closed here.
        std::mem::forget(std::mem::replace(&mut engine.uffd, uffd));
        std::mem::forget(std::mem::replace(&mut engine.resident, resident));
        // relaxed: there is one thread, and others are made or woken after this.
        engine.awaited.store(0, Ordering::Relaxed);
        // relaxed: as above.
        engine.forks.fetch_add(1, Ordering::Relaxed);
        engine.store.begin_anew();
        let state = &mut *engine.state.lock();
        state.begin_anew();
        for &page in early {
            engine.forget(&mut state.book, &(page..page + PAGE), false);
        }
        let registered: Vec<Range<usize>> = state.book.all_registered().collect();
        for range in registered {
            engine.inherit_range(state, &range, mappings);
        }
        engine.register_again(&state.trays.all());
        gate::closed().iter().for_each(|pages| engine.register_again(pages));
    }

    /// Registers what the child has of a range, and forgets what it does not have.
    fn inherit_range(&self, state: &mut State, range: &Range<usize>, mappings: &[Mapping]) {
        let mut at = range.start;
        for part in kept(range, mappings) {
            self.forget(&mut state.book, &(at..part.start), true);
            self.register_again(&part);
            at = part.end;
        }
        self.forget(&mut state.book, &(at..range.end), true);
    }

    /// Registers a range that the parent's descriptor for this child had, and which it gives up.
    fn register_again(&self, range: &Range<usize>) {
        for _ in 0..PATIENCE {
            match self.uffd.register(range) {
                Ok(()) => return,
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                Err(_) => break,
            }
        }
        lost("its memory cannot be registered after a fork");
    }
}

impl State {
    /// Forgets what was under way in the parent: no call of the child's program is.
    fn begin_anew(&mut self) {
        self.leaving = Leaving::default();
        self.news = News::default();
        self.compressing = None;
        self.trays.share();
    }
}

/// The parts of a range that the child has, in order and apart from each other.
fn kept(range: &Range<usize>, mappings: &[Mapping]) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    for mapping in mappings.iter().filter(|mapping| !mapping.wiped) {
        let start = mapping.range.start.max(range.start);
        let end = mapping.range.end.min(range.end);
        if start >= end {
            continue;
        }
        match parts.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => parts.push(start..end),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wiped_or_left_out_is_not_kept() {
        let mapping = |range, wiped| Mapping { range, wiped, served: true };
        let mappings = [
            mapping(10..20, false),
            mapping(20..30, false),
            mapping(30..40, true),
            mapping(40..50, false),
            mapping(60..90, false),
        ];
        assert_eq!(kept(&(15..70), &mappings), [15..30, 40..50, 60..70]);
        assert_eq!(kept(&(30..40), &mappings), []);
        assert_eq!(kept(&(50..60), &mappings), []);
        assert_eq!(kept(&(10..30), &mappings), vec![10..30; 1]);
    }
}
