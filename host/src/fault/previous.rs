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
//! Invariant: the function, its flags and its mask are those of one action, which never changes. A
//! handler may be reading it when another one takes its place, so it is never freed. One that was
//! there before is used again. Lock: none here. Remembering is under that of the installation.

use crate::folding::Signal;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// What the system passes to a handler.
pub(super) type Passed = (libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// An action of the program's.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Action {
    function: usize,
    flags: libc::c_int,
    /// The signals that are blocked while it runs, as the system counts them: 1 is bit 0.
    mask: u64,
}

/// The action of a signal before our handler.
pub(super) struct Previous {
    signal: Signal,
    /// Null for no handler.
    action: AtomicPtr<Action>,
}

/// The actions that are kept for ever.
pub(super) type Kept = Vec<&'static Action>;

impl Previous {
    /// No handler.
    pub(super) const fn none(signal: Signal) -> Previous {
        Previous { signal, action: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The signal.
    pub(super) fn signal(&self) -> Signal {
        self.signal
    }

    /// Remembers the present action of the signal, unless that is `ours`.
    pub(super) fn remember(&self, ours: usize, known: &mut Kept) -> std::io::Result<()> {
        let now = current(self.signal)?;
        let action =
            Action { function: now.sa_sigaction, flags: now.sa_flags, mask: word_of(&now.sa_mask) };
        match action.function {
            function if function == ours => {}
            libc::SIG_DFL => self.forget(),
            _ => {
                let kept = kept(action, known);
                // Release pairs with the Acquire in `action`, so that the action is seen whole.
                self.action.store(ptr::from_ref(kept).cast_mut(), Ordering::Release);
            }
        }
        Ok(())
    }

    /// There is no handler from now on.
    fn forget(&self) {
        // relaxed: null leads to nothing.
        self.action.store(ptr::null_mut(), Ordering::Relaxed);
    }

    fn action(&self) -> Option<&'static Action> {
        // Acquire pairs with the Release in `remember`, so that the action is seen whole.
        let action = self.action.load(Ordering::Acquire);
        // SAFETY: null, or from a reference that lives for ever and is only read.
        unsafe { action.as_ref() }
    }

    /// Makes it the action of the signal once more.
    pub(super) fn put_back(&self) -> std::io::Result<()> {
        let mut action = default_action();
        if let Some(previous) = self.action() {
            action.sa_sigaction = previous.function;
            action.sa_flags = previous.flags;
            // SAFETY: a set is an array of integers, whose first is the signals 1 to 64.
            unsafe { (&raw mut action.sa_mask).cast::<u64>().write_unaligned(previous.mask) };
        }
        // SAFETY: the program has installed this action before, or it is the default.
        answer(unsafe { libc::sigaction(self.signal.number(), &action, ptr::null_mut()) })
    }

    /// Passes on a fault that is not ours.
    pub(super) fn forward(&self, passed: Passed) {
        match self.action() {
            Some(action) if action.function != libc::SIG_IGN => self.call(action, passed),
            // The access is tried again, and the default action ends the program. Without this
            // crate it would end in the same way.
            _ => self.let_it_end(),
        }
    }

    /// Does the same for a signal that was sent. The program may go on after it, and then needs our
    /// handler, because it touches pages that are out.
    ///
    /// `put_back` installs our handler again.
    pub(super) fn forward_sent(&self, passed: Passed, put_back: impl FnOnce()) {
        match self.action() {
            Some(action) if action.function == libc::SIG_IGN => {}
            None => {
                self.let_it_end();
                // SAFETY: raises a signal in this thread, which takes it when the handler has
                // returned.
                unsafe { libc::raise(self.signal.number()) };
            }
            Some(action) => {
                self.call(action, passed);
                // Rust's own handler does this, so that the next signal meets the default.
                if let Ok(action) = current(self.signal)
                    && action.sa_sigaction == libc::SIG_DFL
                {
                    self.forget();
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
    fn call(&self, action: &Action, (signal, info, context): Passed) {
        let Action { function, flags, .. } = *action;
        if flags & libc::SA_RESETHAND != 0 {
            self.forget();
        }
        self.set_mask(action, context);
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
    fn set_mask(&self, action: &Action, context: *mut libc::c_void) {
        // SAFETY: the system passes a valid context.
        let mut mask = unsafe { (*context.cast::<libc::ucontext_t>()).uc_sigmask };
        let defers = action.flags & libc::SA_NODEFER == 0;
        let this = if defers { 1 << (self.signal.number() - 1) } else { 0 };
        let word = word_of(&mask) | action.mask | this;
        // SAFETY: a set is an array of integers, whose first is the signals 1 to 64.
        unsafe { (&raw mut mask).cast::<u64>().write_unaligned(word) };
        // SAFETY: the set is this function's. The mask is restored when our handler returns.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut()) };
    }
}

/// The action among those that are kept for ever.
fn kept(action: Action, known: &mut Kept) -> &'static Action {
    if let Some(&same) = known.iter().find(|&&one| *one == action) {
        return same;
    }
    let new: &'static Action = Box::leak(Box::new(action));
    known.push(new);
    new
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
