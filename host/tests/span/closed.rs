//! Pages that leave and come back without a userfaultfd, and faults that are not theirs.

use crate::setting::{Filler, in_a_child, in_a_child_in, is_child, is_child_in, path, served};
use crate::setting::{Setting, setting_in, whole};
use ramfold_host::fault::{Asker, Served, Server, watch};
use ramfold_host::{FaultError, FaultMode, FaultPath, PAGE_SIZE, Span, Transfer};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const MODE: FaultMode = FaultMode::Protection;
/// The modes that close pages.
const MODES: [FaultMode; 2] = [FaultMode::Protection, FaultMode::Guards];

/// Runs a test in a child for each of these modes. `right` judges how it ended, and its last words.
fn in_children(
    test: &str,
    child: impl Fn(FaultMode),
    right: impl Fn(FaultMode, Option<i32>, &str) -> bool,
) {
    for mode in MODES {
        match is_child_in(mode) {
            Some(true) => child(mode),
            Some(false) if path(mode).is_some() => {
                let (signal, words) = in_a_child_in(mode, test);
                assert!(right(mode, signal, &words), "{mode:?}, {signal:?}: {words}");
            }
            _ => {}
        }
    }
}

#[test]
fn pages_go_and_come_back_with_their_bytes() {
    MODES.into_iter().filter_map(setting_in).for_each(pages_go_and_come_back);
}

fn pages_go_and_come_back(mut at: Setting) {
    let mut segment = at.staging.take().expect("taken back").expect("free");
    assert_eq!(at.span.move_out(8, 16, &mut segment, 8), Transfer { pages: 16, stop: None });
    let staged = |page: usize| segment.page(page).is_some_and(|bytes| bytes[7] == page as u8 + 1);
    assert!((8..24).all(staged) && segment.page(24).is_none());
    assert_eq!(at.span.resident(0..64), !(0xffff << 8), "their memory went back");
    // SAFETY: the pages were moved there from these places.
    let back = unsafe { at.span.fill_from(8, 16, &segment, 8) };
    assert_eq!(back, Transfer { pages: 16, stop: None });
    let pages = whole(&mut at.memory).chunks(PAGE_SIZE).enumerate();
    pages.for_each(|(page, bytes)| assert!(bytes.iter().all(|&byte| byte == page as u8 + 1)));
}

/// A page that nobody wrote has no memory, and none when it has come back either.
#[test]
fn what_registering_closes_is_what_nobody_touched() {
    MODES.into_iter().filter_map(path).for_each(what_is_touched_stays_open);
}

fn what_is_touched_stays_open(path: Arc<FaultPath>) {
    let (span, mut memory) = Span::reserve(&path, 64).expect("a span");
    let filler = Filler::of(&span);
    let _watch = watch(span.range(), span.mode(), Arc::<Filler>::clone(&filler)).expect("watched");
    for page in [0, 1, 2, 30, 63] {
        whole(&mut memory)[page * PAGE_SIZE] = 5;
    }
    span.register(0..64).expect("registered");
    let bytes = whole(&mut memory);
    assert_eq!([0, 1, 2, 30, 63].map(|page| bytes[page * PAGE_SIZE]), [5; 5]);
    // relaxed: counted by this thread.
    assert_eq!(filler.served.load(Ordering::Relaxed), 0, "these are open");
    assert_eq!([3, 29, 62].map(|page| bytes[page * PAGE_SIZE]), [42; 3]);
    // relaxed: as above.
    let which = filler.which.load(Ordering::Relaxed);
    assert_eq!(which, 1 << 3 | 1 << 29 | 1 << 62, "these are not");
}

/// Two threads write and read a page that leaves and comes back under them. Neither sees it before
/// it is filled, and no write is lost.
#[test]
fn a_page_is_never_seen_before_it_is_whole() {
    MODES.into_iter().filter_map(setting_in).for_each(a_page_leaves_under_two_threads);
}

