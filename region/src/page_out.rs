//! Taking pages out: to staging in one move, from there to the store.
//!
//! ```text
//!   region   ########----##   --MOVE-->   staging ########....##   --compress-->   store
//!                                            `--- one MADV_DONTNEED for the segment
//! ```
//!
//! A page that is touched between the two steps is copied back, and not compressed.
//!
//! The group's lock is held for one move, and for one page's compression at a time; threads that
//! wait for it in a fault come before the next page.

use crate::counters::Count;
use crate::folded::Folded;
use crate::group::{Group, bits, runs};
use crate::outcome::{PageOut, Refusal};
use crate::{GROUP_PAGES, RegionError};
use host::{GONE, LockGuard, Segment, Stop, Transfer};
use std::ops::Range;
use std::time::{Duration, Instant};

/// How long to wait for others to give staging up, at a time.
const WAIT: Duration = Duration::from_micros(100);

/// How often to let others run before the next page.
const YIELDS: u32 = 100;

impl Folded {
    /// Pages out what is resident of `pages`. The region's gate is held for a group at a time.
    pub(crate) fn page_out(&self, pages: &Range<usize>) -> Result<PageOut, RegionError> {
        let mut out = PageOut::default();
        if pages.is_empty() {
            return Ok(out);
        }
        for index in self.groups_of(pages) {
            let all = self.chunks.pages_of(index);
            let (start, end) = (pages.start.max(all.start), pages.end.min(all.end));
            let wanted = bits(start - all.start, end - start);
            let _gate = self.enter()?;
            out += self.page_out_group(index, wanted)?;
        }
        Ok(out)
    }

    /// Pages out `wanted` of a group.
    pub(crate) fn page_out_group(&self, index: usize, wanted: u64) -> Result<PageOut, RegionError> {
        let (_, busy) = self.stage(index, wanted)?;
        let mut out = self.compress(index);
        out.busy += busy;
        Ok(out)
    }

    /// Moves what is resident of `wanted` to staging; how many pages, and how many could not be.
    pub(crate) fn stage(&self, index: usize, wanted: u64) -> Result<(u64, u64), RegionError> {
        loop {
            // Looked at anew each time: pages come and pins are taken while the lock is not held.
            let mut group = self.lock(index)?;
            let movable = group.resident & wanted;
            if group.pins > 0 || movable == 0 {
                let pinned = if group.pins > 0 { movable.count_ones() } else { 0 };
                return Ok((0, u64::from(pinned)));
            }
            if group.segment.is_some() {
                // It may have dead copies where pages are to go; what it has alive goes first.
                drop(group);
                self.compress(index);
            } else if let Some(segment) = self.shared.staging.take()? {
                return Ok(self.move_out(index, &mut group, segment, wanted));
            } else {
                drop(group);
                self.make_staging_free();
            }
        }
    }

    fn move_out(
        &self,
        index: usize,
        group: &mut LockGuard<'_, Group>,
        mut segment: Segment,
        wanted: u64,
    ) -> (u64, u64) {
        let mut todo = group.resident & wanted;
        let (mut moved, mut busy) = (0, 0);
        while let Some((at, count)) = runs(todo).next() {
            let first = index * GROUP_PAGES + at;
            let transfer = self.move_run(first, count, &mut segment, at);
            let done = bits(at, transfer.pages);
            moved |= done;
            todo &= !done;
            if let Some(stop) = transfer.stop {
                let next = bits(at + transfer.pages, 1);
                todo &= !next;
                if stop == Stop::Hole {
                    let page = first + transfer.pages;
                    self.end(GONE, page);
                }
                busy += 1;
            }
        }
        self.around.density.end(index, &mut group.trials, moved);
        group.stage(moved);
        if moved != 0 {
            group.segment = Some(segment);
        }
        let count = u64::from(moved.count_ones());
        self.counters.sub(Count::Resident, count);
        self.counters.add(Count::Staged, count);
        self.counters.add(Count::PagesOut, count);
        self.counters.add(Count::Busy, busy);
        (count, busy)
    }

    fn move_run(&self, first: usize, count: usize, segment: &mut Segment, at: usize) -> Transfer {
        #[cfg(test)]
        let count = match self.probe.free_from(at) {
            0 => return Transfer { pages: 0, stop: Some(Stop::Busy) },
            free => count.min(free),
        };
        self.span.move_out(first, count, segment, at)
    }

    /// Has a group give its segment up: the one that has been in staging longest, of this region or
    /// else of any that nobody is about to change.
    fn make_staging_free(&self) {
        if self.compress_oldest() {
            return;
        }
        let gave = self.shared.alive().any(|other| match other.try_enter() {
            Some(_gate) => other.compress_oldest(),
            None => false,
        });
        if !gave {
            // All of it is on its way out, and comes free by itself.
            std::thread::sleep(WAIT);
        }
    }

    /// Compresses the group that has been in staging longest; false where none is.
    pub(crate) fn compress_oldest(&self) -> bool {
        let oldest = self.queue.lock().pop_staged();
        oldest.map(|oldest| self.compress(oldest as usize)).is_some()
    }

