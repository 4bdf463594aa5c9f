//! On which CPU a thread runs, as a hint, and how many CPUs there are.
//!
//! A thread may be moved the moment after it asked. The answer therefore picks the shard that is
//! tried first, and never stands for a lock.
//!
//! Invariant: a hint is only ever used modulo a number of shards. Lock: none.

#[cfg(not(any(loom, shuttle)))]
use std::cell::Cell;
#[cfg(not(any(loom, shuttle)))]
use std::sync::atomic::{AtomicUsize, Ordering};

/// The CPU on which this thread ran a moment ago. Take it modulo the number of shards.
#[cfg(not(any(loom, shuttle, miri)))]
#[inline]
pub fn current_hint() -> usize {
    rustix::thread::sched_getcpu()
}

/// Under loom and Miri every thread runs on the first CPU, which is the worst case for shards.
#[cfg(any(loom, miri))]
pub fn current_hint() -> usize {
    0
}

/// Under shuttle every thread has a CPU of its own.
#[cfg(shuttle)]
pub fn current_hint() -> usize {
    shuttle::thread::current().id().into()
}

/// A number of this thread. Threads are numbered in the order in which they first ask. So two
/// threads have the same number modulo `n` only if at least `n - 1` others first asked between
/// them.
#[cfg(not(any(loom, shuttle)))]
#[inline]
pub fn thread_hint() -> usize {
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(0) };
    }
    match NUMBER.get() {
        0 => {
            static NUMBERS: AtomicUsize = AtomicUsize::new(1);
            // relaxed: only uniqueness matters.
            NUMBER.set(NUMBERS.fetch_add(1, Ordering::Relaxed));
            NUMBER.get()
        }
        number => number,
    }
}

/// The same as [`current_hint`]: under loom the worst case, under shuttle a number for each thread.
#[cfg(any(loom, shuttle))]
pub fn thread_hint() -> usize {
    current_hint()
}

/// CPUs that this process may use at once, at least one. Its affinity and the quota of its control
/// group count.
pub fn count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// CPUs that the system may ever have, at least one. `None` if it does not say.
pub fn possible() -> Option<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
    count_ranges(text.trim())
}

/// How many numbers are in a list of ranges, such as `0-3,8`.
fn count_ranges(text: &str) -> Option<usize> {
    text.split(',').try_fold(0, |sum: usize, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some(sum + last.checked_sub(first)? + 1)
    })
}

/// The numbers of the CPUs that this thread may run on. Empty if the system does not say.
#[cfg(not(miri))]
pub fn allowed() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None);
    let set = set.unwrap_or_default();
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Does `work` on one CPU, and lets this thread go where it might before.
///
/// # Errors
///
/// The system's, if this thread may not run there. Then `work` is not done.
pub fn run_on<R>(cpu: usize, work: impl FnOnce() -> R) -> std::io::Result<R> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    if cpu >= CpuSet::MAX_CPU {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    let before = sched_getaffinity(None)?;
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only)?;
    let done = work();
    // The system had this set, so it takes it back, unless nothing of it is allowed any more.
    let _ = sched_setaffinity(None, &before);
    Ok(done)
}

/// Makes this thread never take the CPU from the thread that wakes it (`SCHED_BATCH`). It is meant
/// for threads that are woken on fast paths of others. If the system refuses, nothing changes.
pub fn let_wakers_finish() {
    let parameters = scheduling(0);
    // SAFETY: the call changes this thread alone, and reads the parameters before it returns.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
}

/// Parameters of a scheduling policy. The C library of musl has more fields than the system knows.
pub(crate) fn scheduling(priority: libc::c_int) -> libc::sched_param {
    // SAFETY: it is a structure of integers, which may all be zero.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority;
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_be_asked_to_stand_back() {
        let policy = std::thread::spawn(|| {
            let_wakers_finish();
            // SAFETY: asks about this thread.
            unsafe { libc::sched_getscheduler(0) }
        });
        assert_eq!(policy.join().expect("it asks only"), libc::SCHED_BATCH);
    }

    #[test]
    fn work_is_done_on_one_cpu_and_the_thread_goes_where_it_might() {
        let before = allowed();
        for &cpu in &before {
            assert_eq!(
                run_on(cpu, || (allowed(), current_hint())).expect("it may"),
                (vec![cpu], cpu)
            );
        }
        let forbidden = (0..usize::MAX).find(|cpu| !before.contains(cpu)).expect("one at least");
        assert!(run_on(forbidden, || unreachable!("no such CPU")).is_err());
        assert!(run_on(usize::MAX, || unreachable!("no such number")).is_err());
        assert_eq!(allowed(), before);
    }

    #[test]
    fn ranges_are_counted() {
        assert_eq!(count_ranges("0"), Some(1));
        assert_eq!(count_ranges("0-3,8,10-11"), Some(7));
        assert!(["", "a", "3-1", "1-"].iter().all(|text| count_ranges(text).is_none()));
    }

    #[test]
    fn there_is_a_cpu_and_it_is_not_absurd() {
        assert!(count() >= 1);
        assert!(current_hint() < 1 << 16, "a CPU number of {}", current_hint());
    }

    #[test]
    fn a_thread_keeps_its_number() {
        let other = std::thread::spawn(thread_hint).join().expect("it asks only");
        assert_eq!(thread_hint(), thread_hint());
        assert_ne!(thread_hint(), other);
    }
}