fn a_page_leaves_under_two_threads(mut at: Setting) {
    const ROUNDS: u64 = 600;
    let server = Arc::new(Returning::of(&at));
    let watching = watch(at.span.range(), at.span.mode(), Arc::<Returning>::clone(&server));
    let _watch = watching.expect("watched");
    let page = &mut whole(&mut at.memory)[..PAGE_SIZE];
    page.fill(1);
    // SAFETY: the page is borrowed as these, and atomics may share it.
    let (_, words, _) = unsafe { page.align_to_mut::<AtomicU64>() };
    let words = &*words;
    std::thread::scope(|scope| {
        let server = &server;
        let mover = scope.spawn(move || {
            // relaxed: a count.
            let came = || server.came.load(Ordering::Relaxed);
            for round in 0..ROUNDS {
                server.put_out();
                while came() == round {
                    std::thread::yield_now();
                }
            }
        });
        let reader = scope.spawn(move || {
            let (mut zeros, mut wait) = (0, 1u32);
            while !mover.is_finished() {
                // It looks now and then, because a thread that waits for the page sees nothing.
                wait = wait.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (0..wait >> 20).for_each(|_| std::hint::spin_loop());
                // relaxed: any value that was ever written is right.
                zeros += u64::from(words[511].load(Ordering::Relaxed) == 0);
            }
            zeros
        });
        let mut round = words[0].load(Ordering::Relaxed);
        while !reader.is_finished() {
            // relaxed: this thread alone writes.
            let lost = words.iter().any(|word| word.load(Ordering::Relaxed) != round);
            assert!(!lost, "round {round}");
            round += 1;
            // relaxed: as above.
            words.iter().for_each(|word| word.store(round, Ordering::Relaxed));
        }
        assert_eq!(reader.join().expect("it reads only"), 0, "words of a page that is half filled");
    });
}

/// Has page 0 in its segment, or in the span.
struct Returning {
    span: Arc<Span>,
    staging: Arc<ramfold_host::Staging>,
    /// A lock of its own: 1 while a thread moves the page.
    busy: AtomicUsize,
    segment: std::sync::Mutex<Option<ramfold_host::Segment>>,
    came: AtomicU64,
}

impl Returning {
    fn of(at: &Setting) -> Returning {
        let (span, staging) = (Arc::clone(&at.span), Arc::clone(&at.staging));
        let (busy, came) = (AtomicUsize::new(0), AtomicU64::new(0));
        Returning { span, staging, busy, segment: std::sync::Mutex::default(), came }
    }

    fn alone<R>(&self, work: impl FnOnce(&mut Option<ramfold_host::Segment>) -> R) -> R {
        // Acquire pairs with the Release below.
        while self.busy.swap(1, Ordering::Acquire) == 1 {
            std::thread::yield_now();
        }
        let done = work(&mut self.segment.try_lock().expect("this thread alone"));
        // Release pairs with the Acquire above.
        self.busy.store(0, Ordering::Release);
        done
    }

    fn put_out(&self) {
        self.alone(|out| {
            if out.is_none() {
                let mut segment = self.staging.take().expect("taken back").expect("free");
                assert_eq!(self.span.move_out(0, 1, &mut segment, 0).pages, 1);
                *out = Some(segment);
            }
        });
    }
}

// SAFETY: it waits for a lock under which no thread touches the span, and makes system calls.
unsafe impl Server for Returning {
    fn serve(&self, address: usize, asker: Asker) -> Served {
        if self.span.page_at(address) != Some(0) || !asker.is_of(self.span.mode()) {
            return Served::Foreign;
        }
        self.alone(|out| {
            let Some(segment) = out.take() else { return Served::Present };
            // SAFETY: the page was moved there from this place.
            assert_eq!(unsafe { self.span.fill_from(0, 1, &segment, 0) }.pages, 1);
            // relaxed: a count.
            self.came.fetch_add(1, Ordering::Relaxed);
            Served::Filled
        })
    }
}

