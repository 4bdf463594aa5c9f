//! Compress: the staged pages of a group go to the store, page by page.
//!
//! The group's lock is held for one page's compression at a time. If threads wait for it in a
//! fault, they come before the next page.
//!
//! Invariant: a page stays in its segment until the store has it or it is back in the region (G2).
//! The segment is given back only when no page of the group is staged. Only the thread with the
//! group's lock changes either.
//!
//! Locks: the group's, for one page; the queue's.

use crate::places::{Group, bits};
use crate::resources::Count;
use crate::state::Folded;
use crate::terms::{GROUP_PAGES, PageOut, Refusal};
use std::time::{Duration, Instant};

/// How long to wait for memory into which a page can be put back.
const WAIT: Duration = Duration::from_micros(100);

/// How often to let other threads run before the next page.
pub(super) const YIELDS: u32 = 100;

impl Folded {
    /// Compresses the group that has been in staging longest. False if no group is.
    pub(crate) fn compress_oldest(&self) -> bool {
        let oldest = self.queue.lock().pop_staged();
        oldest.map(|oldest| self.compress(oldest as usize)).is_some()
    }

    /// Compresses the staged pages of a group, and gives its segment back.
    pub(super) fn compress(&self, index: usize) -> PageOut {
        let (mut out, mut tries) = (PageOut::default(), self.store.room_tries());
        let worth = &self.around.worth;
        while let Some(mut group) = self.lock_known(index) {
            if group.staged() == 0 {
                let segment = group.take_segment();
                drop(group);
                // The system is called with no lock held.
                drop(segment);
                break;
            }
            let at = group.staged().trailing_zeros() as usize;
            let started = (out.stored == 0).then(Instant::now);
            match self.compress_page(index, &mut group, at) {
                Ok(()) => {
                    out.stored += 1;
                    started.iter().for_each(|started| worth.out_took(started.elapsed()));
                }
                Err(refusal) if refusal.tries(tries) > 0 => {
                    // No lock is held for this: it may compact, run what other threads have
                    // deferred, and write back.
                    drop(group);
                    self.sweep();
                    let more = refusal.tries(tries) - 1;
                    tries = if self.store.make_room() { more } else { 0 };
                    continue;
                }
                Err(refusal) => {
                    let alone = refusal == Refusal::Incompressible;
                    let pages = if alone { bits(at, 1) } else { group.staged() };
                    out.refuse(refusal, self.put_back(index, &mut group, pages));
                    self.counters.refusal.set(refusal);
                }
            }
            let stays = group.staged() >> at & 1 == 1;
            drop(group);
            if stays {
                // The system has no memory into which to put it back. It is in staging, which is
                // memory too, and is tried again.
                std::thread::sleep(WAIT);
            }
            self.let_faults_in(index);
        }
        out
    }

    /// Between two pages, threads that faulted in this group meanwhile go first. Locks alone do not
    /// ensure that.
    pub(super) fn let_faults_in(&self, index: usize) {
        for _ in 0..YIELDS {
            if !self.chunks.is_awaited(index) {
                break;
            }
            std::thread::yield_now();
            #[cfg(test)]
            // relaxed: a count.
            self.probe.yields.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    fn compress_page(&self, index: usize, group: &mut Group, at: usize) -> Result<(), Refusal> {
        let page = index * GROUP_PAGES + at;
        let data = group.segment().and_then(|segment| segment.page(at));
        let Some(data) = data else { return Err(Refusal::Failed) };
        self.store.write(page, data)?;
        let dead_before = group.dead_copies();
        group.keep(bits(at, 1));
        let revived = dead_before & !group.dead_copies();
        self.counters.sub(Count::DeadCopies, u64::from(revived.count_ones()));
        self.counters.sub(Count::Staged, 1);
        self.counters.add(Count::Stored, 1);
        Ok(())
    }
}
