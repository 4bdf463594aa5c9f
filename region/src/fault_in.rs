//! Bringing pages back: on a fault, ahead of time, and for a pin.
//!
//! ```text
//!              untouched       staged            stored                 resident
//!   page        zeros --.   copy in staging   decode to a buffer       there already
//!                       `--------> COPY <----------'  |                    |
//!                                    ^-- `fetch` <----' on a disk          |
//!   group      resident, listed; a copy in the store is dead             wake
//! ```
//!
//! What runs here may run in a signal handler: no allocation, no panic, no log; locks are those of
//! the module `folded`, none of which a thread holds while it touches a region.
//!
//! A page that cannot be brought back ends the process with a word: there is nothing right to give
//! to who waits for it.

use crate::around::Around;
use crate::counters::Count;
use crate::density::is_watched;
use crate::folded::Folded;
use crate::group::{Group, Place, bits};
use crate::store::Read;
use crate::{AROUND_PAGES, GROUP_PAGES, RegionError};
use host::fault::{Asker, Served};
use host::{LockGuard, PAGE_SIZE, Stop, Transfer};
use std::ops::Range;
use std::time::{Duration, Instant};

/// How long a fault waits for the limit, at most, and how long at a time.
const LIMIT_WAIT: Duration = Duration::from_millis(2);
const LIMIT_WAITS: u32 = 50; // 100 ms

/// Why pages are brought in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// Somebody waits for them.
    Fault,
    /// They are to be there: also those that nobody has touched.
    Pin,
    /// They may be wanted soon.
    Ahead,
    /// The same, and somebody walks towards them, who waits: only those that are stored or staged,
    /// and what takes no disk.
    Along,
}

impl Why {
    /// Whether they may as well stay out.
    pub(crate) fn is_optional(self) -> bool {
        matches!(self, Why::Ahead | Why::Along)
    }
}

/// What bringing pages in came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// So many pages, from the one asked for on.
    Pages(usize),
    /// It was there, or is no more the region's.
    Present,
    /// The system had no memory, or another thread fetches it.
    Later,
    /// The store cannot give it, in words.
    Failed(&'static str),
}

impl Folded {
    /// Serves a fault.
    pub(crate) fn answer(&self, address: usize, asker: Asker) -> Served {
        let Some(page) = self.span.page_at(address) else { return Served::Foreign };
        if matches!(asker, Asker::Message { .. }) && !self.chunks.is_registered(page / GROUP_PAGES)
        {
            // Of a region that was here before.
            return Served::Present;
        }
        let started = Instant::now();
        // It comes while its group is locked, which waits for memory as well.
        self.store.prefetch(page);
        self.wait_for_limit();
        let asked = self.around.window(asker).ask(page);
        let most = Around::cut(page, asked);
        let served = match self.bring(page, most.min(AROUND_PAGES), Why::Fault) {
            Arrived::Pages(done) => {
                // Who sent a message runs on by now, and what it pages out is to stay out.
                let goes_on = asker == Asker::Toucher && done == AROUND_PAGES && done < most;
                let done = if goes_on { self.walk_on(page, done, most) } else { done };
                // Who waited for a disk may be on another CPU.
                self.around.window(asker).tell(page, asked, done);
                Served::Filled
            }
            // Who touched the page tries again, for as long as the system lets it.
            Arrived::Present | Arrived::Later => Served::Present,
            Arrived::Failed(why) => self.end(why, page),
        };
        self.counters.add(Count::Faults, 1);
        self.counters.stalled(started.elapsed());
        served
    }

    /// Somebody walks through a group, and `done` pages came from `page` on: brings in the others
    /// of `most`, up to the first that stays out. How many are there.
    fn walk_on(&self, page: usize, done: usize, most: usize) -> usize {
        let rest = page + done..page + most;
        self.bring_all(page / GROUP_PAGES, &rest, Why::Along).map_or(done, |end| end - page)
    }

