//! The clock that ages are told by.

use rustix::time::{ClockId, clock_gettime};

/// Seconds since the system started, those it was suspended included. No lock, no allocation.
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
