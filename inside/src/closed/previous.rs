//! The program's own actions for SIGSEGV and SIGSYS. The kernel has ours.
//!
//! ```text
//!   sigaction of the program   -> kept here, and given back when asked
//!   a fault that is not ours   -> the program's handler, with the mask that the kernel would set
//!                                 or the default: it is put back, and the fault happens again
//! ```
//!
//! The stack may be in the arena. So calls that lead to it are made from the passage.
//!
//! Invariant: what is told of an action is what the program said last. Lock: none; a program that
//! changes an action while its signal arrives may find the old one or the new one.

use crate::arena::state::is_home;
use crate::floor::call::call;
use crate::floor::passage::pass;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// `struct kernel_sigaction`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Action {
    pub(super) function: usize,
    pub(super) flags: usize,
    pub(super) restorer: usize,
    pub(super) mask: u64,
}

/// A signal that names no address. The kernel could not give the program another signal, because
/// there was no place on its stack; or an address was none that the processor can have.
pub(super) const SI_KERNEL: i32 = 0x80;

/// Bits of a mask that are never set while the program runs.
pub(crate) const OURS: u64 = 1 << (libc::SIGSEGV - 1) | 1 << (libc::SIGSYS - 1);

const _: () = assert!(OURS.count_ones() == 2, "two signals");

struct Kept {
    function: AtomicUsize,
    flags: AtomicUsize,
    restorer: AtomicUsize,
    mask: AtomicU64,
}

static SEGV: Kept = Kept::new();
static SYS: Kept = Kept::new();

impl Kept {
    const fn new() -> Kept {
        Kept {
            function: AtomicUsize::new(libc::SIG_DFL),
            flags: AtomicUsize::new(0),
            restorer: AtomicUsize::new(0),
            mask: AtomicU64::new(0),
        }
    }

    fn of(signal: i32) -> Option<&'static Kept> {
        match signal {
            libc::SIGSEGV => Some(&SEGV),
            libc::SIGSYS => Some(&SYS),
            _ => None,
        }
    }

    fn get(&self) -> Action {
        // relaxed: the program's own order of calls is all the order there is.
        let function = self.function.load(Ordering::Relaxed);
        // relaxed: as above.
        let flags = self.flags.load(Ordering::Relaxed);
        // relaxed: as above.
        let restorer = self.restorer.load(Ordering::Relaxed);
        // relaxed: as above.
        Action { function, flags, restorer, mask: self.mask.load(Ordering::Relaxed) }
    }

    fn set(&self, action: &Action) {
        // relaxed: as above.
        self.flags.store(action.flags, Ordering::Relaxed);
        // relaxed: as above.
        self.restorer.store(action.restorer, Ordering::Relaxed);
        // relaxed: as above.
        self.mask.store(action.mask, Ordering::Relaxed);
        // relaxed: as above.
        self.function.store(action.function, Ordering::Relaxed);
    }
}

/// Whether the signal is one of ours.
pub(super) fn is_kept(signal: i32) -> bool {
    Kept::of(signal).is_some()
}

/// What the program's action is, and what it shall be. A child made by `vfork` changes nothing: it
/// would change its parent's.
pub(super) fn exchange(signal: i32, new: Option<&Action>) -> Action {
    let Some(kept) = Kept::of(signal) else { return Action::default() };
    let old = kept.get();
    if let Some(new) = new.filter(|_| is_home()) {
        kept.set(new);
    }
    old
}

/// Makes our handlers those of the kernel, and keeps the actions that were there.
pub(super) fn take_over(own: fn(i32) -> Action) {
    for signal in [libc::SIGSEGV, libc::SIGSYS] {
        let mut old = Action::default();
        // SAFETY: it only asks; the action has room.
        unsafe { kernel(signal, None, Some(&mut old)) };
        if let Some(kept) = Kept::of(signal) {
            kept.set(&old);
        }
        // SAFETY: the handler has the type that the flags say.
        unsafe { kernel(signal, Some(&own(signal)), None) };
    }
}

