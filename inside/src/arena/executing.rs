//! Threads that execute a program: what they have pinned, and whether they asked to be traced.
//!
//! A thread comes back only if the program cannot be executed. If it was a child in this memory
//! (`vfork`), nobody tells that it has gone.
//!
//! Such a child may ask to be traced (`PTRACE_TRACEME`), as gdb's does. From then on each signal
//! stops it until its parent answers, and our own traps are signals. The parent waits for the
//! child's program, so both would wait for ever. So the child is traced from its program on.
//!
//! Invariant: pins are taken back once, by the process that has the memory. Lock: the caller has
//! the state.

use super::pins;
use core::ops::Range;
use std::time::{Duration, Instant};

/// How long the kernel may need until it has copied the words of a program that is executed, and a
/// child between its wish to be traced and its program.
const MAX: Duration = Duration::from_secs(60);

/// The thread that calls.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) thread: u32,
    /// The process that has the memory.
    pub(crate) home: u32,
    /// The thread is in that process.
    pub(crate) is_home: bool,
}

/// What is known of them.
#[derive(Debug, Default)]
pub(crate) struct Executing {
    threads: Vec<Thread>,
}

#[derive(Debug, Clone)]
struct Thread {
    number: u32,
    /// A child made by `fork` has none of its parent's pins.
    home: u32,
    since: Instant,
    pinned: Vec<Range<usize>>,
    /// It asked to be traced, and is not yet.
    asks: bool,
}

impl Thread {
    fn of(caller: &Caller, pinned: Vec<Range<usize>>, asks: bool) -> Thread {
        let (number, home) = (caller.thread, caller.home);
        Thread { number, home, since: Instant::now(), pinned, asks }
    }
}

impl Executing {
    /// The caller is about to execute a program. Returns whether it asked to be traced.
    pub(crate) fn begin(&mut self, caller: &Caller, pinned: Vec<Range<usize>>) -> bool {
        let me = Thread::of(caller, pinned, false);
        let asked = |it: &mut Thread| it.asks && (it.number, it.home) == (me.number, me.home);
        let asked = self.threads.extract_if(.., asked).count() > 0;
        self.threads.push(me);
        asked
    }

    /// The caller asks to be traced. Returns whether that has to wait.
    pub(crate) fn ask(&mut self, caller: &Caller) -> bool {
        let waits = !caller.is_home;
        if waits {
            self.threads.push(Thread::of(caller, Vec::new(), true));
        }
        waits
    }

    /// Takes the pins back of the caller, which could not execute a program.
    pub(crate) fn failed(&mut self, caller: &Caller) {
        self.take_back(caller, |it| it.number == caller.thread);
    }

    /// Takes the pins back of threads that have executed a program by now.
    pub(crate) fn settle(&mut self, caller: &Caller) {
        self.take_back(caller, |it| it.since.elapsed() > MAX);
    }

    fn take_back(&mut self, caller: &Caller, is_over: impl Fn(&Thread) -> bool) {
        let over = self.threads.extract_if(.., |it| it.home != caller.home || is_over(it));
        let ours = over.filter(|it| it.home == caller.home);
        ours.for_each(|it| it.pinned.iter().for_each(pins::unpin));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Caller = Caller { thread: 7, home: 5, is_home: false };

    #[test]
    fn pins_of_a_program_that_is_executed_end() {
        let now = Thread::of(&ME, Vec::new(), false);
        let other = Thread { number: 8, ..now.clone() };
        let old = Thread { since: Instant::now() - 2 * MAX, ..other.clone() };
        let parents = Thread { home: 6, ..other.clone() };
        let mut executing = Executing { threads: vec![now, other, old] };
        executing.failed(&ME);
        assert_eq!(executing.threads.len(), 2, "those of other threads stay");
        executing.settle(&ME);
        assert_eq!(executing.threads.len(), 1, "the old ones have gone");
        executing.threads.push(parents);
        executing.settle(&ME);
        assert_eq!(executing.threads.len(), 1, "a child has none of its parent's");
    }

    #[test]
    fn a_thread_that_asked_is_traced_once_executed() {
        let mut executing = Executing::default();
        let other = Caller { thread: 8, ..ME };
        assert!(executing.ask(&other) && !executing.begin(&ME, Vec::new()), "another one asked");
        assert!(executing.ask(&ME) && executing.begin(&ME, Vec::new()));
        assert!(!executing.begin(&ME, Vec::new()), "it is traced once");
        assert!(!executing.ask(&Caller { is_home: true, ..ME }), "at home nobody waits");
    }
}
