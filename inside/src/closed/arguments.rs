//! Which arguments of a system call are addresses.
//!
//! A call has fewer arguments than there are registers for them, and some arguments are numbers. So
//! any value may be in the others. One that does occur is the time stamp counter of the processor,
//! which the loader of programs leaves in a register. For seven minutes, some hours after a machine
//! has started, it is as large as an address of the arena.
//!
//! Source: how the kernel's trace events of system calls declare their fields
//! (`events/syscalls/sys_enter_*/format`), and the manual pages for what is declared as a number
//! and may be an address.
//!
//! Invariant: an argument that may be an address is in the table. Lock: none.

use libc::c_long;

/// Bits of the six arguments.
const ALL: u8 = 0b11_1111;

/// Pairs the bits of arguments with calls.
macro_rules! rows {
    ($($arguments:literal: $($call:ident)*;)*) => { &[$(($arguments, &[$(libc::$call),*])),*] };
}

/// Arguments that are addresses, as bits from the first on, and the calls that have them there.
const ADDRESSES: &[(u8, &[c_long])] = rows! {
    0b000000:
        SYS_close SYS_lseek SYS_rt_sigreturn SYS_sched_yield SYS_shmget SYS_dup SYS_dup2
        SYS_pause SYS_alarm SYS_getpid SYS_socket SYS_shutdown SYS_listen SYS_exit SYS_kill
        SYS_semget SYS_msgget SYS_flock SYS_fsync SYS_fdatasync SYS_ftruncate SYS_fchdir
        SYS_fchmod SYS_fchown SYS_umask SYS_getuid SYS_getgid SYS_setuid SYS_setgid SYS_geteuid
        SYS_getegid SYS_setpgid SYS_getppid SYS_getpgrp SYS_setsid SYS_setreuid SYS_setregid
        SYS_setresuid SYS_setresgid SYS_getpgid SYS_setfsuid SYS_setfsgid SYS_getsid
        SYS_personality SYS_getpriority SYS_setpriority SYS_sched_getscheduler
        SYS_sched_get_priority_max SYS_sched_get_priority_min SYS_mlockall SYS_munlockall
        SYS_vhangup SYS_sync SYS_iopl SYS_ioperm SYS_gettid SYS_readahead SYS_tkill
        SYS_io_destroy SYS_epoll_create SYS_restart_syscall SYS_fadvise64 SYS_timer_getoverrun
        SYS_timer_delete SYS_exit_group SYS_tgkill SYS_ioprio_set SYS_ioprio_get
        SYS_inotify_init SYS_inotify_rm_watch SYS_unshare SYS_tee SYS_sync_file_range
        SYS_timerfd_create SYS_eventfd SYS_fallocate SYS_eventfd2 SYS_epoll_create1 SYS_dup3
        SYS_inotify_init1 SYS_fanotify_init SYS_syncfs SYS_setns SYS_userfaultfd
        SYS_membarrier SYS_pkey_alloc SYS_pkey_free SYS_fsmount SYS_pidfd_open SYS_close_range
        SYS_pidfd_getfd SYS_landlock_restrict_self SYS_memfd_secret SYS_process_mrelease;
    0b000001:
        SYS_open SYS_poll SYS_mmap SYS_mprotect SYS_munmap SYS_brk SYS_access SYS_pipe SYS_msync
        SYS_madvise SYS_uname SYS_shmdt SYS_truncate SYS_getcwd SYS_chdir SYS_mkdir SYS_rmdir
        SYS_creat SYS_unlink SYS_chmod SYS_chown SYS_lchown SYS_sysinfo SYS_times
        SYS_rt_sigpending SYS_rt_sigsuspend SYS_mknod SYS_mlock SYS_munlock SYS_adjtimex
        SYS_chroot SYS_acct SYS_umount2 SYS_swapon SYS_swapoff SYS_sethostname SYS_setdomainname
        SYS_delete_module SYS_time SYS_set_thread_area SYS_get_thread_area SYS_remap_file_pages
        SYS_set_tid_address SYS_mq_unlink SYS_set_robust_list SYS_pipe2 SYS_perf_event_open
        SYS_getrandom SYS_memfd_create SYS_mlock2 SYS_pkey_mprotect SYS_rseq SYS_fsopen
        SYS_landlock_create_ruleset SYS_set_mempolicy_home_node;
    0b000010:
        SYS_read SYS_write SYS_fstat SYS_pread64 SYS_pwrite64 SYS_readv SYS_writev SYS_shmat
        SYS_getitimer SYS_connect SYS_sendmsg SYS_recvmsg SYS_bind SYS_semop SYS_msgsnd
        SYS_msgrcv SYS_getdents SYS_getrlimit SYS_getrusage SYS_syslog SYS_getgroups
        SYS_setgroups SYS_ustat SYS_fstatfs SYS_sched_setparam SYS_sched_getparam
        SYS_sched_rr_get_interval SYS_modify_ldt SYS_arch_prctl SYS_setrlimit SYS_flistxattr
        SYS_fremovexattr SYS_io_setup SYS_lookup_dcookie SYS_getdents64 SYS_timer_gettime
        SYS_clock_settime SYS_clock_gettime SYS_clock_getres SYS_epoll_wait SYS_set_mempolicy
        SYS_mq_notify SYS_inotify_add_watch SYS_openat SYS_mkdirat SYS_mknodat SYS_fchownat
        SYS_unlinkat SYS_fchmodat SYS_faccessat SYS_vmsplice SYS_signalfd SYS_timerfd_gettime
        SYS_signalfd4 SYS_preadv SYS_pwritev SYS_open_by_handle_at SYS_clock_adjtime
        SYS_sendmmsg SYS_finit_module SYS_sched_setattr SYS_sched_getattr SYS_bpf SYS_preadv2
        SYS_pwritev2 SYS_io_uring_setup SYS_open_tree SYS_fspick SYS_faccessat2
        SYS_process_madvise;
    0b000011:
        SYS_stat SYS_lstat SYS_nanosleep SYS_rename SYS_link SYS_symlink SYS_readlink
        SYS_gettimeofday SYS_capget SYS_capset SYS_sigaltstack SYS_utime SYS_statfs
        SYS_pivot_root SYS_settimeofday SYS_listxattr SYS_llistxattr SYS_removexattr
        SYS_lremovexattr SYS_utimes;
    0b000100:
        SYS_ioctl SYS_shmctl SYS_sendfile SYS_msgctl SYS_fcntl SYS_rt_sigqueueinfo
        SYS_sched_setscheduler SYS_sched_setaffinity SYS_sched_getaffinity SYS_io_submit
        SYS_kexec_load SYS_seccomp SYS_pidfd_send_signal SYS_io_uring_register
        SYS_landlock_add_rule;
    0b000101:
        SYS_mincore SYS_init_module SYS_symlinkat;
    0b000110:
        SYS_rt_sigaction SYS_rt_sigprocmask SYS_setitimer SYS_accept SYS_getsockname
        SYS_getpeername SYS_sysfs SYS_fsetxattr SYS_fgetxattr SYS_io_cancel SYS_timer_create
        SYS_mq_getsetattr SYS_futimesat SYS_newfstatat SYS_readlinkat SYS_get_robust_list
        SYS_utimensat SYS_accept4 SYS_openat2;
    0b000111:
        SYS_execve SYS_getresuid SYS_getresgid SYS_rt_sigtimedwait SYS_setxattr SYS_lsetxattr
        SYS_getxattr SYS_lgetxattr SYS_add_key SYS_request_key SYS_getcpu;
    0b001000:
        SYS_socketpair SYS_setsockopt SYS_semctl SYS_reboot SYS_epoll_ctl SYS_rt_tgsigqueueinfo
        SYS_kexec_file_load SYS_quotactl_fd;
    0b001001:
        SYS_mbind SYS_mq_open SYS_futex_waitv;
    0b001010:
        SYS_wait4 SYS_quotactl SYS_semtimedop SYS_renameat SYS_linkat SYS_splice
        SYS_process_vm_readv SYS_process_vm_writev SYS_renameat2 SYS_copy_file_range
        SYS_move_mount SYS_mount_setattr;
    0b001011:
        SYS_get_mempolicy;
    0b001100:
        SYS_ptrace SYS_timer_settime SYS_clock_nanosleep SYS_migrate_pages SYS_timerfd_settime
        SYS_prlimit64 SYS_fsconfig;
    0b001101:
        SYS_ppoll;
    0b001110:
        SYS_name_to_handle_at SYS_execveat;
    0b010000:
        SYS_fanotify_mark SYS_io_uring_enter;
    0b010001:
        SYS_mremap;
    0b010010:
        SYS_sendto SYS_mq_timedsend SYS_epoll_pwait SYS_recvmmsg SYS_statx;
    0b010100:
        SYS_waitid;
    0b010111:
        SYS_mount;
    0b011000:
        SYS_getsockopt SYS_io_getevents;
    0b011001:
        SYS_futex;
    0b011010:
        SYS_mq_timedreceive SYS_epoll_pwait2;
    0b011100:
        SYS_move_pages;
    0b011110:
        SYS_select SYS_prctl SYS_keyctl;
    0b110010:
        SYS_recvfrom;
    0b111110:
        SYS_pselect6;
};

