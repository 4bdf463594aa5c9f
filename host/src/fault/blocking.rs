//! Finds threads of the process that have SIGBUS or SIGSEGV blocked, whichever brings pages in. If
//! such a thread touches a page that is out, the system ends the process without a word.
//!
//! ```text
//!   /proc/self/task/N/status    Name:   worker
//!                               SigBlk: 0000000000000040    bit 6: SIGBUS
//! ```
//!
//! They cannot be kept from it, but they can be named before it happens.
//!
//! A thread in our handler has the signal blocked too, and is not meant. It is known by the two
//! signals that the C library keeps for itself: the handler blocks them, and a program cannot.
//!
//! Invariants: one look reads `AT_ONCE` threads, and the next look goes on behind them. A thread is
//! named once, and at most `NAMED_MAX` are named. Lock: none.

use crate::folding::{FaultMode, Signal};
use std::fs;
use std::time::Duration;

/// Threads that one look reads.
const AT_ONCE: usize = 256;
/// Threads that are named, at most.
const NAMED_MAX: usize = 16;
/// How often a thread must be found with the signal blocked before it is named. A handler of the
/// program may block it for a moment.
const READS: u32 = 32;
const BETWEEN: Duration = Duration::from_millis(1);
/// Signals 32 and 33, as bits of a mask.
const KEPT_BY_LIBC: u64 = 0b11 << (FIRST_KEPT - 1);
const FIRST_KEPT: u32 = 32;
const _: () = assert!(KEPT_BY_LIBC.count_ones() == 2, "a mask has both bits");

/// What earlier looks have seen of the threads of the process.
#[derive(Debug)]
pub struct BlockedLooks {
    signal: Signal,
    /// The last thread that was read.
    last: u32,
    named: Vec<u32>,
}

impl BlockedLooks {
    /// Looks for the signal by which pages come in `mode`. None was made yet.
    pub fn of(mode: FaultMode) -> BlockedLooks {
        BlockedLooks { signal: mode.signal(), last: 0, named: Vec::new() }
    }

    /// Looks once more. Gives a line for each thread that has the signal blocked and was not named
    /// before. It sleeps up to 32 ms for each thread that has the signal blocked.
    pub fn look(&mut self) -> Vec<String> {
        let mut threads = threads();
        threads.sort_unstable();
        let from = threads.partition_point(|&thread| thread <= self.last);
        let some: Vec<u32> = threads[from..].iter().copied().take(AT_ONCE).collect();
        self.last = some.last().copied().filter(|last| Some(last) != threads.last()).unwrap_or(0);
        some.into_iter().filter_map(|thread| self.line(thread)).collect()
    }

    /// The line about a thread, if there is one to write.
    fn line(&mut self, thread: u32) -> Option<String> {
        if self.named.len() > NAMED_MAX || self.named.contains(&thread) {
            return None;
        }
        let name = (0..READS).try_fold(String::new(), |_, _| {
            let status = fs::read_to_string(format!("/proc/self/task/{thread}/status")).ok()?;
            let name = blocker(&status, self.signal)?.to_owned();
            std::thread::sleep(BETWEEN);
            Some(name)
        })?;
        self.named.push(thread);
        if self.named.len() > NAMED_MAX {
            return Some(format!("more threads have {} blocked", self.signal.name()));
        }
        Some(format!(
            "thread {thread} ({name}) has {} blocked: if it touches a page of a region that is \
             out, the system ends the process. Unblock the signal there, or have a thread serve \
             faults (FaultMode::Thread)",
            self.signal.name()
        ))
    }
}

fn threads() -> Vec<u32> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

/// The name of the thread whose status this is, if the program has the signal blocked in it.
fn blocker(status: &str, signal: Signal) -> Option<&str> {
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let blocked = u64::from_str_radix(field("SigBlk:")?, 16).ok()?;
    let is_blocked = blocked >> (signal.number() - 1) & 1 == 1;
    (is_blocked && blocked & KEPT_BY_LIBC == 0).then(|| field("Name:").unwrap_or("without a name"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn the_bit_of_the_signal_tells() {
        let status = |mask: u64| format!("Name:\tworker\nSigQ:\t0/9\nSigBlk:\t{mask:016x}\n");
        for (signal, bit) in [(Signal::Bus, 6), (Signal::Segv, 10)] {
            let blocker = |mask| blocker(&status(mask), signal).map(str::to_owned);
            assert_eq!(blocker(1 << bit).as_deref(), Some("worker"));
            assert_eq!(blocker(!(1 << bit)), None);
            assert_eq!(blocker(!KEPT_BY_LIBC).as_deref(), Some("worker"), "a program can block it");
            assert_eq!(blocker(!0), None, "what the handler blocks");
        }
        assert_eq!(blocker("Name:\tworker\n", Signal::Bus), None);
    }

    /// `sigfillset` in a worker is common, and such a thread died of its first fault.
    #[test]
    fn a_thread_that_blocks_the_signal_is_named_once() {
        let (end, ended) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let blocking = std::thread::Builder::new().name("all-blocked".into()).spawn(move || {
            let mut all = std::mem::MaybeUninit::uninit();
            // SAFETY: the set is ours to fill, and the mask that of a thread of this test.
            unsafe {
                libc::sigfillset(all.as_mut_ptr());
                libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut());
            }
            tell.send(()).expect("heard");
            assert!(ended.recv().is_err(), "until the test ends it");
        });
        told.recv().expect("it runs");
        let mut looks = BlockedLooks::of(FaultMode::Signal);
        // Threads of other tests come and go, and may block it as well.
        let named = |looks: &mut BlockedLooks| {
            looks.look().iter().filter(|line| line.contains("(all-blocked) has SIGBUS")).count()
        };
        assert_eq!((named(&mut looks), named(&mut looks)), (1, 0));
        drop(end);
        blocking.expect("a thread").join().expect("it waits only");
    }
}
