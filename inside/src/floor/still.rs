//! The still point of a fork: a moment at which all that our strands share is whole, so that a
//! child can go on with the copy that the kernel makes of it.
//!
//! ```text
//!   strand   at work: changes book, trays, store, heap     at rest: waits in the kernel
//!   fork     asks; waits until both rest; forks            a strand that rests stays there
//!   child    looks at its copy of the words: did both rest?
//! ```
//!
//! The kernel copies page by page while strands run, and yet the copy is that of one moment. From
//! the moment a page is copied until the whole fork is done, a store to it waits, or it reaches the
//! page that parent and child share. So the child has the stores of each strand up to one of them,
//! and none after it. If its word says in the copy that the strand rests, the copy has no change
//! that is half done. Hence the child need not trust that its parent was still: it looks.
//!
//! These are at rest with a strand, because it alone uses them: its stack and its thread-local
//! storage, its descriptors, and the messages that it has read. A child has strands of its own.
//!
//! Invariant: from `rest` to `leave` a strand changes no memory but its own stack.
//!
//! Lock: none. The words are those of the handshake.

#[cfg(all(target_arch = "x86_64", not(loom)))]
use super::call;
use host::sync::atomic::{AtomicU32, Ordering};

/// Our strands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(loom), expect(unreachable_pub, reason = "a model uses it from outside"))]
pub enum Who {
    /// The pager.
    Pager = 0,
    /// The server of faults.
    Server = 1,
}

/// What the strands and the fork tell each other.
#[derive(Debug)]
#[cfg_attr(not(loom), expect(unreachable_pub, reason = "a model uses it from outside"))]
pub struct Still {
    /// The thread that forks; 0 if none does.
    asked: AtomicU32,
    /// 1 for a strand that is at work.
    working: [AtomicU32; 2],
}

/// The words of this process.
#[cfg(not(loom))]
pub(crate) static STILL: Still = Still::new();

/// How long a fork waits for a strand, in looks of `LOOK_MILLIS`.
#[cfg(all(target_arch = "x86_64", not(loom)))]
const LOOKS: u32 = 50;
#[cfg(all(target_arch = "x86_64", not(loom)))]
const LOOK_MILLIS: u64 = 10;

#[cfg_attr(not(loom), expect(unreachable_pub, reason = "a model uses it from outside"))]
impl Still {
    /// Both strands are at work, and nobody forks.
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Still {
        Still { asked: AtomicU32::new(0), working: [AtomicU32::new(1), AtomicU32::new(1)] }
    }

    /// The same, in a model.
    #[cfg(loom)]
    #[expect(clippy::new_without_default, reason = "outside models it is a constant")]
    pub fn new() -> Still {
        Still { asked: AtomicU32::new(0), working: [AtomicU32::new(1), AtomicU32::new(1)] }
    }

    /// Thread `me` is about to fork.
    pub fn ask(&self, me: u32) {
        // AcqRel, and a change rather than a store: pairs with the one in `try_leave`, so that
        // either the strand sees the question, or the fork sees in `is_still` that it works.
        self.asked.swap(me, Ordering::AcqRel);
    }

    /// The thread that is about to fork; 0 if none is.
    pub fn asked(&self) -> u32 {
        // Acquire pairs with the Release in `end`, so that a strand that goes on sees what the fork
        // has done.
        self.asked.load(Ordering::Acquire)
    }

    /// The fork is over, and strands may go on.
    pub fn end(&self) {
        // Release pairs with the Acquire in `asked` and `try_leave`, so that a strand that goes on
        // sees what the fork has done.
        if self.asked.swap(0, Ordering::Release) != 0 {
            self.wake(&self.asked);
        }
    }

    /// A strand has put everything in order.
    pub fn rest(&self, who: Who) {
        let word = &self.working[who as usize];
        // AcqRel, and a change rather than a store: pairs with the one in `is_still`, so that the
        // fork sees the strand's changes.
        word.swap(0, Ordering::AcqRel);
        if self.asked() != 0 {
            self.wake(word);
        }
    }

