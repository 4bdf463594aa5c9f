//! What the kernel tells of memory that went or moved, in an order that the book can take.
//!
//! ```text
//!   one thread    REMAP D -> X    UNMAP D            a move, and the end of the old place
//!   another       REMAP E -> D    UNMAP E            the four may be told in any order
//!   a third       REMAP A -> B                       A stays (MREMAP_DONTUNMAP): no end is told
//! ```
//!
//! - A move to a place that is taken in the book waits: the news that the place is free is on its
//!   way. Until it is read, the kernel moves no page.
//! - The end of a place that memory left says nothing of other memory that has come there. But
//!   perhaps that memory is what ended, because the place had stayed. Nobody can tell while news is
//!   on its way, so it is doubtful until all was read. Then the kernel's list of mappings tells.
//! - What ends at the old place of a move that waits is not what moved. It waits for the move.
//!
//! Invariant: a range is forgotten only if no later news is needed to know what was there.
//!
//! Lock: the caller's, that of the book.

use super::Book;
use std::ops::Range;

/// What the book is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Words go along with memory that moved.
    Move { from: usize, to: usize, len: usize },
    /// The content of a range is gone; it may have been unmapped.
    Forget { range: Range<usize>, unmapped: bool },
}

/// News that has to wait.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Places that memory left. Their ends will be told, except of those that stayed.
    vacated: Vec<Range<usize>>,
    /// Moves to places that are not free yet: from, to and length.
    postponed: Vec<(usize, usize, usize)>,
    /// What ended at places from which such a move goes.
    later: Vec<(Range<usize>, bool)>,
    /// Places that ended, where it is not known what was there.
    doubtful: Vec<Range<usize>>,
}

