//! SIGBUS: the thread that touched a missing page brings it in itself.
//!
//! ```text
//!   on_sigbus   errno saved, every signal blocked, on the thread's own stack
//!      sent, or a forked child's --------------------------.
//!      a fault: its thread is in a call of ours -> a word to stderr, abort: never a hang
//!               Served   -> return: the access is tried again
//!               Gone     -> a word to stderr, abort: never zeros
//!               Foreign  ----------------------------------+-> the handler that was there before,
//!                                                              or the default
//! ```
//!
//! The first [`watch`] installs the handler, and it stays. A handler that was installed later and
//! calls ours must not find it gone.
//!
//! Invariant: a forked child serves no fault until it has a region of its own. It has the handler
//! and the table, but no region. Its descriptor is its parent's, and a fault that was served by it
//! would put pages into the parent's memory.
//!
//! Locks: entering a region and installing the handler, both leaves. The handler itself takes none
//! here.

use super::calls::{Call, Calls};
use super::regions::{Asker, REGIONS_MAX, Regions, Server, Touched, Watch};
use crate::folding::{FaultError, Home};
use crate::locks::{Lock, Rank};
use crate::machine::die_at;
use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The last words of a process that touches a region that was dropped.
pub(super) const DROPPED: &str = "memory of a region was touched after it was dropped";

struct Faults {
    regions: Regions<REGIONS_MAX>,
    calls: Calls,
    /// It is there once the handler is installed.
    home: OnceLock<Home>,
    previous: Previous,
    installing: Lock<()>,
}

/// The action of SIGBUS before our handler.
struct Previous {
    function: AtomicUsize,
    flags: AtomicI32,
}

/// The one static of this room.
static FAULTS: Faults = Faults {
    regions: Regions::new(),
    calls: Calls::new(),
    home: OnceLock::new(),
    previous: Previous { function: AtomicUsize::new(libc::SIG_DFL), flags: AtomicI32::new(0) },
    installing: Lock::new(Rank::Leaf, ()),
};

/// Makes `server` serve the faults in `range`, in the thread that touches it or in a
/// [`FaultThread`](super::FaultThread), until the result is dropped.
///
/// # Errors
///
/// If there are [`REGIONS_MAX`] regions already, or the system refuses the signal handler.
pub fn watch(range: Range<usize>, server: Arc<dyn Server>) -> Result<Watch<'static>, FaultError> {
    install()?;
    let full = FaultError::TooManyRegions { max: REGIONS_MAX };
    FAULTS.regions.enter(range, server).ok_or(full)
}

/// Notes that this thread is about to hold a lock that a fault may wait for, until the result is
/// dropped.
///
/// A signal handler of the program that touches a region meanwhile, in this thread, would wait for
/// its own thread. The process ends with a message instead. So code that does such work in a thread
/// of the program begins a call first, and touches no memory of a region before the call ends.
pub fn begin_call() -> Call {
    FAULTS.calls.begin()
}

/// How many calls were begun so far in this process, modulo 2^32.
pub fn calls_begun() -> u32 {
    FAULTS.calls.begun()
}

/// The call that a thread is in, as a number that no other call has.
pub(super) fn call_of(thread: u32) -> Option<u64> {
    FAULTS.calls.call_of(thread)
}

/// Whether this thread has SIGBUS blocked, or the system does not tell. A touch that only a signal
/// can serve would end the process then.
pub fn is_blocked() -> bool {
    let mut blocked = std::mem::MaybeUninit::uninit();
    // SAFETY: this only asks, and the answer is written to a set of our own.
    let asked = unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), blocked.as_mut_ptr()) == 0
    };
    // SAFETY: the system has written the set if it did not refuse.
    !asked || unsafe { libc::sigismember(blocked.as_ptr(), libc::SIGBUS) != 0 }
}

/// Serves a message about `address`, which `thread` touched.
pub(super) fn serve(address: usize, thread: u32) -> Touched {
    FAULTS.regions.serve(address, Asker::Message { thread })
}

fn install() -> Result<(), FaultError> {
    let _installing = FAULTS.installing.lock();
    if let Some(home) = FAULTS.home.get() {
        if !home.is_here() {
            // This is the first region of a forked child. The tables have its parent's regions.
            FAULTS.regions.abandon();
            FAULTS.calls.abandon();
        }
        home.settle();
        return Ok(());
    }
    let home = Home::new()?;
    // It is set before the handler is installed, because the handler reads it.
    FAULTS.previous.set(&current().map_err(refused("sigaction"))?);
    put_handler().map_err(refused("sigaction"))?;
    // It may be set after the handler, because there is no region yet whose faults could miss it.
    drop(FAULTS.home.set(home));
    Ok(())
}

/// Makes `on_sigbus` the handler.
fn put_handler() -> std::io::Result<()> {
    let mut action = default_action();
    action.sa_sigaction = handler();
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    action.sa_mask = every_signal();
    // SAFETY: the action names a handler of the type that SA_SIGINFO asks for.
    answer(unsafe { libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) })
}

/// All signals, including the two that the C library keeps for itself, which `sigfillset` leaves
/// out. One of these cancels a thread, and a thread must not leave the handler half-way. They also
/// tell a thread in the handler from one in which the program blocks all signals that it can: see
/// `blocking`.
fn every_signal() -> libc::sigset_t {
    // SAFETY: a set is an array of integers.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above, and `set` is this function's.
    unsafe { (&raw mut set).write_bytes(0xff, 1) };
    set
}

