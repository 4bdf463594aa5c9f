//! The filter that makes system calls come to our handler.
//!
//! ```text
//!   from the passage                                        passes
//!   an argument that is an address, and of the arena        traps
//!   the C library: mmap, mremap, brk, signals, fork, nested trap
//!   the C library: close and dup2 of our descriptors        are refused
//!   the C library: clone3                                   is refused, and it takes clone instead
//!   others: io_uring_setup, io_setup, userfaultfd           are refused
//!   anything else                                           passes
//! ```
//!
//! The kernel keeps a filter when another program is executed, which has no handler until our
//! library has begun. That program meets no address of the arena, because only arguments that are
//! addresses are looked at. The addresses at which this process has its C library are others there:
//! the kernel chooses them by chance. So the filter is not used where they are always the same.
//!
//! The lengths of all filters together have a limit, and each program that is executed adds one. So
//! it is short: of each argument, a bit for each call says whether it is an address.
//!
//! Invariant: a call that the filter traps is one that our handler knows. Lock: none.

use super::calls::{HIDDEN, LOOKED_AT, TRACE_ME, forks, spawns};
use super::code::{Code, Kind};
use super::{arguments, calls};
use crate::arena::addresses;
use crate::arena::files::FILES;
use crate::floor::call::call;
use crate::floor::passage::PASSAGE;
use core::ops::Range;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const HAS: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const SHIFT: u16 = (libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K) as u16;
const SHIFT_BY_X: u16 = (libc::BPF_ALU | libc::BPF_RSH | libc::BPF_X) as u16;
const IMMEDIATE: u16 = (libc::BPF_LD | libc::BPF_IMM) as u16;
const TO_X: u16 = (libc::BPF_MISC | libc::BPF_TAX) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// `struct seccomp_data`: number, machine, instruction, arguments.
const NUMBER: u32 = 0;
const MACHINE: u32 = 4;
const INSTRUCTION: u32 = 8;
const ARGUMENTS: u32 = 16;
const UPPER: u32 = 4;
const X86_64: u32 = 0xc000_003e;
const TSYNC: usize = 1;

/// Masks that are mostly not there: the call, and the argument.
const OPTIONAL: &[(libc::c_long, u32)] =
    &[(libc::SYS_ppoll, 3), (libc::SYS_epoll_pwait, 4), (libc::SYS_epoll_pwait2, 4)];

/// What a call is told that would close our descriptor: the call, the argument, the error. musl
/// makes a call again for ever that answers `EBUSY`.
const CLOSING: &[(libc::c_long, u32, [i32; 2])] = &[
    (libc::SYS_close, 0, [libc::EBADF, libc::EBADF]),
    (libc::SYS_dup2, 1, [libc::EBUSY, libc::EBADF]),
    (libc::SYS_dup3, 1, [libc::EBUSY, libc::EBADF]),
];

const fn step(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

const TRAP: libc::sock_filter = step(RETURN, 0, 0, libc::SECCOMP_RET_TRAP);
const ALLOW: libc::sock_filter = step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW);

const fn error(number: i32) -> libc::sock_filter {
    step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | number as u32)
}

/// What becomes of a call that the C library makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Library {
    Passes,
    Traps,
    /// It traps if it makes a child with memory of its own, as fork does.
    Forks,
    /// It traps in that case, and if it makes a child that its parent waits for, as `vfork` does.
    Spawns,
    /// It is not there.
    Absent,
    /// It traps if an argument has these bits.
    TrapsIf(u32, u32),
    /// It traps if the lower half of an argument is a value, or if it is not.
    TrapsAt(u32, u32, bool),
    /// If an argument is a descriptor of ours, it is refused by this error.
    Refused(u32, i32),
}

fn of_library(number: libc::c_long, kind: Kind) -> Library {
    let optional = OPTIONAL.iter().find(|(it, _)| *it == number);
    let closing = CLOSING.iter().find(|(it, ..)| *it == number);
    match (number, optional, closing) {
        (_, Some(&(_, argument)), _) => Library::TrapsAt(argument, 0, false),
        (_, _, Some(&(_, argument, errors))) => Library::Refused(argument, errors[kind as usize]),
        (libc::SYS_clone, ..) if kind == Kind::Musl => Library::Spawns,
        (libc::SYS_clone, ..) => Library::Forks,
        (libc::SYS_clone3, ..) => Library::Absent,
        (libc::SYS_ptrace, ..) => Library::TrapsAt(0, TRACE_ME, true),
        // Memory without a file.
        (libc::SYS_mmap, ..) => Library::TrapsIf(3, libc::MAP_ANONYMOUS as u32),
        // Memory that moved away from the arena in parts is in parts elsewhere.
        (libc::SYS_fork | libc::SYS_brk | libc::SYS_mremap, ..) => Library::Traps,
        _ if calls::by_number().any(|it| it == number) => Library::Traps,
        _ => Library::Passes,
    }
}

