//! The filter that makes system calls come to our handler.
//!
//! ```text
//!   number --tree--> rule:  an argument that is an address of the arena   traps, unless it comes
//!                                                                         from the passage
//!                           from the C library   mmap, brk, signals,      trap
//!                                                fork, nested
//!                                                close, dup2 of ours      are refused
//!                                                clone3                   is refused, and it takes
//!                                                                         clone instead
//!                           anything else                                 passes
//! ```
//!
//! The tree is a search among the numbers. The kernel finds out by itself for which numbers the
//! answer is always to pass, and does not run the filter for these.
//!
//! The kernel keeps a filter when another program is executed, which has no handler until our
//! library has begun. That program meets no address of the arena, because only arguments that are
//! addresses are looked at. The addresses at which this process has its C library are others there:
//! the kernel chooses them by chance. So the filter is not used where they are always the same.
//!
//! Invariant: a call that the filter traps is one that our handler knows. Lock: none.

use super::{arguments, calls};
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
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
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

/// What becomes of a call that the C library makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Library {
    Passes,
    Traps,
    /// It traps if it makes a child with memory of its own, as fork does.
    Forks,
    /// It is not there.
    Absent,
    /// It traps if the lower half of an argument is a value.
    TrapsIf(u32, u32),
    /// It passes if the lower half of an argument is a value, and traps otherwise.
    TrapsUnless(u32, u32),
    /// If an argument is a descriptor of ours, it is refused by this error.
    Refused(u32, i32),
}

/// What becomes of a call: its arguments that are addresses, as bits, and what becomes of it if it
/// comes from the C library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rule {
    addresses: u8,
    library: Library,
}

fn rule(number: libc::c_long) -> Rule {
    Rule { addresses: arguments::addresses(number), library: of_library(number) }
}

fn of_library(number: libc::c_long) -> Library {
    let optional = OPTIONAL.iter().find(|(it, _)| *it == number);
    let closing = CLOSING.iter().find(|(it, ..)| *it == number);
    match (number, optional, closing) {
        (_, Some(&(_, argument)), _) => Library::TrapsUnless(argument, 0),
        (_, _, Some(&(_, argument, error))) => Library::Refused(argument, error),
        (libc::SYS_clone, ..) => Library::Forks,
        (libc::SYS_clone3, ..) => Library::Absent,
        // Memory without a file: there is no descriptor.
        (libc::SYS_mmap, ..) => Library::TrapsIf(4, u32::MAX),
        (libc::SYS_fork | libc::SYS_brk, ..) => Library::Traps,
        _ if calls::by_number().any(|it| it == number) => Library::Traps,
        _ => Library::Passes,
    }
}

/// The program of the filter: the tree, and then what each rule does.
fn program(library: &Range<usize>, ours: [i32; FILES]) -> Vec<libc::sock_filter> {
    let mut rules: Vec<Rule> = Vec::new();
    // Where a run of numbers begins that have one rule, and which.
    let mut runs: Vec<(u32, usize)> = Vec::new();
    for number in 0..=arguments::KNOWN {
        let rule = rule(number as libc::c_long);
        let at = rules.iter().position(|it| *it == rule).unwrap_or(rules.len());
        if at == rules.len() {
            rules.push(rule);
        }
        if runs.last().is_none_or(|(_, last)| *last != at) {
            runs.push((number as u32, at));
        }
    }
    let (mut places, mut ends) = (Vec::new(), Vec::new());
    for rule in rules {
        places.push(ends.len());
        ends.extend(steps(rule, library, ours));
    }
    let mut program =
        vec![step(LOAD, 0, 0, MACHINE), step(EQUAL, 1, 0, X86_64), ALLOW, step(LOAD, 0, 0, NUMBER)];
    let mut tree = Vec::new();
    branch(&runs, &mut tree);
    for (at, node) in tree.iter().enumerate() {
        program.push(match *node {
            Node::Step(step) => step,
            Node::Rule(rule) => step(JUMP, 0, 0, (tree.len() - at - 1 + places[rule]) as u32),
        });
    }
    program.extend(ends);
    program
}

/// A step of the tree.
enum Node {
    Step(libc::sock_filter),
    /// A jump to what a rule does.
    Rule(usize),
}

