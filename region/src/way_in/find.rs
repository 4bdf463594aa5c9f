//! Find: which page was touched, whether there is room for it, and how far a walk goes.
//!
//! ```text
//!   address --> page --> room under the limit? --> the window of this walk says how many
//!                          no: the pager makes some       `--> decide --> tell the window
//! ```
//!
//! A page that cannot be brought back ends the process with a message, because there is no right
//! content for the thread that waits for it.
//!
//! Invariant: a fault on a page of the region ends with the right content in place, with another
//! touch of the page, or with the end of the process. If the fault is not the region's, no page
//! changes. A fault waits at most 100 ms for room, and then exceeds the limit.
//!
//! Locks: none here.

use super::arrival::{Arrived, Why};
use crate::neighbours::Around;
use crate::resources::Count;
use crate::state::Folded;
use crate::terms::{AROUND_PAGES, GROUP_PAGES, RegionError};
use host::fault::{Asker, Served, Server};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a fault waits for the limit in all, and how long at a time.
const LIMIT_WAIT: Duration = Duration::from_millis(2);
const LIMIT_WAITS: u32 = 50; // 100 ms
/// Touches of closed pages that no registering explains, until they are the program's.
const STRAYS_MAX: u32 = 100_000;

impl Folded {
    /// Enters the region in the table by which its faults are found.
    pub(crate) fn watch(self: &Arc<Folded>) -> Result<(), RegionError> {
        let server: Arc<dyn Server> = Arc::<Folded>::clone(self);
        let watch = host::fault::watch(self.span.range(), self.span.mode(), server)?;
        self.keep_watch(watch);
        Ok(())
    }

    /// Serves a fault.
    pub(super) fn answer(&self, address: usize, asker: Asker) -> Served {
        let Some(page) = self.span.page_at(address) else { return Served::Foreign };
        if !asker.is_of(self.span.mode()) {
            return Served::Foreign;
        }
        if asker != Asker::Toucher && !self.chunks.is_registered(page / GROUP_PAGES) {
            return self.answer_unregistered(asker);
        }
        let started = Instant::now();
        // The page's content is loaded while its group is being locked, because that waits for
        // memory too.
        self.store.prefetch(page);
        self.wait_for_limit();
        let asked = self.around.window(asker).ask(page);
        let most = Around::cut(page, asked);
        let served = match self.bring(page, most.min(AROUND_PAGES), Why::Fault) {
            Arrived::Pages(done) => {
                // A thread that sent a message is running again by now. If it pages something out,
                // that must stay out.
                let serves_itself = !matches!(asker, Asker::Message { .. });
                let goes_on = serves_itself && done == AROUND_PAGES && done < most;
                let done = if goes_on { self.walk_on(page, done, most) } else { done };
                self.bring_block(page);
                // A thread that waited for a disk may be on another CPU.
                self.around.window(asker).tell(page, asked, done);
                Served::Filled
            }
            // The thread touches the page again, as long as the system lets it.
            Arrived::Present | Arrived::Later => Served::Present,
            // A page that was given back is closed for good, so this is a fault of the program's.
            Arrived::Gone if asker.is_denied() && !self.is_alone() => return Served::Foreign,
            Arrived::Gone => Served::Present,
            Arrived::Failed(why) => self.end(why, page),
        };
        self.counters.add(Count::Faults, 1);
        self.counters.stalled(started.elapsed());
        served
    }

    /// Answers about a page of a chunk that is not registered.
    fn answer_unregistered(&self, asker: Asker) -> Served {
        // A message is about an earlier region. A closed page is just being registered, or that was
        // refused and it is open again. If other code has closed it, it stays closed.
        let strays = asker.is_denied() && !self.chunks.is_registering();
        // relaxed: a count.
        if strays && self.strays.fetch_add(1, Ordering::Relaxed) > STRAYS_MAX {
            return Served::Foreign;
        }
        std::thread::yield_now();
        Served::Present
    }

    /// A thread walks through a group, and `done` pages came from `page` on. Brings in the rest of
    /// `most`, up to the first page that stays out. Returns how many are in memory.
    fn walk_on(&self, page: usize, done: usize, most: usize) -> usize {
        let rest = page + done..page + most;
        self.bring_all(page / GROUP_PAGES, &rest, Why::Along).map_or(done, |end| end - page)
    }