/// Bits of a word of a table, and their number as a shift.
const WORD: usize = 32;
const WORD_SHIFT: u32 = 5;

const _: () = assert!(WORD == 1 << WORD_SHIFT && arguments::KNOWN.is_multiple_of(WORD), "words");

/// The program of the filter.
fn program(code: &Code, ours: [i32; FILES]) -> Vec<libc::sock_filter> {
    let mut program = vec![
        step(LOAD, 0, 0, MACHINE),
        step(EQUAL, 1, 0, X86_64),
        ALLOW,
        step(LOAD, 0, 0, INSTRUCTION + UPPER),
        step(EQUAL, 0, 4, (PASSAGE >> 32) as u32),
        step(LOAD, 0, 0, INSTRUCTION),
        step(AND, 0, 0, !0xfff),
        step(EQUAL, 0, 1, PASSAGE as u32),
        ALLOW,
    ];
    for argument in 0..6 {
        let steps = in_arena(argument);
        program.extend([
            step(LOAD, 0, 0, ARGUMENTS + 8 * argument + UPPER),
            step(AND, 0, 0, !((addresses::LEN_MAX >> 32) as u32 - 1)),
            step(EQUAL, 0, steps.len() as u8, (addresses::START >> 32) as u32),
        ]);
        program.extend(steps);
    }
    let refused = is_in(&code.text, error(libc::ENOSYS));
    program.push(step(LOAD, 0, 0, NUMBER));
    let [first, second, third] = HIDDEN.map(|number| number as u32);
    program.extend([step(EQUAL, 2, 0, first), step(EQUAL, 1, 0, second)]);
    program.push(step(EQUAL, 0, refused.len() as u8, third));
    program.extend(refused);
    program.extend(is_in(&code.text, ALLOW));
    program.push(step(LOAD, 0, 0, NUMBER));
    for number in 0..arguments::KNOWN as libc::c_long {
        let steps = by_library(of_library(number, code.kind), ours);
        if !steps.is_empty() {
            program.push(step(EQUAL, 0, steps.len() as u8, number as u32));
            program.extend(steps);
        }
    }
    program.push(ALLOW);
    program
}

/// What is not from the C library has this answer. Its code may cross a border of 4 GiB: one of
/// some three thousand programs has it there.
fn is_in(text: &Range<usize>, otherwise: libc::sock_filter) -> Vec<libc::sock_filter> {
    let [first, last] = [text.start, text.end].map(|address| (address >> 32) as u32);
    let lower = step(LOAD, 0, 0, INSTRUCTION);
    let mut steps = vec![step(LOAD, 0, 0, INSTRUCTION + UPPER)];
    let crosses = first != last;
    steps.push(step(EQUAL, if crosses { 2 } else { 1 }, 0, first));
    steps.extend(crosses.then_some(step(EQUAL, 3, 0, last)));
    steps.extend([otherwise, lower]);
    if crosses {
        steps.extend([step(AT_LEAST, 3, 2, text.start as u32), lower]);
    } else {
        steps.extend([step(AT_LEAST, 1, 0, text.start as u32), otherwise]);
    }
    steps.extend([step(AT_LEAST, 0, 1, text.end as u32), otherwise]);
    steps
}

