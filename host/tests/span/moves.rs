//! Claims: pages move to staging and come back, and pages that were given back stay so.

use crate::setting::{in_a_child, is_child, path, served, setting, whole};
use ramfold_host::fault::FaultThread;
use ramfold_host::{FaultMode, HostError, PAGE_SIZE, Segment, Span, Staging, Stop};
use std::sync::Arc;

#[test]
fn pages_move_out_in_one_request_and_come_back_from_anywhere() {
    let Some(mut at) = setting() else { return };
    let mut segment = at.staging.take().expect("taken back").expect("free");
    let moved = at.span.move_out(10, 20, &mut segment, 10);
    assert_eq!((moved.pages, moved.stop), (20, None));
    assert_eq!(at.span.resident(0..64), !(((1 << 20) - 1) << 10));
    assert_eq!(segment.page(10).expect("there")[7], 11);
    assert!(segment.page(9).is_none());
    // SAFETY: the pages were moved there from here.
    let filled = unsafe { at.span.fill_from(10, 15, &segment, 10) };
    assert_eq!((filled.pages, filled.stop), (15, None));
    let filled = at.fill(25, 5, 9);
    assert_eq!((filled.pages, filled.stop), (5, None));
    let bytes = whole(&mut at.memory);
    assert_eq!((bytes[24 * PAGE_SIZE], bytes[25 * PAGE_SIZE]), (25, 9));
    assert_eq!(at.staging.used(), 1);
    drop(segment);
    assert_eq!(at.staging.used(), 0);
}

#[test]
fn a_transfer_says_where_it_stopped_and_why() {
    let Some(mut at) = setting() else { return };
    at.memory.discard(5..6).expect("discarded");
    let mut segment = at.staging.take().expect("taken back").expect("free");
    let moved = at.span.move_out(0, 64, &mut segment, 0);
    assert_eq!((moved.pages, moved.stop), (5, Some(Stop::Hole)));
    let filled = at.fill(3, 8, 1);
    assert_eq!((filled.pages, filled.stop), (3, Some(Stop::Present)), "3, 4 and 5 were missing");
    assert_eq!(whole(&mut at.memory)[6 * PAGE_SIZE], 7, "what was there stays");
    // A segment has one place for a page.
    let again = at.span.move_out(3, 1, &mut segment, 3);
    assert_eq!((again.pages, again.stop), (0, Some(Stop::Present)));
}

#[test]
fn a_segment_has_its_own_pages_only() {
    let Some(at) = setting() else { return };
    let [first, second] = [(); 2].map(|()| at.staging.take().expect("taken back").expect("free"));
    assert_eq!(at.span.move_out(0, 64, &mut { first }, 0).pages, 64);
    assert!([64, 65, usize::MAX - 63, usize::MAX].iter().all(|&at| second.page(at).is_none()));
    for at_in in [1, 64, usize::MAX] {
        let mut second = at.staging.take().expect("taken back").expect("free");
        let moved = std::panic::AssertUnwindSafe(|| at.span.move_out(64, 64, &mut second, at_in));
        assert!(std::panic::catch_unwind(moved).is_err(), "64 pages at {at_in}");
    }
}

#[test]
fn pages_that_the_system_uses_are_busy() {
    let Some(mut at) = setting() else { return };
    let Some(ring) = pin_for_io(&whole(&mut at.memory)[8 * PAGE_SIZE..9 * PAGE_SIZE]) else {
        eprintln!("skipped: needs io_uring");
        return;
    };
    let mut segment = at.staging.take().expect("taken back").expect("free");
    let moved = at.span.move_out(7, 4, &mut segment, 7);
    assert_eq!((moved.pages, moved.stop), (1, Some(Stop::Busy)));
    drop(ring);
}

/// Has io_uring pin a buffer, as for I/O in flight; until the result is dropped.
fn pin_for_io(buffer: &[u8]) -> Option<std::os::fd::OwnedFd> {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    const IORING_REGISTER_BUFFERS: libc::c_uint = 0;
    let mut parameters = [0u32; 30]; // io_uring_params: 120 bytes
    // SAFETY: the system writes as many bytes as there are.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, parameters.as_mut_ptr()) };
    // SAFETY: where it is a descriptor, it is new and nobody else's.
    let ring = (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) })?;
    let vector = libc::iovec { iov_base: buffer.as_ptr().cast_mut().cast(), iov_len: buffer.len() };
    // SAFETY: the buffer stays mapped as long as the ring, and nothing is read into it.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring.as_raw_fd(),
            IORING_REGISTER_BUFFERS,
            &raw const vector,
            1,
        )
    };
    (answer == 0).then_some(ring)
}

