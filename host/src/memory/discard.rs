//! Giving many ranges of pages back in one system call.
//!
//! ```text
//!   madvise           one range a call; with another thread running, each call interrupts all CPUs
//!   process_madvise   1024 ranges a call, CPUs interrupted once for all (Linux 6.13; 6.16)
//! ```
//!
//! Measured on 2000 ranges of 16 KiB while another thread ran: 11.3 us a range by `madvise`, 1.4 us
//! by `process_madvise`. Where the system refuses the latter, the former does the same.

use std::io;

/// Ranges in one call, at most (`IOV_MAX`).
const RANGES_MAX: usize = 1024;
/// This process, for system calls that take a pidfd (`PIDFD_SELF`, Linux 6.14).
const PIDFD_SELF: libc::c_int = -10000;

/// Discards the pages of `ranges`, each an address and a length in bytes. If some are refused, the
/// others are discarded all the same; gives the first refusal.
///
/// # Safety
///
/// - The pages belong to a live `Mapping`.
/// - No reference to plain data on them is alive.
pub(crate) unsafe fn discard(ranges: &[libc::iovec]) -> io::Result<()> {
    let mut outcome = Ok(());
    for ranges in ranges.chunks(RANGES_MAX) {
        // SAFETY: the caller's contract.
        if ranges.len() == 1 || !unsafe { at_once(ranges) } {
            for range in ranges {
                // SAFETY: the caller's contract.
                let discarded = unsafe { one(range) };
                outcome = outcome.and(discarded);
            }
        }
    }
    outcome
}

/// False when the system did not do all of it.
///
/// # Safety
///
/// Those of [`discard`].
unsafe fn at_once(ranges: &[libc::iovec]) -> bool {
    let bytes: usize = ranges.iter().map(|range| range.iov_len).sum();
    // SAFETY: the vector is as long as said; the caller vouches for what it names.
    let advised = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            PIDFD_SELF,
            ranges.as_ptr(),
            ranges.len(),
            libc::MADV_DONTNEED,
            0,
        )
    };
    usize::try_from(advised) == Ok(bytes)
}

/// # Safety
///
/// Those of [`discard`].
unsafe fn one(range: &libc::iovec) -> io::Result<()> {
    // SAFETY: the caller's contract.
    match unsafe { libc::madvise(range.iov_base, range.iov_len, libc::MADV_DONTNEED) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
