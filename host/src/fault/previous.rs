//! The action that a signal had before our handler: a fault that is not ours goes there.
//!
//! ```text
//!   touch, but of no region --> no handler: the default action comes at the next try
//!                           `-> a handler: called with the same signal, address and context, and
//!                                          with the mask that the system would have set for it
//! ```
//!
//! A handler may leave by `siglongjmp`. So all that is ours is done before it is called, and the
//! signals that only our handler blocks are open by then.
//!
//! Invariant: the function, its flags and its mask are those of one action. They are first set
//! before our handler is installed. Later they change once, to no handler. Lock: none.

use crate::folding::Signal;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

/// What the system passes to a handler.
pub(super) type Passed = (libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// The action of a signal before our handler.
pub(super) struct Previous {
    signal: Signal,
    function: AtomicUsize,
    flags: AtomicI32,
    /// The signals that are blocked while it runs, as the system counts them: 1 is bit 0.
    mask: AtomicU64,
}

impl Previous {
    /// No handler.
    pub(super) const fn none(signal: Signal) -> Previous {
        let (function, flags) = (AtomicUsize::new(libc::SIG_DFL), AtomicI32::new(0));
        Previous { signal, function, flags, mask: AtomicU64::new(0) }
    }

    /// The signal.
    pub(super) fn signal(&self) -> Signal {
        self.signal
    }

    /// Remembers the present action of the signal.
    pub(super) fn remember(&self) -> std::io::Result<()> {
        self.set(&current(self.signal)?);
        Ok(())
    }

    fn set(&self, action: &libc::sigaction) {
        // relaxed: it is first set before the handler is installed. Later it changes once, from a
        // function to none, and the flags and the mask of none are not used.
        self.flags.store(action.sa_flags, Ordering::Relaxed);
        // relaxed: as above.
        self.mask.store(word_of(&action.sa_mask), Ordering::Relaxed);
        // relaxed: as above.
        self.function.store(action.sa_sigaction, Ordering::Relaxed);
    }

    /// Passes on a fault that is not ours.
    pub(super) fn forward(&self, passed: Passed) {
        // relaxed: as in `set`.
        match self.function.load(Ordering::Relaxed) {
            // The access is tried again, and the default action ends the program. Without this
            // crate it would end in the same way.
            libc::SIG_DFL | libc::SIG_IGN => self.let_it_end(),
            function => self.call(function, passed),
        }
    }

    /// Does the same for a signal that was sent. The program may go on after it, and then needs our
    /// handler, because it touches pages that are out.
    ///
    /// `put_back` installs our handler again.
    pub(super) fn forward_sent(&self, passed: Passed, put_back: impl FnOnce()) {
        // relaxed: as in `set`.
        match self.function.load(Ordering::Relaxed) {
            libc::SIG_IGN => {}
            libc::SIG_DFL => {
                self.let_it_end();
                // SAFETY: raises a signal in this thread, which takes it when the handler has
                // returned.
                unsafe { libc::raise(self.signal.number()) };
            }
            function => {
                self.call(function, passed);
                // Rust's own handler does this, so that the next signal meets the default.
                if let Ok(action) = current(self.signal)
                    && action.sa_sigaction == libc::SIG_DFL
                {
                    self.set(&action);
                    put_back();
                }
            }
        }
    }

    fn let_it_end(&self) {
        // SAFETY: SIG_DFL is always a valid disposition.
        unsafe { libc::signal(self.signal.number(), libc::SIG_DFL) };
    }

    /// Calls the handler as the system would have called it.
    fn call(&self, function: usize, (signal, info, context): Passed) {
        // relaxed: as in `set`.
        let flags = self.flags.load(Ordering::Relaxed);
        if flags & libc::SA_RESETHAND != 0 {
            // relaxed: as in `set`.
            self.function.store(libc::SIG_DFL, Ordering::Relaxed);
        }
        self.set_mask(flags, context);
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

    /// Blocks what the interrupted code had blocked, what the action asks for, and the signal.
    fn set_mask(&self, flags: libc::c_int, context: *mut libc::c_void) {
        // SAFETY: the system passes a valid context.
        let mut mask = unsafe { (*context.cast::<libc::ucontext_t>()).uc_sigmask };
        // relaxed: as in `set`.
        let own = self.mask.load(Ordering::Relaxed);
        let defers = flags & libc::SA_NODEFER == 0;
        let this = if defers { 1 << (self.signal.number() - 1) } else { 0 };
        let word = word_of(&mask) | own | this;
        // SAFETY: a set is an array of integers, whose first is the signals 1 to 64.
        unsafe { (&raw mut mask).cast::<u64>().write_unaligned(word) };
        // SAFETY: the set is this function's. The mask is restored when our handler returns.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut()) };
    }
}

/// The signals 1 to 64 of a set: 1 is bit 0.
fn word_of(set: &libc::sigset_t) -> u64 {
    const { assert!(size_of::<libc::sigset_t>() >= size_of::<u64>()) };
    // SAFETY: a set is an array of integers, of at least 64 bits.
    unsafe { std::ptr::from_ref(set).cast::<u64>().read_unaligned() }
}

/// The present action of a signal.
pub(super) fn current(signal: Signal) -> std::io::Result<libc::sigaction> {
    let mut action = default_action();
    // SAFETY: this only asks, and the answer is written to a structure of our own.
    answer(unsafe { libc::sigaction(signal.number(), std::ptr::null(), &mut action) })?;
    Ok(action)
}

/// The default action.
pub(super) fn default_action() -> libc::sigaction {
    // SAFETY: all-zero is SIG_DFL with no flags and an empty set.
    unsafe { std::mem::zeroed() }
}

pub(super) fn answer(returned: libc::c_int) -> std::io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
