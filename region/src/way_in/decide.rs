//! Decide: where a page is, and which pages come with it. The group's lock is taken here.
//!
//! ```text
//!   gone        nothing: no client waits for it
//!   resident    nothing: it came a moment ago
//!   untouched   zeros, with those that follow it        not ahead of time
//!   staged      from its segment, with the staged pages that follow it
//!   stored      fetched by another thread?  wait for that
//!               do neighbours pay?          its quad or stretch
//!               otherwise                   with the stored pages that follow it
//! ```
//!
//! Invariant: a page is brought in only under its group's lock, from the place that was read under
//! the same hold. So two threads never bring the same page (G1), and a page that is gone stays gone
//! (G5). A fetch from a disk gives the lock up, and G6 keeps the page in its place meanwhile.
//!
//! Locks: the group's. It goes on to `bring` and `account` together with the page.

use super::arrival::{Arrived, Why};
use crate::places::{Group, Place};
use crate::state::Folded;
use crate::terms::{AROUND_PAGES, GROUP_PAGES, RegionError};
use host::{LockGuard, PAGE_SIZE};
use std::ops::Range;

impl Folded {
    /// Brings in those of `pages` that a group has. Returns the page up to which it came. If
    /// nothing is registered, no page has left memory.
    ///
    /// # Errors
    ///
    /// [`RegionError::Unreadable`], unless the pages may stay out instead.
    pub(crate) fn bring_all(
        &self,
        index: usize,
        pages: &Range<usize>,
        why: Why,
    ) -> Result<usize, RegionError> {
        let all = self.chunks.pages_of(index);
        let mut page = pages.start.max(all.start);
        while page < pages.end.min(all.end) && self.chunks.is_registered(index) {
            if why.is_optional() && self.is_at_limit() {
                break;
            }
            page += match self.bring(page, AROUND_PAGES.min(pages.end - page), why) {
                Arrived::Pages(done) => done.max(1),
                Arrived::Present | Arrived::Gone => 1,
                Arrived::Later | Arrived::Failed(_) if why.is_optional() => break,
                Arrived::Later => 0,
                Arrived::Failed(_) => {
                    return Err(RegionError::Unreadable { byte: page * PAGE_SIZE });
                }
            };
        }
        Ok(page)
    }

    /// Brings a page in, and with it the pages that follow it in the same place, up to `max` in
    /// all.
    pub(super) fn bring(&self, page: usize, max: usize, why: Why) -> Arrived {
        let (index, at) = (page / GROUP_PAGES, page % GROUP_PAGES);
        let mut group = self.lock_faulted(index);
        let count = group.run(at, max.min(self.chunks.pages_of(index).end - page));
        match group.place(at) {
            Place::Gone => Arrived::Gone,
            Place::Resident => {
                // It came with others a moment ago. If that is not so, its thread would touch it
                // for ever.
                let lost = if why == Why::Fault { self.span.unreachable(page) } else { None };
                lost.map_or(Arrived::Present, Arrived::Failed)
            }
            Place::Untouched if why == Why::Ahead => Arrived::Present,
            Place::Untouched if why == Why::Along => Arrived::Later,
            Place::Untouched => self.bring_zeros(page, count, &mut group, why),
            Place::Staged => self.bring_staged(page, count, &mut group, why),
            Place::Stored => self.bring_stored(page, count, group, why),
        }
    }

    /// As `bring`, for stored pages whose group is locked.
    fn bring_stored(
        &self,
        page: usize,
        count: usize,
        mut group: LockGuard<'_, Group>,
        why: Why,
    ) -> Arrived {
        let (index, at) = (page / GROUP_PAGES, page % GROUP_PAGES);
        let count = count.min(group.unfetched_from(at));
        if count == 0 {
            let seen = self.shared.fetched.seen();
            drop(group);
            return self.after_fetch(seen, why);
        }
        if why == Why::Fault {
            let around = self.around_pays(index).max(self.block().min(AROUND_PAGES));
            if count < around
                && let Some(arrived) = self.bring_around(page, around, &mut group)
            {
                return arrived;
            }
        }
        // Some of those after it may have come meanwhile.
        let count = group.run(at, count);
        self.bring_run(page, count, group, why)
    }

    /// How many aligned pages around its page a fault brings in.
    fn around_pays(&self, index: usize) -> usize {
        let limit = self.limit.pages();
        match self.around.aligned(index, limit.is_some()) {
            around if around > 1 && limit.is_some_and(|limit| self.held() >= limit) => 1,
            around => around,
        }
    }

    /// Brings in the rest of the aligned block of a page that has come, if mappings are not to be
    /// split within it.
    pub(super) fn bring_block(&self, page: usize) {
        let block = self.block();
        let first = page - page % block;
        let end = (first + block).min(self.chunks.pages_of(page / GROUP_PAGES).end);
        let mut next = first;
        while block > 1 && next < end {
            next += match self.bring(next, AROUND_PAGES.min(end - next), Why::Beside) {
                Arrived::Pages(done) => done.max(1),
                Arrived::Present | Arrived::Gone | Arrived::Later | Arrived::Failed(_) => 1,
            };
        }
    }

    fn is_at_limit(&self) -> bool {
        self.limit.pages().is_some_and(|limit| self.held() >= limit)
    }
}
