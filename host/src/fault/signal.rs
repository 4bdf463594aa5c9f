//! SIGBUS: the thread that touched a missing page brings it in itself.
//!
//! ```text
//!   on_sigbus   errno saved, every signal blocked, on the thread's own stack
//!      Served   -> return: the access is tried again
//!      Gone     -> a word to stderr, abort: never zeros
//!      Foreign  -> the handler that was there before, or the default
//! ```
//!
//! Installed once, by the first [`watch`], and left for good: a handler that was installed later
//! and calls ours on must not find it gone.

use super::{Entry, REGIONS_MAX, Regions, Server, Touched};
use crate::uffd::UserfaultError;
use crate::{Lock, Rank};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A region that faults find.
pub type Watch = Entry<'static>;

struct Faults {
    regions: Regions<REGIONS_MAX>,
    /// What SIGBUS did before us.
    previous: OnceLock<libc::sigaction>,
    installing: Lock<()>,
}

/// The one static of this tree.
static FAULTS: Faults = Faults {
    regions: Regions::new(),
    previous: OnceLock::new(),
    installing: Lock::new(Rank::Leaf, ()),
};

/// Has faults in `range` served by `server`, in the thread that touches it or by a
/// [`FaultThread`](super::FaultThread).
///
/// # Errors
///
/// When [`REGIONS_MAX`] regions are there already, or the system refuses the signal handler.
pub fn watch(range: Range<usize>, server: Arc<dyn Server>) -> Result<Watch, UserfaultError> {
    install().map_err(|source| UserfaultError::Refused { request: "sigaction", source })?;
    let full = UserfaultError::TooManyRegions { max: REGIONS_MAX };
    FAULTS.regions.enter(range, server).ok_or(full)
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

/// Serves a touch of `address` on behalf of another thread.
pub(super) fn serve(address: usize) -> Touched {
    FAULTS.regions.serve(address)
}

fn install() -> std::io::Result<()> {
    let _installing = FAULTS.installing.lock();
    if FAULTS.previous.get().is_some() {
        return Ok(());
    }
    let previous = current()?;
    // Before the handler, which reads it. Under the lock nobody else sets it.
    let _ = FAULTS.previous.set(previous);
    let mut action = default_action();
    action.sa_sigaction = handler();
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the set is ours to fill.
    unsafe { libc::sigfillset(&mut action.sa_mask) };
    // SAFETY: the action names a handler of the type that SA_SIGINFO asks for.
    answer(unsafe { libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) })
}

fn handler() -> usize {
    on_sigbus as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) as usize
}

fn current() -> std::io::Result<libc::sigaction> {
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
    if code != libc::BUS_ADRERR {
        // Sent by a process, or a page that the hardware lost: not a missing one.
        return forward(signal, info, context);
    }
    match FAULTS.regions.serve(address) {
        Touched::Served(_) => {}
        Touched::Gone => die("memory of a region was touched after it was dropped", address),
        Touched::Foreign => forward(signal, info, context),
    }
    // SAFETY: as above. The interrupted code finds its errno as it was.
    unsafe { *libc::__errno_location() = errno };
}

/// Hands a SIGBUS that is not ours to whoever had it before.
fn forward(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = FAULTS.previous.get();
    match previous.map(|action| (action.sa_sigaction, action.sa_flags)) {
        None | Some((libc::SIG_DFL | libc::SIG_IGN, _)) => {
            // The access is tried again, and the default action ends the program, as without us.
            // SAFETY: SIG_DFL is always a valid disposition.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Some((function, flags)) if flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the flag says which type the function was installed with.
            let function: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(function) };
            function(signal, info, context);
        }
        Some((function, _)) => {
            // SAFETY: without the flag, functions take the signal's number alone.
            let function: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(function) };
            function(signal);
        }
    }
}

/// Ends the process with a word on standard error: for a fault that nobody can serve. Fit for a
/// signal handler.
pub fn die(why: &str, address: usize) -> ! {
    const PREFIX: &[u8] = b"ramfold: ";
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hex = *b" at 0x0000000000000000\n";
    for digit in 0..16 {
        hex[21 - digit] = DIGITS[address >> (4 * digit) & 0xF];
    }
    for part in [PREFIX, why.as_bytes(), &hex] {
        // SAFETY: writes bytes that are there; whether anybody reads them changes nothing.
        unsafe { libc::write(2, part.as_ptr().cast(), part.len()) };
    }
    std::process::abort()
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
