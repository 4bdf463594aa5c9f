//! The clock by which the ages of pages are told, the one by which processes compare moments, and
//! that of a thread's own CPU time.
//!
//! Invariant: none runs backwards, and the first counts the time in which the system was
//! suspended.
//! Lock: none.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Seconds since the system started (`CLOCK_BOOTTIME`), including the time in which it was
/// suspended. Takes no lock and allocates nothing. In a model no time passes, because each run of
/// it has to take the same steps.
pub fn boot_seconds() -> u32 {
    if cfg!(loom) {
        return 1;
    }
    u32::try_from(clock_gettime(ClockId::Boottime).tv_sec).unwrap_or(0)
}

/// Nanoseconds of the monotonic clock, which is the same in all processes. Takes no lock and
/// allocates nothing.
pub fn monotonic_ns() -> u64 {
    const SECOND: u64 = 1_000_000_000;
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * SECOND + now.tv_nsec.unsigned_abs() as u64
}

/// The CPU time that the calling thread has used (`CLOCK_THREAD_CPUTIME_ID`), by which a thread in
/// the background keeps within its share.
pub fn thread_cpu() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    // It counts from 0 on, so neither part is negative.
    Duration::new(used.tv_sec.unsigned_abs(), used.tv_nsec.unsigned_abs() as u32)
}

#[cfg(all(test, not(loom)))]
mod tests {
    #[test]
    fn the_clock_is_that_of_the_system() {
        let Ok(text) = std::fs::read_to_string("/proc/uptime") else {
            return println!("skipped: needs /proc");
        };
        let before: f64 = text.split(' ').next().and_then(|it| it.parse().ok()).expect("seconds");
        assert!(f64::from(super::boot_seconds()) + 1.0 >= before, "it does not run behind");
    }

    #[test]
    fn a_thread_that_works_uses_cpu_time() {
        let before = super::thread_cpu();
        let mut sum = 0_u64;
        // It ends because the clock moves while this thread works.
        while super::thread_cpu() == before {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
        assert!(super::thread_cpu() > before);
    }
}
