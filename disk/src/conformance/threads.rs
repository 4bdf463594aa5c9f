//! D5: several threads at once.
//!
//! ```text
//!   stripe 1024:   |   page 0      |   page 1      |
//!                  | 0 | 1 | 2 | 3 | 0 | 1 | 2 | 3 |      the thread that owns the bytes
//! ```
//!
//! Each thread changes only its own stripes and must always find them unchanged. If stripes are
//! shorter than a page, that fails on a disk whose read-modify-write is not atomic.
//!
//! Invariant: a byte of a stripe is changed only by the thread that owns it, so that thread always
//! knows what must be there. In `collisions` no byte has an owner: any thread's value is right.

use super::pattern::{Pattern, Rng};
use super::twin::{Op, Twin, Verb};
use crate::contract::{Disk, DiskError};
use std::io;
use std::thread::{self, ScopedJoinHandle};

const THREADS: u64 = 4;
const ROUNDS: u64 = 100;
/// Bytes of the disk that the threads share. They are few, so that threads often meet.
const ARENA_MAX: u64 = 8 * 4096; // 32 KiB

/// D5: threads that write side by side, in pages of their own and within the same pages.
pub(super) fn stripes(twin: &mut Twin) {
    for stripe in [4096, 1024, 16] {
        let disk = &*twin.disk;
        let complaint = on_threads(|owner| Owner { disk, owner, stripe }.run());
        twin.require(complaint.is_none(), || complaint.unwrap_or_default());
    }
    twin.apply(Op::new(Verb::Discard, 0, twin.size()));
    twin.verify();
}

/// D5: threads that write the same bytes. Every byte is as one of them left it.
pub(super) fn collisions(twin: &mut Twin) {
    let len = twin.size().min(4096);
    let disk = &*twin.disk;
    let complaint = on_threads(|owner| {
        let data = Pattern::Byte(owner as u8 + 1).bytes(len);
        let mut writes = (0..ROUNDS).map(|_| disk.write(0, &data));
        writes.find_map(Result::err).map(|error| format!("thread {owner}: {error}"))
    });
    twin.require(complaint.is_none(), || complaint.unwrap_or_default());
    let mut found = vec![0; len as usize];
    let outcome = disk.read(0, &mut found);
    twin.require(outcome.is_ok(), || format!("reading back failed: {outcome:?}"));
    let stray = found.iter().find(|&&byte| !(1..=THREADS as u8).contains(&byte));
    twin.require(stray.is_none(), || format!("a byte {stray:?} that no thread wrote"));
}

/// Runs `work` on every thread. Returns the first complaint, if there is one.
fn on_threads(work: impl Fn(u64) -> Option<String> + Sync) -> Option<String> {
    thread::scope(|scope| {
        let work = &work;
        let start = |owner| host::thread::spawn_scoped(scope, "conformance", move || work(owner));
        let started: Vec<_> = (0..THREADS).map(start).collect();
        let complaints: Vec<_> = started.into_iter().map(complaint).collect();
        complaints.into_iter().flatten().next()
    })
}

/// The complaint of a thread, or why it did not run to its end.
fn complaint(started: io::Result<ScopedJoinHandle<'_, Option<String>>>) -> Option<String> {
    match started {
        Ok(thread) => thread.join().unwrap_or_else(|_| Some("a thread panicked".to_owned())),
        Err(error) => Some(format!("the system refuses a thread: {error}")),
    }
}

/// One thread's part of [`stripes`].
struct Owner<'a> {
    disk: &'a dyn Disk,
    owner: u64,
    stripe: u64,
}

impl Owner<'_> {
    fn run(&self) -> Option<String> {
        let mut rng = Rng(self.owner);
        (0..ROUNDS).find_map(|round| self.round(round, &mut rng))
    }

    fn round(&self, round: u64, rng: &mut Rng) -> Option<String> {
        let Self { owner, stripe, .. } = *self;
        let own = self.own_stripes();
        let change = rng.below(4);
        let content = if change == 0 { Pattern::Byte(0) } else { Pattern::Random(rng.next()) };
        let expected = content.bytes(stripe);
        let changed: Result<(), DiskError> = own.iter().try_for_each(|&offset| match change {
            0 => self.disk.discard(offset, stripe),
            _ => self.disk.write(offset, &expected),
        });
        let place = format!("thread {owner}, stripes of {stripe}, round {round}");
        if let Err(error) = changed {
            return Some(format!("{place}: {error}"));
        }
        let lost = own.iter().find(|&&offset| !self.reads_as(offset, &expected));
        lost.map(|offset| format!("{place}: other threads' requests changed stripe {offset}"))
    }

    /// Offsets of the stripes this thread owns.
    fn own_stripes(&self) -> Vec<u64> {
        let arena = self.disk.size_bytes().min(ARENA_MAX);
        let whole = (0..arena / self.stripe).filter(|index| index % THREADS == self.owner);
        // The first sixteen are enough, because neighbours of one page meet there.
        whole.take(16).map(|index| index * self.stripe).collect()
    }

    fn reads_as(&self, offset: u64, expected: &[u8]) -> bool {
        let mut found = vec![0xA5; expected.len()];
        self.disk.read(offset, &mut found).is_ok() && found == expected
    }
}