#[test]
fn pages_given_back_are_never_lent_again() {
    let Some(mut at) = setting() else { return };
    at.memory.unmap(10..20).expect("given back");
    at.memory.unmap(20..25).expect("given back");
    assert!(at.memory.bytes(0..10 * PAGE_SIZE).is_some());
    assert!(at.memory.bytes(0..10 * PAGE_SIZE + 1).is_none());
    assert!(at.memory.bytes(24 * PAGE_SIZE..25 * PAGE_SIZE).is_none());
    assert_eq!(at.memory.bytes(25 * PAGE_SIZE..64 * PAGE_SIZE).expect("there")[0], 26);
    assert!(at.memory.bytes(64 * PAGE_SIZE..64 * PAGE_SIZE + 1).is_none());
}

/// A program that locks what it maps locks no region: its pages could not leave.
#[test]
fn what_is_mapped_under_mlockall_is_not_locked() {
    let test = "moves::what_is_mapped_under_mlockall_is_not_locked";
    if !is_child() {
        let (signal, words) = in_a_child(test);
        if words.contains("skipped: ") {
            return eprintln!("{words}");
        }
        assert!(signal.is_none() && words.contains("moved"), "{signal:?}: {words}");
        return;
    }
    // SAFETY: concerns this child, which has nothing to lose.
    if unsafe { libc::mlockall(libc::MCL_FUTURE) } != 0 {
        return eprintln!("skipped: needs the right to lock memory");
    }
    let Some(mut at) = setting() else { return };
    let (fresh, _memory) =
        Span::reserve(&path(FaultMode::Signal).expect("as before"), 64).expect("address space");
    assert_eq!(fresh.resident(0..64), 0, "nobody has touched it");
    let (_watch, segment) = served(&mut at);
    assert_eq!(segment.page(10).expect("there")[7], 11);
    eprintln!("moved");
}

/// A segment whose pages the system keeps is used when it has given them up.
#[test]
fn a_segment_that_is_locked_waits_for_its_pages() {
    let Some(mut at) = setting() else { return };
    let (_watch, first) = served(&mut at);
    let lock = |segment: &Segment| {
        let page = segment.page(0).expect("there").as_ptr().cast_mut().cast();
        // SAFETY: the page is there, and mapped until the end of this function.
        unsafe { rustix::mm::mlock(page, PAGE_SIZE) }.expect("a page may be locked");
        page
    };
    let mut locked = vec![lock(&first)];
    drop(first);
    let mut other = at.staging.take().expect("one is left").expect("free");
    assert!(at.staging.take().expect("the other may come free").is_none());
    assert_eq!(at.fill(0, 1, 5).pages, 1);
    assert_eq!(at.span.move_out(0, 1, &mut other, 0).pages, 1);
    locked.push(lock(&other));
    drop(other);
    assert!(matches!(at.staging.take(), Err(HostError::Advise { .. })), "none will come free");
    assert_eq!(at.staging.used(), 2);
    assert_eq!(at.fill(0, 1, 5).pages, 1);
    for page in locked {
        // SAFETY: as above.
        unsafe { rustix::mm::munlock(page, PAGE_SIZE) }.expect("it was locked");
    }
    let mut both = [(); 2].map(|()| at.staging.take().expect("taken back").expect("free"));
    for segment in &mut both {
        assert_eq!(at.span.move_out(0, 1, segment, 0).pages, 1, "nothing is in its way");
        assert_eq!(at.fill(0, 1, 6).pages, 1);
    }
}

#[test]
fn a_closed_descriptor_is_noticed() {
    let Some(at) = setting() else { return };
    if !is_child() {
        let (signal, words) = in_a_child("moves::a_closed_descriptor_is_noticed");
        assert_eq!(signal, None, "{words}");
        assert!(words.contains("noticed"), "{words}");
        return;
    }
    assert!(at.staging.is_watched());
    for entry in std::fs::read_dir("/proc/self/fd").expect("our descriptors").flatten() {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        if target.to_string_lossy().contains("userfaultfd") {
            let number = entry.file_name().to_string_lossy().parse().expect("a number");
            // SAFETY: what a broken program does; this one ends right after.
            unsafe { libc::close(number) };
        }
    }
    assert!(!at.staging.is_watched());
    eprintln!("noticed");
    // Owners of the descriptor would find it closed.
    std::process::exit(0);
}

