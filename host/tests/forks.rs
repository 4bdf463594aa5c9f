//! Forked children of a program whose regions need no userfaultfd: they have the regions, copy on
//! write, and bring their own pages in.

use region::{
    Density, FaultError, FaultMode, Field, Memory, MemoryConfig, Pager, PagerConfig, RawRegion,
    Region, RegionConfig, RegionError, TiersConfig,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const PAGES: usize = 512;
/// Seconds until a child that hangs is ended.
const PATIENCE: u32 = 300;

fn pager() -> Arc<Pager> {
    pager_of(FaultMode::Protection).expect("a pager")
}

fn pager_of(mode: FaultMode) -> Result<Arc<Pager>, RegionError> {
    let memory = Memory::new(MemoryConfig::for_disk(64 << 20)).expect("a memory");
    Pager::new(memory, &PagerConfig { fault_mode: Some(mode), ..PagerConfig::default() })
}

/// A region whose pages each begin with their number and a mark.
fn region(pager: &Arc<Pager>, mark: u32, resident_limit: Option<usize>) -> Region {
    region_with(pager, mark, &RegionConfig { resident_limit, ..RegionConfig::default() })
}

fn region_with(pager: &Arc<Pager>, mark: u32, config: &RegionConfig) -> Region {
    let mut region = Region::map(pager, PAGES * PAGE, config).expect("a region");
    for page in 0..PAGES {
        write(&mut region, page, mark);
    }
    region
}

fn write(region: &mut Region, page: usize, mark: u32) {
    let bytes = region.bytes_mut(page * PAGE..page * PAGE + 8).expect("there");
    bytes[..4].copy_from_slice(&(page as u32).to_ne_bytes());
    bytes[4..].copy_from_slice(&mark.to_ne_bytes());
}

/// The pages whose mark is another one.
fn others(region: &Region, mark: u32) -> Vec<usize> {
    let is_other = |&page: &usize| {
        let bytes = region.bytes(page * PAGE..page * PAGE + 8).expect("there");
        bytes[..4] != (page as u32).to_ne_bytes() || bytes[4..] != mark.to_ne_bytes()
    };
    (0..PAGES).filter(is_other).collect()
}

/// Forks a child that answers. Its number.
fn fork(answer: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child does what a forked child of a program with threads may do here: it touches
    // regions, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "a fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        let right = std::panic::catch_unwind(std::panic::AssertUnwindSafe(answer)).unwrap_or(false);
        // SAFETY: without what a test's end would do.
        unsafe { libc::_exit(i32::from(!right)) };
    }
    child
}

/// How a child ended: 0 if its answer was true.
fn end_of(child: i32) -> i32 {
    // A child that hangs in a handler has its alarm blocked.
    let mut status = 0;
    for _ in 0..PATIENCE * 100 {
        // SAFETY: waits for a child of this process.
        if unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == child {
            return status;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // SAFETY: ends that child, and waits for it.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, &raw mut status, 0);
    }
    status
}

#[test]
fn parent_and_child_each_have_their_own_pages() {
    let pager = pager();
    let mut region = region(&pager, 7, None);
    region.control().page_out(0..PAGES * PAGE / 2).expect("out");
    let child = fork(|| {
        let seen = others(&region, 7);
        (0..PAGES).step_by(3).for_each(|page| write(&mut region, page, 9));
        let own = others(&region, 7);
        // While the parent pages out and writes below.
        std::thread::sleep(Duration::from_millis(300));
        let still = others(&region, 7) == own;
        seen.is_empty() && own == (0..PAGES).step_by(3).collect::<Vec<_>>() && still
    });
    assert_eq!(others(&region, 7), [0; 0], "the parent has what it wrote");
    let out = region.control().page_out(0..PAGES * PAGE).expect("out");
    assert!(out.stored > 0 && out.busy == 0, "shared pages leave: {out:?}");
    (0..PAGES).step_by(2).for_each(|page| write(&mut region, page, 11));
    region.control().page_out(0..PAGES * PAGE).expect("out");
    assert_eq!(end_of(child), 0);
    assert_eq!(others(&region, 7), (0..PAGES).step_by(2).collect::<Vec<_>>());
    assert_eq!(region.control().check().expect("alive"), [""; 0]);
}

/// A lock that another thread holds when the child is made would stay locked in the child.
#[test]
fn children_that_are_made_in_the_middle_of_everything_have_every_page() {
    [Density::Fast, Density::Dense].into_iter().for_each(children_in_the_middle);
}

fn children_in_the_middle(density: Density) {
    const CHILDREN: u32 = 60;
    let pager = pager();
    let age = Duration::from_secs(1);
    let tiers = Some(TiersConfig { age, cpu_percent: 100, ..TiersConfig::new(density) });
    let config = RegionConfig { resident_limit: Some(1 << 20), tiers, ..RegionConfig::default() };
    let still = region_with(&pager, 3, &config);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for mark in [100, 200] {
            let (pager, stop) = (&pager, &stop);
            scope.spawn(move || {
                let mut busy = region(pager, mark, Some(1 << 20));
                // relaxed: it only asks the threads to end.
                while !stop.load(Ordering::Relaxed) {
                    (0..PAGES).step_by(7).for_each(|page| write(&mut busy, page, mark));
                    busy.control().page_out(0..PAGES * PAGE).expect("out");
                    assert_eq!(others(&busy, mark), [0; 0]);
                }
            });
        }
        let (control, stop) = (still.control(), &stop);
        scope.spawn(move || {
            // relaxed: as above.
            while !stop.load(Ordering::Relaxed) {
                control.page_out(0..PAGES * PAGE).expect("out");
                assert_eq!(control.densify().is_ok(), density == Density::Dense);
            }
        });
        let wrong = (0..CHILDREN).find(|_| {
            let child = fork(|| others(&still, 3).is_empty());
            let own = others(&still, 3).is_empty();
            end_of(child) != 0 || !own
        });
        // relaxed: as above.
        stop.store(true, Ordering::Relaxed);
        assert_eq!(wrong, None, "the child that ended otherwise");
    });
}

