//! Disks behind the cache of a region, and what the code of such a disk may do.

#[path = "setting/bench.rs"]
mod bench;
#[path = "setting/cache.rs"]
mod cache;
#[path = "setting/rough.rs"]
mod rough;
mod setting;

use bench::{Bench, is_child_that_aborts};
use disk::FileDisk;
use ramfold_region::{Region, RegionConfig, RegionError};
use rough::Trouble;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const PAGE: usize = 4096;
const PAGES: usize = 128;
const CACHE_BYTES: u64 = 16 << 20;

fn new_bench() -> Option<Bench> {
    Bench::with(CACHE_BYTES, |_| ())
}

impl Bench {
    /// A region whose pages are all on the disk. Each has its number in it.
    fn region(&self) -> Region {
        let config = RegionConfig { store: cache::over(&self.cache), ..RegionConfig::default() };
        let mut region = Region::map(&self.pager, PAGES * PAGE, &config).expect("a region");
        let pages = region.as_mut_slice().chunks_mut(PAGE).enumerate();
        pages
            .for_each(|(number, page)| page[100..108].copy_from_slice(&(number + 1).to_le_bytes()));
        region.control().page_out(0..PAGES * PAGE).expect("out");
        self.cache.write_back(PAGES as u64);
        assert_eq!(region.stats().disk_pages, PAGES as u64);
        region
    }
}

/// The number in a page.
fn number_in(bytes: &[u8], page: usize) -> usize {
    usize::from_le_bytes(bytes[page * PAGE + 100..][..8].try_into().expect("eight bytes"))
}

fn assert_numbers(region: &Region) {
    let bytes = region.as_slice();
    (0..PAGES).for_each(|page| assert_eq!(number_in(bytes, page), page + 1));
}

/// In a signal handler the disk would borrow twice, and so panic. With `unsafe`, it would alias.
#[test]
fn a_disk_may_use_what_the_code_that_touches_a_page_is_changing() {
    thread_local! {
        static NUMBERS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    }
    let Some(bench) = new_bench() else { return };
    let region = bench.region();
    let count = || NUMBERS.with_borrow_mut(|numbers| numbers.push(0));
    assert!(bench.trouble.on_read.set(Box::new(count)).is_ok());
    let bytes = region.as_slice();
    NUMBERS.with_borrow_mut(|numbers| {
        numbers.extend((0..PAGES).map(|page| number_in(bytes, page * 7 % PAGES)));
        let expected: Vec<usize> = (0..PAGES).map(|page| page * 7 % PAGES + 1).collect();
        assert_eq!(*numbers, expected, "nobody else pushed");
    });
    assert!(bench.trouble.reads.load(Ordering::SeqCst) > 0);
    let stats = region.stats();
    assert!(stats.disk_faults > 0 && stats.disk_faults <= stats.faults, "{stats:?}");
    assert_eq!((stats.resident_pages, stats.stored_pages), (PAGES as u64, 0));
    assert_eq!(region.control().check().expect("there"), [""; 0]);
}

/// Pages come in ahead of a walk even if other threads read them.
#[test]
fn a_walk_has_pages_of_any_disk_brought_in_together() {
    let Some(bench) = new_bench() else { return };
    let region = bench.region();
    assert_numbers(&region);
    assert!(region.stats().faults < PAGES as u64 / 3, "{:?}", region.stats());
}

#[test]
fn threads_that_fault_at_once_each_get_their_page() {
    const THREADS: usize = 100;
    let Some(bench) = new_bench() else { return };
    let region = bench.region();
    bench.trouble.stalls.store(true, Ordering::SeqCst);
    let region = &region;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let page = thread % PAGES;
                assert_eq!(number_in(region.as_slice(), page), page + 1);
            });
        }
        // There are as many reads as fetchers. The others wait for a fetcher, or for room in the
        // queue.
        while bench.trouble.reads.load(Ordering::SeqCst) < 4 {
            std::thread::yield_now();
        }
        bench.trouble.stalls.store(false, Ordering::SeqCst);
    });
    assert_numbers(region);
    assert_eq!(region.control().check().expect("there"), [""; 0]);
}

#[test]
fn a_disk_that_says_which_file_it_is_is_read_past_its_code() {
    let path = std::env::temp_dir().join(format!("ramfold-disks-{}", std::process::id()));
    std::fs::File::create(&path).and_then(|file| file.set_len(64 << 20)).expect("a file");
    let file = FileDisk::open(&path, false).expect("a disk");
    std::fs::remove_file(&path).expect("it is ours");
    let is_the_file = |trouble: &Trouble| assert!(trouble.file.set(file).is_ok());
    let Some(bench) = Bench::with(CACHE_BYTES, is_the_file) else { return };
    assert!(bench.cache.reads_a_file());
    let region = bench.region();
    let before = bench.trouble.reads.load(Ordering::SeqCst);
    assert_numbers(&region);
    assert!(region.stats().disk_faults > 0);
    assert_eq!(bench.trouble.reads.load(Ordering::SeqCst), before);
}

#[test]
fn a_disk_that_panics_has_failed() {
    let Some(bench) = new_bench() else { return };
    let region = bench.region();
    let armed = Arc::new(AtomicBool::new(true));
    let panics = Arc::clone(&armed);
    let panic = move || assert!(!panics.load(Ordering::SeqCst), "as told");
    assert!(bench.trouble.on_read.set(Box::new(panic)).is_ok());
    let refused = region.pin(3 * PAGE..4 * PAGE);
    assert!(matches!(refused, Err(RegionError::Unreadable { byte }) if byte == 3 * PAGE));
    armed.store(false, Ordering::SeqCst);
    assert_numbers(&region);
}

#[test]
fn a_disk_that_touches_a_page_on_it_ends_the_process() {
    let Some(bench) = new_bench() else { return };
    let test = "a_disk_that_touches_a_page_on_it_ends_the_process";
    if !is_child_that_aborts(test, "a disk touched a page that is on a disk") {
        return;
    }
    let (region, other): (&Region, &Region) =
        (Box::leak(Box::new(bench.region())), Box::leak(Box::new(bench.region())));
    let touch = || assert_eq!(number_in(other.as_slice(), 9), 10);
    assert!(bench.trouble.on_read.set(Box::new(touch)).is_ok());
    assert_numbers(region);
}
