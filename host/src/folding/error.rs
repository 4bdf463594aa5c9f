//! How faults are served, and why a userfaultfd or a range of it is refused.
//!
//! ```text
//!   the system lacks it        Unsupported              use a newer kernel
//!   the system denies it       Denied, Unforced,        give a right, or use another mode
//!                              Unguarded, NoWay
//!   a resource has run out     Exhausted, Mappings      raise the limit
//!   this crate has run out     TooManyRegions           make fewer regions
//!   the process was forked     Inherited                open another descriptor
//!   address space is refused   Host                     see its message
//!   a request failed           Refused                  see the answer of the system
//! ```
//!
//! Invariant: each message says what a user can do. Lock: none.

use crate::memory::HostError;
use rustix::io::Errno;
use std::fmt;
use std::io;

/// The way in which a page that is missing comes in when the program touches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FaultMode {
    /// The thread that touched the page brings it in itself, in a signal handler. This is the
    /// fastest way and needs no privilege. A system call that touches such a page fails with
    /// `EFAULT`.
    #[default]
    Signal,
    /// A thread of ours brings the page in. System calls may touch missing pages too. This needs a
    /// privilege: [`FaultError::Denied`] says which.
    Thread,
    /// The thread that touched the page brings it in itself, in a signal handler. No userfaultfd is
    /// needed: pages that are out are closed by `mprotect`, so each range of them takes one of the
    /// mappings that a process may have. A system call that touches such a page fails with
    /// `EFAULT`.
    Protection,
    /// As [`FaultMode::Protection`], faster, and without mappings: pages that are out have guards,
    /// which a page table keeps. The memory is a file that no other process maps. A forked child
    /// does not have it, as with [`FaultMode::Signal`]. It needs Linux 6.15. The program must not
    /// lower its `RLIMIT_FSIZE` afterwards, because the system counts the bytes of such a file.
    /// A page that was only read takes memory, because a file has no page of zeros in common.
    Guards,
}

impl FaultMode {
    /// Every mode.
    pub const ALL: [FaultMode; 4] =
        [FaultMode::Signal, FaultMode::Thread, FaultMode::Protection, FaultMode::Guards];

    /// The name of the signal that a touch of a missing page is. In [`FaultMode::Thread`] it is one
    /// only if the thread that serves cannot be told.
    pub fn signal_name(self) -> &'static str {
        self.signal().name()
    }

    /// The signal that a touch of a missing page is, if it is one.
    pub(crate) fn signal(self) -> Signal {
        match self {
            FaultMode::Signal | FaultMode::Thread => Signal::Bus,
            FaultMode::Protection | FaultMode::Guards => Signal::Segv,
        }
    }
}

/// The signals that a touch of a missing page may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Bus,
    Segv,
}

impl Signal {
    /// Its number.
    pub(crate) const fn number(self) -> libc::c_int {
        match self {
            Signal::Bus => libc::SIGBUS,
            Signal::Segv => libc::SIGSEGV,
        }
    }

    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Signal::Bus => "SIGBUS",
            Signal::Segv => "SIGSEGV",
        }
    }
}

