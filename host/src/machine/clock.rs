//! The clock by which the ages of pages are told.
//!
//! Invariant: it never runs backwards, and it counts the time in which the system was suspended.
//! Lock: none.

use rustix::time::{ClockId, clock_gettime};

/// Seconds since the system started (`CLOCK_BOOTTIME`), including the time in which it was
/// suspended. Takes no lock and allocates nothing.
pub fn boot_seconds() -> u32 {
    u32::try_from(clock_gettime(ClockId::Boottime).tv_sec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_clock_is_that_of_the_system() {
        let Ok(text) = std::fs::read_to_string("/proc/uptime") else {
            return println!("skipped: needs /proc");
        };
        let before: f64 = text.split(' ').next().and_then(|it| it.parse().ok()).expect("seconds");
        assert!(f64::from(super::boot_seconds()) + 1.0 >= before, "it does not run behind");
    }
}
