//! Paging a range out: to staging in one move, from there to the store.
//!
//! ```text
//!   region   ########----##   --MOVE-->   staging ########....##   --compress-->   store
//!                                            `--- one MADV_DONTNEED for the segment
//! ```
//!
//! A page that is touched between the two steps is copied back, and not compressed.
//!
//! Invariant: a page is in one place at any time (G1), and both steps change its place under its
//! group's lock. The gate is entered anew for each group. So a thread that waits to be alone waits
//! for one group at most.
//!
//! Locks: the region's gate, for a group at a time; then those of `stage` and `compress`.

use crate::state::Folded;
use crate::terms::{PageOut, RegionError};
use std::ops::Range;

impl Folded {
    /// Pages out the resident ones of `pages`. The region's gate is held for a group at a time.
    pub(crate) fn page_out(&self, pages: &Range<usize>) -> Result<PageOut, RegionError> {
        let mut out = PageOut::default();
        if pages.is_empty() {
            return Ok(out);
        }
        for (index, wanted) in self.chunks.parts_of(pages) {
            let _gate = self.enter()?;
            out += self.page_out_group(index, wanted)?;
        }
        Ok(out)
    }

    /// Pages out `wanted` of a group.
    pub(super) fn page_out_group(&self, index: usize, wanted: u64) -> Result<PageOut, RegionError> {
        let (_, busy) = self.stage(index, wanted)?;
        let mut out = self.compress(index);
        out.busy += busy;
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use crate::places::bits;
    use crate::state::Folded;
    use crate::way_out::compress::YIELDS;
    use crate::{
        Memory, MemoryConfig, PageOut, Pager, PagerConfig, Region, RegionConfig, RegionError,
    };
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{self, RecvTimeoutError, Sender};
    use std::time::{Duration, Instant};

    fn pager(staging_bytes: usize) -> Option<Arc<Pager>> {
        let memory = Memory::new(MemoryConfig::for_disk(64 << 20)).expect("a memory");
        let pager = Pager::new(memory, &PagerConfig { staging_bytes, ..PagerConfig::default() });
        pager.inspect_err(|error| eprintln!("skipped: needs {error}")).ok()
    }

    fn region(pager: &Arc<Pager>, pages: usize, store_limit: u64) -> Region {
        let config = RegionConfig { store_limit, ..RegionConfig::default() };
        let mut region = Region::map(pager, pages * 4096, &config).expect("a region");
        let mut noise = 1u64;
        for byte in region.as_mut_slice() {
            noise = noise.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *byte = (noise >> 56) as u8;
        }
        region
    }

    #[test]
    fn pinned_pages_stay_while_their_group_is_compressed() {
        let Some(pager) = pager(16 << 20) else { return };
        let region = region(&pager, 64, 0);
        let folded = Arc::clone(&region.folded);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // relaxed: it only asks the other thread to end.
                while !stop.load(Ordering::Relaxed) {
                    drop(folded.stage(0, bits(0, 32)));
                    drop(folded.page_out_group(0, u64::MAX));
                }
            });
            for round in 0..2000 {
                (0..round * 37 % 900).for_each(|_| std::hint::spin_loop());
                let pinned = region.pin(0..64 * 4096).expect("pinned");
                let there = (0..30).all(|_| folded.span.resident(0..64) == u64::MAX);
                drop(pinned);
                if !there {
                    // relaxed: as above.
                    stop.store(true, Ordering::Relaxed);
                    panic!("round {round}: pinned pages left memory");
                }
            }
            // relaxed: as above.
            stop.store(true, Ordering::Relaxed);
        });
    }

    /// A page-out of three groups is held up at the first and the second, while another thread
    /// wants to be alone with the region. Returns the result of the page-out, and whether the other
    /// thread was done before it ended. That thread drops its sender when it is done.
    fn page_out_meanwhile(
        pager: &Arc<Pager>,
        wants: fn(Region, Sender<()>) -> Option<Region>,
    ) -> (Result<PageOut, RegionError>, bool) {
        let region = region(pager, 3 * 64, 0);
        let (folded, control) = (Arc::clone(&region.folded), region.control());
        let [first, second] = [0, 1].map(|index| hold(&folded, index));
        let out = std::thread::spawn(move || control.page_out(0..3 * 64 * 4096));
        // It has passed the turnstile then, and comes back to it after the first group.
        eventually(|| folded.is_entered());
        let (done, told) = mpsc::channel();
        let wants = std::thread::spawn(move || wants(region, done));
        eventually(|| folded.try_enter().is_none());
        drop(first);
        let before = told.recv_timeout(TIMEOUT) == Err(RecvTimeoutError::Disconnected);
        drop(second);
        let out = out.join().expect("no panic");
        drop(folded);
        drop(wants.join().expect("no panic"));
        (out, before)
    }

    /// Holds a group's lock, in a thread of its own, until the returned value is dropped.
    fn hold(folded: &Arc<Folded>, index: usize) -> Sender<()> {
        let (folded, (held, end)) = (Arc::clone(folded), mpsc::channel::<()>());
        let (locked, is_locked) = mpsc::channel();
        std::thread::spawn(move || {
            let group = folded.lock(index).expect("registered");
            locked.send(()).expect("awaited");
            let _ = end.recv();
            drop(group);
        });
        is_locked.recv().expect("locked");
        held
    }

    const TIMEOUT: Duration = Duration::from_secs(20);

    fn eventually(happened: impl Fn() -> bool) {
        let begun = Instant::now();
        while !happened() {
            assert!(begun.elapsed() < TIMEOUT, "still waiting");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_discard_waits_for_one_group_of_a_page_out_and_not_for_all() {
        let Some(pager) = pager(16 << 20) else { return };
        let (out, before) = page_out_meanwhile(&pager, |mut region, done| {
            region.discard(0..4096).expect("discarded");
            drop(done);
            Some(region)
        });
        assert!(before, "{out:?}");
        assert_eq!(out.expect("goes on").stored, 3 * 64);
    }

    #[test]
    fn a_drop_ends_a_page_out_that_is_under_way() {
        let Some(pager) = pager(16 << 20) else { return };
        let (out, _) = page_out_meanwhile(&pager, |region, done| {
            // This waits for the threads that hold the groups.
            drop(done);
            drop(region);
            None
        });
        assert!(matches!(out, Err(RegionError::Gone)), "{out:?}");
    }

    #[test]
    fn a_page_out_ends_while_all_staging_is_second_chances_of_others() {
        let Some(mut pager) = pager(512 << 10) else { return };
        // The pager's thread would compress these second chances by itself.
        Arc::get_mut(&mut pager).expect("not shared yet").end_thread();
        let regions = [(); 3].map(|()| region(&pager, 128, 0));
        for region in &regions[..2] {
            region.folded.learn_all().expect("registered");
            region.folded.stage(0, u64::MAX).expect("staged");
            region.folded.queue.lock().push_staged(0);
        }
        assert_eq!(pager.shared.staging.used(), 2, "all of it");
        assert_eq!(regions[2].control().page_out(0..4096).expect("out").stored, 1);
    }

    #[test]
    fn what_a_full_store_refuses_of_second_chances_is_put_back() {
        let Some(pager) = pager(16 << 20) else { return };
        let region = region(&pager, 256, 64 << 10);
        let control = region.control();
        control.page_out(0..192 * 4096).expect("tried");
        assert!(region.folded.stage(3, u64::MAX).expect("staged").0 > 0);
        let out = control.page_out(192 * 4096..256 * 4096).expect("tried");
        assert_eq!((out.stored, region.stats().staged_pages), (0, 0), "{out:?}");
        assert_eq!(control.check().expect("there"), [""; 0]);
    }

    /// Pages that the system uses were once not counted, and all tests passed.
    #[test]
    fn pages_that_the_system_uses_are_counted() {
        let Some(pager) = pager(16 << 20) else { return };
        let region = region(&pager, 64, 0);
        // relaxed: one thread.
        region.folded.probe.in_use.store(bits(10, 1) | bits(40, 1), Ordering::Relaxed);
        let out = region.control().page_out(10 * 4096..64 * 4096).expect("tried");
        assert_eq!((out.stored, out.busy, region.stats().busy), (52, 2, 2));
        assert_eq!(region.stats().resident_pages, 12);
        assert_eq!(region.control().check().expect("there"), [""; 0]);
    }

    /// If a page-out let no thread in between two pages, threads that fault in its group would wait
    /// on, because locks alone are not fair.
    #[test]
    fn who_faults_in_a_group_comes_before_the_next_page() {
        let Some(pager) = pager(16 << 20) else { return };
        let region = region(&pager, 64, 0);
        let folded = Arc::clone(&region.folded);
        // relaxed: counted by this thread.
        let yields = || folded.probe.yields.load(Ordering::Relaxed);
        assert_eq!(region.control().page_out(0..4096).expect("out").stored, 1);
        assert_eq!(yields(), 0, "nobody waits");
        let held = folded.lock(0).expect("registered");
        std::thread::scope(|scope| {
            scope.spawn(|| folded.lock_for_fault(0).map(drop));
            eventually(|| folded.chunks.is_awaited(0));
            folded.let_faults_in(0);
            assert_eq!(yields(), u64::from(YIELDS), "it waits, and we hold the lock");
            drop(held);
        });
        folded.let_faults_in(0);
        assert_eq!(yields(), u64::from(YIELDS), "it has come");
        folded.chunks.wait_for_ever(0);
        assert_eq!(region.control().page_out(4096..4 * 4096).expect("out").stored, 3);
        assert_eq!(yields(), 4 * u64::from(YIELDS), "after each page");
    }

    /// A group that a full store refused was once in no list any more, and never left memory again.
    #[test]
    fn what_a_full_store_refused_leaves_when_there_is_room() {
        let Some(mut pager) = pager(16 << 20) else { return };
        // The pager's thread would compress the second chance by itself.
        Arc::get_mut(&mut pager).expect("not shared yet").end_thread();
        let mut region = region(&pager, 256, 64 << 10);
        let control = region.control();
        assert!(control.page_out(0..64 * 4096).expect("tried").refused > 0, "the store is full");
        control.cold(192 * 4096..256 * 4096).expect("known");
        assert!(region.folded.age(), "group 3 has its second chance");
        assert_eq!(region.stats().staged_pages, 64);
        assert!(region.folded.compress_oldest());
        assert_eq!(region.stats().staged_pages, 0, "it was put back");
        region.discard(0..64 * 4096).expect("room");
        control.cold(192 * 4096..256 * 4096).expect("known");
        let out = control.page_out_coldest(1).expect("tried");
        assert_ne!(region.folded.lock_known(3).expect("known").stored(), 0, "{out:?}");
        assert_eq!(control.check().expect("there"), [""; 0]);
    }
}