    /// Brings in what a group has of `pages`; up to which one. Where nothing is registered, nothing
    /// was taken away.
    ///
    /// # Errors
    ///
    /// [`RegionError::Unreadable`]; not where they may as well stay out.
    pub(crate) fn bring_all(
        &self,
        index: usize,
        pages: &Range<usize>,
        why: Why,
    ) -> Result<usize, RegionError> {
        let all = self.chunks.pages_of(index);
        let mut page = pages.start.max(all.start);
        while page < pages.end.min(all.end) && self.chunks.is_registered(index) {
            if why.is_optional() && self.limit().is_some_and(|limit| self.held() >= limit) {
                break;
            }
            page += match self.bring(page, AROUND_PAGES.min(pages.end - page), why) {
                Arrived::Pages(done) => done.max(1),
                Arrived::Present => 1,
                Arrived::Later | Arrived::Failed(_) if why.is_optional() => break,
                Arrived::Later => 0,
                Arrived::Failed(_) => {
                    return Err(RegionError::Unreadable { byte: page * PAGE_SIZE });
                }
            };
        }
        Ok(page)
    }

    /// Brings a page in, and up to `max` in all of those that follow it in the same place.
    fn bring(&self, page: usize, max: usize, why: Why) -> Arrived {
        let (index, at) = (page / GROUP_PAGES, page % GROUP_PAGES);
        let mut group = self.lock_faulted(index);
        let place = group.place(at);
        let count = group.run(at, max.min(self.chunks.pages_of(index).end - page));
        let transfer = match place {
            Place::Gone => return Arrived::Present,
            Place::Resident => {
                // By others, a moment ago; or its thread would touch it for ever.
                let lost = if why == Why::Fault { self.span.unreachable(page) } else { None };
                return lost.map_or(Arrived::Present, Arrived::Failed);
            }
            Place::Untouched if why == Why::Ahead => return Arrived::Present,
            Place::Untouched if why == Why::Along => return Arrived::Later,
            Place::Untouched => self.put(page, self.shared.buffers.zeros(count)),
            Place::Staged => self.fill_from_staging(page, count, &group),
            Place::Stored => return self.bring_stored(page, count, group, why),
        };
        self.arrive(page, &mut group, place, transfer, why)
    }

    /// The same of stored pages, whose group is locked.
    fn bring_stored(
        &self,
        page: usize,
        count: usize,
        mut group: LockGuard<'_, Group>,
        why: Why,
    ) -> Arrived {
        let at = page % GROUP_PAGES;
        let count = count.min((group.fetching >> at).trailing_zeros() as usize);
        if count == 0 {
            let seen = self.shared.fetched.seen();
            drop(group);
            return self.after_fetch(seen, why);
        }
        if why == Why::Fault {
            let around = self.around_pays(page / GROUP_PAGES);
            if count < around
                && let Some(arrived) = self.bring_around(page, around, &mut group)
            {
                return arrived;
            }
        }
        // Of those after it, some may have come.
        let count = group.run(at, count);
        match self.fill_from_store(page, count) {
            Ok(transfer) => self.arrive(page, &mut group, Place::Stored, transfer, why),
            Err(Read::OnDisk) if why == Why::Along => Arrived::Later,
            Err(Read::OnDisk) => {
                group.fetching |= bits(at, count);
                drop(group);
                match self.fetchers_for(why) {
                    Some(fetchers) => self.have_fetched(page, count, fetchers),
                    None => self.bring_fetched(page, count, why),
                }
            }
            Err(_) => Arrived::Failed("a stored page cannot be decoded"),
        }
    }

    /// Pages were transferred from a place: they are in memory.
    pub(crate) fn arrive(
        &self,
        page: usize,
        group: &mut Group,
        place: Place,
        transfer: Transfer,
        why: Why,
    ) -> Arrived {
        let arrived = self.settle_arrival(page, transfer);
        let (index, at) = (page / GROUP_PAGES, page % GROUP_PAGES);
        if arrived == 0 {
            // There was no memory.
            if !why.is_optional() {
                std::thread::sleep(Duration::from_millis(1));
            }
            return Arrived::Later;
        }
        let touched = match why {
            Why::Fault => Some(bits(at, 1)),
            Why::Along => Some(0),
            Why::Pin | Why::Ahead => None,
        };
        self.account_arrival(index, group, bits(at, arrived), place, touched);
        self.account_fault(place, why);
        if transfer.pages == 0 { Arrived::Present } else { Arrived::Pages(arrived) }
    }

