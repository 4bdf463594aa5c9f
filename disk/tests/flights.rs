//! Writes in flight: each lands once, and no more are in flight than allowed.

use ramfold_disk::{Disk, DiskError, Fault, FaultPlan, FaultyDisk, Flights, RamDisk};
use ramfold_disk::{FaultSpan, Verbs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

/// A disk whose writes return only when so many of them run at the same time.
struct Together {
    meeting: Barrier,
    now: AtomicUsize,
    most: AtomicUsize,
    panics_at: u64,
}

impl Together {
    fn new(writes: usize, panics_at: u64) -> Arc<Together> {
        let (now, most) = Default::default();
        Arc::new(Together { meeting: Barrier::new(writes), now, most, panics_at })
    }
}

impl Disk for Together {
    fn size_bytes(&self) -> u64 {
        1 << 20
    }
    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), DiskError> {
        Ok(())
    }
    fn write(&self, offset: u64, _: &[u8]) -> Result<(), DiskError> {
        // SeqCst: a test.
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.meeting.wait();
        self.now.fetch_sub(1, Ordering::SeqCst);
        assert!(offset != self.panics_at, "as asked");
        Ok(())
    }
}

#[test]
fn as_many_fly_as_may_and_no_more() {
    const LIMIT: usize = 3;
    let disk = Together::new(LIMIT, u64::MAX);
    let mut flights = Flights::new(Arc::clone(&disk) as _, LIMIT);
    (0..4 * LIMIT as u64).for_each(|at| flights.write(at, vec![0; 8], at));
    let mut tags: Vec<u64> = std::iter::from_fn(|| flights.landed()).map(|l| l.tag).collect();
    tags.sort_unstable();
    assert_eq!(tags, (0..4 * LIMIT as u64).collect::<Vec<_>>(), "each lands once");
    assert_eq!(disk.most.load(Ordering::SeqCst), LIMIT);
    assert_eq!(flights.in_flight(), 0);
}

#[test]
fn a_failure_lands_with_its_buffer() {
    let ram = RamDisk::new(1 << 20).expect("memory");
    let disk = Arc::new(FaultyDisk::new(ram));
    let fault = Fault::NoSpace;
    disk.arm(FaultPlan { after: 2, verbs: Verbs::Writes, span: FaultSpan::Once, fault });
    let mut flights = Flights::new(Arc::clone(&disk) as _, 1);
    (0..5).for_each(|page: u64| flights.write(page * 4096, vec![page as u8 + 1; 4096], page));
    for landed in std::iter::from_fn(|| flights.landed()) {
        let page = landed.tag;
        assert_eq!(landed.buffer, vec![page as u8 + 1; 4096]);
        assert_eq!(landed.result.is_err(), page == 2, "page {page}");
        let mut found = [9; 4096];
        disk.inner().read(page * 4096, &mut found).expect("in range");
        assert!(found == [if page == 2 { 0 } else { page as u8 + 1 }; 4096], "page {page}");
    }
}

#[test]
fn a_disk_that_panics_lands_as_a_failure() {
    let disk = Together::new(1, 8);
    let mut flights = Flights::new(disk, 2);
    [0, 8, 16].into_iter().for_each(|at| flights.write(at, Vec::new(), at));
    let failed: Vec<u64> = std::iter::from_fn(|| flights.landed())
        .filter(|landed| landed.result.is_err())
        .map(|landed| landed.tag)
        .collect();
    assert_eq!(failed, [8]);
}

#[test]
fn dropping_waits_for_what_flies() {
    let disk = Together::new(1, u64::MAX);
    let mut flights = Flights::new(Arc::clone(&disk) as _, 2);
    (0..8).for_each(|at| flights.write(at, Vec::new(), at));
    drop(flights);
    assert_eq!(Arc::strong_count(&disk), 1, "no thread is left");
}
