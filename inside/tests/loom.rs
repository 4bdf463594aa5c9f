//! The lock and the still point of forks, pins, and the owner of a slot, under every interleaving
//! of two preemptions.
//!
//! Run with `RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2`.
//!
//! Claims
//! - One thread at a time has the turn, whether it waited for it or tried, and knows that it has.
//! - While a fork copies, a pager that rests changes nothing.
//! - While a system call uses a group, no page of it closes, and what closed before it is seen
//!   open.
//! - A slot has one owner, and the next one finds what the last one left.
#![cfg(loom)]

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use ramfold_inside::board::Owner;
use ramfold_inside::model::{PinWord, Still, Taken, Turn, Who};

/// What the turn guards.
struct Guarded {
    turn: Turn,
    value: UnsafeCell<u32>,
}

// SAFETY: the turn guards the value, which is what the model checks.
unsafe impl Sync for Guarded {}
// SAFETY: as above.
unsafe impl Send for Guarded {}

impl Guarded {
    fn add(&self) {
        // SAFETY: this thread has the turn; loom finds it if another has it too.
        self.value.with_mut(|value| unsafe { *value += 1 });
        self.turn.give();
    }
}

#[test]
fn one_thread_has_the_turn() {
    loom::model(|| {
        let guarded = Arc::new(Guarded { turn: Turn::new(), value: UnsafeCell::new(0) });
        let waits = Arc::clone(&guarded);
        let waiter = thread::spawn(move || {
            assert_eq!(waits.turn.take(7), Taken::Now);
            assert_eq!(waits.turn.take(7), Taken::Before, "it has it");
            waits.add();
        });
        let tried = guarded.turn.try_take(8);
        if tried {
            guarded.add();
        }
        waiter.join().expect("it adds");
        assert_eq!(guarded.turn.take(8), Taken::Now);
        // SAFETY: this thread has the turn.
        let sum = guarded.value.with(|value| unsafe { *value });
        assert_eq!(sum, 1 + u32::from(tried));
        guarded.turn.give();
    });
}

/// A group that a system call writes, and that the pager closes, stores and opens.
struct Used {
    word: PinWord,
    page: UnsafeCell<u32>,
}

// SAFETY: the word guards the page, which is what the model checks.
unsafe impl Sync for Used {}
// SAFETY: as above.
unsafe impl Send for Used {}

impl Used {
    fn write(&self) {
        // SAFETY: the group is pinned and open, or closed; loom finds it if both are at work.
        self.page.with_mut(|page| unsafe { *page += 1 });
    }
}

#[test]
fn no_page_closes_while_a_call_uses_it() {
    loom::model(|| {
        let used = Arc::new(Used { word: PinWord::default(), page: UnsafeCell::new(0) });
        let calls = Arc::clone(&used);
        let caller = thread::spawn(move || {
            let mut written = 0;
            for _ in 0..2 {
                // If pages are closed, the caller would take the lock and open them.
                if calls.word.pin() {
                    calls.write();
                    written += 1;
                }
                calls.word.unpin();
            }
            written
        });
        let closed = used.word.close();
        if closed {
            used.write();
            used.word.open();
        }
        let written = caller.join().expect("it calls") + u32::from(closed);
        // A pager that takes over afterwards sees all of it.
        assert!(used.word.close(), "nobody uses it");
        // SAFETY: there is one thread.
        assert_eq!(used.page.with(|page| unsafe { *page }), written);
    });
}

/// What the pager changes, and a fork copies.
struct Copied {
    still: Still,
    value: UnsafeCell<u32>,
}

// SAFETY: the still point guards the values, which is what the model checks.
unsafe impl Sync for Copied {}
// SAFETY: as above.
unsafe impl Send for Copied {}

#[test]
fn a_fork_copies_what_is_whole() {
    loom::model(|| {
        let copied = Arc::new(Copied { still: Still::new(), value: UnsafeCell::new(0) });
        let strand = Arc::clone(&copied);
        let pager = thread::spawn(move || {
            strand.still.rest(Who::Pager);
            if strand.still.try_leave(Who::Pager) {
                // SAFETY: the pager is at work; loom finds it if the fork copies meanwhile.
                strand.value.with_mut(|value| unsafe { *value += 1 });
                strand.still.rest(Who::Pager);
            }
        });
        copied.still.ask(7);
        if copied.still.is_still(Who::Pager) {
            // SAFETY: the pager rests, and stays there.
            let value = copied.value.with(|value| unsafe { *value });
            assert!(value < 2);
        }
        copied.still.end();
        pager.join().expect("it rests");
        assert!(copied.still.is_still(Who::Pager), "the pager rests at last");
        assert!(!copied.still.is_still(Who::Server), "the server works");
    });
}

#[test]
fn a_slot_has_one_owner() {
    loom::model(|| {
        let slot = Arc::new((Owner::default(), AtomicU64::new(0)));
        assert!(slot.0.claim(1));
        let other = Arc::clone(&slot);
        let next = thread::spawn(move || {
            let claimed = other.0.claim(2);
            if claimed {
                // relaxed: the claim orders it.
                assert_eq!(other.1.load(Ordering::Relaxed), 0, "the last owner's word");
            }
            claimed
        });
        // relaxed, both: the release orders them.
        slot.1.store(7, Ordering::Relaxed);
        slot.1.store(0, Ordering::Relaxed);
        slot.0.release();
        let third = slot.0.claim(3);
        let second = next.join().expect("it tries");
        assert!(second != third, "one of them has it");
        assert_eq!(slot.0.pid(), if second { 2 } else { 3 });
    });
}
