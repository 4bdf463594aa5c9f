//! A lock for threads of the program, which use nothing of a C library.
//!
//! ```text
//!   word   0 free    number of the thread that has it, and above it a bit: others may sleep
//! ```
//!
//! The word names its owner, because a signal's handler may ask for the turn in the middle of the
//! owner's own work. There is no moment at which a thread has the turn and the word does not say
//! so.
//!
//! Invariant: one thread has the turn from `take` to `give`. Lock: this is one.

#[cfg(all(target_arch = "x86_64", not(loom)))]
use super::call;
use host::sync::atomic::{AtomicU32, Ordering};

/// A thread may sleep until the turn is free. Numbers of threads are smaller.
const ASLEEP: u32 = 1 << 31;

/// Looks at the word before a thread sleeps: about 20 microseconds, which is what a fault takes.
#[cfg(not(loom))]
const SPINS: u32 = 1000;

const _: () = assert!(ASLEEP > 1 << 22, "threads have numbers of at most 22 bits");

/// What an attempt to take the turn gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(loom), expect(unreachable_pub, reason = "a model uses it from outside"))]
pub enum Taken {
    /// The thread has it now.
    Now,
    /// The thread had it before.
    Before,
}

/// The word of the lock.
#[derive(Debug)]
#[cfg_attr(not(loom), expect(unreachable_pub, reason = "a model uses it from outside"))]
pub struct Turn(AtomicU32);

#[cfg_attr(not(loom), expect(unreachable_pub, reason = "a model uses it from outside"))]
impl Turn {
    /// A lock that is free.
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Turn {
        Turn(AtomicU32::new(0))
    }

    /// A lock that is free, in a model.
    #[cfg(loom)]
    #[expect(clippy::new_without_default, reason = "outside models it is a constant")]
    pub fn new() -> Turn {
        Turn(AtomicU32::new(0))
    }

    /// Waits until thread `me` has the turn.
    pub fn take(&self, me: u32) -> Taken {
        self.expect_soon();
        loop {
            if self.try_take(me) {
                return Taken::Now;
            }
            // relaxed: only this thread writes its own number there.
            let word = self.0.load(Ordering::Relaxed);
            if word & !ASLEEP == me {
                return Taken::Before;
            }
            if word != 0 && self.mark(word) {
                self.sleep(word | ASLEEP);
            }
        }
    }

    /// Waits a moment: work under the turn is mostly shorter than the way to sleep and back.
    #[cfg(not(loom))]
    fn expect_soon(&self) {
        // relaxed: of a moment ago. The turn is taken by another operation.
        let is_taken = || self.0.load(Ordering::Relaxed) != 0;
        (0..SPINS).take_while(|_| is_taken()).for_each(|_| core::hint::spin_loop());
    }

    /// A model has no time.
    #[cfg(loom)]
    fn expect_soon(&self) {}

    /// Notes in the word that a thread may sleep.
    fn mark(&self, word: u32) -> bool {
        let (now, then) = (word, word | ASLEEP);
        // relaxed: this does not take the turn, and a failure reads nothing.
        self.0.compare_exchange(now, then, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Takes the turn for thread `me` if it is free.
    pub fn try_take(&self, me: u32) -> bool {
        // Acquire pairs with the Release in `give`, so that the last owner's work is seen. relaxed:
        // a failure reads nothing.
        self.0.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Whether a thread has the turn.
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    pub(crate) fn is_taken(&self) -> bool {
        // relaxed: of a moment ago.
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Gives the turn up.
    pub fn give(&self) {
        // Release pairs with the Acquire in `try_take`, so that the next owner sees this one's
        // work.
        if self.0.swap(0, Ordering::Release) & ASLEEP != 0 {
            self.wake();
        }
    }

    /// Makes thread `me` the owner, or nobody if it is 0, in a child that has no other thread.
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    pub(crate) fn renew(&self, me: u32) {
        // relaxed: there is one thread, and others are made after this.
        self.0.store(me, Ordering::Relaxed);
    }

    #[cfg(all(target_arch = "x86_64", not(loom)))]
    fn sleep(&self, word: u32) {
        call::wait_a_second(&self.0, word);
    }

    #[cfg(all(target_arch = "x86_64", not(loom)))]
    fn wake(&self) {
        call::wake(&self.0);
    }

    /// A sleeper looks again by itself, so a model needs no more.
    #[cfg(loom)]
    fn sleep(&self, _: u32) {
        host::sync::thread::yield_now();
    }

    #[cfg(loom)]
    fn wake(&self) {}
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    /// Takes a turn in a thread that has no end if the turn never comes.
    fn taking(turn: &'static Turn, me: u32) -> Receiver<Taken> {
        let (done, told) = channel();
        std::thread::spawn(move || done.send(turn.take(me)));
        told
    }

    #[test]
    fn the_owner_is_known_while_others_sleep() {
        static TURN: Turn = Turn::new();
        let soon = |told: Receiver<Taken>| told.recv_timeout(Duration::from_secs(20));
        assert_eq!(soon(taking(&TURN, 7)), Ok(Taken::Now));
        let waiter = taking(&TURN, 8);
        // relaxed: only looked at.
        while TURN.0.load(Ordering::Relaxed) & ASLEEP == 0 {
            std::thread::yield_now();
        }
        assert_eq!(soon(taking(&TURN, 7)), Ok(Taken::Before));
        assert!(!TURN.try_take(9), "it is taken");
        TURN.give();
        assert_eq!(soon(waiter), Ok(Taken::Now));
        assert_eq!(soon(taking(&TURN, 8)), Ok(Taken::Before));
        TURN.give();
        assert!(TURN.try_take(9), "it is free");
    }
}
