//! How much of a limit is left when a process begins to fold.
//!
//! Invariant: `limit_for` is the inverse of `reserve`. Lock: none.

/// How fast a CPU touches memory, in bytes for each millisecond, and how many CPUs do so at once.
const TOUCH_SPEED: u64 = 8 << 20; // 8 MiB
const TOUCHING_MAX: usize = 8;
/// The longest that a pager sleeps, in milliseconds.
pub const SLEEP_MAX: u64 = 50;
/// A process begins to fold when a 32nd of the limit is left, or more: so much as CPUs touch until
/// its pager looks again, but an eighth at most.
const RESERVE_PART: u64 = 32;
pub(super) const RESERVE_PART_MAX: u64 = 8;

const MIB: u64 = 1 << 20;

/// Bytes that programs touch in a millisecond, on a machine with so many CPUs.
pub(super) fn speed(cpus: usize) -> u64 {
    TOUCH_SPEED * cpus.clamp(1, TOUCHING_MAX) as u64
}

/// CPUs that touch so much in a millisecond, at most `TOUCHING_MAX`.
pub(super) fn cpus(speed: u64) -> usize {
    (speed / TOUCH_SPEED) as usize
}

/// Bytes of a limit that are left when a process begins to fold, if so many are touched in a
/// millisecond.
pub(super) fn reserve(limit: u64, speed: u64) -> u64 {
    (limit / RESERVE_PART).max(speed).min(limit / RESERVE_PART_MAX)
}

/// The smallest limit, in whole MiB, with which a process that has `used` bytes does not fold, on a
/// machine with so many CPUs. `u64::MAX` if it would be larger.
pub fn limit_for(used: u64, cpus: usize) -> u64 {
    // The least limits for the three terms of `reserve`, which it joins in the same way.
    let by_part = |part: u64| used.saturating_add(used / (part - 1)).saturating_add(2);
    let touched = used.saturating_add(speed(cpus)).saturating_add(1);
    let least = by_part(RESERVE_PART).max(touched).min(by_part(RESERVE_PART_MAX));
    least.checked_next_multiple_of(MIB).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_cpus_touch_in_a_moment_is_left_when_a_process_begins_to_fold() {
        let rows = [(64, 2, 8), (128, 2, 16), (500, 2, 16), (1024, 2, 32), (1024, 1, 32)];
        let many = [(1024, 8, 64), (1024, 64, 64), (1 << 20, 64, 1 << 15)];
        for (limit, cpus, left) in rows.into_iter().chain(many) {
            assert_eq!(reserve(limit * MIB, speed(cpus)), left * MIB, "{limit} MiB, {cpus} CPUs");
        }
    }

    #[test]
    fn the_limit_for_a_process_is_the_smallest_with_which_it_does_not_fold() {
        let folds = |used, limit: u64, cpus| used >= limit - reserve(limit, speed(cpus));
        for used in [0, 1, MIB, 7 * MIB, 7 * MIB + 1, 200 * MIB, 511 * MIB, 1 << 40] {
            for cpus in [1, 2, 64] {
                let limit = limit_for(used, cpus);
                assert!(limit.is_multiple_of(MIB) && !folds(used, limit, cpus), "{used}: {limit}");
                assert!(folds(used, limit - MIB, cpus), "{used}: {limit} is not the smallest");
            }
        }
        assert_eq!(limit_for(u64::MAX, 2), u64::MAX);
    }
}
