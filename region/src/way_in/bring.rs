//! Bring: the content of pages is found and put in place.
//!
//! ```text
//!              untouched       staged            stored
//!   page        zeros --.   copy in staging   decode to a buffer
//!                       `--------> COPY <----------'  |
//!                                    ^-- `disk` <-----' on a disk
//! ```
//!
//! Locks: the group's is held, and given up before a disk is read; then a buffer's.

use super::arrival::{Arrived, Why};
use crate::neighbours::is_watched;
use crate::places::{Group, Place, bits};
use crate::resources::Read;
use crate::state::Folded;
use crate::terms::GROUP_PAGES;
use host::{LockGuard, PAGE_SIZE, Transfer};
use std::time::Instant;

impl Folded {
    /// Brings in pages that no thread has touched.
    pub(super) fn bring_zeros(
        &self,
        page: usize,
        count: usize,
        group: &mut Group,
        why: Why,
    ) -> Arrived {
        let transfer = self.put_untouched(page, self.shared.buffers.zeros(count));
        self.arrive(page, group, Place::Untouched, transfer, why)
    }

    /// Brings in pages from their group's segment.
    pub(super) fn bring_staged(
        &self,
        page: usize,
        count: usize,
        group: &mut Group,
        why: Why,
    ) -> Arrived {
        let transfer = match group.segment() {
            Some(segment) => self.put_staged(page, count, segment),
            None => self.end("a staged page has no segment", page),
        };
        self.arrive(page, group, Place::Staged, transfer, why)
    }

    /// Brings in stored pages that no thread fetches.
    pub(super) fn bring_run(
        &self,
        page: usize,
        count: usize,
        mut group: LockGuard<'_, Group>,
        why: Why,
    ) -> Arrived {
        match self.fill_from_store(page, count) {
            Ok(transfer) => self.arrive(page, &mut group, Place::Stored, transfer, why),
            Err(Read::OnDisk) if matches!(why, Why::Along | Why::Beside) => Arrived::Later,
            Err(Read::OnDisk) => {
                group.begin_fetch(bits(page % GROUP_PAGES, count));
                drop(group);
                match self.fetchers_for(why) {
                    Some(fetchers) => self.have_fetched(page, count, fetchers),
                    None => self.bring_fetched(page, count, why),
                }
            }
            Err(_) => Arrived::Failed("a stored page cannot be decoded"),
        }
    }

    /// Puts pages in place that the store has in memory, from the first on. An error says why not
    /// even the first one came. In watched groups, the time of a page that comes alone is measured.
    fn fill_from_store(&self, page: usize, count: usize) -> Result<Transfer, Read> {
        if count > 1 || !is_watched(page / GROUP_PAGES) {
            return self.decode_and_fill(page, count);
        }
        let started = Instant::now();
        let filled = self.decode_and_fill(page, count);
        self.around.worth.page_took(started.elapsed());
        filled
    }

    fn decode_and_fill(&self, page: usize, count: usize) -> Result<Transfer, Read> {
        let mut buffer = self.shared.buffers.get();
        let mut decoded = 0;
        for data in buffer[..count * PAGE_SIZE].chunks_exact_mut(PAGE_SIZE) {
            match self.store.read(page + decoded, data) {
                Read::Done => decoded += 1,
                other if decoded == 0 => return Err(other),
                _ => break,
            }
        }
        Ok(self.put(page, &buffer[..decoded * PAGE_SIZE]))
    }
}
