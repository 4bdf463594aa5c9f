//! What the kernel tells of memory that went or moved, in an order that the book can take.
//!
//! ```text
//!   one thread    REMAP D -> X    UNMAP D            a move, and the end of the old place
//!   another       REMAP E -> D    UNMAP E            the two threads' news, in any order
//!   a third       REMAP A -> B                       A stays (MREMAP_DONTUNMAP): no end is told
//! ```
//!
//! - A move to a place that is taken in the book waits: the news that the place is free is on its
//!   way. Until it is read, the kernel moves no page.
//! - The end of a place that memory left says nothing of other memory that has come there. But
//!   perhaps that memory is what ended, because the place had stayed. Nobody can tell while news is
//!   on its way, so it is doubtful until all was read. Then the kernel's list of mappings tells.
//! - What ends at the old place of a move that waits is not what moved. It waits for the move. It
//!   comes before what is told later of that place.
//!
//! One order cannot be known from the news. A thread takes memory from a place, and is held up
//! before it can tell. Another one gets that place, uses it, and does a second call about it, all
//! before the first is told. Then the second call is taken for one about the older memory.
//!
//! Invariant: a range is forgotten only if no news that waits is about what was there.
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

impl Step {
    /// Where memory was that moved.
    fn source(&self) -> Option<Range<usize>> {
        match *self {
            Step::Move { from, len, .. } => Some(from..from + len),
            Step::Forget { .. } => None,
        }
    }

    /// Whether it is about a part of a range.
    fn meets(&self, range: &Range<usize>) -> bool {
        match self {
            Step::Move { from, to, len } => {
                meet(&(*from..from + len), range) || meet(&(*to..to + len), range)
            }
            Step::Forget { range: own, .. } => meet(own, range),
        }
    }

    /// Whether an earlier step has to be done before this one. Moves are done in the order in which
    /// their places become free, except if they have one source.
    fn waits_for(&self, earlier: &Step) -> bool {
        match self {
            Step::Forget { range, .. } => earlier.meets(range),
            Step::Move { .. } => {
                let sources = self.source().zip(earlier.source());
                sources.is_some_and(|(own, other)| meet(&own, &other))
            }
        }
    }
}

/// News that has to wait.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Places that memory left. Their ends will be told, except of those that stayed.
    vacated: Vec<Range<usize>>,
    /// Moves to places that are not free yet, and what ended at places of such moves, as told.
    waiting: Vec<Step>,
    /// Places that ended, where it is not known what was there.
    doubtful: Vec<Range<usize>>,
}

