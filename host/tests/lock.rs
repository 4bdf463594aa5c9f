//! Claims
//! - A `Lock` lets one thread in at a time, publishes what it did, and wakes sleepers.
//! - A panic gives the lock up.
//! - Locks that share a word are one lock over several values.
//! - A thread that waits for a bit lock is woken when the bit is cleared, or vanishes with its
//!   page.
#![cfg(not(loom))]

use ramfold_host::{BitLockWaiters, Lock, LockWord, Rank, Table};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const THREADS: usize = 8;
const ROUNDS: u64 = if cfg!(miri) { 20 } else { 20_000 };

#[test]
fn eight_threads_lose_no_increment() {
    let lock = Lock::new(Rank::Class, (0_u64, 0_u64));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let lock = &lock;
            scope.spawn(move || (0..ROUNDS).for_each(|round| increment(lock, thread, round)));
        }
    });
    let expected = THREADS as u64 * ROUNDS;
    assert_eq!(*lock.lock(), (expected, expected));
}

/// By waiting mostly, by trying now and then; sometimes preempted while holding.
fn increment(lock: &Lock<(u64, u64)>, thread: usize, round: u64) {
    let tried = if round.is_multiple_of(5) { lock.try_lock() } else { None };
    let mut pair = tried.unwrap_or_else(|| lock.lock());
    pair.0 += 1;
    if round.is_multiple_of(1000) && thread == 0 {
        thread::sleep(Duration::from_millis(1)); // the others run out of spins and sleep
    }
    pair.1 += 1;
    assert_eq!(pair.0, pair.1, "someone else was inside");
}

#[test]
fn a_taken_lock_is_not_taken_again() {
    let lock = Lock::new(Rank::Leaf, 1);
    let guard = lock.lock();
    assert!(lock.try_lock().is_none(), "one guard at a time");
    drop(guard);
    assert_eq!(lock.try_lock().map(|guard| *guard), Some(1));
}

#[test]
fn a_panic_gives_the_lock_up() {
    let lock = Lock::new(Rank::Stock, 0);
    let outcome = thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let _guard = lock.lock();
            panic!("while holding");
        });
        holder.join()
    });
    assert!(outcome.is_err());
    assert!(lock.try_lock().is_some(), "no poison, and not stuck");
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "R1: waiting for a lock of rank Class")]
fn locks_taken_against_their_rank_are_caught() {
    let (class, shard) = (Lock::new(Rank::Class, ()), Lock::new(Rank::Stock, ()));
    let _shard = shard.lock();
    let _class = class.lock();
}

/// A thread that looks again and again before it sleeps is not seen, so the holder waits for it.
#[test]
fn a_holder_sees_that_a_thread_sleeps() {
    let [lock, other] = sharing(1);
    let guard = lock.lock();
    assert!(!guard.is_contended(), "nobody waits");
    thread::scope(|scope| {
        // For the other lock of the word, which is the same to the holder.
        scope.spawn(|| drop(other.lock()));
        // Ten seconds at most, and then the assertion fails.
        let looks = (0..10_000).take_while(|_| !guard.is_contended());
        looks.for_each(|_| thread::sleep(Duration::from_millis(1)));
        assert!(guard.is_contended());
        drop(guard);
    });
    assert!(!lock.lock().is_contended(), "it slept, and is gone");
}

/// Two locks of one word.
fn sharing<T: Clone>(value: T) -> [Lock<T>; 2] {
    let word: Arc<LockWord> = Arc::default();
    [(); 2].map(|()| Lock::sharing(Arc::clone(&word), Rank::Class, value.clone()))
}

#[test]
fn locks_of_one_word_are_taken_and_given_up_together() {
    let [one, other] = sharing(7);
    let apart = Lock::sharing(Arc::default(), Rank::Class, 7);
    let guard = one.lock();
    assert!(other.try_lock().is_none() && one.try_lock().is_none(), "one guard for both");
    assert!(apart.try_lock().is_some(), "another word is another lock");
    drop(guard);
    *other.lock() += 1;
    assert_eq!((one.into_inner(), other.into_inner()), (7, 8), "each has a value of its own");
}

#[test]
fn eight_threads_at_two_locks_of_one_word_are_never_two_inside() {
    let (locks, inside) = (sharing((0_u64, 0_u64)), AtomicU64::new(0));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (locks, inside) = (&locks, &inside);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let mut pair = locks[(thread + round as usize) % 2].lock();
                    // relaxed: only the lock is to keep others out.
                    assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "two inside");
                    pair.0 += 1;
                    if round.is_multiple_of(1000) && thread == 0 {
                        thread::sleep(Duration::from_millis(1)); // the others sleep
                    }
                    pair.1 += 1;
                    assert_eq!(pair.0, pair.1, "someone else was inside");
                    inside.fetch_sub(1, Ordering::Relaxed);
                }
            });
        }
    });
    let sum: u64 = locks.iter().map(|lock| lock.lock().0).sum();
    assert_eq!(sum, THREADS as u64 * ROUNDS);
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "R1: waiting for a lock of rank Class")]
fn waiting_for_oneself_through_a_shared_word_is_caught() {
    let [one, other] = sharing(());
    let _one = one.lock();
    let _other = other.lock();
}

/// Bit 0 of a word in a table, as a store keeps it.
fn lock_bit(table: &Table<AtomicU64>, waiters: &BitLockWaiters, at: usize) {
    while table[at].fetch_or(1, Ordering::SeqCst) & 1 != 0 {
        waiters.wait_while(at, || table[at].load(Ordering::SeqCst) & 1 != 0);
    }
}

fn unlock_bit(table: &Table<AtomicU64>, waiters: &BitLockWaiters, at: usize) {
    table[at].fetch_and(!1, Ordering::SeqCst);
    waiters.wake(at);
}

#[test]
fn eight_threads_share_one_bit() {
    let table: Table<AtomicU64> = Table::reserve(512).unwrap();
    table.touch(0..512);
    let (waiters, inside) = (BitLockWaiters::new(), AtomicU64::new(0));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (table, waiters, inside) = (&table, &waiters, &inside);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    lock_bit(table, waiters, 77);
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders of a bit");
                    if thread == 0 && round.is_multiple_of(1000) {
                        thread::sleep(Duration::from_millis(1));
                    }
                    inside.fetch_sub(1, Ordering::SeqCst);
                    unlock_bit(table, waiters, 77);
                }
            });
        }
    });
    assert_eq!(table[77].load(Ordering::SeqCst), 0, "free in the end");
}

/// The story: a range discard returns a page of the slot table while a thread sleeps on a lock
/// bit in it. Nobody will ever clear that bit: the system has. Without `wake_all` the thread
/// sleeps for good.
#[test]
fn a_bit_that_vanishes_with_its_page_wakes_its_waiters() {
    let table: Table<AtomicU64> = Table::reserve(512).unwrap();
    let waiters = BitLockWaiters::new();
    table.touch(0..512);
    (0..4).for_each(|at| lock_bit(&table, &waiters, at * 100));
    thread::scope(|scope| {
        for at in 0..4 {
            let (table, waiters) = (&table, &waiters);
            scope.spawn(move || lock_bit(table, waiters, at * 100));
        }
        thread::sleep(Duration::from_millis(20)); // long enough for some to be asleep
        table.discard(0..512).unwrap();
        waiters.wake_all();
    });
    for at in 0..4 {
        assert_eq!(table[at * 100].load(Ordering::SeqCst), 1, "bit {at} was taken by its waiter");
    }
}