    /// A strand goes back to work. False if it has to rest, because a fork waits for it.
    pub fn try_leave(&self, who: Who) -> bool {
        self.leave(who);
        // AcqRel, and a change that changes nothing: pairs with the one in `ask`, so that either
        // the question is seen here, or the fork sees that the strand works.
        let may = self.asked.fetch_add(0, Ordering::AcqRel) == 0;
        if !may {
            self.rest(who);
        }
        may
    }

    /// A strand goes back to work, also if a fork waits: the thread that forks needs it.
    pub fn leave(&self, who: Who) {
        // AcqRel pairs with the one in `is_still`: whichever comes first is seen by the other, so
        // that no change of the strand comes before it.
        self.working[who as usize].swap(1, Ordering::AcqRel);
    }

    /// Whether a strand is at rest.
    pub fn is_still(&self, who: Who) -> bool {
        // AcqRel, and a change that changes nothing: pairs with those in `rest` and `leave`, so
        // that what the strand changed is seen, and a strand that leaves sees the question.
        self.working[who as usize].fetch_add(0, Ordering::AcqRel) == 0
    }

    /// Whether a strand seemed to be at work a moment ago. Nothing follows from that but who had
    /// better use a CPU, and it changes no memory.
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    pub(crate) fn seems_busy(&self, who: Who) -> bool {
        // relaxed: a hint.
        self.working[who as usize].load(Ordering::Relaxed) != 0
    }

    /// As in a process that has just begun.
    pub fn begin_anew(&self) {
        // relaxed: there is one thread, and those that look are made after this.
        self.asked.store(0, Ordering::Relaxed);
        // relaxed: as above.
        self.working.iter().for_each(|word| word.store(1, Ordering::Relaxed));
    }

    #[cfg(loom)]
    fn wake(&self, _: &AtomicU32) {}
}

#[cfg(all(target_arch = "x86_64", not(loom)))]
impl Still {
    /// Waits until a strand is at rest. Gives up after half a second, or if the fork was taken for
    /// over: the child will see it.
    pub(crate) fn wait_for(&self, who: Who) {
        for _ in 0..LOOKS {
            if self.is_still(who) || self.asked() == 0 {
                return;
            }
            call::wait(&self.working[who as usize], 1, LOOK_MILLIS);
        }
    }

    /// The pager rests while a fork goes on.
    pub(crate) fn pause(&self) {
        if self.asked() == 0 {
            return;
        }
        self.rest(Who::Pager);
        self.stay();
    }

    /// The pager, which is at rest, goes back to work when no fork goes on.
    pub(crate) fn stay(&self) {
        loop {
            match self.asked() {
                0 if self.try_leave(Who::Pager) => return,
                0 => {}
                asked => call::wait(&self.asked, asked, LOOK_MILLIS),
            }
        }
    }

    fn wake(&self, word: &AtomicU32) {
        call::wake(word);
    }
}

#[cfg(all(test, target_arch = "x86_64", not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    #[test]
    fn a_pager_that_rests_stays_until_the_fork_is_over() {
        static WORDS: Still = Still::new();
        static BACK: AtomicBool = AtomicBool::new(false);
        WORDS.ask(9);
        assert!(!WORDS.is_still(Who::Pager), "it works");
        let pager = std::thread::spawn(|| {
            WORDS.pause();
            BACK.store(true, Ordering::Release);
        });
        let begun = Instant::now();
        while !WORDS.is_still(Who::Pager) {
            WORDS.wait_for(Who::Pager);
            assert!(begun.elapsed() < Duration::from_secs(20), "it rests when it is asked");
        }
        assert!(!WORDS.try_leave(Who::Pager) && WORDS.is_still(Who::Pager));
        assert!(!BACK.load(Ordering::Acquire), "the fork goes on");
        WORDS.end();
        pager.join().expect("it goes on");
        assert_eq!((WORDS.asked(), WORDS.is_still(Who::Pager)), (0, false));
        WORDS.pause();
        assert!(!WORDS.is_still(Who::Pager), "nobody forks");
    }
}
