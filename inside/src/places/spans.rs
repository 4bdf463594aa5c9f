//! What the program has in the arena: ranges of one kind each.
//!
//! ```text
//!   | Folds |  free  | Bare | Folds |     free      | Stays | ...
//! ```
//!
//! Other marks of memory are spans too, each in a value of its own.
//!
//! Invariant: spans do not overlap, and neighbours of one kind are one span. Lock: the caller's.

use super::terms::{GROUP, MAPPING_MIN, PAGE};
use core::ops::Range;
use std::collections::BTreeMap;

/// What may be done with the memory of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Private, anonymous, readable and writable: it folds.
    Folds,
    /// Private and anonymous with other access. It folds once it is readable and writable.
    Bare,
    /// Files, shared or locked memory, memory with advice of its own: it stays as it is.
    Stays,
}

/// From this length on, a new place has free addresses behind it, so that it can grow there.
const GROWS: usize = 16 << 20; // 16 MiB
const HUGE: usize = 2 << 20; // 2 MiB

/// All spans, by start.
#[derive(Debug)]
pub(crate) struct Spans<K = Kind>(BTreeMap<usize, (usize, K)>);

impl<K> Default for Spans<K> {
    fn default() -> Spans<K> {
        Spans(BTreeMap::new())
    }
}

impl<K: Copy + Eq> Spans<K> {
    /// The pieces of a range that are in spans, in order, with their kinds.
    pub(crate) fn pieces(
        &self,
        range: &Range<usize>,
    ) -> impl Iterator<Item = (Range<usize>, K)> + use<'_, K> {
        let (start, end) = (range.start, range.end);
        let first = self.0.range(..=start).next_back().map_or(start, |(&at, _)| at);
        let touching = self.0.range(first..end.max(first));
        let cut = move |(&at, &(until, kind)): (&usize, &(usize, K))| {
            (at.max(start)..until.min(end), kind)
        };
        touching.map(cut).filter(|(piece, _)| piece.start < piece.end)
    }

    /// The kind of the memory at an address.
    pub(crate) fn kind(&self, address: usize) -> Option<K> {
        let page = address & !(PAGE - 1);
        self.pieces(&(page..page + PAGE)).next().map(|(_, kind)| kind)
    }

    /// Whether nothing is in a range.
    pub(crate) fn is_free(&self, range: &Range<usize>) -> bool {
        self.pieces(range).next().is_none()
    }

    /// Whether all of a range is of one kind.
    pub(crate) fn is_all(&self, range: &Range<usize>, kind: K) -> bool {
        let mut pieces = self.pieces(range);
        pieces.next() == Some((range.clone(), kind))
    }

    /// Makes a range free.
    pub(crate) fn remove(&mut self, range: &Range<usize>) {
        let pieces: Vec<_> = self.pieces(range).map(|(piece, _)| piece).collect();
        for piece in pieces {
            let Some((&at, &(until, kind))) = self.0.range(..=piece.start).next_back() else {
                continue;
            };
            self.0.remove(&at);
            if at < piece.start {
                self.0.insert(at, (piece.start, kind));
            }
            if piece.end < until {
                self.0.insert(piece.end, (until, kind));
            }
        }
    }

    /// Notes that a range is of a kind.
    pub(crate) fn set(&mut self, range: &Range<usize>, kind: K) {
        if range.is_empty() {
            return;
        }
        self.remove(range);
        let (mut start, mut end) = (range.start, range.end);
        if let Some((&at, &(until, before))) = self.0.range(..start).next_back()
            && (until, before) == (start, kind)
        {
            start = at;
        }
        if let Some(&(until, after)) = self.0.get(&end)
            && after == kind
        {
            self.0.remove(&end);
            end = until;
        }
        self.0.insert(start, (end, kind));
    }

    /// Changes the kind of what is of another kind in a range.
    pub(crate) fn turn(&mut self, range: &Range<usize>, from: K, to: K) {
        let pieces: Vec<_> = self.pieces(range).filter(|(_, kind)| *kind == from).collect();
        pieces.iter().for_each(|(piece, _)| self.set(piece, to));
    }

    /// The lowest free place for `len` bytes in a range; `None` if there is none. Only small ones
    /// share a group.
    pub(crate) fn place(&self, len: usize, within: &Range<usize>) -> Option<usize> {
        let align = match len {
            HUGE.. => HUGE,
            MAPPING_MIN.. => GROUP,
            _ => PAGE,
        };
        let slack = if len >= GROWS { len / 2 } else { 0 };
        let wanted = len.checked_add(slack)?;
        let mut at = within.start.next_multiple_of(align);
        for (&start, &(end, _)) in self.0.range(within.clone()) {
            if at.checked_add(wanted)? <= start {
                return Some(at);
            }
            at = at.max(end.next_multiple_of(align));
        }
        (at.checked_add(len)? <= within.end).then_some(at)
    }

    /// All spans.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Range<usize>, K)> + use<'_, K> {
        self.0.iter().map(|(&start, &(end, kind))| (start..end, kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn kind() -> impl Strategy<Value = Option<Kind>> {
        prop_oneof![Just(None), Just(Some(Kind::Folds)), Just(Some(Kind::Bare))]
    }

    proptest! {
        #[test]
        fn spans_are_a_map_of_pages(
            steps in prop::collection::vec((0usize..300, 1usize..60, kind()), 1..80),
        ) {
            let (mut spans, mut twin) = (Spans::<Kind>::default(), HashMap::new());
            for (at, len, kind) in steps {
                let range = at * PAGE..(at + len) * PAGE;
                for page in at..at + len {
                    match kind {
                        Some(kind) => drop(twin.insert(page, kind)),
                        None => drop(twin.remove(&page)),
                    }
                }
                match kind {
                    Some(kind) => spans.set(&range, kind),
                    None => spans.remove(&range),
                }
                for page in 0..400 {
                    prop_assert_eq!(spans.kind(page * PAGE + 9), twin.get(&page).copied());
                }
                let all: Vec<_> = spans.all().collect();
                let apart = all.windows(2).all(|two| {
                    two[0].0.end < two[1].0.start
                        || two[0].0.end == two[1].0.start && two[0].1 != two[1].1
                });
                prop_assert!(apart, "{:?}", all);
            }
        }
    }

    #[test]
    fn a_place_is_the_lowest_that_is_free() {
        let mut spans = Spans::default();
        let within = GROUP..1 << 30;
        assert_eq!(spans.place(PAGE, &within), Some(GROUP));
        spans.set(&(GROUP..GROUP + PAGE), Kind::Bare);
        assert_eq!(spans.place(PAGE, &within), Some(GROUP + PAGE), "small ones lie together");
        assert_eq!(spans.place(MAPPING_MIN, &within), Some(2 * GROUP));
        spans.set(&(HUGE..2 * HUGE), Kind::Folds);
        assert_eq!(spans.place(HUGE, &within), Some(2 * HUGE));
        assert_eq!(spans.place(3 * GROUP, &within), Some(2 * GROUP));
        assert_eq!(spans.place(1 << 30, &within), None);
        assert_eq!(spans.place(usize::MAX - PAGE, &within), None);
        spans.set(&(64 << 20..65 << 20), Kind::Folds);
        assert_eq!(spans.place(48 << 20, &within), Some(66 << 20), "room to grow");
        spans.turn(&(0..1 << 30), Kind::Folds, Kind::Stays);
        assert!(spans.is_all(&(HUGE..2 * HUGE), Kind::Stays) && !spans.is_free(&within));
    }
}
