//! Where this thread runs, as a hint, and how many places there are.
//!
//! A thread may be moved the moment after it asked, so the answer picks a shard to try first; it
//! never stands for a lock.

/// The CPU this thread ran on a moment ago; any number, to be taken modulo the number of shards.
#[cfg(not(any(loom, shuttle, miri)))]
#[inline]
pub fn current_hint() -> usize {
    rustix::thread::sched_getcpu()
}

/// Under loom and Miri every thread runs on the first CPU: the worst case for shards.
#[cfg(any(loom, miri))]
pub fn current_hint() -> usize {
    0
}

/// Under shuttle every thread has a CPU of its own.
#[cfg(shuttle)]
pub fn current_hint() -> usize {
    shuttle::thread::current().id().into()
}

/// CPUs this process may use at once (its affinity and its cgroup's quota counted), at least one.
pub fn count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_cpu_and_it_is_not_absurd() {
        assert!(count() >= 1);
        assert!(current_hint() < 1 << 16, "a CPU number of {}", current_hint());
    }
}
