//! System calls without a C library.
//!
//! Invariant: nothing here touches memory that a C library keeps for a thread, such as `errno`. Any
//! thread of the program may therefore come through here, and so may threads that no C library
//! knows.
//!
//! Lock: none.

use core::arch::asm;

/// Makes a system call, and gives what the kernel returns: a negative number is an error.
///
/// # Safety
///
/// The conditions are those of the call.
pub(crate) unsafe fn call(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let answer: isize;
    let [first, second, third, fourth, fifth, sixth] = arguments;
    // SAFETY: this is how the kernel is called. What the call does is the caller's contract.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") fourth,
            in("r8") fifth,
            in("r9") sixth,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// Sleeps while `word` is `value`, at most for `millis` milliseconds.
pub(crate) fn wait(word: &core::sync::atomic::AtomicU32, value: u32, millis: u64) {
    let time = libc::timespec {
        tv_sec: (millis / 1000) as _,
        tv_nsec: (millis % 1000 * 1_000_000) as libc::c_long,
    };
    let (word, time) = (word.as_ptr() as usize, &raw const time as usize);
    let operation = libc::FUTEX_WAIT as usize;
    // SAFETY: both addresses are valid for the call. Its failure means to look again.
    unsafe { call(libc::SYS_futex, [word, operation, value as usize, time, 0, 0]) };
}

/// The same for a second. Nothing that it uses is on the stack, which may be memory that folds.
pub(crate) fn wait_a_second(word: &core::sync::atomic::AtomicU32, value: u32) {
    struct Time(libc::timespec);
    // SAFETY: nobody writes to it.
    unsafe impl Sync for Time {}
    static SECOND: Time = Time(libc::timespec { tv_sec: 1, tv_nsec: 0 });
    let (word, time) = (word.as_ptr() as usize, &raw const SECOND.0 as usize);
    let operation = libc::FUTEX_WAIT as usize;
    // SAFETY: as in `wait`.
    unsafe { call(libc::SYS_futex, [word, operation, value as usize, time, 0, 0]) };
}

/// Wakes all threads that sleep on `word`, of any process.
pub(crate) fn wake(word: &core::sync::atomic::AtomicU32) {
    let operation = libc::FUTEX_WAKE as usize;
    // SAFETY: the address is only compared.
    unsafe {
        call(libc::SYS_futex, [word.as_ptr() as usize, operation, i32::MAX as usize, 0, 0, 0])
    };
}
