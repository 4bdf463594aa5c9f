//! What a forked child may do with the regions of its parent, and which requests end it.

use crate::setting::{Filler, Setting, path, served, setting, setting_in, whole};
use ramfold_host::fault::{FaultThread, watch};
use ramfold_host::{FaultError, FaultMode, FaultPath, PAGE_SIZE, Span, Staging};
use std::sync::Arc;

/// The modes whose pages stay with the parent.
const LEFT: [FaultMode; 2] = [FaultMode::Signal, FaultMode::Guards];

/// How a forked child ends: with 0 where the answer is true.
fn forked(answer: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child's threads are this one, which holds no lock.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends a child that hangs.
        unsafe { libc::alarm(20) };
        // A panic would end this thread, and the child with it, as if all were well.
        let right = std::panic::catch_unwind(std::panic::AssertUnwindSafe(answer)).unwrap_or(false);
        // SAFETY: without what a test's end would do.
        unsafe { libc::_exit(i32::from(!right)) };
    }
    let mut status = 0;
    // SAFETY: waits for a child of this process.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    status
}

/// The addresses are free in the child, and what is mapped there may have faults of its own.
#[test]
fn a_fault_of_a_forked_child_is_not_served() {
    let Some(mut at) = setting() else { return };
    let filler = Filler::of(&at.span);
    let _watch = watch(at.span.range(), at.span.mode(), filler).expect("watched");
    let file = std::fs::File::open("/proc/self/exe").expect("a file");
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    let start = std::ptr::without_provenance_mut(at.span.range().start);
    let status = forked(|| {
        let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_FIXED);
        // SAFETY: the child has nothing there; reading past the end of the file is what ends it.
        unsafe {
            let page = libc::mmap(start, PAGE_SIZE, protection, flags, fd, 1 << 40);
            page.cast::<u8>().read_volatile() == 0
        }
    });
    assert_eq!(libc::WTERMSIG(status), libc::SIGBUS);
    assert_eq!(whole(&mut at.memory)[0], 1, "what the parent has is its own");
}

#[test]
fn a_forked_child_may_have_regions_of_its_own() {
    let Some(_parents) = setting().map(|mut at| (served(&mut at), at)) else { return };
    let status = forked(|| {
        let right = setting().map(|mut at| {
            let _served = served(&mut at);
            whole(&mut at.memory)[9 * PAGE_SIZE] == 42
        });
        right == Some(true)
    });
    assert_eq!(status, 0);
}

/// A touch of its parent's region would read what the child has there.
#[test]
fn nothing_of_a_forked_child_is_where_its_parents_regions_were() {
    LEFT.into_iter().filter_map(setting_in).for_each(parents_stay_apart);
}

fn parents_stay_apart(mut parents: Setting) {
    let range = parents.span.range();
    let _served = served(&mut parents);
    let status = forked(|| {
        let own = path(parents.span.mode()).expect("as the parent's");
        // The system gives the highest addresses that are free, and small spans fill gaps.
        let spans: Vec<_> =
            (0..1000).map(|_| Span::reserve(&own, 2).expect("a span").0.range()).collect();
        spans.iter().all(|span| span.end <= range.start || span.start >= range.end)
    });
    assert_eq!(status, 0);
}

#[test]
fn a_forked_child_that_touches_its_parents_region_ends_with_a_word() {
    LEFT.into_iter().filter_map(setting_in).for_each(it_ends_with_a_word);
}

fn it_ends_with_a_word(mut at: Setting) {
    let _watch = watch(at.span.range(), at.span.mode(), Filler::of(&at.span)).expect("watched");
    let start = std::ptr::without_provenance::<u8>(at.span.range().start);
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let status = forked(|| {
        // SAFETY: the child's words go to the parent, and nothing else of the child's does.
        unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&writer), 2) };
        // SAFETY: closed memory is there, which ends the child.
        unsafe { start.add(5).read_volatile() == 0 }
    });
    drop(writer);
    let mut words = String::new();
    std::io::Read::read_to_string(&mut reader, &mut words).expect("it has ended");
    assert_eq!(libc::WTERMSIG(status), libc::SIGABRT, "{words}");
    assert!(words.contains("only its parent has"), "{words}");
    assert_eq!(whole(&mut at.memory)[0], 1, "what the parent has is its own");
}

#[test]
fn a_forked_child_does_not_have_the_pages() {
    // From here on children have most mappings, because closed pages need them.
    let _closed = FaultPath::open(FaultMode::Protection).expect("protection");
    LEFT.into_iter().filter_map(setting_in).for_each(it_has_no_page);
}

fn it_has_no_page(at: Setting) {
    let start = std::ptr::without_provenance_mut(at.span.range().start);
    // SAFETY: asks whether the page is mapped. No region is watched, so nothing is in its place.
    let status = forked(|| unsafe { libc::mincore(start, PAGE_SIZE, &mut 0) != 0 });
    assert_eq!(status, 0, "nothing is mapped there in the child");
    let mut segment = at.staging.take().expect("taken back").expect("free");
    let moved = at.span.move_out(0, 64, &mut segment, 0);
    assert_eq!((moved.pages, moved.stop), (64, None), "no page is shared with a child");
}

#[test]
fn a_forked_child_is_refused_more_of_its_parents_userfaultfd() {
    let Some(path) = path(FaultMode::Signal) else { return };
    let refused = |error| matches!(error, FaultError::Inherited);
    assert_eq!(forked(|| Span::reserve(&path, 1).is_err_and(refused)), 0);
    assert_eq!(forked(|| Staging::reserve(&path, 1).is_err_and(refused)), 0);
    assert_eq!(forked(|| FaultThread::start(Arc::clone(&path)).is_err()), 0);
}

/// Its parent's userfaultfd would move its parent's pages.
#[test]
fn a_forked_child_that_uses_its_parents_pages_is_ended() {
    LEFT.into_iter().filter_map(setting_in).for_each(it_is_ended);
}

fn it_is_ended(mut at: Setting) {
    let filled = forked(|| at.fill(0, 1, 0).pages == 0);
    assert_eq!(libc::WTERMSIG(filled), libc::SIGABRT);
    let mut segment = at.staging.take().expect("taken back").expect("free");
    let moved = forked(|| at.span.move_out(0, 64, &mut segment, 0).pages == 0);
    assert_eq!(libc::WTERMSIG(moved), libc::SIGABRT);
    assert_eq!(at.span.resident(0..64), u64::MAX, "nothing of the parent's was moved");
    assert_eq!(whole(&mut at.memory)[7 * PAGE_SIZE], 8);
}
