//! The division of labour among the threads of a mount: one of them always listens.
//!
//! ```text
//!            next request          slow?           free thread left besides this one?
//!   listening ----------> has one ------- no ----> answers it, listens on
//!       ^                            `--- yes ---> yes: answers it, then what is put aside
//!       |                                          no:  puts it aside, listens on
//!       '------------------------------------------'
//! ```
//!
//! A *slow* request may wait for data, for a device or for another process. A *quick* one waits
//! only for memory.
//!
//! Invariants
//! - R1. At most `threads - 1` threads are inside slow requests. So a quick request is answered
//!   however long the slow ones take.
//! - R2. A request is put aside only while so many threads are inside slow requests. Each of them
//!   looks for such requests when it is done, so none stays aside.
//! - R3. At most `ASIDE_MAX` requests are put aside. One more is refused.
//!
//! Lock: one, a leaf, around a number and the queue.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most requests that are put aside. The kernel sends as many as the mount's `max_background`
/// for itself, and one for each thread that waits.
pub(crate) const ASIDE_MAX: usize = 4096;

/// The division of labour. `T` is a request with everything that it needs.
#[derive(Debug)]
pub(crate) struct Roles<T> {
    slow_max: usize,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    /// Threads inside slow requests.
    slow: usize,
    aside: VecDeque<T>,
}

/// What to do with a slow request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Answer it, then call [`Roles::next`].
    Answer,
    /// It is put aside. Listen.
    Listen,
    /// Refuse it, and listen.
    Refuse,
}

impl<T> Roles<T> {
    /// The roles of so many threads.
    ///
    /// # Panics
    ///
    /// If there are fewer than two.
    pub(crate) fn new(threads: usize) -> Self {
        assert!(threads >= 2, "one listens while another answers");
        let state = Mutex::new(State { slow: 0, aside: VecDeque::new() });
        Self { slow_max: threads - 1, state }
    }

    /// Decides what a thread does with a slow request. `put` gives what can be put aside. `None`
    /// refuses the request.
    pub(crate) fn begin(&self, put: impl FnOnce() -> Option<T>) -> Part {
        let mut state = self.state();
        if state.slow < self.slow_max {
            state.slow += 1;
            return Part::Answer;
        }
        if state.aside.len() >= ASIDE_MAX {
            return Part::Refuse;
        }
        let Some(request) = put() else { return Part::Refuse };
        state.aside.push_back(request);
        Part::Listen
    }

    /// Called after a slow request: the next one that the thread answers. With `None` it listens.
    pub(crate) fn next(&self) -> Option<T> {
        let mut state = self.state();
        let next = state.aside.pop_front();
        if next.is_none() {
            state.slow -= 1;
        }
        next
    }

    /// Poison is ignored, because whole values are moved under the lock.
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The twin is a plain count of threads and a list, moved as the drawing says.
        #[test]
        fn one_thread_always_listens(
            threads in 2..6_usize,
            steps in prop::collection::vec(any::<bool>(), 0..200),
        ) {
            let roles = Roles::new(threads);
            let (mut answering, mut aside, mut sent, mut taken) = (0, 0, 0_u32, Vec::new());
            for arrives in steps {
                if arrives {
                    prop_assert!(answering < threads, "a thread listens");
                    let (number, part) = (sent, roles.begin(|| Some(sent)));
                    sent += 1;
                    if answering + 1 < threads {
                        prop_assert_eq!(part, Part::Answer);
                        answering += 1;
                        taken.push(number);
                    } else {
                        prop_assert_eq!(part, Part::Listen);
                        aside += 1;
                    }
                } else if answering > 0 {
                    match roles.next() {
                        Some(number) => {
                            aside -= 1;
                            taken.push(number);
                        }
                        None => answering -= 1,
                    }
                    prop_assert!(aside == 0 || answering == threads - 1, "nothing stays aside");
                }
            }
            while answering > 0 {
                match roles.next() {
                    Some(number) => taken.push(number),
                    None => answering -= 1,
                }
            }
            prop_assert_eq!(taken, (0..sent).collect::<Vec<_>>(), "each once, in order");
        }
    }

    #[test]
    fn one_more_than_can_be_put_aside_is_refused() {
        let roles = Roles::new(2);
        assert_eq!(roles.begin(|| Some(0)), Part::Answer);
        assert_eq!(roles.begin(|| None), Part::Refuse, "there is no memory to put it in");
        for number in 0..ASIDE_MAX {
            assert_eq!(roles.begin(|| Some(number)), Part::Listen);
        }
        assert_eq!(roles.begin(|| Some(0)), Part::Refuse);
        assert_eq!(roles.next(), Some(0));
        assert_eq!(roles.begin(|| Some(0)), Part::Listen, "there is room again");
    }
}
