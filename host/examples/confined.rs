//! Runs a command as a strict container would: as the user 65534, without capabilities and new
//! privileges, and under a filter of system calls.
//!
//! ```text
//!   confined COMMAND ARG...
//!     EPERM     userfaultfd, process_madvise, ptrace, bpf, perf_event_open, unshare, setns, mount,
//!               io_uring_setup, io_uring_enter, io_uring_register
//!     ENOSYS    clone3
//! ```
//!
//! Invariant: the command starts only after every right is given up and userfaultfd is refused.
//! What the filter denies stays denied in each process that the command starts.
//!
//! The tests of regions run under it once more. If userfaultfd is not refused, it says so and does
//! not start the command.

use std::ffi::OsStr;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

const NOBODY: libc::uid_t = 65534;

const DENIED: [libc::c_long; 11] = [
    libc::SYS_userfaultfd,
    libc::SYS_process_madvise,
    libc::SYS_ptrace,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let Some((command, arguments)) = words.split_first() else {
        eprintln!("usage: confined COMMAND ARG...");
        return ExitCode::from(2);
    };
    if let Err(error) = confine(command) {
        eprintln!("confined: {error}");
        return ExitCode::FAILURE;
    }
    let error = Command::new(command).args(arguments).exec();
    eprintln!("confined: cannot run {}: {error}", command.display());
    ExitCode::from(127)
}

/// Gives everything up, and checks that userfaultfd is refused.
fn confine(command: &OsStr) -> Result<()> {
    // SAFETY: asks only.
    if unsafe { libc::geteuid() } == 0 {
        become_nobody(command)?;
    }
    // SAFETY: it changes rights of this process, and no memory.
    let given_up = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    answer("no_new_privs", given_up)?;
    filter()?;
    // SAFETY: opens a descriptor, or does not.
    let opened = unsafe { libc::syscall(libc::SYS_userfaultfd, 1) };
    let refused = opened < 0 && Error::last_os_error().raw_os_error() == Some(libc::EPERM);
    if refused { Ok(()) } else { Err(Error::new(ErrorKind::Unsupported, "userfaultfd is allowed")) }
}

/// Becomes another user, unless that user cannot reach the command, as in a directory of root's.
fn become_nobody(command: &OsStr) -> Result<()> {
    // SAFETY: these calls change rights of this process, and no memory.
    unsafe { answer("seteuid", libc::seteuid(NOBODY))? };
    let reached = std::fs::File::open(command);
    // SAFETY: as above.
    unsafe { answer("seteuid", libc::seteuid(0))? };
    // A command that is not found is looked for in the directories of PATH.
    if let Err(error) = reached
        && error.kind() != ErrorKind::NotFound
    {
        eprintln!("confined: user {NOBODY} cannot reach {}: {error}", command.display());
        return Ok(());
    }
    // SAFETY: as above.
    unsafe {
        answer("setgroups", libc::setgroups(0, std::ptr::null()))?;
        answer("setgid", libc::setresgid(NOBODY, NOBODY, NOBODY))?;
        answer("setuid", libc::setresuid(NOBODY, NOBODY, NOBODY))
    }
}

/// Loads the filter for this process and all that it starts.
fn filter() -> Result<()> {
    // The number of the system call is the first word that a filter may read.
    let mut program = vec![instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for number in DENIED {
        program.extend(answers(number, libc::EPERM));
    }
    program.extend(answers(libc::SYS_clone3, libc::ENOSYS));
    program.push(instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program lives until the call returns, and has the length that it says.
    answer("seccomp", unsafe {
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter)
    })
}

/// Answers a system call by an error.
fn answers(number: libc::c_long, error: libc::c_int) -> [libc::sock_filter; 2] {
    let compare = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let errno = libc::SECCOMP_RET_ERRNO | error as u32;
    [instruction(compare, 1, number as u32), instruction(libc::BPF_RET | libc::BPF_K, 0, errno)]
}

/// One instruction. If it compares and finds a difference, the next `skipped` ones are left out.
fn instruction(code: u32, skipped: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: skipped, k }
}

fn answer(what: &str, returned: libc::c_int) -> Result<()> {
    let named = |error: Error| Error::new(error.kind(), format!("{what}: {error}"));
    if returned == 0 { Ok(()) } else { Err(named(Error::last_os_error())) }
}
