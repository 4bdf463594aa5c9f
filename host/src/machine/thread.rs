//! Starting a thread that takes no signal of the program.
//!
//! ```text
//!   caller:     block all but FAULTS --> clone --> its own mask again
//!                                          |
//!   new thread:                            '--> the blocked mask, from its first instruction on
//! ```
//!
//! The kernel gives a signal that is sent to a process to any thread that does not block it. A
//! thread of ours would take it from the program's threads: its handler would run on a stack and
//! with thread-local values that it does not know, and a `sigwait` of the program would miss it.
//!
//! Invariant T1: a thread that starts here blocks every signal but `FAULTS` and those that it was
//! started for. It inherits the mask, so there is no moment at which it could take another one.
//! The caller's mask is the same after the call as before.
//!
//! `FAULTS` stay open whatever the caller blocks: a thread of ours may touch a region, and a
//! blocked SIGBUS of a fault ends the process.
//!
//! Every thread of the libraries and of the `ramfold` command starts here; a style test checks it.

use std::io;
use std::mem::MaybeUninit;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// Signals that the kernel sends to the thread that caused them: faults, traps, and refused system
/// calls.
const FAULTS: [libc::c_int; 6] =
    [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Starts a thread that takes no signal sent to the process.
///
/// The system shows the first 15 bytes of `name`.
///
/// # Errors
///
/// When the system refuses a thread.
///
/// # Panics
///
/// When there is a zero byte in `name`.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    spawn_taking(&[], name, work)
}

/// Starts a thread that takes `signals`, by their numbers, and no others that are sent to the
/// process: for a program whose other threads may be busy when it is told to end.
///
/// # Errors
///
/// When the system refuses a thread, or has no signal of such a number.
///
/// # Panics
///
/// As [`spawn`].
pub fn spawn_taking<T: Send + 'static>(
    signals: &[i32],
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let _blocked = Blocked::but_for(signals)?;
    Builder::new().name(name.to_owned()).spawn(work)
}

/// [`spawn`] for a thread that ends within a scope and may borrow what outlives it.
///
/// # Errors
///
/// When the system refuses a thread.
///
/// # Panics
///
/// As [`spawn`].
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    let _blocked = Blocked::but_for(&[])?;
    Builder::new().name(name.to_owned()).spawn_scoped(scope, work)
}

/// This thread blocks what a new one is to block; dropping it gives back the mask of before.
struct Blocked {
    before: libc::sigset_t,
}

impl Blocked {
    fn but_for(signals: &[libc::c_int]) -> io::Result<Blocked> {
        let mut mask = full();
        for &signal in FAULTS.iter().chain(signals) {
            // SAFETY: the set is initialised; a number that is no signal's is refused.
            if unsafe { libc::sigdelset(&raw mut mask, signal) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Blocked { before: exchange(&mask)? })
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // Cannot fail: the same call was allowed before.
        let _ = exchange(&self.before);
    }
}

fn full() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: fills the set that it is given.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    // SAFETY: just filled.
    unsafe { set.assume_init() }
}

/// Makes `mask` what this thread blocks; gives what it blocked before.
#[cfg(not(miri))]
fn exchange(mask: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    let mut before = full();
    // SAFETY: both sets are initialised, and the second is ours to write.
    match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, &raw mut before) } {
        0 => Ok(before),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Miri has no signals.
#[cfg(miri)]
fn exchange(mask: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    Ok(*mask)
}