/// A child once might have waited for the lock of a page that the thread of tiers had.
#[test]
fn children_that_are_made_while_pages_become_denser_have_every_page() {
    const PAGES: usize = 8192;
    let (pager, age) = (pager(), Duration::from_secs(1));
    let dense = TiersConfig::new(Density::Dense);
    let tiers = Some(TiersConfig { age, cpu_percent: 100, ..dense });
    let config = RegionConfig { tiers, ..RegionConfig::default() };
    let mut region = Region::map(&pager, PAGES * PAGE, &config).expect("a region");
    // Of 32 bits only 5 change, in no order: a code is shorter, and there is nothing to repeat.
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        state & 0x1F00_0000
    };
    region
        .as_mut_slice()
        .chunks_exact_mut(4)
        .for_each(|word| word.copy_from_slice(&next().to_le_bytes()));
    let sum = |region: &Region| {
        let words = region.as_slice().chunks_exact(8);
        words
            .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
            .fold(0, u64::wrapping_add)
    };
    let right = sum(&region);
    region.control().page_out(0..PAGES * PAGE).expect("out");
    let denser = || region.tier_stat().expect("it has tiers").denser;
    let mut children = 0;
    // Until all pages were compressed twice. An emulated machine takes half a minute for a child.
    let late = Instant::now() + Duration::from_secs(60);
    let is_slow = |children| children > 10 && Instant::now() > late;
    while denser() < 3 * PAGES as u64 / 2 && children < 400 && !is_slow(children) {
        if denser() == 0 {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        children += 1;
        let child = fork(|| sum(&region) == right);
        assert_eq!(end_of(child), 0, "child {children}, {} pages became denser", denser());
    }
    assert!(children > 10, "{children} children");
    assert_eq!(sum(&region), right);
    assert_eq!(region.control().check().expect("there"), [""; 0]);
}

#[test]
fn what_needs_the_parents_threads_is_refused_and_nothing_hangs() {
    let pager = pager();
    let region = region(&pager, 5, Some(1 << 20));
    let (control, inherited) =
        (region.control(), |error| matches!(error, RegionError::Fault(FaultError::Inherited)));
    let mut parts = Some((pager, region));
    let child = fork(|| {
        let (pager, mut region) = parts.take().expect("the child's copy");
        let refused = [
            control.page_out(0..PAGE).map(drop),
            region.discard(0..PAGE),
            Region::map(&pager, PAGE, &RegionConfig::default()).map(drop),
        ];
        let right = refused.into_iter().all(|outcome| outcome.is_err_and(inherited));
        let pinned = region.pin(0..PAGES * PAGE).is_ok_and(|pinned| pinned[4 * PAGE] == 4);
        drop(region);
        drop(pager);
        right && pinned
    });
    assert_eq!(end_of(child), 0);
    let (_pager, region) = parts.expect("the parent's own");
    assert_eq!(others(&region, 5), [0; 0]);
}

