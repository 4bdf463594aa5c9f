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
//! Installed once, by the first [`watch`], and left for good: a handler that was installed later
//! and calls ours on must not find it gone.
//!
//! A forked child has the handler and the table, but no region: its descriptor is its parent's, in
//! whose memory a fault served here would put pages. So it serves none, until it has a region of
//! its own.

use super::calls::{Call, Calls};
use super::regions::{Asker, Entry, REGIONS_MAX, Regions, Server, Touched};
use crate::locks::{Lock, Rank};
use crate::machine::die_at;
use crate::userfault::{Home, UserfaultError};
use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// What ends a process that touches a region that is no more.
pub(super) const DROPPED: &str = "memory of a region was touched after it was dropped";

/// A region that faults find.
pub type Watch = Entry<'static>;

struct Faults {
    regions: Regions<REGIONS_MAX>,
    calls: Calls,
    /// There once the handler is.
    home: OnceLock<Home>,
    previous: Previous,
    installing: Lock<()>,
}

/// What SIGBUS did before us.
struct Previous {
    function: AtomicUsize,
    flags: AtomicI32,
}

/// The one static of this tree.
static FAULTS: Faults = Faults {
    regions: Regions::new(),
    calls: Calls::new(),
    home: OnceLock::new(),
    previous: Previous { function: AtomicUsize::new(libc::SIG_DFL), flags: AtomicI32::new(0) },
    installing: Lock::new(Rank::Leaf, ()),
};

/// Has faults in `range` served by `server`, in the thread that touches it or by a
/// [`FaultThread`](super::FaultThread).
///
/// # Errors
///
/// When [`REGIONS_MAX`] regions are there already, or the system refuses the signal handler.
pub fn watch(range: Range<usize>, server: Arc<dyn Server>) -> Result<Watch, UserfaultError> {
    install()?;
    let full = UserfaultError::TooManyRegions { max: REGIONS_MAX };
    FAULTS.regions.enter(range, server).ok_or(full)
}

/// Notes that this thread is about to hold what a fault may wait for, until the result is dropped.
///
/// A signal handler of the program's that touches a region meanwhile, in this thread, would wait
/// for its own thread: the process ends with a word instead. So whoever does such work in a
/// program's thread begins a call first, and touches no memory of a region before it ends.
pub fn begin_call() -> Call {
    FAULTS.calls.begin()
}

/// How many calls were begun so far, modulo 2^32.
pub fn calls_begun() -> u32 {
    FAULTS.calls.begun()
}

/// The call that a thread is in, as a number of its own.
pub(super) fn call_of(thread: u32) -> Option<u64> {
    FAULTS.calls.call_of(thread)
}

/// Whether this thread has SIGBUS blocked, or the system does not say: a touch that only a signal
/// could serve would end the process.
pub fn is_blocked() -> bool {
    let mut blocked = std::mem::MaybeUninit::uninit();
    // SAFETY: asks only; the answer is written where it may be.
    let asked = unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), blocked.as_mut_ptr()) == 0
    };
    // SAFETY: the system has written the set where it did not refuse.
    !asked || unsafe { libc::sigismember(blocked.as_ptr(), libc::SIGBUS) != 0 }
}

/// Serves a message about `address`, which `thread` touched.
pub(super) fn serve(address: usize, thread: u32) -> Touched {
    FAULTS.regions.serve(address, Asker::Message { thread })
}

