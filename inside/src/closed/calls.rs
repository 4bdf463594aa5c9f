//! System calls with addresses of the arena among their arguments: how much memory each uses.
//!
//! ```text
//!   Use::Memory    about mappings: done instead of the program     memory
//!   Use::Nested    its arguments lead to more addresses            nested
//!   Use::Mask      about signals                                   masks
//!   Use::Descriptors   a range of descriptors: ours stay open      handlers
//!   Use::Trace     a child in its parent's memory asks for it      handlers
//!   Use::Plain     its arguments are all the addresses it uses
//!   Use::Unserved  the kernel would use memory later, or nobody knows: nothing folds any more
//! ```
//!
//! Invariant: the bytes that a call may use are at most those that `used` tells. Lock: none.

use super::arguments;
use crate::arena::addresses;
use core::ops::Range;
use libc::c_long;

/// What a call does with memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Memory,
    Nested,
    Mask,
    Descriptors,
    Trace,
    Plain,
    Unserved,
}

/// The most that a call uses at an address of which no argument tells the length: structures,
/// paths, values of options.
const SMALL: usize = 64 << 10;

/// The most bytes that the kernel moves in a call (`MAX_RW_COUNT`).
pub(super) const BYTES_MAX: usize = 0x7fff_f000;

/// A call, its argument that is an address, the argument that is the length, and the bytes of one.
const LENGTHS: &[(c_long, usize, usize, usize)] = &[
    (libc::SYS_read, 1, 2, 1),
    (libc::SYS_write, 1, 2, 1),
    (libc::SYS_pread64, 1, 2, 1),
    (libc::SYS_pwrite64, 1, 2, 1),
    (libc::SYS_sendto, 1, 2, 1),
    (libc::SYS_recvfrom, 1, 2, 1),
    (libc::SYS_getdents, 1, 2, 1),
    (libc::SYS_getdents64, 1, 2, 1),
    (libc::SYS_getrandom, 0, 1, 1),
    (libc::SYS_getcwd, 0, 1, 1),
    (libc::SYS_readlink, 1, 2, 1),
    (libc::SYS_readlinkat, 2, 3, 1),
    (libc::SYS_poll, 0, 1, 8),
    (libc::SYS_ppoll, 0, 1, 8),
    (libc::SYS_epoll_wait, 1, 2, 12),
    (libc::SYS_epoll_pwait, 1, 2, 12),
    (libc::SYS_epoll_pwait2, 1, 2, 12),
    (libc::SYS_setxattr, 2, 3, 1),
    (libc::SYS_lsetxattr, 2, 3, 1),
    (libc::SYS_fsetxattr, 2, 3, 1),
    (libc::SYS_getxattr, 2, 3, 1),
    (libc::SYS_lgetxattr, 2, 3, 1),
    (libc::SYS_fgetxattr, 2, 3, 1),
    (libc::SYS_listxattr, 1, 2, 1),
    (libc::SYS_llistxattr, 1, 2, 1),
    (libc::SYS_flistxattr, 1, 2, 1),
    (libc::SYS_sched_getaffinity, 2, 1, 1),
    (libc::SYS_sched_setaffinity, 2, 1, 1),
    (libc::SYS_semop, 1, 2, 6),
    (libc::SYS_semtimedop, 1, 2, 6),
    (libc::SYS_setsockopt, 3, 4, 1),
    (libc::SYS_getgroups, 1, 0, 4),
    (libc::SYS_setgroups, 1, 0, 4),
    (libc::SYS_mq_timedsend, 1, 2, 1),
    (libc::SYS_mq_timedreceive, 1, 2, 1),
    (libc::SYS_add_key, 2, 3, 1),
    (libc::SYS_syslog, 1, 2, 1),
    (libc::SYS_init_module, 0, 1, 1),
    (libc::SYS_move_pages, 2, 1, 8),
    (libc::SYS_move_pages, 3, 1, 4),
    (libc::SYS_move_pages, 4, 1, 4),
    (STATMOUNT, 1, 2, 1),
    (LISTMOUNT, 1, 2, 8),
    (libc::SYS_set_robust_list, 0, 1, 1),
    (libc::SYS_rseq, 0, 1, 1),
];