    /// Compresses what a group has in staging, and gives its segment back.
    pub(crate) fn compress(&self, index: usize) -> PageOut {
        let (mut out, mut tries) = (PageOut::default(), self.store.room_tries());
        let worth = &self.around.worth;
        while let Some(mut group) = self.lock_known(index) {
            if group.staged == 0 {
                let segment = group.segment.take();
                drop(group);
                // The system is asked with no lock held.
                drop(segment);
                break;
            }
            let at = group.staged.trailing_zeros() as usize;
            let started = (out.stored == 0).then(Instant::now);
            match self.compress_page(index, &mut group, at) {
                Ok(()) => {
                    out.stored += 1;
                    started.iter().for_each(|started| worth.out_took(started.elapsed()));
                }
                Err(refusal) if refusal.tries(tries) > 0 => {
                    // With no lock held: it may compact, run what others have deferred, and write
                    // back.
                    drop(group);
                    self.sweep();
                    let more = refusal.tries(tries) - 1;
                    tries = if self.store.make_room() { more } else { 0 };
                    continue;
                }
                Err(refusal) => {
                    let alone = refusal == Refusal::Incompressible;
                    let pages = if alone { bits(at, 1) } else { group.staged };
                    out.refuse(refusal, self.put_back(index, &mut group, pages));
                    self.counters.refusal.set(refusal);
                }
            }
            let stays = group.staged >> at & 1 == 1;
            drop(group);
            if stays {
                // The system has no memory to put it back to. It is in staging, which is memory
                // too, and is tried again.
                std::thread::sleep(WAIT);
            }
            self.let_faults_in(index);
        }
        out
    }

    /// Between two pages: whoever faulted in this group meanwhile goes first, which locks alone do
    /// not see to.
    fn let_faults_in(&self, index: usize) {
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
        let data = group.segment.as_ref().and_then(|segment| segment.page(at));
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

    /// Copies staged pages back that the store does not take; how many.
    fn put_back(&self, index: usize, group: &mut LockGuard<'_, Group>, pages: u64) -> u64 {
        let mut refused = 0;
        for (at, count) in runs(group.staged & pages) {
            refused += self.put_back_run(index, group, at, count);
        }
        self.counters.add(Count::Refused, refused);
        self.list(index, group);
        refused
    }

    fn put_back_run(&self, index: usize, group: &mut Group, at: usize, count: usize) -> u64 {
        let mut done = 0;
        while done < count {
            let Some(segment) = &group.segment else { break };
            let page = index * GROUP_PAGES + at + done;
            let transfer = self.put_staged(page, count - done, segment);
            done += transfer.pages;
            match transfer.stop {
                None => {}
                Some(Stop::Present) => done += 1,
                Some(Stop::NoMemory) => break,
                Some(_) => self.end("a page cannot be put back", page),
            }
        }
        group.arrive(bits(at, done));
        self.counters.sub(Count::Staged, done as u64);
        self.counters.add(Count::Resident, done as u64);
        done as u64
    }
}

#[cfg(test)]
mod tests {
    use crate::PageOut;
    use crate::RegionError;
    use crate::folded::Folded;
    use crate::group::bits;
    use crate::{Memory, MemoryConfig, Pager, PagerConfig, Region, RegionConfig};
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
                // relaxed: a wish to end.
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

    /// What a page-out of three groups, held up at the first and the second, came to, when somebody
    /// wants to be alone with the region meanwhile; and whether that is done before it ends, which
    /// dropping its sender says.
    fn page_out_meanwhile(
        pager: &Arc<Pager>,
        wants: fn(Region, Sender<()>) -> Option<Region>,
    ) -> (Result<PageOut, RegionError>, bool) {
        let region = region(pager, 3 * 64, 0);
        let (folded, control) = (Arc::clone(&region.folded), region.control());
        let [first, second] = [0, 1].map(|index| hold(&folded, index));
        let out = std::thread::spawn(move || control.page_out(0..3 * 64 * 4096));
        // It has passed the turnstile then, and comes there again after the first group.
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

    /// Holds a group's lock, in a thread of its own, until what this gives is dropped.
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
            // It waits for those who hold the groups.
            drop(done);
            drop(region);
            None
        });
        assert!(matches!(out, Err(RegionError::Gone)), "{out:?}");
    }

    #[test]
    fn a_page_out_ends_while_all_staging_is_second_chances_of_others() {
        let Some(mut pager) = pager(512 << 10) else { return };
        // Its thread would see these second chances out by itself.
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

    /// Pages that the system uses were not counted, and all tests passed.
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

    /// A page-out that lets nobody in between two pages keeps threads waiting that fault in its
    /// group: locks alone are not fair.
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
            assert_eq!(yields(), u64::from(super::YIELDS), "it waits, and we hold the lock");
            drop(held);
        });
        folded.let_faults_in(0);
        assert_eq!(yields(), u64::from(super::YIELDS), "it has come");
        folded.chunks.wait_for_ever(0);
        assert_eq!(region.control().page_out(4096..4 * 4096).expect("out").stored, 3);
        assert_eq!(yields(), 4 * u64::from(super::YIELDS), "after each page");
    }

    /// A group that a full store refused was in no list any more, and never left memory again.
    #[test]
    fn what_a_full_store_refused_leaves_when_there_is_room() {
        let Some(mut pager) = pager(16 << 20) else { return };
        // Its thread would see the second chance out by itself.
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
        assert_ne!(region.folded.lock_known(3).expect("known").stored, 0, "{out:?}");
        assert_eq!(control.check().expect("there"), [""; 0]);
    }
}
