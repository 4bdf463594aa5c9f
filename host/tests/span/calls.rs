//! Faults of a thread that is in the middle of a call, which holds what the fault waits for.
//!
//! In each test a signal handler of the program interrupts the call. It touches a page whose fault
//! waits for the lock of the call.

use crate::setting::{in_a_child, is_child, path};
use ramfold_host::fault::{Asker, FaultThread, Served, Server, StuckLooks, begin_call, watch};
use ramfold_host::{FaultMode, Lock, PAGE_SIZE, Rank, Span};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

/// Fills pages with its lock held, as a region does with a group's.
struct Locking {
    span: Arc<Span>,
    lock: Lock<()>,
}

// SAFETY: it takes a lock of its own and makes a system call.
unsafe impl Server for Locking {
    fn serve(&self, address: usize, _: Asker) -> Served {
        let Some(page) = self.span.page_at(address) else { return Served::Foreign };
        let _held = self.lock.lock();
        // SAFETY: the page was never there, and the bytes are zeros.
        match unsafe { self.span.fill(page, &[0; PAGE_SIZE]) }.pages {
            0 => Served::Present,
            _ => Served::Filled,
        }
    }
}

/// What the handler touches.
static TOUCHED: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn touch(_: libc::c_int) {
    // SAFETY: a byte of a span that lives as long as the child; a read races with nobody.
    unsafe { TOUCHED.load(Ordering::Relaxed).read_volatile() };
}

/// Has a handler touch a page in the middle of a call that holds the lock which the page needs.
fn re_enter(mode: FaultMode, test: &str) {
    let Some(path) = path(mode) else { return };
    if !is_child() {
        let (signal, words) = in_a_child(test);
        assert!(words.contains("in the middle of its own call"), "{words}");
        return assert_eq!(signal, Some(libc::SIGABRT), "{words}");
    }
    let (span, memory) = Span::reserve(&path, 2).expect("a span");
    span.register(0..2).expect("registered");
    let server = Arc::new(Locking { span: Arc::clone(&span), lock: Lock::new(Rank::Leaf, ()) });
    let watch = watch(span.range(), span.mode(), Arc::<Locking>::clone(&server)).expect("watched");
    let thread =
        (mode == FaultMode::Thread).then(|| Arc::new(FaultThread::start(path).expect("a thread")));
    let looks = thread.clone();
    std::thread::spawn(move || {
        let mut seen = StuckLooks::default();
        for _ in 0..20 {
            std::thread::sleep(Duration::from_secs(1));
            looks.iter().for_each(|thread| thread.look(&mut seen));
        }
        // It hangs: no word, and no signal.
        // SAFETY: ends this child, and does nothing else.
        unsafe { libc::_exit(1) };
    });
    let bytes = memory.bytes(0..2 * PAGE_SIZE).expect("there");
    TOUCHED.store(bytes.as_ptr().cast_mut(), Ordering::Relaxed);
    // SAFETY: a handler of the type that there is without flags.
    unsafe { libc::signal(libc::SIGUSR1, touch as extern "C" fn(libc::c_int) as usize) };
    // Before, and after a call, a handler may touch what it likes.
    // SAFETY: to this thread.
    unsafe { libc::raise(libc::SIGUSR1) };
    drop(begin_call());
    TOUCHED.store(bytes[PAGE_SIZE..].as_ptr().cast_mut(), Ordering::Relaxed);
    let _call = begin_call();
    let _held = server.lock.lock();
    // SAFETY: to this thread.
    unsafe { libc::raise(libc::SIGUSR1) };
    drop(watch);
}

/// It waited for ever, with every signal blocked.
#[test]
fn a_handler_that_touches_a_region_in_the_middle_of_a_call_ends_the_process() {
    let test = "a_handler_that_touches_a_region_in_the_middle_of_a_call_ends_the_process";
    re_enter(FaultMode::Signal, &format!("calls::{test}"));
}

/// The thread that serves waited for the lock of the one that waited for it.
#[test]
fn so_it_does_where_a_thread_serves() {
    re_enter(FaultMode::Thread, "calls::so_it_does_where_a_thread_serves");
}