/// `statmount` and `listmount`, which are younger than the table of our library of calls.
const STATMOUNT: c_long = 457;
const LISTMOUNT: c_long = 458;
/// `cachestat`, `futex_wake`, `futex_wait`, `lsm_get_self_attr`, `lsm_set_self_attr`,
/// `lsm_list_modules`, as above.
const YOUNG: [c_long; 6] = [451, 454, 455, 459, 460, 461];

/// Messages of System V have a word before their text.
const MESSAGES: &[c_long] = &[libc::SYS_msgsnd, libc::SYS_msgrcv];
const MESSAGE_HEAD: usize = 8;

/// About mappings. `mincore` has a vector as well, so it is not one of them.
const MEMORY: &[c_long] = &[
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_pkey_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_shmat,
    libc::SYS_shmdt,
    libc::SYS_remap_file_pages,
];

/// Their arguments may lead to addresses of the arena. The filter traps these by number.
const NESTED: &[c_long] = &[
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_vmsplice,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_futex_waitv,
];

/// About signals. The filter traps these by number.
const MASKS: &[c_long] = &[
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigsuspend,
    libc::SYS_sigaltstack,
    libc::SYS_pselect6,
    libc::SYS_ppoll,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
];

/// The kernel keeps using memory after these, or they lock it. The filter traps these by number.
const UNSERVED: &[c_long] = &[
    libc::SYS_io_setup,
    libc::SYS_io_uring_setup,
    libc::SYS_mlockall,
    libc::SYS_userfaultfd,
    libc::SYS_process_madvise,
];

/// The kernel goes on using memory after these. Libraries make them by instructions of their own,
/// where no handler of ours may be trusted to be: these are told that the system has no such call.
pub(super) const HIDDEN: [c_long; 3] =
    [libc::SYS_io_uring_setup, libc::SYS_io_setup, libc::SYS_userfaultfd];

/// About descriptors by ranges. The filter traps these by number.
const DESCRIPTORS: &[c_long] = &[libc::SYS_close_range];

/// The kernel writes to what these name as long as the thread lives. A thread of the C library
/// begins with the first of them, and the filter traps that one by number.
const THREADS: &[c_long] = &[libc::SYS_set_robust_list, libc::SYS_rseq, libc::SYS_set_tid_address];

/// Whether the kernel goes on using what a call names, until the thread ends.
pub(super) fn lasts(number: c_long) -> bool {
    THREADS.contains(&number)
}

/// Calls that the filter traps by number.
pub(super) fn by_number() -> impl Iterator<Item = c_long> {
    [NESTED, MASKS, UNSERVED, DESCRIPTORS, &THREADS[..1]].into_iter().flatten().copied()
}

/// Calls up to here are old, and known: their structures are small.
const OLD_MAX: c_long = libc::SYS_rseq;
/// Later ones that are known too.
const NEWER: &[c_long] = &[
    libc::SYS_openat2,
    libc::SYS_faccessat2,
    libc::SYS_pidfd_send_signal,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_clone3,
    libc::SYS_epoll_pwait2,
    libc::SYS_fchmodat2,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    STATMOUNT,
    LISTMOUNT,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_restrict_self,
];

/// A thread's beginning that was looked at already, as a bit of the flags that the kernel does not
/// read.
pub(super) const LOOKED_AT: usize = 1 << 62;

const _: () = assert!(LOOKED_AT.is_power_of_two() && LOOKED_AT > u32::MAX as usize, "a high bit");

/// Whether a call makes a child with memory of its own.
pub(super) fn forks(number: c_long, arguments: &[usize; 6]) -> bool {
    let shares = arguments[0] & libc::CLONE_VM as usize != 0;
    number == libc::SYS_fork || number == libc::SYS_clone && !shares
}

/// Whether a call of `clone` makes a child in this memory that its parent waits for, and was not
/// looked at.
pub(super) fn spawns(arguments: &[usize; 6]) -> bool {
    let both = (libc::CLONE_VM | libc::CLONE_VFORK) as usize;
    arguments[0] & both == both && arguments[0] >> 32 != LOOKED_AT >> 32
}