impl Previous {
    fn set(&self, action: &libc::sigaction) {
        // relaxed: it is first set before the handler is installed. Later it changes once, from a
        // function to none, and the flags of none are not used.
        self.flags.store(action.sa_flags, Ordering::Relaxed);
        // relaxed: as above.
        self.function.store(action.sa_sigaction, Ordering::Relaxed);
    }

    fn get(&self) -> (usize, libc::c_int) {
        // relaxed: as in `set`.
        (self.function.load(Ordering::Relaxed), self.flags.load(Ordering::Relaxed))
    }
}

fn refused(request: &'static str) -> impl FnOnce(std::io::Error) -> FaultError {
    move |source| FaultError::Refused { request, source }
}

/// The address of our handler.
pub(super) fn handler() -> usize {
    on_sigbus as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) as usize
}

/// The present action of SIGBUS.
pub(super) fn current() -> std::io::Result<libc::sigaction> {
    let mut action = default_action();
    // SAFETY: this only asks, and the answer is written to a structure of our own.
    answer(unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut action) })?;
    Ok(action)
}

fn default_action() -> libc::sigaction {
    // SAFETY: all-zero is SIG_DFL with no flags and an empty set.
    unsafe { std::mem::zeroed() }
}

fn answer(returned: libc::c_int) -> std::io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

extern "C" fn on_sigbus(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the system passes a valid structure, and errno is this thread's.
    let (code, address, errno) =
        unsafe { ((*info).si_code, (*info).si_addr() as usize, *libc::__errno_location()) };
    // Any other code means that a process sent the signal, or that the hardware lost a page.
    let missing = code == libc::BUS_ADRERR && FAULTS.home.get().is_some_and(Home::is_here);
    let touched = if missing { serve_toucher(address) } else { FOREIGN };
    match touched {
        Touched::Served(_) => {}
        Touched::Gone => die_at(DROPPED, address),
        Touched::Foreign if is_sent(code) => forward_sent(signal, info, context),
        Touched::Foreign => forward(signal, info, context),
    }
    // SAFETY: errno is this thread's. The interrupted code finds it as it was.
    unsafe { *libc::__errno_location() = errno };
}

/// Serves the thread that touched `address`, which is this one.
fn serve_toucher(address: usize) -> Touched {
    if FAULTS.calls.has_this_thread() && FAULTS.regions.covers(address) {
        die_at(RE_ENTERED, address);
    }
    FAULTS.regions.serve(address, Asker::Toucher)
}

/// The last words of a process whose fault would wait for its own thread.
const RE_ENTERED: &str = "a thread touched a region in the middle of its own call on regions, in a \
                          signal handler or a disk of the program's: the page may wait for that \
                          call. Touched";

const FOREIGN: Touched = Touched::Foreign;

/// Whether no access waits for the signal, because a process sent it, or because the system reports
/// a page that no thread touched.
fn is_sent(code: libc::c_int) -> bool {
    code <= 0 || code == libc::BUS_MCEERR_AO
}

/// Passes a fault that is not ours to the handler that had SIGBUS before.
fn forward(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    match FAULTS.previous.get() {
        // The access is tried again, and the default action ends the program. Without this crate it
        // would end in the same way.
        (libc::SIG_DFL | libc::SIG_IGN, _) => let_it_end(signal),
        (function, flags) => call(function, flags, (signal, info, context)),
    }
}

/// Does the same for a signal that was sent. The program may go on after it, and then needs our
/// handler, because it touches pages that are out.
fn forward_sent(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    match FAULTS.previous.get() {
        (libc::SIG_IGN, _) => {}
        (libc::SIG_DFL, _) => {
            let_it_end(signal);
            // SAFETY: raises a signal in this thread, which takes it when the handler has returned.
            unsafe { libc::raise(signal) };
        }
        (function, flags) => {
            call(function, flags, (signal, info, context));
            // Rust's own handler does this, so that the next signal meets the default.
            if let Ok(action) = current()
                && action.sa_sigaction == libc::SIG_DFL
            {
                FAULTS.previous.set(&action);
                // If the system refuses what it allowed before, the next fault ends the program.
                drop(put_handler());
            }
        }
    }
}

fn let_it_end(signal: libc::c_int) {
    // SAFETY: SIG_DFL is always a valid disposition.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Calls a handler that was installed with `flags`.
fn call(
    function: usize,
    flags: libc::c_int,
    (signal, info, context): (libc::c_int, *mut libc::siginfo_t, *mut libc::c_void),
) {
    if flags & libc::SA_SIGINFO != 0 {
        // SAFETY: the flag says with which type the function was installed.
        let function: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            unsafe { std::mem::transmute(function) };
        function(signal, info, context);
    } else {
        // SAFETY: a function without the flag takes only the number of the signal.
        let function: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(function) };
        function(signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_blocks_the_signal_says_so() {
        assert!(!is_blocked());
        let blocked = std::thread::spawn(|| {
            let mut all = std::mem::MaybeUninit::uninit();
            // SAFETY: the set is ours to fill, and the mask that of a thread of this test.
            unsafe {
                libc::sigfillset(all.as_mut_ptr());
                libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut());
            }
            is_blocked()
        });
        assert!(blocked.join().expect("it asks only"));
    }
}
