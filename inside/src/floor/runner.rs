//! What runs this program, if that is not the kernel and a processor alone.
//!
//! ```text
//!   an emulator (qemu-user)   lacks both calls by which a program could fold
//!   valgrind                  lets one thread run at a time: one that waits for its page would
//!                             keep the one from running that brings it
//! ```
//!
//! Invariant: on a processor the questions change nothing. Lock: none.
//!
//! Valgrind's question is the one of its header `valgrind.h`: an instruction sequence that does
//! nothing on a processor.

use crate::floor::call::call;
use core::arch::asm;

/// "Running on valgrind", of its requests of clients.
const RUNNING: usize = 0x1001;

/// Whether what runs this program has neither of the calls by which it could fold. The addresses
/// that we reserve would take gigabytes there, and the program that emulates has the library too.
pub(crate) fn is_emulator() -> bool {
    // Linux refuses both for what they ask. SAFETY: they ask for what there is not.
    let lacks = |number, word: usize| unsafe {
        call(number, [word, 0, 0, 0, 0, 0]) == -(libc::ENOSYS as isize)
    };
    lacks(libc::SYS_seccomp, u32::MAX as usize) && lacks(libc::SYS_userfaultfd, u32::MAX as usize)
}

/// Whether valgrind runs this program.
pub(crate) fn is_valgrind() -> bool {
    let request = [RUNNING, 0, 0, 0, 0, 0];
    let mut answer = 0usize;
    // SAFETY: the rotations add up to two whole ones, and the exchange is of a register with
    // itself. Valgrind reads the request, and writes the answer to one register.
    unsafe {
        asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            inout("rdi") 0usize => _,
            in("rax") &raw const request,
            inout("rdx") answer,
            options(nostack),
        );
    }
    answer != 0
}