fn meet(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

impl News {
    /// Whether the book may be behind what the kernel has. Then no page may leave.
    pub(crate) fn is_unsettled(&self) -> bool {
        !self.waiting.is_empty() || !self.doubtful.is_empty()
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
        self.waiting.push(Step::Move { from, to, len });
    }

    /// A range was unmapped, or its content was given up. True if it is to be forgotten now.
    pub(crate) fn ended(&mut self, book: &Book, range: &Range<usize>, unmapped: bool) -> bool {
        let sources = || self.waiting.iter().filter_map(Step::source);
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
        // The end of what is at the new place of a move is what the move waits for.
        let waits = match unmapped {
            true => sources().any(|source| meet(&source, range)),
            false => self.waiting.iter().any(|step| step.meets(range)),
        };
        if waits {
            self.waiting.push(Step::Forget { range: range.clone(), unmapped });
        }
        !waits
    }

    /// What the book can do now: it is asked again after each step.
    pub(crate) fn next(&mut self, book: &Book) -> Option<Step> {
        let may = |at: usize| {
            let step = &self.waiting[at];
            let is_free = match *step {
                Step::Move { to, len, .. } => !book.is_any_registered(&(to..to + len)),
                Step::Forget { .. } => true,
            };
            is_free && !self.waiting[..at].iter().any(|earlier| step.waits_for(earlier))
        };
        let at = (0..self.waiting.len()).find(|&at| may(at))?;
        Some(self.waiting.remove(at))
    }

    /// No more news is on its way. So the places of moves are free although the book does not know
    /// it, places of which no end was told have stayed, and where it was doubtful what ended, only
    /// what is served there is left.
    pub(crate) fn all_was_told(&mut self, served: &[Range<usize>]) -> Vec<Step> {
        let mut steps = Vec::new();
        while let Some(step) = self.first_of_the_rest() {
            if let Step::Move { to, len, .. } = step {
                steps.push(Step::Forget { range: to..to + len, unmapped: true });
            }
            steps.push(step);
        }
        for range in std::mem::take(&mut self.doubtful) {
            let parts = without(&range, served).into_iter();
            steps.extend(parts.map(|range| Step::Forget { range, unmapped: true }));
        }
        self.vacated.clear();
        steps
    }

    /// Of what waits, the step that is done first when no place becomes free any more: memory goes
    /// from a place before other memory comes there, except if they go round.
    fn first_of_the_rest(&mut self) -> Option<Step> {
        let may = |at: usize| {
            let step = &self.waiting[at];
            let others = self.waiting.iter().enumerate().filter(|&(other, _)| other != at);
            let mut sources = others.filter_map(|(_, other)| other.source());
            let is_left = match *step {
                Step::Move { to, len, .. } => !sources.any(|it| meet(&it, &(to..to + len))),
                Step::Forget { .. } => true,
            };
            is_left && !self.waiting[..at].iter().any(|earlier| step.waits_for(earlier))
        };
        let at = (0..self.waiting.len()).find(|&at| may(at)).unwrap_or(0);
        (!self.waiting.is_empty()).then(|| self.waiting.remove(at))
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

    /// One thread moves D to X. Another moves E to D, and then D to Y: it knows its new place when
    /// both of its news were read. The first has told of its move by then, and not of the end.
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
        let nth = |order: &Vec<usize>, move_, nth| {
            let mut places = order.iter().enumerate().filter(move |it| *it.1 == move_);
            places.nth(nth).map(|(place, _)| place)
        };
        let may_be = |order: &&Vec<usize>| {
            let next = nth(order, 2, 0);
            nth(order, 1, 1) < next && nth(order, 0, 0) < next
        };
        let orders: Vec<_> = orders.iter().filter(may_be).collect();
        assert_eq!(orders.len(), 12);
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

    /// A place stayed and ended in parts while the move from it waited, and other memory came.
    #[test]
    fn what_comes_to_a_place_later_is_not_what_ended_there() {
        for last in [false, true] {
            let mut told = told(&[D, E, X]);
            told.moved(D, X);
            told.ended(D..D + LEN / 2);
            told.ended(D + LEN / 2..D + LEN);
            told.moved(E, D);
            told.ended(at(E));
            if last {
                told.all_was_told(&[at(D), at(X)]);
            } else {
                told.ended(at(X));
            }
            let all = [D, E, X].map(|place| told.has(place));
            assert_eq!(all, [of(E), FREE, of(D)], "{last}");
        }
    }

    /// What is given up at the new place of a move that waits is what moved.
    #[test]
    fn what_is_given_up_after_a_move_waits_for_it() {
        let mut told = told(&[D, X]);
        told.moved(D, X);
        assert!(!told.news.ended(&told.book, &at(X), false));
        told.ended(at(X));
        assert_eq!([D, X].map(|place| told.has(place)), [FREE, (Word::PROGRAM, true)]);
    }

    /// No news comes of the place to which the first memory moves.
    #[test]
    fn memory_goes_from_a_place_before_other_memory_comes_there() {
        for moves in [[(D, X), (E, D)], [(E, D), (D, X)]] {
            let mut told = told(&[D, E, X]);
            moves.iter().for_each(|&(from, to)| told.moved(from, to));
            assert_eq!([D, E, X].map(|place| told.has(place)), [of(D), of(E), of(X)]);
            told.all_was_told(&[]);
            assert_eq!([D, E, X].map(|place| told.has(place)), [of(E), FREE, of(D)], "{moves:?}");
        }
        let mut told = told(&[D, E]);
        told.moved(D, E);
        told.moved(E, D);
        told.all_was_told(&[]);
        assert!(!told.news.waits(), "they go round");
    }

    /// Two moves from one place are done in the order in which they were told.
    #[test]
    fn a_move_does_not_overtake_another_from_its_place() {
        let mut told = told(&[D, E, X]);
        told.moved(D, X);
        told.moved(E, D);
        told.moved(D, Y);
        assert_eq!(told.has(Y), FREE, "it waits");
        told.ended(at(X));
        assert_eq!([D, X, Y].map(|place| told.has(place)), [FREE, of(D), of(E)]);
    }
}