/// More of them, as numbers where the library has no name.
const MORE: &[(u8, &[c_long])] = &[
    // Children. Of clone, the stack: what else is behind addresses may be of another memory.
    (0b00_0000, &[libc::SYS_fork, libc::SYS_vfork, libc::SYS_clone3]),
    (0b00_0010, &[libc::SYS_clone]),
    // uretprobe and uprobe, which come in the middle of any code.
    (0b00_0000, &[335, 336]),
    // kcmp, io_pgetevents.
    (0b01_0000, &[libc::SYS_kcmp]),
    (0b11_1000, &[333]),
    // cachestat, fchmodat2, map_shadow_stack, futex_wake, futex_wait, futex_requeue.
    (0b00_0110, &[451]),
    (0b00_0010, &[libc::SYS_fchmodat2]),
    (0b00_0001, &[453, 454, 456]),
    (0b01_0001, &[455]),
    // statmount, listmount, lsm_get_self_attr, lsm_set_self_attr, lsm_list_modules, mseal.
    (0b00_0011, &[457, 458, 461]),
    (0b00_0110, &[459]),
    (0b00_0010, &[460]),
    (0b00_0001, &[libc::SYS_mseal]),
];

/// Calls have smaller numbers, as far as they are known.
pub(super) const KNOWN: usize = 512;

