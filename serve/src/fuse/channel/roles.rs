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

use host::Rank;
use host::unmodelled::RankedMutex;
use std::collections::VecDeque;

/// The most requests that are put aside. The kernel sends as many as the mount's `max_background`
/// for itself, and one for each thread that waits.
pub(crate) const ASIDE_MAX: usize = 4096;

/// The division of labour. `T` is a request with everything that it needs.
#[derive(Debug)]
pub(crate) struct Roles<T> {
    slow_max: usize,
    state: RankedMutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    /// Threads inside slow requests.
    slow: usize,
    aside: VecDeque<T>,
}

/// What to do with a slow request that was to be put aside.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part<T> {
    /// Another thread has become free. Answer the request, then call [`Roles::next`].
    Answer(T),
    /// It is put aside. Listen.
    Listen,
    /// Refuse it, and listen.
    Refuse(T),
}

impl<T> Roles<T> {
    /// The roles of so many threads.
    ///
    /// # Panics
    ///
    /// If there are fewer than two.
    pub(crate) fn new(threads: usize) -> Self {
        assert!(threads >= 2, "one listens while another answers");
        let state = State { slow: 0, aside: VecDeque::new() };
        Self { slow_max: threads - 1, state: RankedMutex::new(Rank::Leaf, state) }
    }

    /// Whether a thread answers a slow request at once, and then calls [`Roles::next`]. If not, the
    /// request is put aside.
    pub(crate) fn begin(&self) -> bool {
        self.state.lock().begin(self.slow_max)
    }

    /// Puts a slow request aside. The caller did not hold the lock since [`Roles::begin`], so a
    /// thread may have become free.
    pub(crate) fn put_aside(&self, request: T) -> Part<T> {
        let mut state = self.state.lock();
        if state.begin(self.slow_max) {
            return Part::Answer(request);
        }
        if state.aside.len() >= ASIDE_MAX {
            return Part::Refuse(request);
        }
        state.aside.push_back(request);
        Part::Listen
    }

    /// Called after a slow request: the next one that the thread answers. With `None` it listens.
    pub(crate) fn next(&self) -> Option<T> {
        let mut state = self.state.lock();
        let next = state.aside.pop_front();
        if next.is_none() {
            state.slow -= 1;
        }
        next
    }
}

impl<T> State<T> {
    /// Counts one more slow request, if another thread is left to listen (R1).
    fn begin(&mut self, slow_max: usize) -> bool {
        let begins = self.slow < slow_max;
        self.slow += usize::from(begins);
        begins
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
                    let (number, at_once) = (sent, roles.begin());
                    sent += 1;
                    prop_assert_eq!(at_once, answering + 1 < threads);
                    if at_once {
                        answering += 1;
                        taken.push(number);
                    } else {
                        prop_assert_eq!(roles.put_aside(number), Part::Listen);
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
        assert!(roles.begin() && !roles.begin());
        for number in 0..ASIDE_MAX {
            assert_eq!(roles.put_aside(number), Part::Listen);
        }
        assert_eq!(roles.put_aside(7), Part::Refuse(7));
        assert_eq!(roles.next(), Some(0));
        assert_eq!(roles.put_aside(0), Part::Listen, "there is room again");
    }

    /// No thread would look for the request if it was put aside after all.
    #[test]
    fn a_thread_that_became_free_meanwhile_answers() {
        let roles = Roles::new(2);
        assert!(roles.begin() && !roles.begin());
        assert_eq!(roles.next(), None, "the thread is done, and listens");
        assert_eq!(roles.put_aside(7), Part::Answer(7));
        assert!(!roles.begin(), "it counts as slow");
    }
}
