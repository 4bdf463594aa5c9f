//! Regions without a userfaultfd in programs that lock memory, run off into it, close their
//! descriptors, or fork while many threads fault.

#![cfg(not(any(loom, shuttle, miri)))]

use ramfold_host::fault::begin_call;
use region::{FaultMode, Memory, MemoryConfig, Pager, PagerConfig, Region, RegionConfig};
use std::hint::black_box;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

const PAGE: usize = 4096;
/// Seconds until a child that hangs is ended.
const PATIENCE: u32 = 20;

fn pager() -> Arc<Pager> {
    let memory = Memory::new(MemoryConfig::for_disk(64 << 20)).expect("a memory");
    let fault_mode = Some(FaultMode::Protection);
    Pager::new(memory, &PagerConfig { fault_mode, ..PagerConfig::default() }).expect("a pager")
}

/// A region whose pages begin with their number plus one.
fn region(pager: &Arc<Pager>, pages: usize) -> Region {
    let config = RegionConfig::default();
    let mut region = Region::map(pager, pages * PAGE, &config).expect("a region");
    let all = region.as_mut_slice().chunks_mut(PAGE).enumerate();
    all.for_each(|(page, bytes)| bytes[..8].copy_from_slice(&(page + 1).to_ne_bytes()));
    region
}

/// The pages that have other bytes.
fn wrong(region: &Region) -> Vec<usize> {
    let pages = region.as_slice().chunks(PAGE).enumerate();
    pages
        .filter(|(page, bytes)| bytes[..8] != (page + 1).to_ne_bytes())
        .map(|(page, _)| page)
        .collect()
}

/// How a forked child ends: 0 if its answer is true.
fn forked(answer: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child touches regions, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "a fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        let right = std::panic::catch_unwind(std::panic::AssertUnwindSafe(answer)).unwrap_or(false);
        // SAFETY: without what a test's end would do.
        unsafe { libc::_exit(i32::from(!right)) };
    }
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

/// The system discards all up to the pages that are locked, and then refuses. The pages before them
/// were once taken to be there still, and read as zeros.
#[test]
fn pages_before_locked_ones_leave_and_locked_ones_stay() {
    let pager = pager();
    let region = region(&pager, 64);
    let locked = region.as_slice()[32 * PAGE..].as_ptr().cast();
    // SAFETY: locks pages that are there.
    if unsafe { libc::mlock(locked, 8 * PAGE) } != 0 {
        assert!(std::env::var("CI").is_err(), "CI is to allow 32 KiB of locked memory");
        return eprintln!("skipped: needs RLIMIT_MEMLOCK");
    }
    let out = region.control().page_out(0..64 * PAGE).expect("out");
    assert!(out.stored >= 32 && out.busy > 0, "{out:?}");
    assert_eq!(wrong(&region), [0; 0]);
    assert_eq!(region.control().check().expect("alive"), [""; 0]);
}

/// Their threads had stacks of the pool when the child was made, and nobody in the child gave them
/// back.
#[test]
fn a_child_that_is_made_while_many_threads_fault_has_stacks() {
    let pager = pager();
    let region = region(&pager, 512);
    region.control().page_out(0..512 * PAGE).expect("out");
    let status = std::thread::scope(|scope| {
        let region = &region;
        let (tell, told) = mpsc::channel();
        scope.spawn(move || {
            let _call = begin_call();
            tell.send(()).expect("heard");
            std::thread::sleep(Duration::from_millis(700));
        });
        told.recv().expect("it runs");
        // The fork waits for the call, and the threads for the fork.
        let child = scope.spawn(move || forked(|| wrong(region).is_empty()));
        std::thread::sleep(Duration::from_millis(200));
        for page in 0..64 {
            scope.spawn(move || black_box(region.as_slice()[page * PAGE]));
        }
        child.join().expect("it forks")
    });
    assert_eq!(status, 0);
}

/// A jump into a region was taken for a touch of a page that had just come, again and again.
#[test]
fn a_jump_into_a_region_ends_the_program_as_ever() {
    let pager = pager();
    let region = region(&pager, 64);
    region.control().page_out(0..PAGE).expect("registered");
    let place = region.as_slice()[PAGE..].as_ptr();
    let status = forked(|| {
        // SAFETY: it ends this child.
        let function: extern "C" fn() = unsafe { std::mem::transmute(place) };
        function();
        true
    });
    assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV);
}

/// The numbers by which a process reads its memory: one for each pager.
fn memory_descriptors() -> Vec<RawFd> {
    let link = |fd: &RawFd| std::fs::read_link(format!("/proc/self/fd/{fd}"));
    (3..1024).filter(|fd| link(fd).is_ok_and(|path| path.ends_with("mem"))).collect()
}

/// A child that closed all descriptors, as a daemon does, had its own file replaced by its memory.
#[test]
fn a_child_that_closed_our_descriptor_keeps_its_own_file_and_is_ended() {
    let pager = pager();
    let region = region(&pager, 64);
    region.control().page_out(0..64 * PAGE).expect("out");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let status = forked(|| {
        let numbers = memory_descriptors();
        assert!(!numbers.is_empty(), "they are inherited");
        for number in numbers {
            // SAFETY: the child's own numbers; the pipe takes the place of the memory.
            unsafe { libc::dup2(writer.as_raw_fd(), number) };
        }
        black_box(region.as_slice()[5 * PAGE]);
        true
    });
    assert_eq!(libc::WTERMSIG(status), libc::SIGABRT, "the page cannot come");
    drop((reader, writer));
    assert_eq!(wrong(&region), [0; 0], "the parent has its own");
}

/// A child opens its memory anew at its first page. Of two threads that did so at once, one took
/// the other's descriptor for a foreign one.
#[test]
fn threads_of_a_child_bring_its_first_pages_in_at_once() {
    const THREADS: usize = 8;
    let pager = pager();
    let region = region(&pager, 64 * THREADS);
    region.control().page_out(0..64 * THREADS * PAGE).expect("out");
    for _ in 0..30 {
        let status = forked(|| {
            let barrier = std::sync::Barrier::new(THREADS);
            std::thread::scope(|scope| {
                let touch = |thread: usize| {
                    let (region, barrier) = (&region, &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        region.as_slice()[64 * thread * PAGE..][..8]
                            == (64 * thread + 1).to_ne_bytes()
                    })
                };
                let touching: Vec<_> = (0..THREADS).map(touch).collect();
                touching.into_iter().all(|thread| thread.join().is_ok_and(|right| right))
            })
        });
        assert_eq!(status, 0);
    }
}

/// It was touched for ever, because it might have been closed for a moment only.
#[test]
fn a_page_that_other_code_has_closed_is_a_fault_of_the_programs() {
    let pager = pager();
    let region = region(&pager, 64);
    let page = region.as_slice()[9 * PAGE..].as_ptr().cast_mut().cast();
    let status = forked(|| {
        // SAFETY: closes a page of this child's own.
        unsafe { libc::mprotect(page, PAGE, libc::PROT_NONE) };
        black_box(region.as_slice()[9 * PAGE]);
        true
    });
    assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV);
}