/// A page beside what is closed leaves all the same, because it takes no mapping of its own.
#[test]
fn a_page_leaves_while_there_is_no_mapping_left() {
    let test = "closed::a_page_leaves_while_there_is_no_mapping_left";
    if !is_child() {
        let (signal, words) = in_a_child(test);
        if words.contains("skipped: ") {
            return eprintln!("{words}");
        }
        return assert!(signal.is_none() && words.contains("it left"), "{signal:?}: {words}");
    }
    const TABLES_MAX: usize = 1 << 18;
    let at = setting_in(MODE).expect("protection");
    let [mut first, mut second] =
        [(); 2].map(|()| at.staging.take().expect("taken back").expect("free"));
    assert_eq!(at.span.move_out(0, 8, &mut first, 0).pages, 8);
    let tables = std::ptr::null_mut();
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: new memory of this child, of which every second page is opened, so that each takes
    // mappings of its own.
    let is_out = unsafe {
        let start = libc::mmap(tables, TABLES_MAX * 2 * PAGE_SIZE, libc::PROT_NONE, kind, -1, 0);
        assert_ne!(start, libc::MAP_FAILED);
        let open = libc::PROT_READ | libc::PROT_WRITE;
        (0..TABLES_MAX).any(|table| {
            libc::mprotect(start.byte_add(table * 2 * PAGE_SIZE), PAGE_SIZE, open) != 0
        })
    };
    if !is_out {
        return eprintln!("skipped: needs a vm.max_map_count below {TABLES_MAX}");
    }
    let alone = at.span.move_out(30, 4, &mut second, 30);
    assert_eq!(alone.pages, 0, "it is closed alone");
    let moved = at.span.move_out(8, 4, &mut second, 8);
    assert_eq!(moved, Transfer { pages: 4, stop: None });
    assert!((8..12).all(|at| second.page(at).is_some_and(|page| page[9] == at as u8 + 1)));
    eprintln!("it left");
}

/// One segment keeps its memory for the next owner, who finds none of the pages in it.
#[test]
fn memory_of_one_segment_is_used_again() {
    MODES.into_iter().filter_map(setting_in).for_each(one_segment_stays_warm);
}

fn one_segment_stays_warm(mut at: Setting) {
    let segments = || [at.staging.used(), at.staging.in_memory()];
    let [mut first, mut second] =
        [(); 2].map(|()| at.staging.take().expect("taken back").expect("free"));
    assert_eq!(at.span.move_out(0, 8, &mut first, 0).pages, 8);
    assert_eq!(at.span.move_out(8, 8, &mut second, 8).pages, 8);
    drop(first);
    assert_eq!(segments(), [1, 2]);
    drop(second);
    assert_eq!(segments(), [0, 1]);
    let mut again = at.staging.take().expect("taken back").expect("free");
    assert_eq!(segments(), [1, 1]);
    assert!((0..64).all(|page| again.page(page).is_none()), "nothing moved there");
    assert_eq!(at.span.move_out(16, 8, &mut again, 4).pages, 8);
    assert!((4..12).all(|place| again.page(place).is_some_and(|page| page[9] == place as u8 + 13)));
    // It has memory, even if nothing moves there.
    let other = at.staging.take().expect("taken back").expect("free");
    drop(again);
    drop(at.staging.take());
    assert_eq!(segments(), [1, 2]);
    drop(other);
    assert_eq!(segments(), [0, 1]);
    // One that was warm goes while another one is, and its memory with it.
    let was_warm = at.staging.take().expect("taken back").expect("free");
    let mut filled = at.staging.take().expect("taken back").expect("free");
    assert_eq!(at.span.move_out(40, 8, &mut filled, 40).pages, 8);
    drop(filled);
    drop(was_warm);
    let range = at.staging.range();
    let mut there = vec![0; range.len() / PAGE_SIZE];
    let start = std::ptr::without_provenance_mut(range.start);
    // SAFETY: the vector has a byte for each page.
    assert_eq!(unsafe { libc::mincore(start, range.len(), there.as_mut_ptr()) }, 0);
    assert_eq!(there.iter().filter(|&&page| page & 1 == 1).count(), 8);
    let mut both = [(); 2].map(|()| at.staging.take().expect("taken back").expect("free"));
    assert!(at.staging.take().expect("taken back").is_none(), "there are two");
    for (number, segment) in both.iter_mut().enumerate() {
        assert_eq!(at.span.move_out(30 + number, 1, segment, 0).pages, 1);
    }
    assert_eq!([0, 1].map(|number| both[number].page(0).map(|page| page[9])), [Some(31), Some(32)]);
    assert_eq!((at.fill(0, 24, 3).pages, whole(&mut at.memory)[24 * PAGE_SIZE]), (24, 25));
}