static TABLE: [u8; KNOWN] = table();

const fn table() -> [u8; KNOWN] {
    with(with([ALL; KNOWN], ADDRESSES), MORE)
}

const fn with(mut table: [u8; KNOWN], rows: &[(u8, &[c_long])]) -> [u8; KNOWN] {
    let mut row = 0;
    while row < rows.len() {
        let (arguments, calls) = rows[row];
        let mut call = 0;
        while call < calls.len() {
            assert!(table[calls[call] as usize] == ALL, "a call is there once");
            table[calls[call] as usize] = arguments;
            call += 1;
        }
        row += 1;
    }
    table
}

/// The arguments of a call that are addresses, as bits from the first on. All of them, if nobody
/// knows the call.
pub(super) fn addresses(number: c_long) -> u8 {
    let known = usize::try_from(number).ok().and_then(|number| TABLE.get(number));
    known.copied().unwrap_or(ALL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_known_by_the_call() {
        let rows = [
            (libc::SYS_read, 0b10),
            (libc::SYS_close, 0),
            (libc::SYS_mremap, 0b1_0001),
            (libc::SYS_lseek, 0),
            (libc::SYS_futex, 0b1_1001),
            (libc::SYS_vfork, 0),
            (9999, ALL),
            (-1, ALL),
        ];
        for (number, expected) in rows {
            assert_eq!(addresses(number), expected, "{number}");
        }
    }
}