/// Finds the run that has a number.
fn branch(runs: &[(u32, usize)], tree: &mut Vec<Node>) {
    if let [(_, rule)] = runs {
        tree.push(Node::Rule(*rule));
        return;
    }
    let (lower, upper) = runs.split_at(runs.len() / 2);
    tree.push(Node::Step(step(AT_LEAST, 0, 1, upper[0].0)));
    let jump = tree.len();
    tree.push(Node::Step(ALLOW));
    branch(lower, tree);
    tree[jump] = Node::Step(step(JUMP, 0, 0, (tree.len() - jump - 1) as u32));
    branch(upper, tree);
}

/// What a rule does.
fn steps(rule: Rule, library: &Range<usize>, ours: [i32; FILES]) -> Vec<libc::sock_filter> {
    let mut steps = Vec::new();
    for argument in (0..6).filter(|argument| rule.addresses >> argument & 1 != 0) {
        // An address of the arena: what comes from the passage passes.
        steps.extend([
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
    if rule.library != Library::Passes {
        steps.extend([
            step(LOAD, 0, 0, INSTRUCTION + UPPER),
            step(EQUAL, 1, 0, (library.start >> 32) as u32),
            ALLOW,
            step(LOAD, 0, 0, INSTRUCTION),
            step(AT_LEAST, 1, 0, library.start as u32),
            ALLOW,
            step(AT_LEAST, 0, 1, library.end as u32),
            ALLOW,
        ]);
    }
    let lower = |argument: u32| step(LOAD, 0, 0, ARGUMENTS + 8 * argument);
    let error = |number: i32| step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | number as u32);
    match rule.library {
        Library::Passes => steps.push(ALLOW),
        Library::Traps => steps.push(TRAP),
        Library::Absent => steps.push(error(libc::ENOSYS)),
        Library::Forks => steps.extend([
            lower(0),
            step(AND, 0, 0, libc::CLONE_VM as u32),
            step(EQUAL, 0, 1, 0),
            TRAP,
            ALLOW,
        ]),
        Library::TrapsIf(argument, value) => {
            steps.extend([lower(argument), step(EQUAL, 0, 1, value), TRAP, ALLOW]);
        }
        Library::TrapsUnless(argument, value) => {
            steps.extend([lower(argument), step(EQUAL, 0, 1, value), ALLOW, TRAP]);
        }
        Library::Refused(argument, number) => {
            let [first, second] = ours.map(|descriptor| descriptor as u32);
            let (is_first, is_second) = (step(EQUAL, 1, 0, first), step(EQUAL, 0, 1, second));
            steps.extend([lower(argument), is_first, is_second, error(number), ALLOW]);
        }
    }
    steps
}

/// Whether a call makes a child with memory of its own.
pub(super) fn forks(number: libc::c_long, arguments: &[usize; 6]) -> bool {
    let shares = arguments[0] & libc::CLONE_VM as usize != 0;
    number == libc::SYS_fork || number == libc::SYS_clone && !shares
}

/// Whether a trapped call is one that the filter means: by an address, or by its number.
pub(super) fn is_meant(
    number: libc::c_long,
    values: &[usize; 6],
    instruction: usize,
    library: &Range<usize>,
) -> bool {
    let listed = || match of_library(number) {
        Library::Traps | Library::TrapsIf(..) | Library::TrapsUnless(..) => true,
        Library::Forks => forks(number, values),
        Library::Passes | Library::Absent | Library::Refused(..) => false,
    };
    let from_passage = instruction & !0xfff == PASSAGE;
    let known = arguments::addresses(number);
    let has_address = (0..6).any(|at| known >> at & 1 != 0 && addresses::contains(values[at]));
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
                JUMP => at += step.k as usize,
                _ => return step.k,
            }
        }
    }

    #[test]
    fn what_the_filter_traps_the_handler_knows() {
        let inside = LIBRARY.start + 0x1234;
        let places = [inside, LIBRARY.end, LIBRARY.start - 2, PASSAGE + 30, 0x40_1000];
        let address = addresses::START + 0x7_1234_5678;
        let masks = [[0; 6], [0, 0, 0, 9, 9, 0], [0, 0, 0, 0, usize::MAX, 0]];
        let with_address = (0..6).map(|argument| {
            let mut arguments = [0; 6];
            arguments[argument] = address;
            arguments
        });
        let lists: Vec<[usize; 6]> = masks.into_iter().chain(with_address).collect();
        for number in (0..600).chain([1 << 30, i64::from(u32::MAX)]) {
            for arguments in &lists {
                for instruction in places {
                    let answer = answer(number, *arguments, instruction);
                    let meant = is_meant(number, arguments, instruction, &LIBRARY);
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