/// The page that is gone would read as zeros, or be another mapping's.
#[test]
fn memory_that_other_code_has_unmapped_ends_the_process() {
    let child = |mode| {
        let at = setting_in(mode).expect("as the parent's");
        let range = at.span.range();
        let start = std::ptr::without_provenance_mut(range.start + 20 * PAGE_SIZE);
        // SAFETY: as other code might do with a page; this test reads no byte of it any more.
        assert_eq!(unsafe { libc::munmap(start, PAGE_SIZE) }, 0);
        let mut segment = at.staging.take().expect("taken back").expect("free");
        black_box(at.span.move_out(20, 1, &mut segment, 20));
    };
    let test = "closed::memory_that_other_code_has_unmapped_ends_the_process";
    in_children(test, child, |_, signal, words| {
        signal == Some(libc::SIGABRT) && words.contains("other code has unmapped")
    });
}

/// Its file is gone, or another file has its number and would get the page.
#[test]
fn a_descriptor_that_the_program_has_closed_ends_the_process() {
    let child = |mode| {
        let at = setting_in(mode).expect("as the parent's");
        let mut segment = at.staging.take().expect("taken back").expect("free");
        assert_eq!(at.span.move_out(20, 1, &mut segment, 20).pages, 1);
        let other = std::fs::File::open("/proc/self/exe").expect("a file");
        let other = std::os::fd::AsRawFd::as_raw_fd(&other);
        for number in (3..64).filter(|&number| number != other) {
            // SAFETY: as a program does that closes all its descriptors. This one needs no other.
            unsafe { libc::dup2(other, number) };
        }
        // SAFETY: the page was moved there from this place.
        black_box(unsafe { at.span.fill_from(20, 1, &segment, 20) });
    };
    let test = "closed::a_descriptor_that_the_program_has_closed_ends_the_process";
    in_children(test, child, |_, signal, words| {
        signal == Some(libc::SIGABRT) && words.contains("descriptor of folded memory was closed")
    });
}

#[test]
fn messages_are_not_to_be_had() {
    let path = FaultPath::open(MODE).expect("protection");
    let thread = ramfold_host::fault::FaultThread::start(path);
    let error = thread.expect_err("there are none");
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported, "{error}");
}

#[test]
fn the_way_that_is_chosen_says_why() {
    match FaultPath::open_any() {
        Ok(path) if path.mode() == FaultMode::Signal => assert!(path.refusals().is_empty()),
        Ok(path) => {
            assert_eq!(path.mode(), MODE);
            let why = path.refusals().first().expect("a reason");
            let known = matches!(why, FaultError::Denied { .. } | FaultError::Unsupported { .. });
            assert!(known, "{why}");
        }
        Err(error) => panic!("{error}"),
    }
}

static SEEN: AtomicUsize = AtomicUsize::new(0);
static BLOCKED: AtomicU64 = AtomicU64::new(0);

/// Opens the page that was touched, and notes what it was called with.
extern "C" fn opens(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the system passes a valid structure.
    let address = unsafe { (*info).si_addr() }.addr();
    SEEN.store(address, Ordering::Relaxed);
    let mut mask = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: this only asks, and the answer is written to a set of its own.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr()) };
    // SAFETY: the system has written the set, whose first word is the signals 1 to 64.
    let word = unsafe { mask.as_ptr().cast::<u64>().read_unaligned() };
    BLOCKED.store(word | u64::from(signal == libc::SIGSEGV) << 63, Ordering::Relaxed);
    let page = std::ptr::without_provenance_mut(address & !(PAGE_SIZE - 1));
    // SAFETY: a page of this test's, which only the touch waits for.
    unsafe { libc::mprotect(page, PAGE_SIZE, libc::PROT_READ | libc::PROT_WRITE) };
}

