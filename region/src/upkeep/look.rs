//! Checks whether the system still has a region's memory as the region left it. Other code of the
//! program may have moved, unmapped or discarded it (`mremap`, `munmap`, `madvise`).
//!
//! ```text
//!   every second, each region     all its addresses mapped?      no: the process ends, with a
//!                                 of the next 64 groups:         message
//!                                 what is resident, there?       no: the same, with a userfaultfd
//! ```
//!
//! The system could announce such calls (`UFFD_FEATURE_EVENT_REMAP` and its like), but then the
//! caller waits until the announcement is read, and our own discards would wait as well. So this
//! finds late whatever can be found. A discard in a group that does not know its pages yet cannot
//! be found, because its pages may be untouched.
//!
//! Invariant: consider a group's lock held together with the region's gate. Pages that are
//! `resident` and not `gone` are then in memory or in the system's swap. So a page that is not
//! there was taken by other code.
//!
//! Locks: a gate, if it is free; then a group's.

use crate::places::runs;
use crate::state::Folded;
use crate::terms::GROUP_PAGES;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often regions are looked at.
const EVERY: Duration = Duration::from_secs(1);
/// Groups of a region that one look covers. Each takes a system call.
const GROUPS: usize = 64;

/// When the regions of a pager are looked at.
#[derive(Debug)]
pub(super) struct Looks(Instant);

impl Looks {
    pub(super) fn begin() -> Looks {
        Looks(Instant::now())
    }

    /// Whether it is time for a look. If so, the time to the next look begins.
    pub(super) fn are_due(&mut self) -> bool {
        let due = self.0.elapsed() >= EVERY;
        if due {
            self.0 = Instant::now();
        }
        due
    }
}

impl Folded {
    /// Ends the process if the system no longer has the region's memory.
    pub(super) fn look(&self) {
        // A thread that is alone with the region takes pages away. The next look comes soon.
        let Some(_gate) = self.try_enter() else { return };
        if !self.is_mapped() {
            self.end("memory of a region was unmapped or moved by other code (munmap, mremap)", 0);
        }
        let groups = self.chunks.groups();
        // relaxed: only the pager's thread looks.
        let first = self.next_look.load(Ordering::Relaxed) % groups;
        let end = groups.min(first + GROUPS);
        (first..end).for_each(|index| self.look_at(index));
        // relaxed: as above.
        self.next_look.store(end % groups, Ordering::Relaxed);
    }

    fn look_at(&self, index: usize) {
        // Where pages are closed, one that is open may be untouched.
        if !self.chunks.is_registered(index) || self.span.closes() {
            return;
        }
        let Some(group) = self.chunks.get(index).map(|group| group.lock()) else { return };
        let expected = group.resident() & !group.gone();
        if expected == 0 {
            return;
        }
        let Some(there) = self.span.touched(self.chunks.pages_of(index)) else { return };
        for (at, _) in runs(expected & !there) {
            let page = index * GROUP_PAGES + at;
            if let Some(lost) = self.span.unreachable(page) {
                self.end(lost, page);
            }
        }
    }

    fn is_mapped(&self) -> bool {
        #[cfg(test)]
        // relaxed: a flag of a test.
        if self.probe.moved.load(Ordering::Relaxed) {
            return false;
        }
        self.span.is_mapped()
    }
}

#[cfg(test)]
mod tests {
    use crate::{FaultMode, Memory, MemoryConfig, Pager, PagerConfig, Region, RegionConfig};
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    const CHILD: &str = "RAMFOLD_LOOK_CHILD";
    const SIGABRT: i32 = 6;

    fn region() -> Option<Region> {
        let memory = Memory::new(MemoryConfig::for_disk(4 << 20)).expect("a memory");
        let config = PagerConfig { fault_mode: Some(FaultMode::Signal), ..Default::default() };
        let pager = Pager::new(memory, &config);
        let pager = pager.inspect_err(|error| eprintln!("skipped: needs {error}")).ok()?;
        let mut region = Region::map(&pager, 4 << 20, &RegionConfig::default()).expect("a region");
        region.as_mut_slice().fill(7);
        region.control().page_out(0..4096).expect("registered");
        Some(region)
    }

    /// Lets the pager's look end a child. In the child, `spoil` spoils a region that no thread
    /// touches.
    fn ends_a_child(test: &str, with: &str, spoil: impl FnOnce(&mut Region)) {
        let Some(mut region) = region() else { return };
        if std::env::var_os(CHILD).is_some() {
            spoil(&mut region);
            std::thread::sleep(Duration::from_secs(20));
            std::process::exit(1);
        }
        let this = std::env::current_exe().expect("this test's path");
        let test = format!("upkeep::look::tests::{test}");
        let child = Command::new(this).args([&test, "--exact"]).env(CHILD, "1").output();
        let child = child.expect("a child");
        let words = String::from_utf8_lossy(&child.stderr);
        assert_eq!(child.status.signal(), Some(SIGABRT), "{words}");
        assert!(words.contains(with), "{words}");
    }

    /// After `mremap` the pages that were out read as zeros at the new addresses, without a
    /// message.
    #[test]
    fn memory_that_was_moved_away_ends_the_process() {
        let (test, with) = ("memory_that_was_moved_away_ends_the_process", "mremap");
        // relaxed: a flag of a test.
        ends_a_child(test, with, |region| region.folded.probe.moved.store(true, Ordering::Relaxed));
    }

    /// This was once found only by a touch, and not at all if the pages had been moved elsewhere.
    #[test]
    fn pages_that_are_gone_end_the_process_before_they_are_touched() {
        let (test, with) =
            ("pages_that_are_gone_end_the_process_before_they_are_touched", "a page is gone");
        ends_a_child(test, with, |region| {
            region.memory_mut().discard(5..6).expect("as other code might");
        });
    }

    #[test]
    fn what_the_region_itself_takes_away_is_not_missed() {
        let Some(mut region) = region() else { return };
        let look = |region: &Region| (0..40).for_each(|_| region.folded.look());
        look(&region);
        region.control().page_out(64 * 4096..100 * 4096).expect("out");
        region.discard(128 * 4096..200 * 4096).expect("discarded");
        region.unmap(256 * 4096..300 * 4096).expect("given back");
        look(&region);
        region.set_resident_limit(Some(1 << 20)).expect("a limit");
        look(&region);
        assert_eq!(region.bytes(0..1).expect("there"), [7]);
    }
}
