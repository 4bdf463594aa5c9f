//! A page of code at a fixed address, whose system calls a filter lets through.
//!
//! ```text
//!   | passage: code |   arena ...
//!                   ^ arena::START
//! ```
//!
//! A filter of system calls traps a call that has an address of the arena among its arguments. Our
//! own calls about the arena are made from this page. A program that is executed inherits the
//! filter, so the page has the same address in every program.
//!
//! Invariant: the page is written once, before it can be executed. Lock: none.

use super::call::call;
use core::arch::global_asm;
use host::PAGE_SIZE as PAGE;

/// Where the page is. Programs and sanitizers use other parts of the address space.
pub(crate) const PASSAGE: usize = 0x1aff_ffff_f000;

global_asm!(
    ".pushsection .rodata",
    ".globl ramfold_passage",
    ".hidden ramfold_passage",
    "ramfold_passage:",
    // The number, and the address of six arguments.
    "mov rax, rdi",
    "mov r11, rsi",
    "mov rdi, [r11]",
    "mov rsi, [r11 + 8]",
    "mov rdx, [r11 + 16]",
    "mov r10, [r11 + 24]",
    "mov r8, [r11 + 32]",
    "mov r9, [r11 + 40]",
    "syscall",
    "ret",
    ".globl ramfold_passage_end",
    ".hidden ramfold_passage_end",
    "ramfold_passage_end:",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "ramfold_passage"]
    static BEGIN: u8;
    #[link_name = "ramfold_passage_end"]
    static END: u8;
}

/// Makes the page.
///
/// # Errors
///
/// The system's number, if the place is taken or the system refuses code that was written.
pub(crate) fn make() -> Result<(), i32> {
    let access = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let arguments = [PASSAGE, PAGE, access, flags as usize, usize::MAX, 0];
    // SAFETY: a new mapping that replaces no other.
    let mapped = unsafe { call(libc::SYS_mmap, arguments) };
    if mapped != PASSAGE as isize {
        return Err(if mapped < 0 { -mapped as i32 } else { libc::EEXIST });
    }
    let code = &raw const BEGIN;
    let len = &raw const END as usize - code as usize;
    // SAFETY: the page is new, and longer than the code.
    unsafe { core::ptr::copy_nonoverlapping(code, PASSAGE as *mut u8, len) };
    let access = (libc::PROT_READ | libc::PROT_EXEC) as usize;
    // SAFETY: nothing uses the page yet.
    let closed = unsafe { call(libc::SYS_mprotect, [PASSAGE, PAGE, access, 0, 0, 0]) };
    if closed < 0 { Err(-closed as i32) } else { Ok(()) }
}

/// Where the page has the instruction of the call. The last one after it returns.
pub(crate) fn instruction() -> usize {
    const CALL_AND_RETURN: usize = 3;
    PASSAGE + (&raw const END as usize - &raw const BEGIN as usize) - CALL_AND_RETURN
}

/// Makes the page once, for tests, which are threads of one process.
#[cfg(test)]
pub(crate) fn for_tests() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| make().expect("the place is free"));
}

/// Makes a system call from the page, and gives what the kernel returns.
///
/// # Safety
///
/// The page is made. The conditions are those of the call.
pub(crate) unsafe fn pass(number: libc::c_long, arguments: [usize; 6]) -> isize {
    type Code = extern "C" fn(libc::c_long, *const usize) -> isize;
    // SAFETY: the code is there, and has this type.
    let code = unsafe { core::mem::transmute::<usize, Code>(PASSAGE) };
    code(number, arguments.as_ptr())
}
