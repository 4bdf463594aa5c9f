//! The filter that makes system calls come to our handler.
//!
//! ```text
//!   return from a signal, vfork                       passes
//!   an address of the arena among the arguments       traps, unless it comes from the passage
//!   the C library: mmap, brk, signals, fork, nested   trap
//!   the C library: close and dup2 of our descriptors  are refused
//!   the C library: clone3                             is refused, and it takes clone instead
//!   anything else                                     passes
//! ```
//!
//! The kernel keeps a filter when another program is executed. That one meets no address of the
//! arena, and the addresses at which this process has its C library are others there: the kernel
//! chooses them by chance. So the filter is not used where they are always the same.
//!
//! Invariant: a call that the filter traps is one that our handler knows. Lock: none.

use super::calls;
use crate::arena::addresses;
use crate::arena::files::FILES;
use crate::floor::call::call;
use crate::floor::passage::PASSAGE;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// `struct seccomp_data`: number, machine, instruction, arguments.
const NUMBER: u32 = 0;
const MACHINE: u32 = 4;
const INSTRUCTION: u32 = 8;
const ARGUMENTS: u32 = 16;
const UPPER: u32 = 4;
const X86_64: u32 = 0xc000_003e;
const TSYNC: usize = 1;

/// Their registers are those of any code, or a child comes out of them.
const PASSES: &[libc::c_long] =
    &[libc::SYS_rt_sigreturn, libc::SYS_vfork, libc::SYS_exit, libc::SYS_exit_group];

/// Calls without addresses, or with structures behind them: what else is in registers is of any
/// code. A child by `clone3` may have our handlers taken away, and would die of the filter.
const BARE: &[libc::c_long] = &[
    libc::SYS_clone,
    libc::SYS_fork,
    libc::SYS_clone3,
    libc::SYS_close,
    libc::SYS_dup2,
    libc::SYS_dup3,
];
/// Steps of the tests of addresses.
const ADDRESSES: usize = 6 * 11;

const _: () = assert!(BARE.len() + ADDRESSES < 256, "a jump is a byte");

/// Masks that are mostly not there: the call, and the argument.
const OPTIONAL: &[(libc::c_long, u32)] =
    &[(libc::SYS_ppoll, 3), (libc::SYS_epoll_pwait, 4), (libc::SYS_epoll_pwait2, 4)];

/// What a call is told that would close our descriptor: the call, the argument, the error.
const CLOSING: &[(libc::c_long, u32, i32)] = &[
    (libc::SYS_close, 0, libc::EBADF),
    (libc::SYS_dup2, 1, libc::EBUSY),
    (libc::SYS_dup3, 1, libc::EBUSY),
];

const fn step(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

const TRAP: libc::sock_filter = step(RETURN, 0, 0, libc::SECCOMP_RET_TRAP);
const ALLOW: libc::sock_filter = step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW);

static LIBRARY_START: AtomicUsize = AtomicUsize::new(0);
static LIBRARY_END: AtomicUsize = AtomicUsize::new(0);

/// The text of the C library.
pub(super) fn library() -> Range<usize> {
    // relaxed: they change only before there is a second thread.
    let start = LIBRARY_START.load(Ordering::Relaxed);
    // relaxed: as above.
    start..LIBRARY_END.load(Ordering::Relaxed)
}

/// Calls that trap if the C library makes them, whatever their arguments are.
fn by_number() -> impl Iterator<Item = libc::c_long> {
    let optional = |number: &libc::c_long| OPTIONAL.iter().any(|(it, _)| it == number);
    let masks = calls::MASKS.iter().filter(move |it| !optional(it));
    [libc::SYS_brk]
        .into_iter()
        .chain(calls::NESTED.iter().chain(masks).chain(calls::UNSERVED).copied())
        .chain(calls::DESCRIPTORS.iter().copied())
}

