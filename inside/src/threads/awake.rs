//! How the server's thread waits for the next fault: awake for a moment, and then asleep.
//!
//! ```text
//!   served, thread woken | looks again and again .. MOMENT | sleeps until the system wakes it
//! ```
//!
//! Threads that wake each other on two CPUs take some thirty microseconds each time in a virtual
//! machine, which is longer than it takes to serve a fault. So while faults come one after the
//! other, and a CPU has nothing else to do, the thread does not sleep between them. It goes to
//! sleep when the pager needs that CPU: a thread that sleeps is woken at once for a fault, and one
//! that is awake waits for its turn.
//!
//! Invariant: the thread stays awake for `MOMENT` at most, and only if most of the last faults came
//! soon. Lock: none.

use std::time::{Duration, Instant};

/// For so long the thread stays awake.
const MOMENT: Duration = Duration::from_micros(100);
/// A fault comes soon if it comes within this time, in which a thread may have to be woken.
const SOON: Duration = Duration::from_micros(200);
/// The latest fault is this part of the average.
const WEIGHT: u32 = 8;
const ALL: u32 = 1 << 16;

/// Whether faults come soon.
#[derive(Debug, Default)]
pub(super) struct Awake {
    /// How many of the last faults came soon, of `ALL`.
    soon: u32,
}

impl Awake {
    /// Waits for the next fault. `poll` says whether there is one, after it has slept until there
    /// may be if it is told so. The thread sleeps as soon as it `may` not stay awake. Gives the
    /// time, which is for `came`: a thread that waits changes nothing that a child inherits.
    pub(super) fn wait(
        &self,
        may: impl Fn() -> bool,
        mut poll: impl FnMut(bool) -> bool,
    ) -> Duration {
        let began = Instant::now();
        if !(self.pays() && stays(began, may, &mut poll)) {
            poll(true);
        }
        began.elapsed()
    }

    /// Whether the next fault is likely to come while the thread stays awake.
    fn pays(&self) -> bool {
        self.soon >= ALL / 2
    }

    /// A fault came after this time.
    pub(super) fn came(&mut self, after: Duration) {
        let came = if after < SOON { ALL } else { 0 };
        self.soon = (self.soon * (WEIGHT - 1) + came) / WEIGHT;
    }
}

/// Stays awake for a moment. Says whether a fault came.
fn stays(began: Instant, may: impl Fn() -> bool, poll: &mut impl FnMut(bool) -> bool) -> bool {
    while may() && began.elapsed() < MOMENT {
        if poll(false) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn it_stays_awake_while_faults_come_one_after_the_other() {
        let mut awake = Awake::default();
        let after = |awake: &mut Awake, times: u32, gap| {
            (0..times).for_each(|_| awake.came(gap));
            awake.pays()
        };
        assert!(!awake.pays(), "none came");
        assert!(!after(&mut awake, 5, MOMENT) && after(&mut awake, 1, MOMENT));
        assert!(after(&mut awake, 30, MOMENT));
        assert!(after(&mut awake, 5, SOON), "five came late");
        assert!(!after(&mut awake, 1, SOON), "the program does something else");
    }

    #[test]
    fn it_sleeps_after_a_moment_or_at_once() {
        let mut polls = Vec::new();
        let wait = |awake: &Awake, may, polls: &mut Vec<bool>| {
            polls.clear();
            awake.wait(
                || may,
                |sleeps| {
                    polls.push(sleeps);
                    false
                },
            );
        };
        let mut awake = Awake { soon: ALL };
        wait(&awake, false, &mut polls);
        assert_eq!(polls, [true]);
        wait(&awake, true, &mut polls);
        let (last, looks) = polls.split_last().expect("it was asked");
        assert!(*last && !looks.is_empty() && !looks.contains(&true), "{}", looks.len());
        awake.soon = 0;
        wait(&awake, true, &mut polls);
        assert_eq!(polls, [true]);
    }

    #[test]
    fn it_sleeps_when_another_thread_needs_the_cpu() {
        let awake = Awake { soon: ALL };
        let (looks, sleeps) = (Cell::new(0), Cell::new(0));
        awake.wait(
            || looks.get() < 3,
            |it_sleeps| {
                let count = if it_sleeps { &sleeps } else { &looks };
                count.set(count.get() + 1);
                false
            },
        );
        assert_eq!((looks.get(), sleeps.get()), (3, 1));
    }

    #[test]
    fn a_fault_that_comes_ends_the_wait() {
        let awake = Awake { soon: ALL };
        let mut looks = 0;
        awake.wait(
            || true,
            |sleeps| {
                assert!(!sleeps, "it came before");
                looks += 1;
                looks == 1
            },
        );
        assert_eq!(looks, 1);
    }
}