/// Why the system or this crate refused a userfaultfd or a region, in words for the person who can
/// change that.
#[derive(Debug)]
#[non_exhaustive]
pub enum FaultError {
    /// The system lacks the call, or the part of it that `missing` names.
    Unsupported {
        /// What is missing.
        missing: &'static str,
    },
    /// The system has userfaultfd and denies it to this process.
    Denied {
        /// The mode that was asked for.
        mode: FaultMode,
        /// The last answer of the system.
        source: io::Error,
    },
    /// The system has too little of something that each way needs.
    Exhausted {
        /// What there is too little of, and how to get more.
        remedy: &'static str,
        /// The answer of the system.
        source: io::Error,
    },
    /// The system refused a request that it should not refuse.
    Refused {
        /// The request.
        request: &'static str,
        /// The answer of the system.
        source: io::Error,
    },
    /// The system does not let a process write to its own closed pages through `/proc/self/mem`.
    Unforced {
        /// The answer of the system.
        source: io::Error,
    },
    /// The system does not let a process put guards into a file of memory.
    Unguarded {
        /// The answer of the system.
        source: io::Error,
    },
    /// The system refuses all ways.
    NoWay {
        /// Why, for each way that was tried.
        refusals: Vec<FaultError>,
    },
    /// The descriptor belongs to the process that forked this one, and would change the memory of
    /// that process.
    Inherited,
    /// Address space could not be reserved.
    Host(HostError),
    /// The table of regions that the signal handler looks in is full.
    TooManyRegions {
        /// Regions that a process can have.
        max: usize,
    },
    /// The process has no mapping left for the pages that should be registered.
    Mappings {
        /// Mappings that the system allows a process.
        max: u64,
    },
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultError::Unsupported { missing } => {
                write!(f, "this system has no {missing}, which is in Linux 6.8 and newer")
            }
            FaultError::Denied { mode: FaultMode::Thread, source } => write!(
                f,
                "userfaultfd for faults in system calls is refused: {source} (give the user read \
                 and write access to /dev/userfaultfd, set vm.unprivileged_userfaultfd=1, or grant \
                 CAP_SYS_PTRACE; signal mode needs none of these)"
            ),
            FaultError::Denied { source, .. } => write!(
                f,
                "userfaultfd is refused even for user mode: {source} (a seccomp filter, as \
                 container runtimes set, has to allow the call)"
            ),
            FaultError::Exhausted { remedy, source } => {
                write!(f, "memory cannot be folded: {source} ({remedy})")
            }
            FaultError::Refused { request, source } => write!(f, "{request} failed: {source}"),
            FaultError::Unforced { source } => write!(
                f,
                "folded memory without userfaultfd needs /proc/self/mem, by which a process \
                 writes to its own closed pages, and the system refuses that: {source} (mount \
                 /proc, and leave the kernel's option proc_mem.force_override at `always`)"
            ),
            FaultError::Unguarded { source } => write!(
                f,
                "folded memory by guards needs Linux 6.15 and a file of memory, which is refused: \
                 {source}"
            ),
            FaultError::NoWay { refusals } => {
                f.write_str("pages can leave in no way")?;
                refusals.iter().try_for_each(|refusal| write!(f, "; {refusal}"))
            }
            FaultError::Inherited => {
                f.write_str("the pager is the parent process's: after a fork, make another one")
            }
            FaultError::Host(error) => error.fmt(f),
            FaultError::TooManyRegions { max } => {
                write!(f, "there are {max} regions already, the most a process can have")
            }
            FaultError::Mappings { max } => write!(
                f,
                "memory cannot be watched: the process has all the {max} mappings that \
                 vm.max_map_count allows it, or the system has no memory; raise it, by \
                 `sysctl vm.max_map_count={}`",
                max.saturating_mul(4)
            ),
        }
    }
}

impl std::error::Error for FaultError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            FaultError::Denied { source, .. }
            | FaultError::Exhausted { source, .. }
            | FaultError::Refused { source, .. }
            | FaultError::Unforced { source }
            | FaultError::Unguarded { source } => Some(source),
            FaultError::NoWay { refusals } => refusals.first().map(|refusal| refusal as _),
            FaultError::Host(error) => Some(error),
            _ => None,
        }
    }
}

impl FaultError {
    /// Whether the system refuses this way, so that another one may do.
    pub(super) fn is_of_a_way(&self) -> bool {
        matches!(
            self,
            FaultError::Unsupported { .. }
                | FaultError::Denied { .. }
                | FaultError::Unforced { .. }
                | FaultError::Unguarded { .. }
        )
    }
}

impl From<HostError> for FaultError {
    fn from(error: HostError) -> FaultError {
        FaultError::Host(error)
    }
}

/// The error of a request that the system should not have refused.
pub(super) fn refused(request: &'static str) -> impl FnOnce(Errno) -> FaultError {
    move |error| FaultError::Refused { request, source: error.into() }
}

/// The error for an answer that means that a resource has run out; `None` for other answers.
pub(super) fn exhausted(error: Errno) -> Option<FaultError> {
    let remedy = match error {
        Errno::MFILE => {
            "the process has as many descriptors as RLIMIT_NOFILE allows: close some, \
                         or raise it, by `ulimit -n` for example"
        }
        Errno::NFILE => "the system has as many open files as it may: raise the sysctl fs.file-max",
        Errno::NOMEM => "the system has no memory for it, or the memory cgroup has none",
        _ => return None,
    };
    Some(FaultError::Exhausted { remedy, source: error.into() })
}

/// Makes the error of a way of `refused`, unless a resource has run out.
pub(super) fn unless_exhausted(
    refused: impl Fn(io::Error) -> FaultError,
) -> impl Fn(io::Error) -> FaultError {
    move |source| match Errno::from_io_error(&source).and_then(exhausted) {
        Some(exhausted) => exhausted,
        None => refused(source),
    }
}
