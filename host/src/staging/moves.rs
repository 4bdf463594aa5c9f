//! Pages that move from a span to a segment, and come back from one.
//!
//! Invariants: S1 of [`Span`], and G1 and G2 of `segments`. Lock: none. The caller owns the
//! segment, and sees to it that one thread at a time moves a page of the span.

use super::segments::Segment;
use crate::folding::{Span, Stop, Transfer, Way, transfer};
use crate::machine::PAGE_SIZE;

impl Span {
    /// Moves `count` pages from page `first` of the span on to the same number of places of a
    /// segment, from place `at` on. All pages must be registered.
    ///
    /// Linux 6.18 can move a page without counting it, if the page is in the system's swap or
    /// changes meanwhile. It then goes on to the same page, and says that its place is taken. The
    /// place was empty, because only this code puts pages there, and it knows which (G1). The page
    /// that stands there is therefore the one that was to move, and it counts as moved. The same
    /// may be true of the pages after it. If the segment is strewn (G2), the place proves nothing.
    /// The page then counts as moved if it is gone from the span.
    ///
    /// # Panics
    ///
    /// If the span has no such pages, or the segment no such places: a broken caller.
    pub fn move_out(&self, first: usize, count: usize, to: &mut Segment, at: usize) -> Transfer {
        let mut done = 0;
        loop {
            let moved = self.move_some(first + done, count - done, to, at + done);
            done += moved.pages;
            if moved.stop != Some(Stop::Present) || to.has(at + done, 1) {
                return Transfer { pages: done, stop: moved.stop };
            }
            if to.is_strewn() && self.touched(first + done..first + done + 1) != Some(0) {
                // The system has filled the place, because the program locks its memory.
                return Transfer { pages: done, stop: Some(Stop::Present) };
            }
            to.arrived(at + done, 1);
            done += 1;
        }
    }

    fn move_some(&self, first: usize, count: usize, to: &mut Segment, at: usize) -> Transfer {
        let from = self.addresses(&(first..first + count));
        let place = to.addresses(at, count);
        // SAFETY, of both ways: both are parts of mappings of ours. The client's half faults until
        // the pages are back (S1). In staging, `present` says which pages are there.
        let moved = match self.path.way() {
            Way::Userfault(uffd) => transfer(count, |done| {
                let skip = done * PAGE_SIZE;
                // SAFETY: as above; `register` and `Staging` have registered both.
                unsafe { uffd.move_pages(place.start + skip, from.start + skip, count - done) }
            }),
            Way::Closing(closing) => {
                // SAFETY: as above; nothing refers to places of a segment where no page is.
                unsafe { closing.move_out(place.start, from.start, count) }
            }
        };
        to.arrived(at, moved.pages);
        if moved.pages < count {
            to.may_have_more();
        }
        moved
    }

    /// Puts copies of `count` pages of a segment, from place `at` on, in the place of missing pages
    /// of the span, from page `first` on. Threads that wait for them are woken.
    ///
    /// # Panics
    ///
    /// If the span has no such pages, or not all of the pages are in the segment: a broken caller.
    ///
    /// # Safety
    ///
    /// The conditions are those of [`Span::fill`]. They hold if each page in the segment was moved
    /// there from the same page of the span, by the last move of that page.
    ///
    /// ```compile_fail,E0133
    /// use ramfold_host::{Segment, Span, Transfer};
    /// fn safe(span: &Span, segment: &Segment) -> Transfer {
    ///     span.fill_from(0, 1, segment, 0)
    /// }
    /// ```
    pub unsafe fn fill_from(
        &self,
        first: usize,
        count: usize,
        from: &Segment,
        at: usize,
    ) -> Transfer {
        assert!(from.has(at, count), "the pages are in the segment");
        // SAFETY: the pages are present in a borrowed segment. By the caller's contract they are
        // the client's own.
        unsafe { self.copy_in(first, count, from.addresses(at, count).start) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folding::{FaultMode, FaultPath};
    use crate::staging::Staging;

    /// The state is the one that the system leaves if it moves a page and does not count it.
    #[test]
    fn a_page_that_was_moved_without_a_word_is_moved() {
        let path = match FaultPath::open(FaultMode::Signal) {
            Ok(path) => path,
            Err(error) => return eprintln!("skipped: needs {error}"),
        };
        let (span, mut memory) = Span::reserve(&path, 4).expect("a span");
        let bytes = memory.bytes_mut(0..4 * PAGE_SIZE).expect("all of it");
        bytes.chunks_mut(PAGE_SIZE).enumerate().for_each(|(at, page)| page.fill(at as u8 + 1));
        span.register(0..4).expect("registered");
        let staging = Staging::reserve(&path, 1).expect("staging");
        let mut segment = staging.take().expect("taken back").expect("free");
        let (to, from) = (segment.addresses(1, 1).start, span.addresses(&(1..2)).start);
        // SAFETY: both are registered; nothing refers to the page any more.
        let moved = unsafe { path.uffd().expect("signal mode").move_pages(to, from, 1) };
        assert_eq!(moved, crate::folding::Progress { pages: 1, stopped: None });
        let moved = span.move_out(0, 4, &mut segment, 0);
        assert_eq!(moved, Transfer { pages: 4, stop: None });
        assert!((0..4).all(|at| segment.page(at).is_some_and(|page| page[9] == at as u8 + 1)));
        drop(segment);
        let mut again = staging.take().expect("taken back").expect("it is empty");
        // SAFETY: nothing is borrowed of the span's memory, nor was when the page left.
        assert_eq!(unsafe { span.fill(0, &[7; PAGE_SIZE]) }.pages, 1);
        let moved = span.move_out(0, 1, &mut again, 0);
        assert_eq!(moved, Transfer { pages: 1, stop: None });
        // A place that is known to be taken is refused, and the page stays.
        // SAFETY: as above.
        assert_eq!(unsafe { span.fill(0, &[8; PAGE_SIZE]) }.pages, 1);
        let moved = span.move_out(0, 1, &mut again, 0);
        assert_eq!(moved, Transfer { pages: 0, stop: Some(Stop::Present) });
        assert_eq!(memory.bytes(0..1), Some(&[8][..]));
    }
}