/// Other languages use and drop what their process inherited, whatever it is.
#[test]
fn a_child_that_uses_and_drops_raw_regions_and_plots_does_no_harm() {
    for mode in [FaultMode::Protection, FaultMode::Signal, FaultMode::Guards] {
        let pager = pager_of(mode).inspect_err(|error| eprintln!("skipped: needs {error}"));
        let Ok(pager) = pager else { continue };
        let config = RegionConfig::default();
        let region = RawRegion::map(&pager, PAGES * PAGE, &config).expect("a region");
        let plot = Field::map(&pager, PAGES * PAGE, &config).and_then(|field| field.plot(PAGE));
        let plot = plot.expect("a plot");
        region.pin(0..PAGE).expect("pinned");
        plot.pin(0..PAGE).expect("pinned");
        let (field, mut parts) = (Arc::clone(plot.field()), Some((region, plot)));
        let child = fork(|| {
            let (region, plot) = parts.take().expect("the child's copy");
            let inherited = |error| matches!(error, RegionError::Fault(FaultError::Inherited));
            let discarded = region.discard(PAGE..2 * PAGE).is_err_and(inherited);
            let has_pages = mode == FaultMode::Protection;
            let pinned = [region.pin(0..PAGE), region.unpin(0..PAGE), plot.unpin(0..PAGE)];
            drop((region, plot));
            discarded && pinned.iter().all(|pinned| pinned.is_ok() == has_pages)
        });
        assert_eq!(end_of(child), 0, "{mode:?}");
        let (region, plot) = parts.expect("the parent's own");
        plot.unpin(0..PAGE).expect("it is still pinned");
        region.unpin(0..PAGE).expect("it is still pinned");
        assert_eq!(region.control().check().expect("there"), [""; 0]);
        drop(plot);
        assert_eq!(field.free_bytes(), PAGES * PAGE);
    }
}

#[test]
fn a_child_may_have_regions_of_its_own_and_children() {
    let parents = pager();
    let region_of_parent = region(&parents, 5, None);
    region_of_parent.control().page_out(0..PAGES * PAGE).expect("out");
    let child = fork(|| {
        let pager = pager();
        let own = region(&pager, 6, Some(1 << 20));
        own.control().page_out(0..PAGES * PAGE).expect("out");
        let grandchild =
            fork(|| others(&region_of_parent, 5).is_empty() && others(&own, 6).is_empty());
        let right = others(&own, 6).is_empty() && others(&region_of_parent, 5).is_empty();
        end_of(grandchild) == 0 && right
    });
    assert_eq!(end_of(child), 0);
    assert_eq!(others(&region_of_parent, 5), [0; 0]);
}

/// It runs no hook of the C library, and finds out by itself that it is a child. Locks that another
/// thread holds stay locked in it, so the test is alone in a process, and its child calls nothing
/// that takes one.
#[test]
fn a_child_that_the_c_library_does_not_know_of_has_its_own_pages() {
    const ALONE: &str = "RAMFOLD_FORKS_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let test = "a_child_that_the_c_library_does_not_know_of_has_its_own_pages";
        let this = std::env::current_exe().expect("this test's path");
        let alone =
            std::process::Command::new(this).args([test, "--exact"]).env(ALONE, "1").output();
        let alone = alone.expect("a process");
        return assert!(alone.status.success(), "{}", String::from_utf8_lossy(&alone.stdout));
    }
    let pager = pager();
    let mut region = region(&pager, 7, None);
    region.control().page_out(0..PAGES * PAGE).expect("out");
    // SAFETY: without flags this is a fork, whose child has this thread and no other.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    if child == 0 {
        let mark = |page: usize| region.as_slice()[page * PAGE + 4];
        let right = (0..PAGES).all(|page| mark(page) == 7);
        write(&mut region, 9, 8);
        let own = region.as_slice()[9 * PAGE + 4] == 8;
        // SAFETY: without what a test's end would do.
        unsafe { libc::_exit(i32::from(!(right && own))) };
    }
    assert_eq!(end_of(child as i32), 0);
    assert_eq!(others(&region, 7), [0; 0]);
}