/// The program of the filter.
fn program(library: &Range<usize>, ours: [i32; FILES]) -> Vec<libc::sock_filter> {
    let mut program =
        vec![step(LOAD, 0, 0, MACHINE), step(EQUAL, 1, 0, X86_64), ALLOW, step(LOAD, 0, 0, NUMBER)];
    for &number in PASSES {
        program.extend([step(EQUAL, 0, 1, number as u32), ALLOW]);
    }
    for (at, &number) in BARE.iter().enumerate() {
        let over = BARE.len() - 1 - at + ADDRESSES;
        program.push(step(EQUAL, over as u8, 0, number as u32));
    }
    let addresses = program.len();
    for argument in 0..6 {
        // An address of the arena: what comes from the passage passes.
        program.extend([
            step(LOAD, 0, 0, ARGUMENTS + 8 * argument + UPPER),
            step(AND, 0, 0, !((addresses::LEN_MAX >> 32) as u32 - 1)),
            step(EQUAL, 0, 8, (addresses::START >> 32) as u32),
            step(LOAD, 0, 0, INSTRUCTION + UPPER),
            step(EQUAL, 1, 0, (PASSAGE >> 32) as u32),
            TRAP,
            step(LOAD, 0, 0, INSTRUCTION),
            step(AND, 0, 0, !0xfff),
            step(EQUAL, 0, 1, PASSAGE as u32),
            ALLOW,
            TRAP,
        ]);
    }
    debug_assert_eq!(program.len(), addresses + ADDRESSES, "the jump over the addresses");
    program.extend([
        step(LOAD, 0, 0, INSTRUCTION + UPPER),
        step(EQUAL, 1, 0, (library.start >> 32) as u32),
        ALLOW,
        step(LOAD, 0, 0, INSTRUCTION),
        step(AT_LEAST, 1, 0, library.start as u32),
        ALLOW,
        step(AT_LEAST, 0, 1, library.end as u32),
        ALLOW,
        step(LOAD, 0, 0, NUMBER),
    ]);
    for number in by_number() {
        program.extend([step(EQUAL, 0, 1, number as u32), TRAP]);
    }
    program.extend([step(EQUAL, 0, 1, libc::SYS_fork as u32), TRAP]);
    let absent = step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32);
    program.extend([step(EQUAL, 0, 1, libc::SYS_clone3 as u32), absent]);
    // A child with memory of its own, as fork makes it.
    program.extend([
        step(EQUAL, 0, 5, libc::SYS_clone as u32),
        step(LOAD, 0, 0, ARGUMENTS),
        step(AND, 0, 0, libc::CLONE_VM as u32),
        step(EQUAL, 0, 1, 0),
        TRAP,
        ALLOW,
    ]);
    // Memory without a file: there is no descriptor.
    program.extend(with_argument(libc::SYS_mmap, 4, u32::MAX, [TRAP, ALLOW]));
    for &(number, argument) in OPTIONAL {
        program.extend(with_argument(number, argument, 0, [ALLOW, TRAP]));
    }
    program.extend(CLOSING.iter().flat_map(|closing| refusal(closing, ours)));
    program.push(ALLOW);
    program
}

/// Refuses a call if an argument is a descriptor of ours.
fn refusal(
    &(number, argument, error): &(libc::c_long, u32, i32),
    ours: [i32; FILES],
) -> [libc::sock_filter; 6] {
    let [first, second] = ours.map(|descriptor| descriptor as u32);
    [
        step(EQUAL, 0, 5, number as u32),
        step(LOAD, 0, 0, ARGUMENTS + 8 * argument),
        step(EQUAL, 1, 0, first),
        step(EQUAL, 0, 1, second),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | error as u32),
        ALLOW,
    ]
}

/// What becomes of a call: `[if, otherwise]` the lower half of an argument is a value.
fn with_argument(
    number: libc::c_long,
    argument: u32,
    value: u32,
    [if_equal, otherwise]: [libc::sock_filter; 2],
) -> [libc::sock_filter; 5] {
    [
        step(EQUAL, 0, 4, number as u32),
        step(LOAD, 0, 0, ARGUMENTS + 8 * argument),
        step(EQUAL, 0, 1, value),
        if_equal,
        otherwise,
    ]
}