/// Other code of the program may move a region or a part of it; what is out reads as zeros then, at
/// addresses that nobody serves.
#[test]
fn a_span_that_was_moved_away_is_noticed() {
    let Some(mut at) = setting() else { return };
    let range = at.span.range();
    assert!(at.span.is_mapped());
    at.memory.unmap(3..4).expect("given back");
    assert!(at.span.is_mapped(), "what is given back stays reserved");
    // SAFETY: nobody refers to these pages, nor to where they are moved.
    let moved = unsafe {
        let last = std::ptr::without_provenance_mut(range.end - PAGE_SIZE);
        libc::mremap(last, PAGE_SIZE, 2 * PAGE_SIZE, libc::MREMAP_MAYMOVE)
    };
    assert_ne!(moved, libc::MAP_FAILED);
    assert!(!at.span.is_mapped(), "its last page is elsewhere");
    // SAFETY: mapped above, and nobody refers to it.
    unsafe { libc::munmap(moved, 2 * PAGE_SIZE) };
}

/// Each part had pages of its own before its neighbour had any, and stayed a mapping of its own for
/// good: registering what lies between them gave nothing back.
#[test]
fn parts_that_are_registered_become_one_mapping() {
    let Some(path) = path(FaultMode::Signal) else { return };
    let (span, mut memory) = Span::reserve(&path, 8).expect("a span");
    let range = span.range();
    let mappings = || {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("the mappings");
        let starts = maps.lines().filter_map(|line| line.split_once('-'));
        let starts = starts.filter_map(|(start, _)| usize::from_str_radix(start, 16).ok());
        starts.filter(|start| range.contains(start)).count()
    };
    assert_eq!(mappings(), 1);
    span.register(2..4).expect("registered");
    assert_eq!(mappings(), 3);
    for page in [0, 1, 4, 5, 6, 7] {
        memory.bytes_mut(page * PAGE_SIZE..(page + 1) * PAGE_SIZE).expect("there").fill(1);
    }
    span.register(0..2).expect("registered");
    span.register(4..8).expect("registered");
    assert_eq!(mappings(), 1, "it is registered as a whole");
}

/// The system faults every page of staging in, and the process was ended for "a fault in memory
/// that is no region's". What comes there must not pass for pages that moved, either.
#[test]
fn a_program_that_locks_its_memory_goes_on_where_a_thread_serves() {
    let test = "moves::a_program_that_locks_its_memory_goes_on_where_a_thread_serves";
    let Some(path) = path(FaultMode::Thread) else { return };
    if !is_child() {
        let (signal, words) = in_a_child(test);
        if words.contains("skipped: ") {
            return eprintln!("{words}");
        }
        return assert!(signal.is_none() && words.contains("moved"), "{signal:?}: {words}");
    }
    let staging = Staging::reserve(&path, 2).expect("staging");
    let _thread = FaultThread::start(Arc::clone(&path)).expect("a thread");
    let early = staging.take().expect("taken back").expect("free");
    // SAFETY: concerns this child, which has nothing to lose.
    if unsafe { libc::mlockall(libc::MCL_CURRENT) } != 0 {
        return eprintln!("skipped: needs the right to lock memory");
    }
    // SAFETY: as above.
    unsafe { libc::munlockall() };
    let (span, mut memory) = Span::reserve(&path, 64).expect("a span");
    whole(&mut memory).chunks_mut(PAGE_SIZE).for_each(|page| page.fill(7));
    span.register(0..64).expect("registered");
    // One that was taken before has places that are taken; one that is taken now has none.
    let mut early = early;
    let refused = span.move_out(0, 1, &mut early, 0);
    assert_eq!((refused.pages, refused.stop), (0, Some(Stop::Present)));
    let mut segment = staging.take().expect("taken back").expect("free");
    let moved = span.move_out(0, 64, &mut segment, 0);
    assert_eq!((moved.pages, moved.stop), (64, None));
    assert!((0..64).all(|at| segment.page(at).is_some_and(|page| page[9] == 7)));
    eprintln!("moved");
}

/// Every answer of the system was put down to a seccomp filter.
#[test]
fn without_a_descriptor_left_the_limit_is_named() {
    let test = "moves::without_a_descriptor_left_the_limit_is_named";
    if path(FaultMode::Signal).is_none() {
        return;
    }
    if !is_child() {
        let (signal, words) = in_a_child(test);
        return assert!(signal.is_none() && words.contains("each said so"), "{signal:?}: {words}");
    }
    let next = std::fs::File::open("/dev/null").expect("a file");
    let next = std::os::fd::AsRawFd::as_raw_fd(&next);
    for (free, mode) in [(0, FaultMode::Signal), (2, FaultMode::Signal), (0, FaultMode::Thread)] {
        let most = (next + free) as libc::rlim_t;
        let limit = libc::rlimit { rlim_cur: most, rlim_max: 4096.max(most) };
        // SAFETY: concerns this child.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
        let refused = ramfold_host::FaultPath::open(mode).expect_err("there is no descriptor left");
        let words = refused.to_string();
        assert!(words.contains("RLIMIT_NOFILE") && !words.contains("seccomp"), "{words}");
    }
    eprintln!("each said so");
}
