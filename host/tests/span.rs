//! Spans, staging and faults, as the system does them: pages move out and come back, and what must
//! not be touched ends the process.
//!
//! Tests that end a process run themselves in a child and read its last words.

use host::fault::{Asker, FaultThread, Served, Server, Watch, watch};
use host::{FaultMode, HostError, PAGE_SIZE, Segment, Span, SpanMemory};
use host::{Staging, Stop, Userfault, UserfaultError};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::{Arc, Mutex};

const CHILD: &str = "RAMFOLD_SPAN_CHILD";

/// A userfaultfd; `None`, with a word, where the system has none for us: a test is skipped then.
fn userfault(mode: FaultMode) -> Option<Arc<Userfault>> {
    match Userfault::open(mode) {
        Ok(userfault) => Some(userfault),
        Err(error @ (UserfaultError::Denied { .. } | UserfaultError::Unsupported { .. })) => {
            eprintln!("skipped: needs {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

struct Setting {
    span: Arc<Span>,
    memory: SpanMemory,
    staging: Arc<Staging>,
}

/// 64 registered pages, each filled with its number plus one.
fn setting() -> Option<Setting> {
    let userfault = userfault(FaultMode::Signal)?;
    let (span, mut memory) = Span::reserve(&userfault, 64).expect("a span");
    let staging = Staging::reserve(&userfault, 2).expect("staging");
    for (number, page) in whole(&mut memory).chunks_mut(PAGE_SIZE).enumerate() {
        page.fill(number as u8 + 1);
    }
    span.register(0..64).expect("registered");
    Some(Setting { span, memory, staging })
}

fn whole(memory: &mut SpanMemory) -> &mut [u8] {
    let len = memory.len();
    memory.bytes_mut(0..len).expect("nothing was given back")
}

#[test]
fn pages_move_out_in_one_request_and_come_back_from_anywhere() {
    let Some(mut at) = setting() else { return };
    let mut segment = at.staging.take().expect("taken back").expect("free");
    let moved = at.span.move_out(10, 20, &mut segment, 10);
    assert_eq!((moved.pages, moved.stop), (20, None));
    assert_eq!(at.span.resident(0..64), !(((1 << 20) - 1) << 10));
    assert_eq!(segment.page(10).expect("there")[7], 11);
    assert!(segment.page(9).is_none());
    let filled = at.span.fill_from(10, 15, &segment, 10);
    assert_eq!((filled.pages, filled.stop), (15, None));
    let filled = at.span.fill(25, &[9; 5 * PAGE_SIZE]);
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
    let filled = at.span.fill(3, &[1; 8 * PAGE_SIZE]);
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

/// Puts back pages full of one byte, and notes which.
struct Filler {
    span: Arc<Span>,
    served: Mutex<Vec<usize>>,
}

impl Server for Filler {
    fn serve(&self, address: usize, _: Asker) -> Served {
        let Some(page) = self.span.page_at(address) else { return Served::Foreign };
        self.served.lock().expect("nobody panics").push(page);
        match self.span.fill(page, &[42; PAGE_SIZE]).stop {
            None => Served::Filled,
            Some(_) => Served::Present,
        }
    }
}

#[test]
fn a_touch_is_served_in_the_thread_that_touches() {
    let Some(mut at) = setting() else { return };
    let filler = Arc::new(Filler { span: Arc::clone(&at.span), served: Mutex::default() });
    let _watch = watch(at.span.range(), Arc::<Filler>::clone(&filler)).expect("watched");
    let mut segment = at.staging.take().expect("taken back").expect("free");
    at.span.move_out(0, 64, &mut segment, 0);
    assert_eq!(whole(&mut at.memory)[33 * PAGE_SIZE + 100], 42);
    whole(&mut at.memory)[34 * PAGE_SIZE] = 1;
    assert_eq!(whole(&mut at.memory)[34 * PAGE_SIZE..][..2], [1, 42]);
    assert_eq!(*filler.served.lock().expect("nobody panicked"), [33, 34]);
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

/// Runs one test in a child, where [`is_child`] is true: how it ended, and its last words.
fn in_a_child(test: &str) -> (Option<i32>, String) {
    let this = std::env::current_exe().expect("this test's path");
    let child = Command::new(this).args([test, "--exact", "--nocapture"]).env(CHILD, "1").output();
    let child = child.expect("a child");
    (child.status.signal(), String::from_utf8_lossy(&child.stderr).into_owned())
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

struct Panicking;

impl Server for Panicking {
    fn serve(&self, _: usize, _: Asker) -> Served {
        panic!("as this server does")
    }
}

/// What becomes of a process whose server panics, read from a child that runs `test`.
fn panic_in_a_server(mode: FaultMode, test: &str) {
    let Some(userfault) = userfault(mode) else { return };
    if !is_child() {
        let (signal, words) = in_a_child(test);
        assert_eq!(signal, Some(libc::SIGABRT), "{words}");
        return assert!(words.contains("as this server does"), "{words}");
    }
    let (span, memory) = Span::reserve(&userfault, 1).expect("a span");
    span.register(0..1).expect("registered");
    let _watch = watch(span.range(), Arc::new(Panicking)).expect("watched");
    let serves = (mode == FaultMode::Thread).then(|| FaultThread::start(userfault));
    let _thread = serves.transpose().expect("a thread");
    eprintln!("{:?}", memory.bytes(0..1));
}

#[test]
fn a_server_that_panics_in_the_handler_ends_the_process() {
    let test = "a_server_that_panics_in_the_handler_ends_the_process";
    panic_in_a_server(FaultMode::Signal, test);
}

#[test]
fn a_server_that_panics_in_its_thread_ends_the_process() {
    let test = "a_server_that_panics_in_its_thread_ends_the_process";
    panic_in_a_server(FaultMode::Thread, test);
}

#[test]
fn touching_a_region_that_is_gone_ends_the_process() {
    let Some(mut at) = setting() else { return };
    if !is_child() {
        let (signal, words) = in_a_child("touching_a_region_that_is_gone_ends_the_process");
        assert_eq!(signal, Some(libc::SIGABRT), "{words}");
        assert!(words.contains("touched after it was dropped at 0x"), "{words}");
        return;
    }
    let filler = Arc::new(Filler { span: Arc::clone(&at.span), served: Mutex::default() });
    let watch = watch(at.span.range(), filler).expect("watched");
    at.memory.discard(0..1).expect("discarded");
    watch.retire();
    std::hint::black_box(whole(&mut at.memory)[0]);
}

#[test]
fn touching_it_ends_the_process_with_a_thread_that_serves_too() {
    let Some(userfault) = userfault(FaultMode::Thread) else { return };
    if !is_child() {
        let test = "touching_it_ends_the_process_with_a_thread_that_serves_too";
        let (signal, words) = in_a_child(test);
        assert_eq!(signal, Some(libc::SIGABRT), "{words}");
        assert!(words.contains("touched after it was dropped at 0x"), "{words}");
        return;
    }
    let (span, mut memory) = Span::reserve(&userfault, 4).expect("a span");
    let filler = Arc::new(Filler { span: Arc::clone(&span), served: Mutex::default() });
    let watch = watch(span.range(), filler).expect("watched");
    let _thread = FaultThread::start(userfault).expect("a thread");
    span.register(0..4).expect("registered");
    assert_eq!(whole(&mut memory)[5], 42, "served while it is there");
    watch.retire();
    std::hint::black_box(whole(&mut memory)[2 * PAGE_SIZE]);
}

#[test]
fn a_bus_error_that_is_not_ours_ends_the_process_as_without_us() {
    let Some(at) = setting() else { return };
    if !is_child() {
        let (signal, words) =
            in_a_child("a_bus_error_that_is_not_ours_ends_the_process_as_without_us");
        assert_eq!(signal, Some(libc::SIGBUS), "{words}");
        return;
    }
    let filler = Arc::new(Filler { span: Arc::clone(&at.span), served: Mutex::default() });
    let _watch = watch(at.span.range(), filler).expect("watched");
    // A page of a file that has none.
    let file = std::fs::File::open("/proc/self/exe").expect("a file");
    let past = 1 << 40;
    // SAFETY: a new mapping disturbs nobody.
    let page = unsafe {
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        libc::mmap(std::ptr::null_mut(), PAGE_SIZE, libc::PROT_READ, libc::MAP_PRIVATE, fd, past)
    };
    assert_ne!(page, libc::MAP_FAILED);
    // SAFETY: mapped; reading it is what ends this process.
    std::hint::black_box(unsafe { page.cast::<u8>().read_volatile() });
}

/// A server for the pages of `at`, which are out.
fn served(at: &mut Setting) -> (Watch, Segment) {
    let filler = Arc::new(Filler { span: Arc::clone(&at.span), served: Mutex::default() });
    let watch = watch(at.span.range(), filler).expect("watched");
    let mut segment = at.staging.take().expect("taken back").expect("free");
    assert_eq!(at.span.move_out(0, 64, &mut segment, 0).pages, 64);
    (watch, segment)
}

/// What a SIGBUS does that a process sends, by what was to be done before there were regions.
fn is_sent_one(before: Option<usize>, test: &str) -> Option<(Option<i32>, String)> {
    let mut at = setting()?;
    if !is_child() {
        return Some(in_a_child(test));
    }
    if let Some(before) = before {
        // SAFETY: neither is a function.
        unsafe { libc::signal(libc::SIGBUS, before) };
    }
    let _served = served(&mut at);
    // SAFETY: to this thread.
    unsafe { libc::raise(libc::SIGBUS) };
    // More than one, as the first may come by a path that the next does not.
    let bytes = whole(&mut at.memory);
    assert_eq!([bytes[0], bytes[9 * PAGE_SIZE], bytes[60 * PAGE_SIZE]], [42; 3]);
    eprintln!("went on");
    std::process::exit(0)
}

#[test]
fn a_program_that_goes_on_after_a_signal_has_its_pages() {
    // Rust's own handler.
    let test = "a_program_that_goes_on_after_a_signal_has_its_pages";
    let Some((signal, words)) = is_sent_one(None, test) else { return };
    assert!(signal.is_none() && words.contains("went on"), "{signal:?}: {words}");
}

#[test]
fn a_program_that_ignores_the_signal_has_its_pages() {
    let test = "a_program_that_ignores_the_signal_has_its_pages";
    let Some((signal, words)) = is_sent_one(Some(libc::SIG_IGN), test) else { return };
    assert!(signal.is_none() && words.contains("went on"), "{signal:?}: {words}");
}

#[test]
fn a_program_that_a_signal_ends_is_ended() {
    let test = "a_program_that_a_signal_ends_is_ended";
    let Some((signal, words)) = is_sent_one(Some(libc::SIG_DFL), test) else { return };
    assert!(signal == Some(libc::SIGBUS) && !words.contains("went on"), "{signal:?}: {words}");
}

/// A program that locks what it maps locks no region: its pages could not leave.
#[test]
fn what_is_mapped_under_mlockall_is_not_locked() {
    let test = "what_is_mapped_under_mlockall_is_not_locked";
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
    let (fresh, _memory) = Span::reserve(&userfault(FaultMode::Signal).expect("as before"), 64)
        .expect("address space");
    assert_eq!(fresh.resident(0..64), 0, "nobody has touched it");
    let (_watch, segment) = served(&mut at);
    assert_eq!(segment.page(10).expect("there")[7], 11);
    eprintln!("moved");
}

/// How a forked child ends: with 0 where the answer is true.
fn forked(answer: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child's threads are this one, which holds no lock.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends a child that hangs.
        unsafe { libc::alarm(20) };
        let right = answer();
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
    let filler = Arc::new(Filler { span: Arc::clone(&at.span), served: Mutex::default() });
    let _watch = watch(at.span.range(), filler).expect("watched");
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
    assert_eq!(at.span.fill(0, &[5; PAGE_SIZE]).pages, 1);
    assert_eq!(at.span.move_out(0, 1, &mut other, 0).pages, 1);
    locked.push(lock(&other));
    drop(other);
    assert!(matches!(at.staging.take(), Err(HostError::Advise { .. })), "none will come free");
    assert_eq!(at.staging.used(), 2);
    assert_eq!(at.span.fill(0, &[5; PAGE_SIZE]).pages, 1);
    for page in locked {
        // SAFETY: as above.
        unsafe { rustix::mm::munlock(page, PAGE_SIZE) }.expect("it was locked");
    }
    let mut both = [(); 2].map(|()| at.staging.take().expect("taken back").expect("free"));
    for segment in &mut both {
        assert_eq!(at.span.move_out(0, 1, segment, 0).pages, 1, "nothing is in its way");
        assert_eq!(at.span.fill(0, &[6; PAGE_SIZE]).pages, 1);
    }
}

#[test]
fn a_forked_child_does_not_have_the_pages() {
    let Some(at) = setting() else { return };
    let start = std::ptr::without_provenance_mut(at.span.range().start);
    // SAFETY: asks whether the page is mapped.
    let status = forked(|| unsafe { libc::mincore(start, PAGE_SIZE, &mut 0) != 0 });
    assert_eq!(status, 0, "nothing is mapped there in the child");
    let mut segment = at.staging.take().expect("taken back").expect("free");
    let moved = at.span.move_out(0, 64, &mut segment, 0);
    assert_eq!((moved.pages, moved.stop), (64, None), "no page is shared with a child");
}

#[test]
fn a_forked_child_is_refused_more_of_its_parents_userfaultfd() {
    let Some(userfault) = userfault(FaultMode::Signal) else { return };
    let refused = |error| matches!(error, UserfaultError::Inherited);
    assert_eq!(forked(|| Span::reserve(&userfault, 1).is_err_and(refused)), 0);
    assert_eq!(forked(|| Staging::reserve(&userfault, 1).is_err_and(refused)), 0);
    assert_eq!(forked(|| FaultThread::start(Arc::clone(&userfault)).is_err()), 0);
}

/// Its parent's userfaultfd would move its parent's pages.
#[test]
fn a_forked_child_that_uses_its_parents_pages_is_ended() {
    let Some(mut at) = setting() else { return };
    let filled = forked(|| at.span.fill(0, &[0; PAGE_SIZE]).pages == 0);
    assert_eq!(libc::WTERMSIG(filled), libc::SIGABRT);
    let mut segment = at.staging.take().expect("taken back").expect("free");
    let moved = forked(|| at.span.move_out(0, 64, &mut segment, 0).pages == 0);
    assert_eq!(libc::WTERMSIG(moved), libc::SIGABRT);
    assert_eq!(at.span.resident(0..64), u64::MAX, "nothing of the parent's was moved");
    assert_eq!(whole(&mut at.memory)[7 * PAGE_SIZE], 8);
}

#[test]
fn a_closed_descriptor_is_noticed() {
    let Some(at) = setting() else { return };
    if !is_child() {
        let (signal, words) = in_a_child("a_closed_descriptor_is_noticed");
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
