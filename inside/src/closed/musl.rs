//! What musl does otherwise than glibc.
//!
//! ```text
//!   threads       their stacks are mapped like any memory: known by the place of the call
//!   children      of posix_spawn begin on 5 KiB of their parent's stack: they get one of ours
//!   numbers       of calls that may be cancelled no instruction tells the number, but a register
//! ```
//!
//! Invariant: before the filter is loaded, it is known where musl maps a thread's stack. A musl of
//! which that cannot be told is refused. Lock: none; what is learnt changes only before there is a
//! second thread.

use super::calls::spawns;
use super::cancel::CANCELLABLE;
use super::code::is_musl;
use crate::arena::reach::{peek, poke};
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Bytes from the beginning of a function in which is looked for what it does.
const OUTER: usize = 64;
const CREATES: usize = 4096;
const MAPS: usize = 128;
/// Words above the stack pointer of a call of `mmap`, among which is where that returns to.
const FRAME: usize = 16;

/// The instruction of a system call.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Where the calls of `mmap` for the memory of threads return to.
static STACKS: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];

/// Learns where the memory of threads is mapped. `threads` is the function that makes those of C11,
/// and calls the one that makes all of them. False if that cannot be told.
pub(super) fn learn(threads: usize, text: &Range<usize>) -> bool {
    let all = |create: usize| calls(create, CREATES, text).filter(|(_, to)| maps(*to, text));
    let Some((_, create)) = calls(threads, OUTER, text).find(|(_, to)| all(*to).next().is_some())
    else {
        return false;
    };
    let found: Vec<usize> = all(create).map(|(back, _)| back).collect();
    for (place, back) in STACKS.iter().zip(&found) {
        // relaxed: there is one thread.
        place.store(*back, Ordering::Relaxed);
    }
    found.len() <= STACKS.len() && can_cancel(text)
}

/// Whether calls that may be cancelled are made as `cancel` knows it. That is mostly near the end.
fn can_cancel(text: &Range<usize>) -> bool {
    code(text.start, text.len(), text).windows(CANCELLABLE.len()).rev().any(|it| it == CANCELLABLE)
}

/// The code from an address on, as far as it is the C library's.
fn code(at: usize, len: usize, text: &Range<usize>) -> &'static [u8] {
    let len = text.end.saturating_sub(at).min(len);
    if !text.contains(&at) {
        return &[];
    }
    // SAFETY: code of the C library is mapped, may be read, and stays.
    unsafe { core::slice::from_raw_parts(at as *const u8, len) }
}

/// Functions that are called from some code: where each call returns to, and what it calls.
fn calls(at: usize, len: usize, text: &Range<usize>) -> impl Iterator<Item = (usize, usize)> {
    const CALL: u8 = 0xe8;
    let code = code(at, len, text);
    let places = code.windows(5).enumerate().filter(|(_, it)| it[0] == CALL);
    places.map(move |(place, it)| {
        let back = at + place + it.len();
        let distance = i32::from_le_bytes([it[1], it[2], it[3], it[4]]);
        (back, back.wrapping_add_signed(distance as isize))
    })
}

/// Whether a function makes the system call `mmap`.
fn maps(function: usize, text: &Range<usize>) -> bool {
    const NUMBER: u8 = libc::SYS_mmap as u8;
    /// Into the register of numbers, directly or by the stack.
    const WAYS: [&[u8]; 2] = [&[0xb8, NUMBER, 0, 0, 0], &[0x6a, NUMBER, 0x58]];
    let code = code(function, MAPS, text);
    (0..code.len()).any(|at| {
        let has_number = WAYS.iter().any(|way| code[at..].starts_with(way));
        has_number && code[at..].windows(SYSCALL.len()).take(32).any(|it| it == SYSCALL)
    })
}

/// Whether a call of `mmap` is for the stack of a thread.
pub(super) fn maps_stack(pointer: usize) -> bool {
    if !is_musl() {
        return false;
    }
    // relaxed: written before there was a second thread.
    let known = STACKS.each_ref().map(|place| place.load(Ordering::Relaxed));
    let frame = peek::<[usize; FRAME]>(pointer).unwrap_or_default();
    frame.iter().any(|word| *word != 0 && known.contains(word))
}

/// How far above the stack pointer a child's stack begins that is a piece of its parent's.
const NEAR: usize = 16 << 10;