/// An argument would be an address of the arena. A call traps whose argument is an address. At the
/// end are the tests of the next argument.
fn in_arena(argument: u32) -> Vec<libc::sock_filter> {
    let word = |at: usize| {
        let calls = (0..WORD).map(|bit| (at * WORD + bit) as libc::c_long);
        let bits = calls.map(|number| u32::from(arguments::addresses(number) >> argument & 1));
        bits.enumerate().fold(0, |word, (at, bit)| word | bit << at)
    };
    let words = (0..arguments::KNOWN / WORD).map(|at| (at as u32, word(at)));
    let words: Vec<(u32, u32)> = words.filter(|(_, word)| *word != 0).collect();
    let mut trap = vec![TRAP];
    if argument == 1 {
        trap = vec![
            step(LOAD, 0, 0, NUMBER),
            step(EQUAL, 0, 3, libc::SYS_clone as u32),
            step(LOAD, 0, 0, ARGUMENTS + UPPER),
            step(EQUAL, 0, 1, (LOOKED_AT >> 32) as u32),
            ALLOW,
            TRAP,
        ];
    }
    let mut steps = vec![
        step(LOAD, 0, 0, NUMBER),
        step(AT_LEAST, 0, 1, arguments::KNOWN as u32),
        TRAP,
        step(AND, 0, 0, WORD as u32 - 1),
        step(TO_X, 0, 0, 0),
        step(LOAD, 0, 0, NUMBER),
        step(SHIFT, 0, 0, WORD_SHIFT),
    ];
    for (at, &(number, word)) in words.iter().enumerate() {
        // Over the words that follow, three steps each, and over the jump past the test.
        let test = (words.len() - at - 1) * 3 + 1;
        let found = step(JUMP, 0, 0, test as u32);
        steps.extend([step(EQUAL, 0, 2, number), step(IMMEDIATE, 0, 0, word), found]);
    }
    steps.push(step(JUMP, 0, 0, 2 + trap.len() as u32));
    steps.extend([step(SHIFT_BY_X, 0, 0, 0), step(HAS, 0, trap.len() as u8, 1)]);
    steps.extend(trap);
    steps
}

/// What is done with a call of the C library, whose number is known. Nothing, if it passes.
fn by_library(library: Library, ours: [i32; FILES]) -> Vec<libc::sock_filter> {
    let lower = |argument: u32| step(LOAD, 0, 0, ARGUMENTS + 8 * argument);
    match library {
        Library::Passes => vec![],
        Library::Traps => vec![TRAP],
        Library::Absent => vec![error(libc::ENOSYS)],
        Library::Forks => vec![
            lower(0),
            step(AND, 0, 0, libc::CLONE_VM as u32),
            step(EQUAL, 0, 1, 0),
            TRAP,
            ALLOW,
        ],
        Library::Spawns => vec![
            lower(0),
            step(AND, 0, 0, (libc::CLONE_VM | libc::CLONE_VFORK) as u32),
            step(EQUAL, 3, 0, libc::CLONE_VM as u32),
            step(LOAD, 0, 0, ARGUMENTS + UPPER),
            step(EQUAL, 1, 0, (LOOKED_AT >> 32) as u32),
            TRAP,
            ALLOW,
        ],
        Library::TrapsIf(argument, bits) => {
            vec![lower(argument), step(HAS, 0, 1, bits), TRAP, ALLOW]
        }
        Library::TrapsAt(argument, value, there) => {
            let (is, is_not) = if there { (TRAP, ALLOW) } else { (ALLOW, TRAP) };
            vec![lower(argument), step(EQUAL, 0, 1, value), is, is_not]
        }
        Library::Refused(argument, number) => {
            let [first, second] = ours.map(|descriptor| descriptor as u32);
            let (is_first, is_second) = (step(EQUAL, 1, 0, first), step(EQUAL, 0, 1, second));
            vec![lower(argument), is_first, is_second, error(number), ALLOW]
        }
    }
}

/// Whether a trapped call is one that the filter means: by an address, or by its number.
pub(super) fn is_meant(
    number: libc::c_long,
    values: &[usize; 6],
    instruction: usize,
    library: &Code,
) -> bool {
    let listed = || match of_library(number, library.kind) {
        Library::Traps | Library::TrapsIf(..) | Library::TrapsAt(..) => true,
        Library::Forks => forks(number, values),
        Library::Spawns => forks(number, values) || spawns(values),
        Library::Passes | Library::Absent | Library::Refused(..) => false,
    };
    let from_passage = instruction & !0xfff == PASSAGE;
    let known = arguments::addresses(number);
    let has_address = (0..6).any(|at| known >> at & 1 != 0 && addresses::contains(values[at]));
    !from_passage && (has_address || library.text.contains(&instruction) && listed())
}