/// Whether a call makes a child with memory of its own.
pub(super) fn forks(number: libc::c_long, arguments: &[usize; 6]) -> bool {
    let shares = arguments[0] & libc::CLONE_VM as usize != 0;
    number == libc::SYS_fork || number == libc::SYS_clone && !shares
}

/// Whether a trapped call is one that the filter means: by an address, or by its number.
pub(super) fn is_meant(
    number: libc::c_long,
    arguments: &[usize; 6],
    instruction: usize,
    library: &Range<usize>,
) -> bool {
    let listed = || {
        let optional = OPTIONAL.iter().any(|&(it, _)| it == number);
        let placed = number == libc::SYS_mmap;
        optional || placed || forks(number, arguments) || by_number().any(|it| it == number)
    };
    let from_passage = instruction & !0xfff == PASSAGE;
    let has_address = arguments.iter().any(|&argument| addresses::contains(argument));
    !from_passage && (has_address || library.contains(&instruction) && listed())
}

/// Loads the filter for all threads of this process. It cannot be taken away again. `ours` are
/// descriptors of ours; -1 for one that there is not.
///
/// # Errors
///
/// The system's number.
pub(super) fn load(library: &Range<usize>, ours: [i32; FILES]) -> Result<(), i32> {
    // relaxed: there is one thread.
    LIBRARY_START.store(library.start, Ordering::Relaxed);
    // relaxed: as above.
    LIBRARY_END.store(library.end, Ordering::Relaxed);
    let mut program = program(library, ours);
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let given = &raw const filter as usize;
    let mode = libc::SECCOMP_SET_MODE_FILTER as usize;
    // SAFETY: the calls change what this process may do; the program lives as long as they run.
    unsafe {
        call(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0, 0, 0, 0]);
        let loaded = call(libc::SYS_seccomp, [mode, TSYNC, given, 0, 0, 0]);
        if loaded == 0 { Ok(()) } else { Err((-loaded).max(1) as i32) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: [i32; FILES] = [1024, 1027];
    const LIBRARY: Range<usize> = 0x7f12_3450_0000..0x7f12_3468_0000;

    /// What the filter says to a call.
    fn answer(number: libc::c_long, arguments: [usize; 6], instruction: usize) -> u32 {
        let mut data = [0u32; 16];
        data[0] = number as u32;
        data[1] = X86_64;
        data[2] = instruction as u32;
        data[3] = (instruction >> 32) as u32;
        for (at, argument) in arguments.iter().enumerate() {
            data[4 + 2 * at] = *argument as u32;
            data[5 + 2 * at] = (argument >> 32) as u32;
        }
        let (program, mut at, mut word) = (program(&LIBRARY, OURS), 0, 0u32);
        loop {
            let step = program[at];
            at += 1;
            match step.code {
                LOAD => word = data[step.k as usize / 4],
                AND => word &= step.k,
                EQUAL => at += usize::from(if word == step.k { step.jt } else { step.jf }),
                AT_LEAST => at += usize::from(if word >= step.k { step.jt } else { step.jf }),
                _ => return step.k,
            }
        }
    }

    #[test]
    fn what_the_filter_traps_the_handler_knows() {
        let inside = LIBRARY.start + 0x1234;
        let places = [inside, LIBRARY.end, LIBRARY.start - 2, PASSAGE + 30, 0x40_1000];
        let address = addresses::START + 0x7_1234_5678;
        let lists = [[0; 6], [0, address, 0, 0, 0, 0], [0, 0, 0, 0, 0, address]];
        let masks = [[0, 0, 0, 9, 9, 0], [0, 0, 0, 0, usize::MAX, 0]];
        for number in 0..500 {
            for arguments in lists.iter().chain(&masks) {
                for instruction in places {
                    let answer = answer(number, *arguments, instruction);
                    let meant = is_meant(number, arguments, instruction, &LIBRARY);
                    let traps = answer == libc::SECCOMP_RET_TRAP;
                    assert!(!traps || meant, "{number} {arguments:x?} {instruction:x}");
                    let has_address = arguments.contains(&address);
                    let by_flags = BARE.contains(&number);
                    let passes = PASSES.contains(&number) || instruction == PASSAGE + 30;
                    let expected = has_address && !passes;
                    assert!(by_flags || (traps && has_address) == expected, "{number}");
                }
            }
        }
    }

    #[test]
    fn the_c_library_is_known_by_its_addresses() {
        let inside = LIBRARY.start + 0x1234;
        let anonymous = [0, 1 << 20, 3, 0x22, u32::MAX as usize, 0];
        assert_eq!(answer(libc::SYS_mmap, anonymous, inside), libc::SECCOMP_RET_TRAP);
        assert_eq!(answer(libc::SYS_mmap, anonymous, LIBRARY.end), libc::SECCOMP_RET_ALLOW);
        let fork = [0x120_0011, 0, 0, addresses::START, 0, addresses::START];
        assert_eq!(answer(libc::SYS_clone, fork, inside), libc::SECCOMP_RET_TRAP);
        assert_eq!(answer(libc::SYS_clone, fork, 0x40_1000), libc::SECCOMP_RET_ALLOW);
        let thread = [0x3d_0f00, addresses::START, 0, 0, 0, 0];
        assert_eq!(answer(libc::SYS_clone, thread, inside), libc::SECCOMP_RET_ALLOW);
        let file = [0, 1 << 20, 1, 2, 5, 0];
        assert_eq!(answer(libc::SYS_mmap, file, inside), libc::SECCOMP_RET_ALLOW);
        let close = |number: i32| answer(libc::SYS_close, [number as usize; 6], inside);
        let put_over =
            |number: i32| answer(libc::SYS_dup2, [5, number as usize, 0, 0, 0, 0], inside);
        let clone3 = |instruction| answer(libc::SYS_clone3, [0, 88, 0, 0, 0, 0], instruction);
        assert_eq!(clone3(inside), libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32);
        assert_eq!(clone3(0x40_1000), libc::SECCOMP_RET_ALLOW);
        for ours in OURS {
            // What is behind the arguments of a call may be anything.
            let behind = [ours as usize, addresses::START, addresses::START, 0, 0, 0];
            let refused = libc::SECCOMP_RET_ERRNO | libc::EBADF as u32;
            assert_eq!(answer(libc::SYS_close, behind, inside), refused);
            assert_eq!(close(ours), libc::SECCOMP_RET_ERRNO | libc::EBADF as u32);
            assert_eq!(put_over(ours), libc::SECCOMP_RET_ERRNO | libc::EBUSY as u32);
            assert_eq!(close(ours - 1), libc::SECCOMP_RET_ALLOW);
            assert_eq!(put_over(ours + 1), libc::SECCOMP_RET_ALLOW);
            let elsewhere = answer(libc::SYS_close, [ours as usize; 6], 0x40_1000);
            assert_eq!(elsewhere, libc::SECCOMP_RET_ALLOW);
        }
        let wait = [4, 0x7fff_0000_1000, 10, 5, 0, 8];
        assert_eq!(answer(libc::SYS_epoll_pwait, wait, inside), libc::SECCOMP_RET_ALLOW);
        assert_eq!(
            answer(libc::SYS_readv, [3, 0x7fff_0000_1000, 2, 0, 0, 0], inside),
            libc::SECCOMP_RET_TRAP
        );
        assert_eq!(
            answer(libc::SYS_read, [3, 0x7fff_0000_1000, 2, 0, 0, 0], inside),
            libc::SECCOMP_RET_ALLOW
        );
    }
}
