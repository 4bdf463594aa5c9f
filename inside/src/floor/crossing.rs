//! Threads of the program cross over to a block of ours, and work there like a strand.
//!
//! ```text
//!   program's stack   handler --cross--> work, on a block of the pool --> handler
//! ```
//!
//! Our code finds its thread-local storage by the stack pointer. So a thread of the program that
//! runs it needs a stack of ours, and it needs little of its own.
//!
//! Invariant: a block has one thread at a time. All signals are blocked on it, so no code of the
//! program runs there. Lock: none; a bit for each block.

use super::call::call;
use super::strand;
use core::arch::naked_asm;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Threads that may be at work at the same time. Others wait.
const BLOCKS: usize = u64::BITS as usize;

static BUSY: AtomicU64 = AtomicU64::new(0);
/// Tops of the stacks; 0 for a block that is not made.
static TOPS: [AtomicUsize; BLOCKS] = [const { AtomicUsize::new(0) }; BLOCKS];

/// Runs `work` with `data` on a block. All signals are blocked.
pub(crate) fn cross<T>(work: extern "C" fn(&mut T), data: &mut T) {
    let block = take();
    // SAFETY: the block is this thread's, and the type of `work` fits.
    unsafe {
        // relaxed: this thread has the block, and wrote or acquired what is in it.
        switch(TOPS[block].load(Ordering::Relaxed), work as usize, core::ptr::from_mut(data).addr())
    };
    // Release pairs with the Acquire in `claim`, so that the next thread finds the block made.
    BUSY.fetch_and(!(1 << block), Ordering::Release);
}

fn take() -> usize {
    loop {
        if let Some(block) = claim() {
            // relaxed: this thread has the block.
            if TOPS[block].load(Ordering::Relaxed) != 0 {
                return block;
            }
            if let Some(top) = strand::new() {
                // relaxed: as above.
                TOPS[block].store(top, Ordering::Relaxed);
                return block;
            }
            // Release pairs with the Acquire in `claim`, so that the next thread finds no block.
            BUSY.fetch_and(!(1 << block), Ordering::Release);
        }
        // SAFETY: the call has no arguments.
        unsafe { call(libc::SYS_sched_yield, [0; 6]) };
    }
}

fn claim() -> Option<usize> {
    // relaxed: a guess, which the next operation checks.
    let block = (!BUSY.load(Ordering::Relaxed)).trailing_zeros() as usize;
    if block >= BLOCKS {
        return None;
    }
    // Acquire pairs with the Release in `cross`, so that the block is seen as it was left.
    let before = BUSY.fetch_or(1 << block, Ordering::Acquire);
    (before >> block & 1 == 0).then_some(block)
}

/// In a forked child, whose only thread this is, and which is on no block: all blocks are free.
pub(crate) fn settle() {
    // relaxed: there is one thread.
    BUSY.store(0, Ordering::Relaxed);
}

/// # Safety
///
/// `top` is the end of a stack that nothing uses, and `work` takes `data`.
#[unsafe(naked)]
unsafe extern "C" fn switch(top: usize, work: usize, data: usize) {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        "ret",
    )
}