    /// The group of a page that is missing.
    pub(crate) fn lock_faulted(&self, index: usize) -> LockGuard<'_, Group> {
        loop {
            if let Some(group) = self.lock_for_fault(index) {
                return group;
            }
            // The system has it registered already, and whoever registers it is about to say so.
            if self.chunks.get(index).is_none() {
                self.end("a page is missing that was never taken away", index * GROUP_PAGES);
            }
            std::thread::yield_now();
        }
    }

    fn fill_from_staging(&self, page: usize, count: usize, group: &Group) -> Transfer {
        match &group.segment {
            Some(segment) => self.put_staged(page, count, segment),
            None => self.end("a staged page has no segment", page),
        }
    }

    /// Puts pages in place that the store has in memory, from the first on; why not even that one.
    /// What a page takes that comes by itself is learnt in groups that are watched.
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

    /// How many pages are in memory after a transfer: where the system had none for them, less.
    pub(crate) fn settle_arrival(&self, page: usize, transfer: Transfer) -> usize {
        match transfer.stop {
            None | Some(Stop::NoMemory) => transfer.pages,
            // There already: what is in memory is the truth.
            Some(Stop::Present) => transfer.pages + 1,
            Some(Stop::Busy | Stop::Hole | Stop::Broken(_)) => {
                self.end("a page cannot be put in place", page)
            }
        }
    }

    /// Pages of a group are in memory; `touched` has the one that somebody waits for, where a fault
    /// brings them.
    pub(crate) fn account_arrival(
        &self,
        index: usize,
        group: &mut Group,
        pages: u64,
        place: Place,
        touched: Option<u64>,
    ) {
        let count = u64::from(pages.count_ones());
        if place == Place::Stored {
            self.tell_density(index, group, pages, touched.unwrap_or(0));
        }
        let copies_before = group.dead_copies();
        group.arrive(pages);
        let dead = group.dead_copies() & !copies_before;
        self.counters.add(Count::Resident, count);
        let from = match place {
            Place::Untouched | Place::Resident | Place::Gone => None,
            Place::Staged => Some(Count::Staged),
            Place::Stored => Some(Count::Stored),
        };
        if let Some(from) = from {
            self.counters.sub(from, count);
            self.counters.add(Count::PagesIn, count);
            if let Some(touched) = touched {
                let along = pages & !touched;
                self.counters.add(Count::PagesAround, u64::from(along.count_ones()));
            }
        }
        if dead != 0 {
            self.counters.add(Count::DeadCopies, u64::from(dead.count_ones()));
        }
        if dead != 0 && copies_before == 0 {
            self.mark_dirty(index);
        }
        self.list(index, group);
    }

    /// Stored pages of a group arrive, of which one may have been touched.
    fn tell_density(&self, index: usize, group: &mut Group, pages: u64, touched: u64) {
        let (density, stored) = (&self.around.density, group.stored);
        if pages & touched != 0 {
            density.touched(index, &mut group.trials, touched.trailing_zeros() as usize, stored);
        }
        density.spoil(index, &mut group.trials, pages);
    }

    pub(crate) fn account_fault(&self, place: Place, why: Why) {
        let counter = match place {
            Place::Untouched | Place::Resident | Place::Gone => Count::FirstTouches,
            Place::Staged => Count::StagedFaults,
            Place::Stored => Count::StoredFaults,
        };
        self.counters.add(counter, u64::from(why == Why::Fault));
    }

    /// Lets the pager make room where a region is over its limit. Gives up after a while: a limit
    /// that cannot be kept, because the store is full or all is pinned, is exceeded.
    fn wait_for_limit(&self) {
        let Some(limit) = self.limit() else { return };
        let held = self.held();
        if held < limit || self.is_stuck() {
            return;
        }
        let slack = (limit / 16).max(GROUP_PAGES as u64);
        let mut seen = self.shared.room.seen();
        self.shared.work.raise();
        if held < limit + slack {
            return;
        }
        self.counters.add(Count::Waits, 1);
        for _ in 0..LIMIT_WAITS {
            self.shared.room.wait(seen, LIMIT_WAIT);
            seen = self.shared.room.seen();
            if self.held() < limit + slack || self.is_stuck() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::group::bits;
    use crate::{Memory, MemoryConfig, Pager, PagerConfig, Quads, Region, RegionConfig};
    use std::io::Write;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::time::Duration;

    const CHILD: &str = "RAMFOLD_FAULT_IN_CHILD";
    const SIGABRT: i32 = 6;

    fn region() -> Option<Region> {
        region_with(&RegionConfig::default())
    }

    fn region_with(config: &RegionConfig) -> Option<Region> {
        let memory = Memory::new(MemoryConfig::for_disk(1 << 20)).expect("a memory");
        let pager = Pager::new(memory, &PagerConfig::default());
        let pager = pager.inspect_err(|error| eprintln!("skipped: needs {error}")).ok()?;
        Some(Region::map(&pager, 1 << 20, config).expect("a region"))
    }

    /// As where the system has put a page in place and did not say so.
    #[test]
    fn a_page_comes_whatever_stops_those_around_it() {
        let config = RegionConfig { quads: Quads::Always, ..RegionConfig::default() };
        let Some(mut region) = region_with(&config) else { return };
        let pages = region.as_mut_slice().chunks_mut(4096).enumerate();
        pages.for_each(|(number, page)| page.fill(number as u8));
        let touch = |there: usize, page: usize| {
            region.control().page_out(4 * 4096..8 * 4096).expect("out");
            assert_eq!(region.folded.put(there, &[there as u8; 4096]).pages, 1);
            let before = region.stats();
            assert_eq!(region.as_slice()[page * 4096 + 9], page as u8);
            let after = region.stats();
            assert_eq!(
                (after.faults - before.faults, after.refaults() - before.refaults()),
                (1, 1)
            );
            assert_eq!(region.control().check().expect("there"), [""; 0]);
            let in_memory = after.resident_pages - before.resident_pages;
            (in_memory, after.pages_around - before.pages_around)
        };
        // Before it, right after it, and far enough after it.
        assert_eq!(touch(5, 7), (3, 2), "4 and 5, and 7 by itself");
        assert_eq!(touch(7, 6), (4, 3));
        assert_eq!(touch(6, 4), (3, 2));
    }

    /// Has a test of this module end a child; false in the child.
    fn ends_a_child(test: &str, with: &str) -> bool {
        if std::env::var_os(CHILD).is_some() {
            // A touch that is tried for ever ends the child too, by no signal.
            std::thread::spawn(|| {
                std::thread::sleep(Duration::from_secs(20));
                std::process::exit(1);
            });
            return false;
        }
        let this = std::env::current_exe().expect("this test's path");
        let test = format!("fault_in::tests::{test}");
        let child = Command::new(this).args([&test, "--exact"]).env(CHILD, "1").output();
        let child = child.expect("a child");
        let words = String::from_utf8_lossy(&child.stderr);
        assert_eq!(child.status.signal(), Some(SIGABRT), "{words}");
        assert!(words.contains(with), "{words}");
        let page = words.lines().find_map(|line| line.strip_prefix("page: ")).expect("it is said");
        assert!(words.contains(&format!(" at {page}\n")), "an address, and no offset: {words}");
        true
    }

    /// Touches the byte, and says where it is, past the harness, which keeps what it catches.
    fn touch(region: &Region, byte: usize) {
        let page = &region.as_slice()[byte];
        let address = std::ptr::from_ref(page).addr();
        writeln!(std::io::stderr(), "page: {address:#018x}").expect("the parent reads");
        std::hint::black_box(*page);
    }

    /// As where a program discards pages of a region by itself: not zeros, and not a touch that is
    /// tried for ever.
    #[test]
    fn a_page_that_somebody_else_took_away_ends_the_process() {
        let Some(mut region) = region() else { return };
        let test = "a_page_that_somebody_else_took_away_ends_the_process";
        if ends_a_child(test, "a page is gone that nobody took away") {
            return;
        }
        region.as_mut_slice()[5 * 4096] = 1;
        region.control().page_out(0..4096).expect("registered");
        region.memory_mut().discard(5..6).expect("discarded");
        touch(&region, 5 * 4096);
    }

    #[test]
    fn a_page_that_cannot_be_read_back_ends_the_process() {
        let Some(mut region) = region() else { return };
        let test = "a_page_that_cannot_be_read_back_ends_the_process";
        if ends_a_child(test, "a stored page cannot be decoded") {
            return;
        }
        region.as_mut_slice()[5 * 4096] = 1;
        region.control().page_out(0..1 << 20).expect("out");
        region.folded.store.break_reads();
        assert_eq!(region.folded.lock_known(0).expect("registered").stored, bits(5, 1));
        touch(&region, 5 * 4096);
    }
}
