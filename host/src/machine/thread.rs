//! Starting a thread that takes no signal of the program, and work during which a thread of the
//! program is not cancelled.
//!
//! ```text
//!   caller:     block all but FAULTS --> clone --> its own mask again
//!                                          |
//!   new thread:                            '--> the blocked mask, from its first instruction on
//! ```
//!
//! The kernel gives a signal that is sent to a process to any thread that does not block it.
//! Without this module a thread of ours could take it from the program's threads. The program's
//! handler would then run on a stack and with thread-local values that it does not know, and a
//! `sigwait` of the program would miss the signal.
//!
//! Invariant T1: a thread that starts here blocks every signal except `FAULTS` and those that it
//! was started for. It inherits the mask, so there is no moment at which it could take another one.
//! The caller's mask is the same after the call as before.
//!
//! `FAULTS` stay open whatever the caller blocks. A thread of ours may touch a region, and a fault
//! whose SIGBUS is blocked ends the process.
//!
//! Every thread of the libraries and of the `ramfold` command starts here, and a style test checks
//! it. Lock: none.

use std::io;
use std::mem::MaybeUninit;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// Signals that the kernel sends to the thread that caused them: faults, traps, and refused system
/// calls.
const FAULTS: [libc::c_int; 6] =
    [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Runs `work` while the thread cannot be cancelled (`pthread_cancel`). Rust does not unwind for
/// that: a thread that is cancelled inside ends the process, or keeps a lock for ever. A request
/// that comes meanwhile waits until the thread is in a cancellation point of the program.
pub fn uncancelled<T>(work: impl FnOnce() -> T) -> T {
    struct Before(libc::c_int);

    impl Drop for Before {
        fn drop(&mut self) {
            set_cancelling(self.0);
        }
    }

    const DISABLED: libc::c_int = 1; // PTHREAD_CANCEL_DISABLE of glibc and musl
    let _before = Before(set_cancelling(DISABLED));
    work()
}

/// Sets whether the thread may be cancelled, and says what was set before.
fn set_cancelling(state: libc::c_int) -> libc::c_int {
    unsafe extern "C" {
        fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
    }
    let mut before = 0;
    // SAFETY: the state is one of the two that there are, and `before` is ours.
    unsafe { pthread_setcancelstate(state, &raw mut before) };
    before
}

/// Starts a thread that takes no signal that is sent to the process.
///
/// The system shows the first 15 bytes of `name`.
///
/// # Errors
///
/// If the system refuses a thread.
///
/// # Panics
///
/// If `name` has a zero byte.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    spawn_taking(&[], name, work)
}

/// Starts a thread that takes `signals`, and no others that are sent to the process. `signals` are
/// numbers. It is meant for a program whose other threads may be busy when it is told to end.
///
/// # Errors
///
/// If the system refuses a thread, or has no signal of such a number.
///
/// # Panics
///
/// If `name` has a zero byte.
pub fn spawn_taking<T: Send + 'static>(
    signals: &[i32],
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let _blocked = Blocked::all_except(signals)?;
    Builder::new().name(name.to_owned()).spawn(work)
}

/// Like [`spawn`], for a thread that ends within a scope and may borrow what outlives the scope.
///
/// # Errors
///
/// If the system refuses a thread.
///
/// # Panics
///
/// If `name` has a zero byte.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    let _blocked = Blocked::all_except(&[])?;
    Builder::new().name(name.to_owned()).spawn_scoped(scope, work)
}

/// While this lives, this thread blocks the signals that a new thread has to block. Dropping it
/// restores the mask.
pub(super) struct Blocked {
    before: libc::sigset_t,
}

impl Blocked {
    pub(super) fn all_except(signals: &[libc::c_int]) -> io::Result<Blocked> {
        let mut mask = full();
        for &signal in FAULTS.iter().chain(signals) {
            // SAFETY: the set is initialised. A number that is no signal is refused.
            if unsafe { libc::sigdelset(&raw mut mask, signal) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Blocked { before: exchange(&mask)? })
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // This cannot fail, because the same call was allowed before.
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

/// Makes this thread block `mask`, and gives the signals that it blocked before.
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