/// Gives the kernel the actions that were there.
pub(super) fn give_back() {
    for signal in [libc::SIGSEGV, libc::SIGSYS] {
        if let Some(kept) = Kept::of(signal) {
            // SAFETY: the action is the one that the kernel had.
            unsafe { kernel(signal, Some(&kept.get()), None) };
        }
    }
}

/// # Safety
///
/// The action is valid.
unsafe fn kernel(signal: i32, new: Option<&Action>, old: Option<&mut Action>) -> isize {
    let new = new.map_or(0, |action| core::ptr::from_ref(action) as usize);
    let old = old.map_or(0, |action| core::ptr::from_mut(action) as usize);
    // SAFETY: both live as long as the call runs.
    unsafe { pass(libc::SYS_rt_sigaction, [signal as usize, new, old, 8, 0, 0]) }
}

/// Passes a signal on that is not ours. All signals may be blocked; when this returns, the
/// interrupted code goes on.
pub(super) fn forward(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(kept) = Kept::of(signal) else { return };
    let action = kept.get();
    // SAFETY: the system passes a valid structure.
    let code = unsafe { (*info).si_code };
    match action.function {
        libc::SIG_IGN if code <= 0 => {}
        libc::SIG_DFL | libc::SIG_IGN => end(signal, code <= 0 || code == SI_KERNEL),
        _ => run(kept, &action, (signal, info, context)),
    }
}

/// Lets the default action happen, once the handler has returned. A signal that no instruction
/// brought, and would bring again, is sent.
fn end(signal: i32, is_sent: bool) {
    // SAFETY: the default is always valid.
    unsafe { kernel(signal, Some(&Action::default()), None) };
    if is_sent {
        // SAFETY: the calls have no memory.
        unsafe {
            let (process, thread) =
                (call(libc::SYS_getpid, [0; 6]), call(libc::SYS_gettid, [0; 6]));
            let arguments = [process as usize, thread as usize, signal as usize, 0, 0, 0];
            call(libc::SYS_tgkill, arguments);
        }
    }
}

/// Calls the program's handler as the kernel would.
fn run(
    kept: &Kept,
    action: &Action,
    (signal, info, context): (i32, *mut libc::siginfo_t, *mut c_void),
) {
    if action.flags & libc::SA_RESETHAND as usize != 0 {
        kept.set(&Action::default());
    }
    // SAFETY: the system passes a valid context, in which the kernel's mask is a word.
    let interrupted = unsafe { *mask_of(context) };
    let own = if action.flags & libc::SA_NODEFER as usize == 0 { 1 << (signal - 1) } else { 0 };
    set_mask((interrupted | action.mask | own) & !OURS);
    if action.flags & libc::SA_SIGINFO as usize != 0 {
        type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void);
        // SAFETY: the flag says with which type the function was installed.
        let function = unsafe { core::mem::transmute::<usize, Handler>(action.function) };
        function(signal, info, context);
    } else {
        // SAFETY: as above, without the flag.
        let function =
            unsafe { core::mem::transmute::<usize, extern "C" fn(i32)>(action.function) };
        function(signal);
    }
}

/// The kernel's mask in a context: the first word of the library's.
///
/// # Safety
///
/// The context is one that the kernel passed to a handler.
pub(super) unsafe fn mask_of(context: *mut c_void) -> *mut u64 {
    // SAFETY: the caller's contract.
    unsafe { (&raw mut (*context.cast::<libc::ucontext_t>()).uc_sigmask).cast() }
}

/// Blocks all signals of this thread, and uses nothing on the stack.
pub(super) fn block_all() {
    static ALL: u64 = u64::MAX;
    let arguments = [libc::SIG_SETMASK as usize, &raw const ALL as usize, 0, 8, 0, 0];
    // SAFETY: a call about this thread.
    unsafe { call(libc::SYS_rt_sigprocmask, arguments) };
}

/// Sets the mask of this thread, and gives what it was.
pub(super) fn set_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    let arguments =
        [libc::SIG_SETMASK as usize, &raw const mask as usize, &raw mut before as usize, 8, 0, 0];
    // SAFETY: a call about this thread, whose arguments live as long as it runs.
    unsafe { pass(libc::SYS_rt_sigprocmask, arguments) };
    before
}
