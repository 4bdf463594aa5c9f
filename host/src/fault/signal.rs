//! SIGBUS and SIGSEGV: the thread that touched a missing page brings it in itself.
//!
//! ```text
//!   on_fault    errno saved, every signal blocked, on a stack that is large enough (`stacks`)
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
//! Invariant: a forked child serves no fault by a userfaultfd until it has a region of its own. It
//! has the handler and the table, but no such region. Its descriptor is its parent's, and a fault
//! that was served by it would put pages into the parent's memory. Where such regions were, closed
//! memory is mapped in the child, and a touch of it ends the child with a word. Regions whose pages
//! are closed it has, and serves.
//!
//! Locks: entering a region and installing the handler, both leaves. The handler itself takes none
//! here.

use super::calls::{Call, Calls};
use super::previous::{Kept, Previous, answer, current, default_action};
use super::regions::{Asker, REGIONS_MAX, Regions, Server, Touched, Watch};
use super::stacks::Stacks;
use crate::folding::{FaultError, FaultMode, Home, Signal};
use crate::locks::{Lock, Rank};
use crate::machine::die_at;
use crate::memory;
use crate::sync::fork;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The last words of a process that touches a region that was dropped.
pub(super) const DROPPED: &str = "memory of a region was touched after it was dropped";

struct Faults {
    regions: Regions<REGIONS_MAX>,
    calls: Calls,
    /// It is there once a handler is installed.
    home: OnceLock<Home>,
    /// They are there once the handler of SIGSEGV is installed.
    stacks: OnceLock<Stacks>,
    /// SIGBUS and SIGSEGV.
    previous: [Previous; 2],
    installing: Lock<Installed>,
}

/// What is known of the handlers.
struct Installed {
    /// The signals whose handler is installed, as in `previous`.
    signals: [bool; 2],
    /// Children are told which memory is not theirs.
    hooked: bool,
    known: Kept,
}

impl Faults {
    /// Makes the tables those of a forked child: without calls of its parent's threads, and without
    /// regions whose memory it does not have. Returns whether there were some.
    fn settle_in_child(&self) -> bool {
        let has_parents = self.regions.abandon(memory::close);
        self.calls.abandon();
        self.stacks.get().into_iter().for_each(Stacks::abandon);
        self.home.get().into_iter().for_each(Home::settle);
        has_parents
    }

    /// The action of a signal before our handler.
    fn previous(&self, signal: libc::c_int) -> &Previous {
        &self.previous[usize::from(signal != libc::SIGBUS)]
    }
}

impl Installed {
    /// What was there before each handler that is installed.
    fn previous(&self) -> impl Iterator<Item = &'static Previous> + use<> {
        FAULTS.previous.iter().zip(self.signals).filter(|&(_, there)| there).map(|(one, _)| one)
    }
}

/// The one static of this room.
static FAULTS: Faults = Faults {
    regions: Regions::new(),
    calls: Calls::new(),
    home: OnceLock::new(),
    stacks: OnceLock::new(),
    previous: [Previous::none(Signal::Bus), Previous::none(Signal::Segv)],
    installing: Lock::new(
        Rank::Leaf,
        Installed { signals: [false; 2], hooked: false, known: Vec::new() },
    ),
};

/// Makes `server` serve the faults in `range`, which are served in `mode`: in the thread that
/// touches it or in a [`FaultThread`](super::FaultThread), until the result is dropped.
///
/// # Errors
///
/// If there are [`REGIONS_MAX`] regions already, or the system refuses the signal handler.
pub fn watch(
    range: Range<usize>,
    mode: FaultMode,
    server: Arc<dyn Server>,
) -> Result<Watch<'static>, FaultError> {
    // A fork waits until the region is entered.
    let _call = begin_call();
    install(mode.signal())?;
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

