//! Alternate stacks for the program's threads, one for each that has none of its own.
//!
//! The kernel writes a signal's frame to the stack that a thread is on. That may be memory that
//! folds, such as a fiber's, and the page below the stack pointer may be closed. So the handler of
//! SIGSEGV gets another stack.
//!
//! Invariant: a stack has one thread at a time. A thread that has ended has none. Lock: that of the
//! state.

use crate::floor::call::call;
use crate::floor::passage::pass;
use crate::floor::yard;
use crate::places::PAGE;

/// Bytes of a stack, with a guard page. A handler of the program may run there, and one that prints
/// what led to a fault needs some room. What is never touched takes no memory.
const LEN: usize = 256 << 10; // 262144

/// Stacks whose threads are looked for each time that one is wanted.
const LOOKS: usize = 4;

/// The stacks, with their threads; 0 is no thread.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    all: Vec<(usize, u32)>,
    /// Where the search for ended threads goes on.
    next: usize,
}

impl Stacks {
    /// The stack of a thread: the one that it had, one of a thread that has ended, or a new one.
    pub(crate) fn of(&mut self, thread: u32) -> Option<libc::stack_t> {
        self.find(thread, has_ended, make).map(described)
    }

    fn find(
        &mut self,
        thread: u32,
        has_ended: impl Fn(u32) -> bool,
        make: impl FnOnce() -> Option<usize>,
    ) -> Option<usize> {
        if let Some((stack, _)) = self.all.iter().find(|(_, owner)| *owner == thread) {
            return Some(*stack);
        }
        for _ in 0..LOOKS.min(self.all.len()) {
            self.next = (self.next + 1) % self.all.len();
            let (stack, owner) = &mut self.all[self.next];
            if *owner == 0 || has_ended(*owner) {
                *owner = thread;
                return Some(*stack);
            }
        }
        let stack = make()?;
        self.all.push((stack, thread));
        Some(stack)
    }

    /// In a forked child: its only thread has the stack that its parent's thread had.
    pub(crate) fn settle(&mut self, thread: u32) {
        let current = current().ss_sp as usize;
        for (stack, owner) in &mut self.all {
            *owner = if *stack == current { thread } else { 0 };
        }
    }
}

fn described(stack: usize) -> libc::stack_t {
    libc::stack_t { ss_sp: stack as *mut libc::c_void, ss_flags: 0, ss_size: LEN - PAGE }
}

/// Whether a stack is one of ours.
pub(crate) fn is_ours(stack: &libc::stack_t) -> bool {
    yard::range().contains(&(stack.ss_sp as usize))
}

/// The alternate stack of this thread.
pub(crate) fn current() -> libc::stack_t {
    let mut stack = none();
    // SAFETY: the call asks only, and the structure has room.
    unsafe { pass(libc::SYS_sigaltstack, [0, &raw mut stack as usize, 0, 0, 0, 0]) };
    stack
}

/// What a thread without an alternate stack is told.
pub(crate) fn none() -> libc::stack_t {
    libc::stack_t { ss_sp: core::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 }
}

fn make() -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, whose first page is the guard.
    unsafe {
        let guard = yard::map(0, LEN, access, flags, -1, 0);
        if guard <= 0 {
            return None;
        }
        call(libc::SYS_mprotect, [guard as usize, PAGE, 0, 0, 0, 0]);
        Some(guard as usize + PAGE)
    }
}

fn has_ended(thread: u32) -> bool {
    // SAFETY: no signal is sent.
    unsafe {
        let process = call(libc::SYS_getpid, [0; 6]) as usize;
        call(libc::SYS_tgkill, [process, thread as usize, 0, 0, 0, 0]) == -(libc::ESRCH as isize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_goes_to_another_thread_when_its_own_has_ended() {
        let (mut stacks, mut made) = (Stacks::default(), 0);
        let mut find = |thread: u32, ended: &[u32]| {
            let stack = stacks.find(
                thread,
                |other| ended.contains(&other),
                || {
                    made += 1;
                    Some(made * LEN)
                },
            );
            stack.map(|stack| stack / LEN)
        };
        assert_eq!((find(1, &[]), find(2, &[])), (Some(1), Some(2)));
        assert_eq!(find(1, &[1]), Some(1), "its own");
        assert_eq!(find(3, &[2]), Some(2));
        assert_eq!(find(2, &[]), Some(3), "the number of a thread that had another");
        assert_eq!(find(4, &[1]), Some(1));
        assert_eq!(made, 3);
    }

    #[test]
    fn a_child_has_the_stack_of_the_thread_that_forked() {
        crate::floor::passage::for_tests();
        let mut stacks = Stacks { all: vec![(7 * LEN, 1), (9 * LEN, 2)], next: 0 };
        stacks.settle(5);
        assert_eq!(stacks.all, [(7 * LEN, 0), (9 * LEN, 0)], "this thread has none of them");
        stacks.all.push((current().ss_sp as usize, 3));
        stacks.settle(5);
        assert_eq!(stacks.all[2].1, 5);
        let found = stacks.find(6, |_| false, || None);
        assert_eq!(found, Some(9 * LEN), "what nobody has");
    }

    #[test]
    fn threads_that_have_ended_are_known() {
        let own = crate::arena::state::thread();
        assert!(!has_ended(own));
        let other = std::thread::spawn(crate::arena::state::thread).join().expect("it ends");
        // The kernel may need a moment more.
        let soon = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !has_ended(other) {
            assert!(std::time::Instant::now() < soon, "it has ended");
            std::thread::yield_now();
        }
    }
}