/// Whether a call of `clone` gives a child a piece of its parent's stack, which waits meanwhile.
/// The frames of our handlers have no room there.
pub(super) fn is_narrow(arguments: &[usize; 6], pointer: usize) -> bool {
    is_musl() && spawns(arguments) && arguments[1].wrapping_sub(pointer) < NEAR
}

/// Words that a child may take from its stack as it begins. The musl of today takes one.
const TAKEN: usize = 9;
const _: () = assert!(TAKEN % 2 == 1, "a stack that begins below a word still does");

/// Where a child begins on a stack of ours.
pub(super) fn begins_at(stack: &libc::stack_t, given: usize) -> Option<usize> {
    let at = stack.ss_sp as usize + stack.ss_size - TAKEN * size_of::<usize>();
    let words = peek::<[usize; TAKEN]>(given)?;
    poke(at, words).then_some(at)
}

/// Whether the code before a call says that the register of its number has it still.
pub(super) fn tells(machine: &[i64; 23]) -> bool {
    let number = machine[libc::REG_RAX as usize];
    let Some(before) = peek::<[u8; 48]>(machine[libc::REG_RIP as usize] as usize - 48) else {
        return false;
    };
    if before.ends_with(&CANCELLABLE) {
        // What made the call needs the number afterwards.
        let kept = [libc::REG_RBX, libc::REG_RBP, libc::REG_R12, libc::REG_R13, libc::REG_R14];
        return kept.into_iter().chain([libc::REG_R15]).any(|it| machine[it as usize] == number);
    }
    says(&before, number)
}

/// Whether code puts a number into the register of numbers.
pub(super) fn says(code: &[u8], number: i64) -> bool {
    const MOVE: u8 = 0xb8;
    /// "Exclusive or" of the register with itself.
    const ZERO: [u8; 2] = [0x31, 0xc0];
    let [a, b, c, d] = (number as u32).to_le_bytes();
    let by_stack = [0x6a, a, 0x58];
    code.windows(5).any(|it| it == [MOVE, a, b, c, d])
        || number == 0 && code.windows(2).any(|it| it == ZERO)
        || number < 128 && code.windows(3).any(|it| it == by_stack)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code of a C library. The first function calls the second one, which calls two others.
    const PARTS: [(usize, &[u8]); 6] = [
        (2, &[0xe8, 9, 0, 0, 0]),                    // from 7 to 16
        (18, &[0xe8, 25, 0, 0, 0]),                  // from 23 to 48
        (25, &[0xe8, 34, 0, 0, 0]),                  // from 30 to 64
        (48, &[0xb8, 9, 0, 0, 0, 0x90, 0x0f, 0x05]), // mmap
        (64, &[0xb8, 9, 0, 0, 0, 0xc3]),             // the same number, and no call
        (34, &CANCELLABLE),
    ];

    fn code_of_a_library() -> Vec<u8> {
        let mut code = vec![0x90; 80];
        PARTS.iter().for_each(|(at, part)| code[*at..at + part.len()].copy_from_slice(part));
        code
    }

    #[test]
    fn where_the_memory_of_threads_is_mapped_is_learnt() {
        let mut code = code_of_a_library();
        let start = code.as_ptr() as usize;
        let text = start..start + code.len();
        assert!(learn(start, &text));
        // relaxed: there is one thread.
        let learnt = STACKS.each_ref().map(|place| place.load(Ordering::Relaxed));
        assert_eq!(learnt, [start + 23, 0, 0, 0]);
        for (at, what) in [(39, "nothing is known of cancelling"), (55, "nothing maps memory")] {
            code[at] = 0x90;
            assert!(!learn(code.as_ptr() as usize, &text), "{what}");
        }
        assert!(!learn(start, &(0..0)) && !learn(0, &text), "there is no such function");
    }

    #[test]
    fn the_number_of_a_call_is_read_from_its_code() {
        let directly = [0x90, 0xb8, 0x14, 0, 0, 0, 0x89, 0xdf, 0x0f, 0x05];
        assert!(says(&directly, libc::SYS_writev) && !says(&directly, libc::SYS_read));
        let by_stack = [0x90, 0x6a, 0x14, 0x58, 0x0f, 0x05];
        assert!(says(&by_stack, libc::SYS_writev) && !says(&by_stack, libc::SYS_readv));
        let zero = [0x90, 0x90, 0x90, 0x31, 0xc0, 0x0f, 0x05];
        assert!(says(&zero, libc::SYS_read) && !says(&zero, libc::SYS_writev));
    }
}