    /// Lets the pager make room if the region is over its limit, and gives up after a while. A
    /// limit that cannot be kept is exceeded: the store is full, or all pages are pinned.
    fn wait_for_limit(&self) {
        let Some(limit) = self.limit.pages() else { return };
        if self.shared.path.expect_own().is_err() {
            // The thread that would make room is the parent's.
            return;
        }
        let held = self.held();
        if held < limit || self.limit.is_stuck() {
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
            if self.held() < limit + slack || self.limit.is_stuck() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::places::bits;
    use crate::{FaultMode, Memory, MemoryConfig, Pager, PagerConfig, Quads, Region, RegionConfig};
    use std::io::Write;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::time::Duration;

    const CHILD: &str = "RAMFOLD_FAULT_IN_CHILD";
    const SIGABRT: i32 = 6;

    fn region() -> Option<Region> {
        region_in(None, &RegionConfig::default())
    }

    fn region_in(fault_mode: Option<FaultMode>, config: &RegionConfig) -> Option<Region> {
        let memory = Memory::new(MemoryConfig::for_disk(1 << 20)).expect("a memory");
        let pager = Pager::new(memory, &PagerConfig { fault_mode, ..PagerConfig::default() });
        let pager = pager.inspect_err(|error| eprintln!("skipped: needs {error}")).ok()?;
        Some(Region::map(&pager, 1 << 20, config).expect("a region"))
    }

    /// As if the system had put a page in place and had not said so.
    #[test]
    fn a_page_comes_whatever_stops_those_around_it() {
        let config = RegionConfig { quads: Quads::Always, ..RegionConfig::default() };
        // Only a userfaultfd says that a page is there already.
        let Some(mut region) = region_in(Some(FaultMode::Signal), &config) else { return };
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
        // The other page is before it, right after it, or far enough after it.
        assert_eq!(touch(5, 7), (3, 2), "4 and 5, and 7 by itself");
        assert_eq!(touch(7, 6), (4, 3));
        assert_eq!(touch(6, 4), (3, 2));
    }

    /// Lets a test of this module end a child. False in the child.
    fn ends_a_child(test: &str, with: &str) -> bool {
        if std::env::var_os(CHILD).is_some() {
            // If a touch is tried for ever, this ends the child without a signal.
            std::thread::spawn(|| {
                std::thread::sleep(Duration::from_secs(20));
                std::process::exit(1);
            });
            return false;
        }
        let this = std::env::current_exe().expect("this test's path");
        let test = format!("way_in::find::tests::{test}");
        let child = Command::new(this).args([&test, "--exact"]).env(CHILD, "1").output();
        let child = child.expect("a child");
        let words = String::from_utf8_lossy(&child.stderr);
        assert_eq!(child.status.signal(), Some(SIGABRT), "{words}");
        assert!(words.contains(with), "{words}");
        let page = words.lines().find_map(|line| line.strip_prefix("page: ")).expect("it is said");
        assert!(words.contains(&format!(" at {page}\n")), "an address, and no offset: {words}");
        true
    }

    /// Touches the byte, and says where it is. It bypasses the harness, which keeps what it
    /// catches.
    fn touch(region: &Region, byte: usize) {
        let page = &region.as_slice()[byte];
        let address = std::ptr::from_ref(page).addr();
        writeln!(std::io::stderr(), "page: {address:#018x}").expect("the parent reads");
        std::hint::black_box(*page);
    }

    /// As if a program had discarded pages of a region itself. It gets no zeros, and its touch is
    /// not tried for ever.
    #[test]
    fn a_page_that_somebody_else_took_away_ends_the_process() {
        // Without a userfaultfd such a page reads as zeros, as any memory does.
        let in_mode = Some(FaultMode::Signal);
        let Some(mut region) = region_in(in_mode, &RegionConfig::default()) else { return };
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
        assert_eq!(region.folded.lock_known(0).expect("registered").stored(), bits(5, 1));
        touch(&region, 5 * 4096);
    }
}