/// Whether this thread has the signal of a mode blocked, or the system does not tell. A touch that
/// only the signal can serve would end the process then.
pub fn is_blocked(mode: FaultMode) -> bool {
    let mut blocked = std::mem::MaybeUninit::uninit();
    // SAFETY: this only asks, and the answer is written to a set of our own.
    let asked = unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), blocked.as_mut_ptr()) == 0
    };
    // SAFETY: the system has written the set if it did not refuse.
    !asked || unsafe { libc::sigismember(blocked.as_ptr(), mode.signal().number()) != 0 }
}

/// Serves a message about `address`, which `thread` touched.
pub(super) fn serve(address: usize, thread: u32) -> Touched {
    FAULTS.regions.serve(address, Asker::Message { thread })
}

fn install(signal: Signal) -> Result<(), FaultError> {
    let mut installed = FAULTS.installing.lock();
    match FAULTS.home.get() {
        Some(home) => {
            // This may be the first region of a child that was made without the hooks.
            if !home.is_here() {
                FAULTS.settle_in_child();
            }
        }
        // It is there before a handler, because the handler reads it.
        None => drop(FAULTS.home.set(Home::new()?)),
    }
    let index = usize::from(signal != Signal::Bus);
    if installed.signals[index] {
        return Ok(());
    }
    if signal == Signal::Bus && !installed.hooked {
        hook_forks(None, None, after_plain_fork).map_err(refused("pthread_atfork"))?;
        installed.hooked = true;
    }
    if signal == Signal::Segv && FAULTS.stacks.get().is_none() {
        let stacks = Stacks::reserve()?;
        // Nothing is refused after this, so it is called once.
        hook_forks(Some(before_fork), Some(after_fork_in_parent), after_fork)
            .map_err(refused("pthread_atfork"))?;
        drop(FAULTS.stacks.set(stacks));
    }
    // It is set before the handler is installed, because the handler reads it.
    FAULTS.previous[index]
        .remember(handler(), &mut installed.known)
        .map_err(refused("sigaction"))?;
    put_handler(signal).map_err(refused("sigaction"))?;
    installed.signals[index] = true;
    Ok(())
}

/// Lets the actions stand that were there before our handlers, so that other code of the program
/// may change them: a handler that is installed now does not take ours for the one before it. Call
/// [`step_back`] soon. Until then a touch of a page that is out ends as without us.
///
/// # Errors
///
/// If the system refuses an action that it allowed before.
pub fn step_aside() -> std::io::Result<()> {
    // Where pages are closed, a fork waits until they have stepped aside.
    let _call = begin_call();
    let installed = FAULTS.installing.lock();
    for previous in installed.previous() {
        if current(previous.signal())?.sa_sigaction == handler() {
            previous.put_back()?;
        }
    }
    Ok(())
}

/// Puts our handlers back in front of those that the program has installed since. A fault that is
/// not a region's goes to them.
///
/// # Errors
///
/// If the system refuses what it allowed before.
pub fn step_back() -> std::io::Result<()> {
    let _call = begin_call();
    let mut installed = FAULTS.installing.lock();
    for previous in installed.previous() {
        previous.remember(handler(), &mut installed.known)?;
        put_handler(previous.signal())?;
    }
    Ok(())
}

/// Makes the C library call this room before and after it forks. It is called once for each child's
/// function, which may find that the other one was called before.
fn hook_forks(
    before: Option<unsafe extern "C" fn()>,
    in_parent: Option<unsafe extern "C" fn()>,
    in_child: unsafe extern "C" fn(),
) -> std::io::Result<()> {
    // SAFETY: the functions take nothing, and stay as long as the program.
    let error = unsafe { libc::pthread_atfork(before, in_parent, Some(in_child)) };
    if error == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(error)) }
}

extern "C" fn before_fork() {
    if !is_in_the_middle() {
        fork::prepare();
    }
}

extern "C" fn after_fork_in_parent() {
    if !is_in_the_middle() {
        fork::resume(false);
    }
}

/// Whether this thread is inside itself, and forks all the same: a disk's code may do so. Its child
/// must not touch a region.
fn is_in_the_middle() -> bool {
    FAULTS.calls.has_this_thread() || fork::is_in_a_round()
}