fn meet(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

impl News {
    /// Whether the book may be behind what the kernel has. Then no page may leave.
    pub(crate) fn is_unsettled(&self) -> bool {
        !self.postponed.is_empty() || !self.doubtful.is_empty()
    }

    /// Whether it waits for more news, or for the moment in which there is none.
    pub(crate) fn waits(&self) -> bool {
        self.is_unsettled() || !self.vacated.is_empty()
    }

    /// Whether it has to be known which memory the kernel serves.
    pub(crate) fn doubts(&self) -> bool {
        !self.doubtful.is_empty()
    }

    /// Memory moved.
    pub(crate) fn moved(&mut self, from: usize, to: usize, len: usize) {
        self.vacated.push(from..from + len);
        self.postponed.push((from, to, len));
    }

    /// A range was unmapped, or its content was given up. True if it is to be forgotten now.
    pub(crate) fn ended(&mut self, book: &Book, range: &Range<usize>, unmapped: bool) -> bool {
        let sources = || self.postponed.iter().map(|&(from, _, len)| from..from + len);
        let vacated = self.vacated.iter().position(|one| unmapped && one == range);
        if let Some(at) = vacated {
            // Its own words are there still, if its move waits.
            let is_own = sources().any(|source| source == *range);
            if !is_own && book.is_any_registered(range) {
                self.doubtful.push(range.clone());
            }
            self.vacated.swap_remove(at);
            return false;
        }
        if sources().any(|source| meet(&source, range)) {
            self.later.push((range.clone(), unmapped));
            return false;
        }
        true
    }

    /// What the book can do now: it is asked again after each step.
    pub(crate) fn next(&mut self, book: &Book) -> Option<Step> {
        let is_free =
            |&(_, to, len): &(usize, usize, usize)| !book.is_any_registered(&(to..to + len));
        if let Some(at) = self.postponed.iter().position(is_free) {
            let (from, to, len) = self.postponed.remove(at);
            return Some(Step::Move { from, to, len });
        }
        if !self.postponed.is_empty() || self.later.is_empty() {
            return None;
        }
        let (range, unmapped) = self.later.remove(0);
        Some(Step::Forget { range, unmapped })
    }

    /// No more news is on its way. So the places of moves are free although the book does not know
    /// it, places of which no end was told have stayed, and where it was doubtful what ended, only
    /// what is served there is left.
    pub(crate) fn all_was_told(&mut self, served: &[Range<usize>]) -> Vec<Step> {
        let mut steps = Vec::new();
        for (from, to, len) in std::mem::take(&mut self.postponed) {
            steps.push(Step::Forget { range: to..to + len, unmapped: true });
            steps.push(Step::Move { from, to, len });
        }
        let forget = |(range, unmapped)| Step::Forget { range, unmapped };
        steps.extend(std::mem::take(&mut self.later).into_iter().map(forget));
        for range in std::mem::take(&mut self.doubtful) {
            steps.extend(without(&range, served).into_iter().map(|part| forget((part, true))));
        }
        self.vacated.clear();
        steps
    }
}

/// The parts of a range that are in none of the others, which are in order.
fn without(range: &Range<usize>, others: &[Range<usize>]) -> Vec<Range<usize>> {
    let (mut parts, mut at) = (Vec::new(), range.start);
    for other in others.iter().filter(|other| meet(other, range)) {
        if at < other.start {
            parts.push(at..other.start);
        }
        at = at.max(other.end);
    }
    if at < range.end {
        parts.push(at..range.end);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::{PAGE, Word};

    const LEN: usize = 4 * PAGE;
    const D: usize = 16 * PAGE;
    const E: usize = 32 * PAGE;
    const X: usize = 48 * PAGE;
    const Y: usize = 64 * PAGE;

    struct Told {
        book: Book,
        news: News,
    }

    fn at(place: usize) -> Range<usize> {
        place..place + LEN
    }

    /// Each of these has a page that is out, with a word of its own.
    fn told(places: &[usize]) -> Told {
        let mut told = Told { book: Book::default(), news: News::default() };
        for &place in places {
            told.book.registered(&at(place));
            told.book.set(place, Word::slot(place as u32));
        }
        told
    }

    impl Told {
        fn act(&mut self, step: Step) {
            match step {
                Step::Move { from, to, len } => self.book.moved(from, to, len),
                Step::Forget { range, unmapped } => {
                    self.book.forget(&range);
                    if unmapped {
                        self.book.unregistered(&range);
                    }
                }
            }
        }

        fn settle(&mut self) {
            while let Some(step) = self.news.next(&self.book) {
                self.act(step);
            }
        }

        fn moved(&mut self, from: usize, to: usize) {
            self.news.moved(from, to, LEN);
            self.settle();
        }

        fn ended(&mut self, range: Range<usize>) {
            if self.news.ended(&self.book, &range, true) {
                self.act(Step::Forget { range, unmapped: true });
            }
            self.settle();
        }

        fn all_was_told(&mut self, served: &[Range<usize>]) {
            let steps = self.news.all_was_told(served);
            steps.into_iter().for_each(|step| self.act(step));
        }

        /// Whose word is at a place, and whether it is registered.
        fn has(&self, place: usize) -> (Word, bool) {
            (self.book.word(place), self.book.is_registered(&at(place)))
        }
    }

    const FREE: (Word, bool) = (Word::PROGRAM, false);

    fn of(place: usize) -> (Word, bool) {
        (Word::slot(place as u32), true)
    }

    /// Three threads make moves in this order: D -> X, E -> D, D -> Y. Each tells of its move and
    /// then of the end. The news of the last move comes after that of the two others.
    #[test]
    fn memory_that_moves_on_is_found_whatever_is_told_first() {
        let moves = [(D, X), (E, D), (D, Y)];
        let mut orders = vec![Vec::new()];
        for _ in 0..2 * moves.len() {
            let longer = |order: Vec<usize>| {
                let may = |thread: &usize| order.iter().filter(|it| *it == thread).count() < 2;
                let next: Vec<usize> = (0..moves.len()).filter(may).collect();
                next.into_iter().map(move |thread| [&order[..], &[thread]].concat())
            };
            orders = orders.into_iter().flat_map(longer).collect();
        }
        let is_of_kernel = |order: &&Vec<usize>| {
            let first = |thread| order.iter().position(|it| *it == thread);
            first(1) < first(2) && first(0) < first(2)
        };
        let orders: Vec<_> = orders.iter().filter(is_of_kernel).collect();
        assert!(orders.len() > 10, "{}", orders.len());
        for order in orders {
            let mut told = told(&[D, E]);
            let mut heard = [0; 3];
            for &thread in order {
                let (from, to) = moves[thread];
                match heard[thread] {
                    0 => told.moved(from, to),
                    _ => told.ended(at(from)),
                }
                heard[thread] += 1;
            }
            told.all_was_told(&[at(X), at(Y)]);
            let all = [D, E, X, Y].map(|place| told.has(place));
            assert_eq!(all, [FREE, FREE, of(D), of(E)], "{order:?}");
            assert!(!told.news.waits(), "{order:?}");
        }
    }

    #[test]
    fn a_place_that_stayed_ends_as_any_other() {
        for is_known in [false, true] {
            let mut told = told(&[D, E]);
            told.moved(D, X);
            if is_known {
                told.all_was_told(&[]);
            }
            told.ended(D..D + LEN / 2);
            told.ended(D + LEN / 2..D + LEN);
            told.moved(E, D);
            told.ended(at(E));
            assert_eq!([D, X].map(|place| told.has(place)), [of(E), of(D)]);
            told.ended(at(D));
            assert_eq!(told.news.is_unsettled(), !is_known, "other memory may have come there");
            told.all_was_told(&[at(X)]);
            assert_eq!([D, X].map(|place| told.has(place)), [FREE, of(D)]);
        }
    }

    #[test]
    fn of_a_doubtful_place_what_is_served_stays() {
        let mut told = told(&[D, E]);
        told.moved(D, X);
        told.moved(E, D);
        told.book.set(D + 3 * PAGE, Word::slot(7));
        told.ended(at(D));
        assert!(told.news.doubts());
        told.all_was_told(&[D - PAGE..D + PAGE, D + 2 * PAGE..D + 3 * PAGE]);
        assert_eq!(told.book.word(D), Word::slot(E as u32));
        assert_eq!(told.book.word(D + 3 * PAGE), Word::PROGRAM);
        let left: Vec<_> = told.book.all_registered().filter(|it| meet(it, &at(D))).collect();
        assert_eq!(left, [D..D + PAGE, D + 2 * PAGE..D + 3 * PAGE]);
    }

    /// The place of a move that waits has other memory by now.
    #[test]
    fn what_ends_where_a_move_waits_is_not_what_moved() {
        let mut told = told(&[D, X]);
        told.moved(D, X);
        told.ended(at(D));
        assert!(!told.news.doubts(), "that is the move's own news");
        told.ended(D..D + PAGE);
        assert!(!told.news.ended(&told.book, &(D..D + PAGE), false), "it was given up");
        assert_eq!(told.has(D), of(D), "it waits");
        told.ended(at(X));
        assert_eq!([D, X].map(|place| told.has(place)), [FREE, of(D)]);
        assert!(!told.news.is_unsettled());
    }
}
