//! Alternate stacks for the program's threads, one for each that has none of its own.
//!
//! The kernel writes a signal's frame to the stack that a thread is on. That may be memory that
//! folds, such as a fiber's, and the page below the stack pointer may be closed. So the handler of
//! SIGSEGV gets another stack.
//!
//! Invariant: a stack has one thread at a time, or none that lives. Lock: that of the state.

use crate::floor::call::call;
use crate::floor::passage::pass;
use crate::floor::yard;
use crate::places::PAGE;

/// Bytes of a stack, with a guard page. A handler of the program may run there, and one that prints
/// what led to a fault needs some room. What is never touched takes no memory.
const LEN: usize = 256 << 10; // 262144

/// Stacks of the program that are smaller have no room for a frame of SIGSEGV beside others.
const SMALL: usize = 16 << 10; // 16384

/// At how many stacks is looked for one whose thread has ended.
const LOOKS: usize = 4;

#[derive(Debug)]
struct Entry {
    stack: usize,
    /// Its thread; 0 for none.
    thread: u32,
    /// What the thread believes to have instead.
    told: Option<libc::stack_t>,
}

/// The stacks, and whose they are.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    all: Vec<Entry>,
    /// Where the search for ended threads goes on.
    next: usize,
}

impl Stacks {
    /// The stack for a thread that wants none, or a small one, and is told so: the one that it had,
    /// one of a thread that has ended, or a new one.
    pub(crate) fn give(
        &mut self,
        thread: u32,
        told: Option<libc::stack_t>,
    ) -> Option<libc::stack_t> {
        let at = self.find(thread, has_ended, make)?;
        self.all[at].told = told;
        let stack = self.all[at].stack as *mut libc::c_void;
        Some(libc::stack_t { ss_sp: stack, ss_flags: 0, ss_size: LEN - PAGE })
    }

    /// What a thread with a stack of ours believes to have.
    pub(crate) fn told(&self, thread: u32) -> libc::stack_t {
        let entry = self.all.iter().find(|entry| entry.thread == thread);
        entry.and_then(|entry| entry.told).unwrap_or_else(none)
    }

    /// The thread believes again to have what it had.
    pub(crate) fn tell(&mut self, thread: u32, told: libc::stack_t) {
        let told = Some(told).filter(|it| it.ss_flags & libc::SS_DISABLE == 0);
        let entry = self.all.iter_mut().find(|entry| entry.thread == thread);
        entry.into_iter().for_each(|entry| entry.told = told);
    }

    fn find(
        &mut self,
        thread: u32,
        has_ended: impl Fn(u32) -> bool,
        make: impl FnOnce() -> Option<usize>,
    ) -> Option<usize> {
        if let Some(at) = self.all.iter().position(|entry| entry.thread == thread) {
            return Some(at);
        }
        for _ in 0..LOOKS.min(self.all.len()) {
            self.next = (self.next + 1) % self.all.len();
            let entry = &mut self.all[self.next];
            if entry.thread == 0 || has_ended(entry.thread) {
                entry.thread = thread;
                return Some(self.next);
            }
        }
        self.all.push(Entry { stack: make()?, thread, told: None });
        Some(self.all.len() - 1)
    }

    /// In a forked child: its only thread has the stack that its parent's thread had.
    pub(crate) fn settle(&mut self, thread: u32) {
        let current = current().ss_sp as usize;
        for entry in &mut self.all {
            entry.thread = if entry.stack == current { thread } else { 0 };
        }
    }
}

/// Whether a stack that the program names is too small for what we add. The kernel refuses one that
/// is even too small for itself.
pub(crate) fn is_small(stack: &libc::stack_t) -> bool {
    stack.ss_flags & !libc::SS_ONSTACK == 0 && (libc::MINSIGSTKSZ..SMALL).contains(&stack.ss_size)
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

/// A stack of a context, which may say only by its length that there is none.
pub(crate) fn or_none(stack: &libc::stack_t) -> libc::stack_t {
    if stack.ss_size == 0 { none() } else { *stack }
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
            let is_over = |other| ended.contains(&other);
            let make = || {
                made += 1;
                Some(made * LEN)
            };
            stacks.find(thread, is_over, make)
        };
        assert_eq!((find(1, &[]), find(2, &[])), (Some(0), Some(1)));
        assert_eq!(find(1, &[1]), Some(0), "its own");
        assert_eq!(find(3, &[2]), Some(1));
        assert_eq!(find(2, &[]), Some(2), "the number of a thread that had another");
        assert_eq!(find(4, &[1]), Some(0));
        assert_eq!(made, 3);
    }

    #[test]
    fn a_child_has_the_stack_of_the_thread_that_forked() {
        crate::floor::passage::for_tests();
        let entry = |stack, thread| Entry { stack, thread, told: None };
        let mut stacks = Stacks { all: vec![entry(7 * LEN, 1), entry(9 * LEN, 2)], next: 0 };
        let threads = |stacks: &Stacks| stacks.all.iter().map(|it| it.thread).collect::<Vec<_>>();
        stacks.settle(5);
        assert_eq!(threads(&stacks), [0, 0], "this thread has none of them");
        stacks.all.push(entry(current().ss_sp as usize, 3));
        stacks.settle(5);
        assert_eq!(threads(&stacks), [0, 0, 5]);
        assert_eq!(stacks.find(6, |_| false, || None), Some(1), "what nobody has");
    }

    #[test]
    fn a_thread_is_told_of_the_stack_that_it_named() {
        let small = libc::stack_t { ss_size: 8192, ss_flags: 0, ..none() };
        assert!(is_small(&small) && !is_small(&none()));
        assert!(!is_small(&libc::stack_t { ss_size: 100, ..small }), "the kernel refuses it");
        assert!(!is_small(&libc::stack_t { ss_size: SMALL, ..small }));
        let mut stacks = Stacks::default();
        stacks.all.push(Entry { stack: LEN, thread: 1, told: Some(small) });
        assert_eq!(stacks.told(1).ss_size, 8192);
        assert_eq!(stacks.told(2).ss_flags, libc::SS_DISABLE);
        stacks.tell(1, none());
        assert_eq!(stacks.told(1).ss_flags, libc::SS_DISABLE);
        stacks.tell(1, small);
        assert_eq!(stacks.told(1).ss_size, 8192);
    }

    #[test]
    fn threads_that_have_ended_are_known() {
        // SAFETY: the call has no arguments.
        let own = || unsafe { libc::gettid() } as u32;
        assert!(!has_ended(own()));
        let other = std::thread::spawn(own).join().expect("it ends");
        // The kernel may need a moment more.
        let soon = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !has_ended(other) {
            assert!(std::time::Instant::now() < soon, "it has ended");
            std::thread::yield_now();
        }
    }
}
