//! Ranges whose content the program has given up, and which may still be in memory.
//!
//! ```text
//!   madvise: event --> we read it --> the kernel takes the pages away --> madvise returns
//!                                 ^
//!                        a page that leaves here would come back with its old content
//! ```
//!
//! The kernel tells of `MADV_DONTNEED` before it takes the pages, and not when it has done so. A
//! page of such a range may leave again when it was seen missing, or when we put it there. With
//! `MADV_FREE` pages may stay for ever, with the old content or the new, so a range is forgotten
//! after `PATIENCE`.
//!
//! Invariant: a page that the kernel may still take away is in a range, unless its call takes
//! longer than `PATIENCE`. Lock: the caller's.

use std::ops::Range;
use std::time::{Duration, Instant};

/// How long a call may take from its event to its end.
const PATIENCE: Duration = Duration::from_secs(2);

/// The ranges, the oldest first.
#[derive(Default)]
pub(crate) struct Leaving(Vec<(Range<usize>, Instant)>);

impl Leaving {
    /// The content of a range was given up.
    pub(crate) fn add(&mut self, range: Range<usize>) {
        self.0.push((range, Instant::now()));
    }

    /// Pages of a range were missing, and were put there.
    pub(crate) fn came(&mut self, pages: &Range<usize>) {
        let overlaps = |one: &Range<usize>| one.start < pages.end && pages.start < one.end;
        if !self.0.iter().any(|(range, _)| overlaps(range)) {
            return;
        }
        let old = std::mem::take(&mut self.0);
        for (range, since) in old {
            let before = range.start..range.end.min(pages.start);
            let after = range.start.max(pages.end)..range.end;
            let parts = [before, after].into_iter().filter(|part| part.start < part.end);
            self.0.extend(parts.map(|part| (part, since)));
        }
    }

    /// Forgets the ranges that have left, so that they stay few.
    pub(crate) fn prune(&mut self, is_missing: impl Fn(&Range<usize>) -> bool) {
        self.0.retain(|(one, since)| since.elapsed() < PATIENCE && !is_missing(one));
    }

    /// Whether a page of a range may still be taken away. `is_missing` tells whether all of a range
    /// is missing; then it was taken away.
    pub(crate) fn touches(
        &mut self,
        range: &Range<usize>,
        is_missing: impl Fn(&Range<usize>) -> bool,
    ) -> bool {
        let overlaps = |one: &Range<usize>| one.start < range.end && range.start < one.end;
        self.0.retain(|(one, since)| {
            since.elapsed() < PATIENCE && !(overlaps(one) && is_missing(one))
        });
        self.0.iter().any(|(one, _)| overlaps(one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_since_is_no_longer_leaving() {
        let mut leaving = Leaving::default();
        leaving.add(10..20);
        leaving.add(15..30);
        leaving.came(&(12..17));
        let present = |_: &Range<usize>| false;
        assert!(leaving.touches(&(10..12), present));
        assert!(!leaving.touches(&(12..17), present));
        assert!(leaving.touches(&(19..40), present) && !leaving.touches(&(30..40), present));
        leaving.prune(present);
        assert!(leaving.touches(&(19..40), present), "it is there");
        leaving.came(&(0..100));
        assert!(!leaving.touches(&(0..100), present));
    }

    #[test]
    fn what_was_seen_missing_has_left() {
        let mut leaving = Leaving::default();
        leaving.add(10..20);
        leaving.add(40..50);
        assert!(!leaving.touches(&(15..16), |range| range.start == 10));
        assert!(leaving.touches(&(45..46), |range| range.start == 10));
    }
}