/// In the child, whose only thread this is.
extern "C" fn after_fork() {
    settle();
    fork::resume(true);
}

/// In a child of a process that has had no closed pages, so no fork waited for its threads.
extern "C" fn after_plain_fork() {
    settle();
}

fn settle() {
    memory::settle_in_child();
    if FAULTS.settle_in_child()
        && let Some(mut installed) = FAULTS.installing.try_lock()
    {
        // Without the handler a touch of its parent's memory ends the child all the same.
        let previous = FAULTS.previous(libc::SIGSEGV);
        let remembered = previous.remember(handler(), &mut installed.known);
        drop(remembered.and_then(|()| put_handler(Signal::Segv)));
    }
}

/// Makes `on_fault` the handler of a signal.
fn put_handler(signal: Signal) -> std::io::Result<()> {
    let mut action = default_action();
    action.sa_sigaction = handler();
    // An overflow of a stack is a SIGSEGV, and only the alternate stack has room for its handler.
    let stack = if signal == Signal::Segv { libc::SA_ONSTACK } else { 0 };
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | stack;
    action.sa_mask = every_signal();
    // SAFETY: the action names a handler of the type that SA_SIGINFO asks for.
    answer(unsafe { libc::sigaction(signal.number(), &action, std::ptr::null_mut()) })
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

fn refused(request: &'static str) -> impl FnOnce(std::io::Error) -> FaultError {
    move |source| FaultError::Refused { request, source }
}

/// The address of our handler.
pub(super) fn handler() -> usize {
    on_fault as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) as usize
}

impl Asker {
    /// How a thread asks that gets a signal with a code.
    fn by(signal: libc::c_int, code: libc::c_int) -> Asker {
        match (signal, code) {
            (libc::SIGBUS, _) => Asker::Toucher,
            // The system reports a guard as it reports memory that is not mapped.
            (_, SEGV_MAPERR) => Asker::Guarded,
            _ => Asker::Denied,
        }
    }

    /// Whether a closed page was touched.
    pub fn is_denied(self) -> bool {
        matches!(self, Asker::Denied | Asker::Guarded)
    }

    /// Whether pages that are out in `mode` are asked for so.
    pub fn is_of(self, mode: FaultMode) -> bool {
        match mode {
            FaultMode::Signal | FaultMode::Thread => !self.is_denied(),
            FaultMode::Protection => self == Asker::Denied,
            FaultMode::Guards => self == Asker::Guarded,
        }
    }
}

extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the system passes a valid structure, and errno is this thread's.
    let (code, address, errno) =
        unsafe { ((*info).si_code, (*info).si_addr() as usize, *libc::__errno_location()) };
    let asker = Asker::by(signal, code);
    let mut touch = Touch { address, asker, touched: Touched::Foreign };
    if is_missing(signal, code) && !is_fetch(context) {
        match asker {
            Asker::Denied | Asker::Guarded => serve_denied(context, &mut touch),
            _ if FAULTS.home.get().is_some_and(Home::is_here) => serve_toucher(&mut touch),
            _ => {}
        }
    }
    let previous = FAULTS.previous(signal);
    match touch.touched {
        Touched::Served(_) => {}
        Touched::Gone => die_at(DROPPED, address),
        Touched::Foreign if is_sent(code) => {
            // If the system refuses what it allowed before, the next fault ends the program.
            previous.forward_sent((signal, info, context), || drop(put_handler(previous.signal())));
        }
        Touched::Foreign => previous.forward((signal, info, context)),
    }
    // SAFETY: errno is this thread's. The interrupted code finds it as it was.
    unsafe { *libc::__errno_location() = errno };
}

/// A touch of a page, and its outcome.
struct Touch {
    address: usize,
    asker: Asker,
    touched: Touched,
}