/// `PTRACE_TRACEME`, whose type is not the same in all C libraries.
pub(super) const TRACE_ME: u32 = 0;

/// What a call does with memory.
pub(super) fn kind(number: c_long, arguments: &[usize; 6]) -> Use {
    let is_in = |list: &[c_long]| list.contains(&number);
    match number {
        _ if is_in(MEMORY) => Use::Memory,
        _ if is_in(NESTED) => Use::Nested,
        _ if is_in(MASKS) => Use::Mask,
        _ if is_in(DESCRIPTORS) => Use::Descriptors,
        _ if is_in(UNSERVED) => Use::Unserved,
        libc::SYS_ptrace if arguments[0] as u32 == TRACE_ME => Use::Trace,
        0..=OLD_MAX => Use::Plain,
        _ if is_in(NEWER) || is_in(&YOUNG) => Use::Plain,
        _ => Use::Unserved,
    }
}

/// The bytes that an argument of a call leads to, if it is an address of the arena.
pub(super) fn used(number: c_long, values: &[usize; 6], argument: usize) -> Option<Range<usize>> {
    let start = values[argument];
    if arguments::addresses(number) >> argument & 1 == 0 || !addresses::contains(start) {
        return None;
    }
    let row = LENGTHS.iter().find(|row| (row.0, row.1) == (number, argument));
    let told = row.map(|row| values[row.2].saturating_mul(row.3).min(BYTES_MAX));
    let mut len = told.unwrap_or(SMALL);
    if MESSAGES.contains(&number) && argument == 1 {
        len = values[2].saturating_add(MESSAGE_HEAD);
    }
    if number == libc::SYS_mincore {
        len = if argument == 2 { values[1] / crate::places::PAGE + 1 } else { 1 };
    }
    let end = addresses::START + addresses::LEN_MAX;
    Some(start..start.saturating_add(len.max(1)).min(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_call_uses_is_known_by_its_arguments() {
        let at = addresses::START + 4096;
        let read = [0, at, 100_000, 0, 0, 0];
        assert_eq!(used(libc::SYS_read, &read, 1), Some(at..at + 100_000));
        assert_eq!(used(libc::SYS_read, &read, 0), None);
        let left_over = [0, 0, 0, at, 0, 0];
        assert_eq!(used(libc::SYS_read, &left_over, 3), None);
        let poll = [at, 3, 0, 0, 0, 0];
        assert_eq!(used(libc::SYS_poll, &poll, 0), Some(at..at + 24));
        let stat = [at, at + 5, 0, 0, 0, 0];
        assert_eq!(used(libc::SYS_stat, &stat, 1), Some(at + 5..at + 5 + SMALL));
        let huge = [0, at, usize::MAX, 0, 0, 0];
        assert_eq!(used(libc::SYS_write, &huge, 1), Some(at..at + BYTES_MAX));
        let moved = [0, 40_000, at, at, at, 0];
        assert_eq!(used(libc::SYS_move_pages, &moved, 2), Some(at..at + 320_000));
        assert_eq!(used(libc::SYS_move_pages, &moved, 4), Some(at..at + 160_000));
        let message = [0, at, 10, 0, 0, 0];
        assert_eq!(used(libc::SYS_msgsnd, &message, 1), Some(at..at + 18));
    }

    #[test]
    fn a_call_that_nobody_knows_is_not_served() {
        let kind = |number| kind(number, &[TRACE_ME as usize; 6]);
        assert_eq!(kind(libc::SYS_read), Use::Plain);
        assert_eq!(kind(libc::SYS_madvise), Use::Memory);
        assert_eq!(kind(libc::SYS_readv), Use::Nested);
        assert_eq!(kind(libc::SYS_close_range), Use::Descriptors);
        assert_eq!(kind(libc::SYS_io_setup), Use::Unserved);
        assert_eq!(kind(libc::SYS_ptrace), Use::Trace);
        assert_eq!((kind(STATMOUNT), kind(454)), (Use::Plain, Use::Plain));
        assert_eq!(kind(100_000), Use::Unserved);
    }
}
