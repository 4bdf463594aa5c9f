//! Stacks on which a handler serves a fault if it was started on the program's own alternate stack.
//!
//! ```text
//!   sigaltstack of the thread   | frame of the signal | handler |         8 KiB and less are usual
//!                                                         `--> one of these: 64 KiB, with a guard
//! ```
//!
//! A handler of SIGSEGV has to accept the alternate stack, because the program's own handler needs
//! it when a stack overflows, and because some runtimes have no other stack that is large enough.
//! Such a stack has no room for a decoder. So the work moves to one of a fixed number of stacks. If
//! all are in use, it waits for one.
//!
//! Invariant: a stack whose bit is set belongs to the thread that set it, until that thread clears
//! it. Lock: none, the bits are it.

use crate::machine::PAGE_SIZE;
use crate::memory::{Access, Core, HostError, Mapping};
use std::sync::atomic::{AtomicU64, Ordering};

const STACKS: usize = u64::BITS as usize;
/// Pages of a stack, and the guard below it.
const STACK_PAGES: usize = 16;
const APART: usize = STACK_PAGES + 1;

/// The stacks.
pub(super) struct Stacks {
    mapping: Mapping,
    used: AtomicU64,
}

impl Stacks {
    /// Reserves the stacks. A stack gets its memory when it is first used.
    pub(super) fn reserve() -> Result<Stacks, HostError> {
        let mapping = Mapping::reserve(STACKS * APART, Access::Closed, Core::LeftOut)?;
        for stack in 0..STACKS {
            let pages = stack * APART + 1..(stack + 1) * APART;
            let bytes = (pages.len() * PAGE_SIZE) as u64;
            mapping.open(pages).map_err(|source| HostError::Reserve { bytes, source })?;
        }
        Ok(Stacks { mapping, used: AtomicU64::new(0) })
    }

    /// Calls `run` with `work`: on one of the stacks if this thread is on its alternate stack, and
    /// else where it is. May be called in a signal handler, whose `context` this is.
    pub(super) fn run<W>(
        &self,
        context: *const libc::c_void,
        run: extern "C" fn(*mut W),
        work: &mut W,
    ) {
        if !is_alternate(context) {
            return run(work);
        }
        let stack = self.take();
        let top = self.mapping.range().start + (stack + 1) * APART * PAGE_SIZE;
        // SAFETY: the stack is this thread's until its bit is cleared. It is in use by nothing
        // else, and the function takes what it is given.
        unsafe { call_on(top, run as usize, std::ptr::from_mut(work).addr()) };
        // Release pairs with the Acquire in `take`, so that the next owner writes after this one.
        self.used.fetch_and(!(1 << stack), Ordering::Release);
    }

    /// Makes all stacks free in a forked child, whose only thread is on none of them.
    pub(super) fn abandon(&self) {
        // relaxed: the child has one thread.
        self.used.store(0, Ordering::Relaxed);
    }

    /// A stack that no thread uses. If there is none, it waits for one.
    fn take(&self) -> usize {
        loop {
            // relaxed: where to look first.
            let free = (!self.used.load(Ordering::Relaxed)).trailing_zeros();
            if free < u64::BITS {
                // Acquire pairs with the Release in `run`, so that this thread writes after the
                // stack's last owner.
                let before = self.used.fetch_or(1 << free, Ordering::Acquire);
                if before >> free & 1 == 0 {
                    return free as usize;
                }
            }
            // The standard library's call for this is one system call.
            std::thread::yield_now();
        }
    }
}

/// Whether this code runs on the alternate stack of the thread whose context this is.
fn is_alternate(context: *const libc::c_void) -> bool {
    let here = std::ptr::from_ref(&context).addr();
    // SAFETY: the system passes a valid context to a handler.
    let stack = unsafe { (*context.cast::<libc::ucontext_t>()).uc_stack };
    let start = stack.ss_sp.addr();
    CAN_SWITCH && (start..start.saturating_add(stack.ss_size)).contains(&here)
}

/// Whether this file knows how to change the stack on this processor.
const CAN_SWITCH: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// Calls a C function of one argument on another stack, where [`CAN_SWITCH`] says so.
///
/// # Safety
///
/// - `top` is the end of a stack that nothing uses, and a multiple of 16.
/// - `run` is an `extern "C"` function, and takes `work`. It does not unwind.
unsafe fn call_on(top: usize, run: usize, work: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's contract. The stack pointer is kept in a register that the function
    // preserves, and is back where it was in the end.
    unsafe {
        std::arch::asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            "call {run}",
            "mov rsp, r12",
            top = in(reg) top,
            run = in(reg) run,
            in("rdi") work,
            out("r12") _,
            clobber_abi("C"),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "mov x20, sp",
            "mov sp, {top}",
            "blr {run}",
            "mov sp, x20",
            top = in(reg) top,
            run = in(reg) run,
            in("x0") work,
            out("x20") _,
            clobber_abi("C"),
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = (top, run, work);
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::*;

    struct Work {
        at: usize,
        sum: u64,
    }

    extern "C" fn add(work: *mut Work) {
        let room = std::hint::black_box([7u8; 40 << 10]);
        // SAFETY: the caller's own.
        let work = unsafe { &mut *work };
        work.at = room.as_ptr().addr();
        work.sum += room.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    }

    /// A context whose alternate stack is the stack of this test.
    fn context(on_it: bool) -> libc::ucontext_t {
        // SAFETY: a context is plain data.
        let mut context: libc::ucontext_t = unsafe { std::mem::zeroed() };
        let here = std::ptr::from_ref(&context).addr();
        if on_it {
            context.uc_stack.ss_sp = std::ptr::without_provenance_mut(here - (1 << 20));
            context.uc_stack.ss_size = 2 << 20;
        }
        context
    }

    #[test]
    fn work_moves_from_an_alternate_stack_and_comes_back() {
        let stacks = Stacks::reserve().expect("address space");
        for (on_it, moves) in [(false, false), (true, true)] {
            let (mut work, context) = (Work { at: 0, sum: 1 }, context(on_it));
            stacks.run(std::ptr::from_ref(&context).cast(), add, &mut work);
            assert_eq!(stacks.mapping.range().contains(&work.at), moves);
            assert_eq!(work.sum, 1 + 7 * (40 << 10));
        }
        // relaxed: one thread.
        assert_eq!(stacks.used.load(Ordering::Relaxed), 0, "given back");
    }

    /// A stack that a thread of the parent had stayed taken.
    #[test]
    fn a_child_has_all_stacks() {
        let stacks = Stacks::reserve().expect("address space");
        let taken: Vec<_> = (0..STACKS).map(|_| stacks.take()).collect();
        assert_eq!(taken, (0..STACKS).collect::<Vec<_>>());
        stacks.abandon();
        assert_eq!(stacks.take(), 0);
    }

    #[test]
    fn more_threads_than_there_are_stacks_wait_for_one() {
        let stacks = Stacks::reserve().expect("address space");
        std::thread::scope(|scope| {
            for _ in 0..STACKS + 8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let (mut work, context) = (Work { at: 0, sum: 0 }, context(true));
                        stacks.run(std::ptr::from_ref(&context).cast(), add, &mut work);
                        assert_eq!(work.sum, 7 * (40 << 10), "another thread wrote here");
                    }
                });
            }
        });
    }
}
