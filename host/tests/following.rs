//! Claim: a thread that faults alone is followed to its CPU, and every page comes, whatever else
//! runs there.

use ramfold_host::fault::{Asker, FaultThread, Served, Server, Watch, watch};
use ramfold_host::{FaultError, FaultMode, FaultPath, PAGE_SIZE, Span, SpanMemory};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const PAGES: usize = 4096;

/// Each page filled with what tells it from its neighbours.
struct Filler(Arc<Span>);

// SAFETY: it computes, and makes a system call; a thread asks it, and no signal handler.
unsafe impl Server for Filler {
    fn serve(&self, address: usize, _: Asker) -> Served {
        let Some(page) = self.0.page_at(address) else { return Served::Foreign };
        // SAFETY: a page has the same bytes whenever it comes.
        match unsafe { self.0.fill(page, &[byte(page); PAGE_SIZE]) }.pages {
            0 => Served::Present,
            _ => Served::Filled,
        }
    }
}

fn byte(page: usize) -> u8 {
    (page * 251 % 256) as u8
}

/// Dropped in this order: the thread while nobody waits for a page.
struct Setting {
    thread: FaultThread,
    _watch: Watch<'static>,
    memory: SpanMemory,
}

impl Setting {
    /// None, with a word, where the system has no userfaultfd for us.
    fn new() -> Option<Setting> {
        let path = match FaultPath::open(FaultMode::Thread) {
            Ok(path) => path,
            Err(error @ (FaultError::Denied { .. } | FaultError::Unsupported { .. })) => {
                eprintln!("skipped: needs {error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let (span, memory) = Span::reserve(&path, PAGES).expect("a span");
        span.register(0..PAGES).expect("registered");
        let watch = watch(span.range(), span.mode(), Arc::new(Filler(span))).expect("watched");
        let thread = FaultThread::start(path).expect("a thread");
        Some(Setting { thread, _watch: watch, memory })
    }

    fn discard(&mut self) {
        self.memory.discard(0..PAGES).expect("discarded");
    }

    /// Touches every `step`th page from `first` on.
    fn touch(&self, first: usize, step: usize) {
        let bytes = self.memory.bytes(0..PAGES * PAGE_SIZE).expect("all there");
        for page in (first..PAGES).step_by(step) {
            assert_eq!(bytes[page * PAGE_SIZE + page], byte(page), "page {page}");
        }
    }
}

#[test]
fn a_thread_that_faults_alone_is_followed() {
    let Some(mut at) = Setting::new() else { return };
    if at.thread.followed().is_none() {
        eprintln!("skipped: needs CAP_SYS_NICE, and two CPUs");
        return;
    }
    // Where both CPUs are busy with others the follower may get no time at once.
    let rounds = (0..2000).take_while(|_| {
        at.touch(0, 1);
        at.discard();
        at.thread.followed() == Some(0)
    });
    assert!(rounds.count() < 2000, "nothing was served by the follower");
}

#[test]
fn threads_that_fault_together_are_served_all() {
    let Some(mut at) = Setting::new() else { return };
    for threads in [1, 2, 5] {
        thread::scope(|scope| {
            let at = &at;
            (0..threads).for_each(|first| drop(scope.spawn(move || at.touch(first, threads))));
        });
        at.discard();
    }
}

/// The follower gives way to all of them; then it is helped up, and others serve.
#[test]
fn pages_come_while_every_cpu_is_busy() {
    let Some(at) = Setting::new() else { return };
    /// Also when a page is wrong.
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = End(&over);
        for _ in 0..2 * thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        at.touch(0, 7);
    });
}

/// This thread, and those it starts, may not rise from `SCHED_IDLE`; false where it could not be
/// arranged.
fn without_nice() -> bool {
    const VERSION_3: u32 = 0x2008_0522;
    const CAP_SYS_NICE: u32 = 23;
    let mut header = [VERSION_3, 0];
    // Effective, permitted, inheritable; those up to 31, and the others.
    let mut sets = [0u32; 6];
    // SAFETY: both are as long as the call expects.
    let got = unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) };
    sets[0] &= !(1 << CAP_SYS_NICE);
    sets[1] &= !(1 << CAP_SYS_NICE);
    // SAFETY: as above; it takes something from this thread alone.
    let set = unsafe { libc::syscall(libc::SYS_capset, header.as_mut_ptr(), sets.as_ptr()) };
    let mut nice = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: asks only; the answer is written where it may be.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_NICE, &raw mut nice) };
    got == 0 && set == 0 && asked == 0 && nice.rlim_cur == 0
}

#[test]
fn without_the_privilege_nobody_is_followed_and_pages_come() {
    let alone = thread::spawn(|| {
        if !without_nice() {
            eprintln!("skipped: needs an RLIMIT_NICE of 0");
            return;
        }
        let Some(mut at) = Setting::new() else { return };
        assert_eq!(at.thread.followed(), None);
        at.touch(0, 1);
        at.discard();
    });
    alone.join().expect("pages come");
}