/// A page of the program's own that it has closed.
fn closed_page() -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping changes no other memory.
    let page =
        unsafe { libc::mmap(std::ptr::null_mut(), PAGE_SIZE, libc::PROT_NONE, flags, -1, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    page.cast()
}

/// The program's handler gets its own faults, with the signal, the address and the mask that it
/// would have had without us. The faults of the region stay ours.
#[test]
fn a_fault_of_the_programs_reaches_its_handler() {
    let test = "closed::a_fault_of_the_programs_reaches_its_handler";
    in_children(test, faults_of_both, |_, signal, words| {
        signal.is_none() && words.contains("both came")
    });
}

fn faults_of_both(mode: FaultMode) {
    // SAFETY: all-zero is an empty set and no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = opens as extern "C" fn(_, _, _) as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
    // SAFETY: the set is the action's own; the function is of the type that the flag asks for.
    unsafe {
        libc::sigaddset(&raw mut action.sa_mask, libc::SIGUSR1);
        libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut());
    }
    let mut at = setting_in(mode).expect("as the parent's");
    let _served = served(&mut at);
    let page = closed_page();
    // SAFETY: the handler opens it.
    assert_eq!(unsafe { page.add(9).read_volatile() }, 0);
    assert_eq!(SEEN.load(Ordering::Relaxed), page.addr() + 9);
    let bit = |signal: libc::c_int| 1u64 << (signal - 1);
    let blocked = BLOCKED.load(Ordering::Relaxed);
    assert_eq!(blocked, bit(libc::SIGUSR1) | 1 << 63, "its mask, and not the signal itself");
    SEEN.store(0, Ordering::Relaxed);
    assert_eq!(whole(&mut at.memory)[9 * PAGE_SIZE], 42);
    assert_eq!(SEEN.load(Ordering::Relaxed), 0, "it hears nothing of ours");
    eprintln!("both came");
}

#[test]
fn without_a_handler_a_fault_of_the_programs_ends_it_as_ever() {
    let child = |mode| {
        // SAFETY: the default, in place of that of the standard library.
        unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
        let mut at = setting_in(mode).expect("as the parent's");
        let _served = served(&mut at);
        // SAFETY: it ends this child.
        black_box(unsafe { closed_page().read_volatile() });
    };
    let test = "closed::without_a_handler_a_fault_of_the_programs_ends_it_as_ever";
    in_children(test, child, |_, signal, _| signal == Some(libc::SIGSEGV));
}

/// The system reports it as it reports a guard.
#[test]
fn a_touch_of_what_is_not_mapped_ends_the_program_as_ever() {
    let child = |mode| {
        // SAFETY: as above.
        unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
        let mut at = setting_in(mode).expect("as the parent's");
        let _served = served(&mut at);
        // SAFETY: it ends this child.
        black_box(unsafe { std::ptr::without_provenance::<u8>(64).read_volatile() });
    };
    let test = "closed::a_touch_of_what_is_not_mapped_ends_the_program_as_ever";
    in_children(test, child, |_, signal, _| signal == Some(libc::SIGSEGV));
}

#[expect(unconditional_recursion, reason = "it is to overflow its stack")]
fn deeper(numbers: &[u64; 64]) -> u64 {
    let more = black_box([numbers[0] + 1; 64]);
    deeper(&more) + more[7]
}

/// Our handler takes the alternate stack, or this message would be missing.
#[test]
fn a_stack_that_overflows_is_named_as_ever() {
    let test = "closed::a_stack_that_overflows_is_named_as_ever";
    if !is_child() {
        let (signal, words) = in_a_child(test);
        assert!(words.contains("has overflowed its stack"), "{words}");
        return assert_eq!(signal, Some(libc::SIGABRT), "{words}");
    }
    let mut at = setting_in(MODE).expect("protection");
    let _served = served(&mut at);
    black_box(deeper(&[0; 64]));
}