/// Loads the filter for all threads of this process. It cannot be taken away again. `ours` are
/// descriptors of ours; -1 for one that there is not.
///
/// # Errors
///
/// The system's number.
pub(super) fn load(code: &Code, ours: [i32; FILES]) -> Result<(), i32> {
    code.note();
    let mut program = program(code, ours);
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

    fn code(kind: Kind) -> Code {
        Code { text: LIBRARY, kind }
    }

    /// What the filter says to a call in a program with glibc.
    fn answer(number: libc::c_long, arguments: [usize; 6], instruction: usize) -> u32 {
        answer_to(&code(Kind::Glibc), number, arguments, instruction)
    }

    fn answer_to(code: &Code, number: libc::c_long, arguments: [usize; 6], at: usize) -> u32 {
        let mut data = [0u32; 16];
        data[0] = number as u32;
        data[1] = X86_64;
        (data[2], data[3]) = (at as u32, (at >> 32) as u32);
        for (slot, argument) in data[4..].chunks_exact_mut(2).zip(arguments) {
            slot.copy_from_slice(&[argument as u32, (argument >> 32) as u32]);
        }
        let (program, mut at, mut word, mut x) = (program(code, OURS), 0, 0u32, 0);
        loop {
            let step = program[at];
            at += 1;
            match step.code {
                LOAD => word = data[step.k as usize / 4],
                AND => word &= step.k,
                EQUAL => at += usize::from(if word == step.k { step.jt } else { step.jf }),
                AT_LEAST => at += usize::from(if word >= step.k { step.jt } else { step.jf }),
                JUMP => at += step.k as usize,
                HAS => at += usize::from(if word & step.k != 0 { step.jt } else { step.jf }),
                SHIFT => word >>= step.k,
                SHIFT_BY_X => word >>= x,
                IMMEDIATE => word = step.k,
                TO_X => x = word,
                RETURN => return step.k,
                other => panic!("{other:x}"),
            }
        }
    }

    #[test]
    fn what_the_filter_traps_the_handler_knows() {
        let inside = LIBRARY.start + 0x1234;
        let places = [inside, LIBRARY.end, LIBRARY.start - 2, PASSAGE + 30, 0x40_1000];
        let address = addresses::START + 0x7_1234_5678;
        let vfork = [0x4111, 0, 0, 0, 0, 0];
        let masks = [[0; 6], [0, 0, 0, 9, 9, 0], [0, 0, 0, 0, usize::MAX, 0], vfork];
        let with_address = (0..6).map(|argument| {
            let mut arguments = [0; 6];
            arguments[argument] = address;
            arguments
        });
        let lists: Vec<[usize; 6]> = masks.into_iter().chain(with_address).collect();
        let both = |number| [(Kind::Glibc, number), (Kind::Musl, number)];
        for (kind, number) in (0..600).chain([1 << 30, i64::from(u32::MAX)]).flat_map(both) {
            for arguments in &lists {
                for instruction in places {
                    let answer = answer_to(&code(kind), number, *arguments, instruction);
                    let meant = is_meant(number, arguments, instruction, &code(kind));
                    let traps = answer == libc::SECCOMP_RET_TRAP;
                    assert!(!traps || meant, "{number} {arguments:x?} {instruction:x}");
                    let at = arguments.iter().position(|it| *it == address);
                    let is_address =
                        at.is_some_and(|at| arguments::addresses(number) >> at & 1 == 1);
                    let expected = is_address && instruction != PASSAGE + 30;
                    assert!(traps == expected || instruction == inside, "{number}");
                    assert!(traps || !expected, "{number}");
                }
            }
        }
    }

    #[test]
    fn the_c_library_may_lie_across_a_border_of_addresses() {
        const BORDER: usize = 0x7f13_0000_0000;
        for text in [BORDER - 0x3000..BORDER + 0x5000, BORDER - 0x3000..BORDER, LIBRARY] {
            let code = Code { text: text.clone(), kind: Kind::Glibc };
            let (start, end) = (text.start, text.end);
            let far = 1 << 32;
            let places =
                [start - 1, start, BORDER - 1, BORDER, end - 1, end, start - far, end + far];
            for at in places.into_iter().chain([start + far, end - far, 0x3000, BORDER + 0x4000]) {
                let traps = answer_to(&code, libc::SYS_brk, [0; 6], at) == libc::SECCOMP_RET_TRAP;
                assert_eq!(traps, text.contains(&at), "{text:x?} {at:x}");
            }
        }
    }

    #[test]
    fn what_a_register_has_that_is_no_argument_does_not_matter() {
        let counter = addresses::START + 0x12_3456_789a;
        let programs = 0x40_1000;
        let close = answer(libc::SYS_close, [3, counter, counter, counter, 0, counter], programs);
        assert_eq!(close, libc::SECCOMP_RET_ALLOW);
        let open = [usize::MAX, 0x7fff_0000_1000, 0, counter, counter, counter];
        assert_eq!(answer(libc::SYS_openat, open, programs), libc::SECCOMP_RET_ALLOW);
        let seek = answer(libc::SYS_lseek, [3, counter, 0, 0, 0, 0], programs);
        assert_eq!(seek, libc::SECCOMP_RET_ALLOW, "a place in a large file");
    }

    #[test]
    fn many_programs_may_execute_each_other() {
        /// What the kernel allows all filters together, each with a few instructions more, and what
        /// its own form of a filter may take more than ours.
        const LIMIT: usize = 32768;
        let taken = program(&code(Kind::Musl), OURS).len() * 3 / 2 + 4;
        assert!(LIMIT / taken > 40, "{taken}");
    }

    #[test]
    fn a_thread_with_a_stack_of_the_arena_is_looked_at_once() {
        let stack = addresses::START + 0x10_0000;
        let begin = |flags| answer(libc::SYS_clone, [flags, stack, 0, 0, 0, 0], LIBRARY.start + 8);
        assert_eq!(begin(0x3d_0f00), libc::SECCOMP_RET_TRAP);
        assert_eq!(begin(0x3d_0f00 | LOOKED_AT), libc::SECCOMP_RET_ALLOW);
    }

    #[test]
    fn children_of_musl_that_share_memory_are_looked_at_once() {
        let inside = LIBRARY.start + 0x1234;
        let begin = |kind, flags: i32| {
            let arguments = [flags as usize, 0x7fff_0000_1000, 0, 0, 0, 0];
            let answer = |arguments| answer_to(&code(kind), libc::SYS_clone, arguments, inside);
            let mut again = arguments;
            again[0] |= LOOKED_AT;
            (answer(arguments), answer(again))
        };
        let (trap, allow) = (libc::SECCOMP_RET_TRAP, libc::SECCOMP_RET_ALLOW);
        let spawn = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let thread = libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND;
        assert_eq!(begin(Kind::Musl, spawn), (trap, allow));
        assert_eq!(begin(Kind::Musl, thread), (allow, allow));
        assert_eq!(begin(Kind::Musl, libc::SIGCHLD).0, trap, "a fork");
        assert_eq!(begin(Kind::Glibc, spawn), (allow, allow), "its stack is wide");
    }

    #[test]
    fn musl_is_told_what_it_does_not_ask_again() {
        let inside = LIBRARY.start + 0x1234;
        let refused = libc::SECCOMP_RET_ERRNO | libc::EBADF as u32;
        for number in [libc::SYS_dup2, libc::SYS_dup3, libc::SYS_close] {
            let arguments = [OURS[0] as usize, OURS[0] as usize, 0, 0, 0, 0];
            assert_eq!(answer_to(&code(Kind::Musl), number, arguments, inside), refused);
        }
    }

    #[test]
    fn the_c_library_is_known_by_its_addresses() {
        let inside = LIBRARY.start + 0x1234;
        let anonymous = [0, 1 << 20, 3, 0x22, u32::MAX as usize, 0];
        assert_eq!(answer(libc::SYS_mmap, anonymous, inside), libc::SECCOMP_RET_TRAP);
        assert_eq!(answer(libc::SYS_mmap, anonymous, LIBRARY.end), libc::SECCOMP_RET_ALLOW);
        let with_a_descriptor = [0, 1 << 20, 3, 0x22, 0, 0];
        assert_eq!(answer(libc::SYS_mmap, with_a_descriptor, inside), libc::SECCOMP_RET_TRAP);
        for number in HIDDEN {
            let outside = answer(number, [8, 0x7fff_0000_1000, 0, 0, 0, 0], 0x40_1000);
            assert_eq!(outside, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32);
            let called = answer(number, [8, 0x7fff_0000_1000, 0, 0, 0, 0], inside);
            assert_eq!(called, libc::SECCOMP_RET_TRAP);
            let passed = answer(number, [8, 0x7fff_0000_1000, 0, 0, 0, 0], PASSAGE + 30);
            assert_eq!(passed, libc::SECCOMP_RET_ALLOW);
        }
        let fork = [0x120_0011, 0, 0, addresses::START, 0, addresses::START];
        assert_eq!(answer(libc::SYS_clone, fork, inside), libc::SECCOMP_RET_TRAP);
        assert_eq!(answer(libc::SYS_clone, fork, 0x40_1000), libc::SECCOMP_RET_ALLOW);
        let thread = [0x3d_0f00, 0x7f00_0000_1000, addresses::START, addresses::START, 0, 0];
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
        let read = |number| answer(number, [3, 0x7fff_0000_1000, 2, 0, 0, 0], inside);
        assert_eq!(read(libc::SYS_readv), libc::SECCOMP_RET_TRAP);
        assert_eq!(read(libc::SYS_read), libc::SECCOMP_RET_ALLOW);
        let trace = |request: u32| answer(libc::SYS_ptrace, [request as usize; 6], inside);
        assert_eq!(trace(TRACE_ME), libc::SECCOMP_RET_TRAP);
        assert_eq!(trace(7), libc::SECCOMP_RET_ALLOW, "PTRACE_CONT");
    }
}
