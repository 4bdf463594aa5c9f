//! The monotonic clock, which is the same for all processes of a machine.
//!
//! A moment told to several processes lets them start together; `Instant` cannot be told.

use rustix::time::{ClockId, clock_gettime};
use std::thread;
use std::time::Duration;

const NS_PER_S: u64 = 1_000_000_000;

/// Nanoseconds since some moment before this machine's start.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * NS_PER_S + now.tv_nsec as u64
}

/// Sleeps until the clock shows `moment_ns`; not at all when that is past.
pub(crate) fn sleep_until(moment_ns: u64) {
    while let Some(left @ 1..) = moment_ns.checked_sub(now_ns()) {
        thread::sleep(Duration::from_nanos(left));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_wakes_early() {
        let moment = now_ns() + 2_000_000;
        sleep_until(moment);
        assert!(now_ns() >= moment);
        sleep_until(0);
    }
}