fn install() -> Result<(), UserfaultError> {
    let _installing = FAULTS.installing.lock();
    if let Some(home) = FAULTS.home.get() {
        if !home.is_here() {
            // A forked child's first region: what is in the tables is its parent's.
            FAULTS.regions.abandon();
            FAULTS.calls.abandon();
        }
        home.settle();
        return Ok(());
    }
    let home = Home::new()?;
    // Before the handler, which reads it.
    FAULTS.previous.set(&current().map_err(refused("sigaction"))?);
    put_handler().map_err(refused("sigaction"))?;
    // No region is there yet whose faults could miss it.
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

/// All signals, and among them the two that the C library keeps for itself. `sigfillset` leaves
/// those out. One of them cancels a thread, which must not leave the handler half-way. And by them
/// a thread in the handler is told from one whose program blocks all it can: see `blocking`.
fn every_signal() -> libc::sigset_t {
    // SAFETY: a set is an array of integers.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above, and `set` is this function's.
    unsafe { (&raw mut set).write_bytes(0xff, 1) };
    set
}

impl Previous {
    fn set(&self, action: &libc::sigaction) {
        // relaxed: before the handler is there, and later one change, from a function to none,
        // whose flags are nobody's.
        self.flags.store(action.sa_flags, Ordering::Relaxed);
        // relaxed: as above.
        self.function.store(action.sa_sigaction, Ordering::Relaxed);
    }

    fn get(&self) -> (usize, libc::c_int) {
        // relaxed: as in `set`.
        (self.function.load(Ordering::Relaxed), self.flags.load(Ordering::Relaxed))
    }
}

fn refused(request: &'static str) -> impl FnOnce(std::io::Error) -> UserfaultError {
    move |source| UserfaultError::Refused { request, source }
}

/// The address of ours.
pub(super) fn handler() -> usize {
    on_sigbus as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) as usize
}

/// What SIGBUS does now.
pub(super) fn current() -> std::io::Result<libc::sigaction> {
    let mut action = default_action();
    // SAFETY: asks only; the answer is written where it may be.
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
    // Others are sent by a process, or of a page that the hardware lost: not of a missing one.
    let missing = code == libc::BUS_ADRERR && FAULTS.home.get().is_some_and(Home::is_here);
    let touched = if missing { serve_toucher(address) } else { FOREIGN };
    match touched {
        Touched::Served(_) => {}
        Touched::Gone => die_at(DROPPED, address),
        Touched::Foreign if is_sent(code) => forward_sent(signal, info, context),
        Touched::Foreign => forward(signal, info, context),
    }
    // SAFETY: as above. The interrupted code finds its errno as it was.
    unsafe { *libc::__errno_location() = errno };
}

/// Serves the thread that touched `address`, which is this one.
fn serve_toucher(address: usize) -> Touched {
    if FAULTS.calls.has_this_thread() && FAULTS.regions.covers(address) {
        die_at(RE_ENTERED, address);
    }
    FAULTS.regions.serve(address, Asker::Toucher)
}

/// What ends a process whose fault would wait for its own thread.
const RE_ENTERED: &str = "a thread touched a region in the middle of its own call on regions, in a \
                          signal handler or a disk of the program's: the page may wait for that \
                          call. Touched";

const FOREIGN: Touched = Touched::Foreign;

/// Whether no access waits for the signal: a process sent it, or the system tells of a page that
/// nobody touched.
fn is_sent(code: libc::c_int) -> bool {
    code <= 0 || code == libc::BUS_MCEERR_AO
}

/// Hands a fault that is not ours to whoever had SIGBUS before.
fn forward(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    match FAULTS.previous.get() {
        // The access is tried again, and the default action ends the program, as without us.
        (libc::SIG_DFL | libc::SIG_IGN, _) => let_it_end(signal),
        (function, flags) => call(function, flags, (signal, info, context)),
    }
}

/// The same of a signal that was sent, after which the program may go on: with our handler, since
/// it touches pages that are out.
fn forward_sent(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    match FAULTS.previous.get() {
        (libc::SIG_IGN, _) => {}
        (libc::SIG_DFL, _) => {
            let_it_end(signal);
            // SAFETY: to this thread, which has it when it is back from the handler.
            unsafe { libc::raise(signal) };
        }
        (function, flags) => {
            call(function, flags, (signal, info, context));
            // As Rust's own does: the next one is to meet the default.
            if let Ok(action) = current()
                && action.sa_sigaction == libc::SIG_DFL
            {
                FAULTS.previous.set(&action);
                // Where the system refuses what it allowed before, the next fault ends the program.
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
        // SAFETY: the flag says which type the function was installed with.
        let function: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            unsafe { std::mem::transmute(function) };
        function(signal, info, context);
    } else {
        // SAFETY: without the flag, functions take the signal's number alone.
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