/// Serves the thread that touched a closed page, which is this one. A forked child may have the
/// region too, so the thread must not be in the middle of this when it is made.
fn serve_denied(context: *mut libc::c_void, touch: &mut Touch) {
    if FAULTS.regions.is_parents(touch.address) {
        die_at(PARENTS, touch.address);
    }
    let Some(stacks) = FAULTS.stacks.get() else { return };
    // Other faults are not kept waiting, and a fork is not either.
    if !FAULTS.regions.covers(touch.address) {
        return;
    }
    if !FAULTS.home.get().is_some_and(Home::is_here) {
        // This is a child that was made without the hooks.
        FAULTS.settle_in_child();
        if FAULTS.regions.is_parents(touch.address) {
            die_at(PARENTS, touch.address);
        }
    }
    // A thread that is inside must not go in once more. If it is in a call, it is about to end the
    // process.
    let _inside = (!is_in_the_middle()).then(fork::go_inside);
    stacks.run(context, serve_on_stack, touch);
}

extern "C" fn serve_on_stack(touch: *mut Touch) {
    // SAFETY: the handler's own, which it does not use meanwhile.
    serve_toucher(unsafe { &mut *touch });
}

/// Serves the thread that touched a page, which is this one.
fn serve_toucher(touch: &mut Touch) {
    if FAULTS.calls.has_this_thread() && FAULTS.regions.covers(touch.address) {
        die_at(RE_ENTERED, touch.address);
    }
    touch.touched = FAULTS.regions.serve(touch.address, touch.asker);
}

/// Whether the thread wanted to run what is there. Pages of regions cannot be run, so that is a
/// fault of the program's.
fn is_fetch(context: *mut libc::c_void) -> bool {
    // SAFETY: the system passes a valid context.
    let machine = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    // The bit of the processor's error code that says "instruction fetch".
    let fetch = machine.gregs[libc::REG_ERR as usize] & 0x10 != 0;
    #[cfg(target_arch = "aarch64")]
    let fetch = machine.fault_address == machine.pc;
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let fetch = {
        let _ = machine;
        false
    };
    fetch
}

/// The last words of a forked child that touches a region which only its parent has.
const PARENTS: &str = "this process was forked, and has touched folded memory that only its parent \
                       has. Send it the data, start it without a fork (in Python: 'spawn' or \
                       'forkserver'), or have pages closed instead (FaultMode::Protection, in \
                       Python RAMFOLD_FAULT_MODE=protection). Touched";

/// The last words of a process whose fault would wait for its own thread.
const RE_ENTERED: &str = "a thread touched a region in the middle of its own call on regions, in a \
                          signal handler or a disk of the program's: the page may wait for that \
                          call. Touched";

/// Whether the signal may be about a page that is out. Any other code means that a process sent it,
/// or that the hardware lost a page.
fn is_missing(signal: libc::c_int, code: libc::c_int) -> bool {
    match signal {
        libc::SIGBUS => code == libc::BUS_ADRERR,
        _ => matches!(code, SEGV_MAPERR | SEGV_ACCERR),
    }
}

/// "Address not mapped to object", of `sigaction(2)`: the code for a guard too.
const SEGV_MAPERR: libc::c_int = 1;
/// "Invalid permissions for mapped object".
const SEGV_ACCERR: libc::c_int = 2;

/// Whether no access waits for the signal, because a process sent it, or because the system reports
/// a page that no thread touched.
fn is_sent(code: libc::c_int) -> bool {
    code <= 0 || code == libc::BUS_MCEERR_AO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_blocks_the_signal_says_so() {
        assert!(!is_blocked(FaultMode::Signal) && !is_blocked(FaultMode::Protection));
        let blocked = std::thread::spawn(|| {
            let mut all = std::mem::MaybeUninit::uninit();
            // SAFETY: the set is ours to fill, and the mask that of a thread of this test.
            unsafe {
                libc::sigfillset(all.as_mut_ptr());
                libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut());
            }
            is_blocked(FaultMode::Signal) && is_blocked(FaultMode::Protection)
        });
        assert!(blocked.join().expect("it asks only"));
    }
}
