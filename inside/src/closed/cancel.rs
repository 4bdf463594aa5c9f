//! Threads that musl cancels while they wait in a call that was trapped.
//!
//! ```text
//!   musl     a signal: where musl's own instruction waits, the call is left for the end of the
//!            thread. Elsewhere the signal is blocked and sent again, until a call answers EINTR
//!   ours     waits at another instruction. Our handler is before musl's, and leaves the call
//!            by EINTR, if it has no effect yet
//! ```
//!
//! musl's handler is what decides, because it knows whether the thread may be cancelled.
//!
//! Invariant: a call that is left has had no effect. Lock: none.

use super::code::is_musl;
use super::previous::{self, Action};
use crate::arena::reach::peek;
use crate::floor::passage::{self, PASSAGE};
use core::arch::global_asm;
use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The signal by which threads are cancelled.
const CANCEL: i32 = 33;
const CANCEL_BIT: u64 = 1 << (CANCEL - 1);

const _: () = assert!(CANCEL_BIT.count_ones() == 1, "a signal");

/// Bytes of the instruction of a call.
const CALL: usize = 2;

/// A system call, after what comes before it in the function by which calls are made that may be
/// cancelled: it stores a register on the stack.
pub(super) const CANCELLABLE: [u8; 7] = [0x4c, 0x89, 0x5c, 0x24, 0x08, 0x0f, 0x05];

/// The handler of musl for the signal by which threads are cancelled; 0 if it has none.
static HANDLER: AtomicUsize = AtomicUsize::new(0);

/// What the kernel is told of an action: its handler is called by ours.
pub(super) fn wrapped(signal: i32, action: Action) -> Action {
    if !is_musl() || signal != CANCEL || action.function <= libc::SIG_IGN {
        return action;
    }
    // relaxed: the kernel calls no handler before it is told of it.
    HANDLER.store(action.function, Ordering::Relaxed);
    Action { function: on_cancel as *const () as usize, ..action }
}

/// What the program is told of an action that the kernel had.
pub(super) fn unwrapped(action: Action) -> Action {
    if action.function != on_cancel as *const () as usize {
        return action;
    }
    // relaxed: as above.
    Action { function: HANDLER.load(Ordering::Relaxed), ..action }
}

/// Calls musl's handler. It knows the place where musl makes calls, and not ours. So it does as if
/// no call were waiting: it blocks the signal and sends it again. Then our call ends.
extern "C" fn on_cancel(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void);
    // relaxed: as above.
    let handler = HANDLER.load(Ordering::Relaxed);
    // SAFETY: the system passes a valid context.
    let before = unsafe { *previous::mask_of(context) };
    // SAFETY: musl installs a function of this type.
    unsafe { core::mem::transmute::<usize, Handler>(handler)(signal, info, context) };
    // SAFETY: as above.
    let after = unsafe { *previous::mask_of(context) };
    if !before & after & CANCEL_BIT != 0 {
        // SAFETY: as above.
        leave(unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs });
    }
}

// A call that may be cancelled: the number, the arguments, and the arguments of the call that asks
// which signals wait, with the set that it fills.
global_asm!(
    ".pushsection .text",
    ".globl ramfold_cancellable",
    ".hidden ramfold_cancellable",
    "ramfold_cancellable:",
    "push rbx",
    "push r12",
    "push r13",
    "mov rbx, rdi",
    "mov r12, rsi",
    "mov r13, rcx",
    "mov edi, {pending}",
    "mov rsi, rdx",
    "movabs rax, {passage}",
    "call rax",
    ".globl ramfold_cancellable_asked",
    ".hidden ramfold_cancellable_asked",
    "ramfold_cancellable_asked:",
    "bt qword ptr [r13], {bit}",
    "mov rax, {interrupted}",
    "jc 2f",
    "mov rdi, rbx",
    "mov rsi, r12",
    "movabs rax, {passage}",
    "call rax",
    ".globl ramfold_cancellable_made",
    ".hidden ramfold_cancellable_made",
    "ramfold_cancellable_made:",
    "2:",
    "pop r13",
    "pop r12",
    "pop rbx",
    "ret",
    ".popsection",
    pending = const libc::SYS_rt_sigpending,
    passage = const PASSAGE,
    bit = const CANCEL - 1,
    interrupted = const -libc::EINTR,
);

unsafe extern "C" {
    #[link_name = "ramfold_cancellable"]
    fn cancellable(
        number: libc::c_long,
        arguments: *const usize,
        ask: *const usize,
        set: *const u64,
    ) -> isize;
    #[link_name = "ramfold_cancellable_asked"]
    static ASKED: u8;
    #[link_name = "ramfold_cancellable_made"]
    static MADE: u8;
}

/// Whether musl may be asked to cancel the thread while it waits in the call that was trapped.
pub(super) fn may_be_cancelled(instruction: usize) -> bool {
    // Also before there is a handler, because musl asks for it as it first cancels a thread, and
    // that one may wait already.
    is_musl() && peek::<[u8; 7]>(instruction - CANCELLABLE.len()) == Some(CANCELLABLE)
}

/// Makes a call from the passage. If the thread is cancelled before it has an effect, it is left by
/// `EINTR`, and musl finds what to do.
///
/// # Safety
///
/// The conditions are those of the call.
pub(super) unsafe fn pass(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let mut set = 0u64;
    let ask = [&raw mut set as usize, size_of::<u64>(), 0, 0, 0, 0];
    // SAFETY: the set has room; the rest is the caller's contract.
    unsafe { cancellable(number, arguments.as_ptr(), ask.as_ptr(), &raw const set) }
}

/// A thread is cancelled at this place. If it has asked for its signals and was told of none, and
/// its call has no effect yet, the call is left.
fn leave(registers: &mut [i64; 23]) {
    let (asked, made) = (&raw const ASKED as usize, &raw const MADE as usize);
    let (at, pointer) = (registers[libc::REG_RIP as usize], registers[libc::REG_RSP as usize]);
    let (at, call) = (at as usize, passage::instruction());
    let mut above = 0;
    if (PASSAGE..=call + CALL).contains(&at) {
        // SAFETY: the stack pointer of code in the passage is at the place to return to.
        let back = unsafe { *(pointer as *const usize) };
        let is_ours = if at > call { back == asked } else { back == made };
        if !is_ours {
            return;
        }
        above = size_of::<usize>();
    } else if !(asked..made).contains(&at) {
        return;
    }
    registers[libc::REG_RIP as usize] = made as i64;
    registers[libc::REG_RSP as usize] = pointer + above as i64;
    registers[libc::REG_RAX as usize] = i64::from(-libc::EINTR);
}
