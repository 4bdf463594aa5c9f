//! Bring from the disk behind a cache: no lock is held while the disk is waited for.
//!
//! ```text
//!   group's lock   stored, on the disk: fetching           fetched? still stored: COPY, resident
//!                  --------------.                        ,-------------
//!   no lock                       `-- buffer <-- disk --'
//!   other threads that fault on the page   wait until it is fetched, and touch it again
//! ```
//!
//! Invariant G6 makes this right: while a page is `fetching`, its copy in the store is its content.
//!
//! A disk that is not a file is read by a fetcher, because its code must not run in a signal
//! handler. A disk that fails is asked a few more times. Then a fault ends the process with a
//! message, a pin is refused, and a page that should come ahead of time stays out.
//!
//! Locks: a read buffer's, of rank `ReadBuffer`, and inside it the group's.

use super::arrival::{Arrived, Why};
use crate::places::{Place, bits};
use crate::resources::{Count, Fetchers, Fetching, Request, is_fetcher};
use crate::state::Folded;
use crate::terms::GROUP_PAGES;
use host::PAGE_SIZE;
use std::time::Duration;

/// How often a failing disk is asked. The next constant is the wait before each further try.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(20);

impl Fetching for Folded {
    fn fetch_for_fault(&self, page: usize, count: usize) {
        if let Arrived::Failed(why) = self.bring_fetched(page, count, Why::Fault) {
            self.end(why, page);
        }
    }
}

impl Folded {
    /// Brings in `count` pages of a group from `page` on, which this thread has marked as
    /// `fetching`.
    pub(super) fn bring_fetched(&self, page: usize, count: usize, why: Why) -> Arrived {
        let Some(buffers) = self.shared.read_buffers.get() else {
            self.end("a region over a cache with a disk has no buffers", page)
        };
        let mut buffer = buffers.get();
        let fetched = self.fetch(page, &mut buffer[..count * PAGE_SIZE], why);
        let (index, at) = (page / GROUP_PAGES, page % GROUP_PAGES);
        let mut group = self.lock_faulted(index);
        group.end_fetch(bits(at, count));
        let still = match group.place(at) {
            Place::Stored => group.run(at, fetched),
            _ => 0,
        };
        let arrived = match (fetched, still) {
            (0, _) => Arrived::Failed("a stored page cannot be read from its disk"),
            // The pages were given back meanwhile.
            (_, 0) => Arrived::Present,
            _ => {
                let transfer = self.put(page, &buffer[..still * PAGE_SIZE]);
                self.counters.add(Count::DiskFaults, u64::from(why == Why::Fault));
                self.arrive(page, &mut group, Place::Stored, transfer, why)
            }
        };
        drop(group);
        self.shared.fetched.raise();
        arrived
    }

    /// The threads that read the disk for this one. `None` means that this thread reads it.
    pub(super) fn fetchers_for(&self, why: Why) -> Option<&Fetchers<Folded>> {
        let elsewhere = why == Why::Fault && !self.store.reads_in_handler();
        self.shared.fetchers.get().filter(|_| elsewhere)
    }

    /// Lets a fetcher bring in `count` pages of a group from `page` on, which are marked as
    /// `fetching`.
    pub(super) fn have_fetched(
        &self,
        page: usize,
        count: usize,
        fetchers: &Fetchers<Folded>,
    ) -> Arrived {
        if self.shared.path.expect_own().is_err() {
            self.end("a page is on a disk that only the parent of this process reads:", page);
        }
        if is_fetcher() {
            self.end("a disk touched a page that is on a disk", page);
        }
        let (index, at) = (page / GROUP_PAGES, page % GROUP_PAGES);
        let ask = || match self.this.upgrade() {
            Some(region) => fetchers.ask(Request { region, page, count }),
            None => self.end("a region that is gone was touched", page),
        };
        let mut asked = false;
        loop {
            let seen = self.shared.fetched.seen();
            asked = asked || ask();
            let group = self.lock_faulted(index);
            if !group.is_fetching(bits(at, 1)) {
                let there = group.resident() >> at;
                return match (there.trailing_ones() as usize).min(count) {
                    0 => Arrived::Later,
                    pages => Arrived::Pages(pages),
                };
            }
            drop(group);
            self.wait_for_fetch(seen);
        }
    }

    /// Reads pages into `buffer`. Returns how many came, from the first on. Only the first is tried
    /// again.
    fn fetch(&self, page: usize, buffer: &mut [u8], why: Why) -> usize {
        let tries = if why.is_optional() { 1 } else { TRIES };
        for number in 0..tries {
            if number > 0 {
                std::thread::sleep(PAUSE);
            }
            let mut pages = buffer.chunks_exact_mut(PAGE_SIZE).enumerate();
            let failed = pages.position(|(ahead, data)| !self.store.fetch(page + ahead, data));
            let done = failed.unwrap_or(buffer.len() / PAGE_SIZE);
            if done > 0 {
                return done;
            }
        }
        0
    }

    /// Another thread fetches the page. If this thread must have it, it waits for that and looks
    /// again.
    pub(super) fn after_fetch(&self, seen: u32, why: Why) -> Arrived {
        match why {
            Why::Ahead => return Arrived::Present,
            Why::Along | Why::Beside => return Arrived::Later,
            Why::Fault | Why::Pin => {}
        }
        self.wait_for_fetch(seen);
        Arrived::Later
    }
}

#[cfg(test)]
mod tests {
    use crate::places::{Place, bits};
    use crate::{Memory, MemoryConfig, Pager, PagerConfig, Region, RegionConfig};
    use std::sync::Barrier;

    #[test]
    fn who_forgets_a_page_waits_until_it_is_fetched() {
        let memory = Memory::new(MemoryConfig::for_disk(1 << 20)).expect("a memory");
        let Ok(pager) = Pager::new(memory, &PagerConfig::default()) else {
            eprintln!("skipped: needs userfaultfd");
            return;
        };
        let mut region = Region::map(&pager, 1 << 20, &RegionConfig::default()).expect("one");
        region.as_mut_slice()[5 * 4096] = 1;
        region.control().page_out(0..1 << 20).expect("out");
        let folded = &region.folded;
        folded.lock_known(0).expect("registered").begin_fetch(bits(5, 1));
        let begun = Barrier::new(2);
        std::thread::scope(|scope| {
            let forgetting = scope.spawn(|| {
                begun.wait();
                folded.forget(&(0..64));
            });
            begun.wait();
            (0..100).for_each(|_| std::thread::yield_now());
            let mut group = folded.lock_known(0).expect("registered");
            assert_eq!(group.place(5), Place::Stored, "nobody forgets what is fetched (G6)");
            group.end_fetch(bits(5, 1));
            drop(group);
            folded.shared.fetched.raise();
            forgetting.join().expect("it forgets");
        });
        assert_eq!(folded.lock_known(0).expect("registered").place(5), Place::Untouched);
    }
}
