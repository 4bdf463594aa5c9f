//! Every interleaving of the protocols of this crate, up to two preemptions.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2 \
//!     cargo test -p ramfold-host --profile model --test loom
//! ```
//!
//! Claims, by scenario
//! - Overlapping claims have exactly one winner, and the next owner sees what the last one did.
//! - Counters of bits are exact.
//! - A lock admits one thread at a time and wakes sleepers, also if several locks share one word.
//! - A server of faults is not used after it was retired.
//! - A waiter for a bit never misses that the bit is cleared. A lost wake-up shows as loom's
//!   deadlock.
#![cfg(loom)]

use loom::model;
use loom::sync::Arc;
use ramfold_host::fault::{Asker, Regions, Served, Server, Touched};
use ramfold_host::fork::Forks;
use ramfold_host::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use ramfold_host::sync::thread;
use ramfold_host::{
    Arena, BitLockWaiters, ClaimError, Lock, LockWord, PAGE_SIZE, Pfn, Rank, Run, Table, Zeroed,
};

/// Two words of bits, the border between frames 63 and 64.
fn arena() -> Arc<Arena> {
    Arc::new(Arena::reserve(128).expect("128 frames of heap stand in"))
}

fn spawn<T: 'static>(
    arena: &Arc<Arena>,
    action: impl FnOnce(&Arena) -> T + 'static,
) -> thread::JoinHandle<T> {
    let arena = Arc::clone(arena);
    thread::spawn(move || action(&arena))
}

#[test]
fn of_two_overlapping_claims_across_a_word_border_one_wins() {
    model(|| {
        let arena = arena();
        let other = spawn(&arena, |arena| arena.claim(Pfn::new(63), 4));
        let mine = arena.claim(Pfn::new(60), 5);
        let other = other.join().unwrap();
        match (&mine, &other) {
            (Ok(_), Err(refused)) => assert_eq!(*refused, ClaimError::InUse { pfn: Pfn::new(63) }),
            (Err(ClaimError::InUse { pfn }), Ok(_)) => assert!((63..67).contains(&pfn.get())),
            both => panic!("one winner, not {both:?}"),
        }
        let expected = if mine.is_ok() { 5 } else { 4 };
        assert_eq!(arena.claimed_in(Pfn::new(0), 128), expected, "the loser left nothing behind");
    });
}

#[test]
fn a_claim_refused_in_its_second_word_gives_back_its_first() {
    model(|| {
        let arena = arena();
        let other = spawn(&arena, |arena| arena.claim(Pfn::new(64), 3));
        let mine = arena.claim(Pfn::new(60), 5);
        let other = other.join().unwrap();
        assert!(mine.is_ok() != other.is_ok(), "one winner of frame 64");
        let refused = mine.as_ref().err().or(other.as_ref().err());
        assert_eq!(refused, Some(&ClaimError::InUse { pfn: Pfn::new(64) }));
        let expected = if mine.is_ok() { 5 } else { 3 };
        assert_eq!(arena.claimed_in(Pfn::new(0), 128), expected, "the loser left nothing behind");
    });
}

#[test]
fn claims_that_only_touch_never_refuse_each_other() {
    model(|| {
        let arena = arena();
        let other = spawn(&arena, |arena| arena.claim(Pfn::new(66), 2).is_ok());
        assert!(arena.claim(Pfn::new(62), 4).is_ok(), "frames 62 to 65 are nobody else's");
        assert!(other.join().unwrap(), "frames 66 and 67 are nobody else's");
    });
}

#[test]
fn a_frame_passes_from_owner_to_owner_with_its_content() {
    model(|| {
        let arena = arena();
        // The frame's content, as loom sees it: plain accesses, raced unless the claim orders them.
        let frame = Arc::new(loom::cell::UnsafeCell::new(0_u32));
        let theirs = Arc::clone(&frame);
        let owns = move |arena: &Arena, frame: &loom::cell::UnsafeCell<u32>| {
            let Ok(run) = arena.claim(Pfn::new(63), 2) else { return 0 };
            // SAFETY: the frame is this owner's; loom checks just that.
            frame.with_mut(|content| unsafe { *content += 1 });
            arena.unclaim(run).unwrap();
            1
        };
        let other = spawn(&arena, move |arena| owns(arena, &theirs));
        let mine = owns(&arena, &frame);
        let owners = mine + other.join().unwrap();
        // SAFETY: the other thread is gone.
        assert_eq!(frame.with(|content| unsafe { *content }), owners);
        assert!(owners >= 1, "two claims never refuse each other both");
    });
}

/// The second step of the arena is closed: a thread that finds it open may write there, whichever
/// thread opened it.
#[test]
fn frames_of_a_step_that_two_open_at_once_may_be_written() {
    model(|| {
        let arena = Arc::new(Arena::reserve(1024).expect("address space"));
        let write = |arena: &Arena, number: u32| {
            let mut run = arena.claim(Pfn::new(number), 1).expect("nobody has it");
            assert!(arena.write(&mut run, 0, b"content"));
        };
        let other = spawn(&arena, move |arena| write(arena, 601));
        write(&arena, 600);
        other.join().unwrap();
        assert_eq!(arena.resident_frames(), 2);
    });
}

#[test]
fn residency_of_frames_in_one_word_is_counted_exactly() {
    model(|| {
        let arena = arena();
        let mut mine = arena.claim(Pfn::new(0), 2).unwrap();
        let theirs = arena.claim(Pfn::new(2), 2).unwrap();
        arena.mark_resident(Pfn::new(0));
        let other = spawn(&arena, move |arena| touch_all(arena, theirs));
        assert_eq!(arena.purge(&mut mine).unwrap(), 1, "the one frame that was touched");
        other.join().unwrap();
        assert_eq!(arena.resident_frames(), 2);
        assert_eq!(arena.resident_in(Pfn::new(0), 128), 2, "the bits agree with the sum");
    });
}

#[test]
fn two_objects_copied_into_one_frame_make_it_resident_once() {
    model(|| {
        let arena = arena();
        let other = spawn(&arena, |arena| arena.mark_resident(Pfn::new(7)));
        let mine = arena.mark_resident(Pfn::new(7));
        assert!(mine != other.join().unwrap(), "news to exactly one of the two");
        assert_eq!(arena.resident_frames(), 1);
    });
}

fn touch_all(arena: &Arena, run: Run) {
    for pfn in run.pfn().run(run.frames()) {
        assert!(arena.mark_resident(pfn), "{pfn} was not touched before");
    }
}

/// An entry that fills a page with one atomic, since loom counts every access to any of 512.
struct WholePage(AtomicU64);

// SAFETY: a single atomic; under loom the size is nominal.
unsafe impl Zeroed for WholePage {
    const BYTES: usize = PAGE_SIZE;

    fn zero() -> WholePage {
        WholePage(AtomicU64::new(0))
    }

    fn clear(&self) {
        self.0.clear();
    }
}

#[test]
fn held_pages_touched_and_discarded_at_once_are_counted_exactly() {
    model(|| {
        let table: Arc<Table<WholePage>> = Arc::new(Table::reserve(2).unwrap());
        let theirs = Arc::clone(&table);
        let other = thread::spawn(move || theirs.touch(0..2));
        table.touch(1..2);
        let released = table.discard(0..2).unwrap();
        other.join().unwrap();
        assert!(released >= 4096, "the page touched here was held");
        table.check().unwrap();
    });
}

#[test]
fn two_increments_under_a_lock_are_both_counted() {
    model(|| {
        let lock = Arc::new(Lock::new(Rank::Class, 0));
        let theirs = Arc::clone(&lock);
        let other = thread::spawn(move || *theirs.lock() += 1);
        *lock.lock() += 1;
        other.join().unwrap();
        assert_eq!(*lock.lock(), 2);
    });
}

#[test]
fn three_threads_at_a_lock_are_all_woken() {
    model(|| {
        let lock = Arc::new(Lock::new(Rank::Class, 0));
        let others: Vec<_> = (0..2)
            .map(|_| {
                let lock = Arc::clone(&lock);
                thread::spawn(move || *lock.lock() += 1)
            })
            .collect();
        *lock.lock() += 1;
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(*lock.lock(), 3);
    });
}

#[test]
fn trying_while_another_locks_is_refused_or_exclusive() {
    model(|| {
        let lock = Arc::new(Lock::new(Rank::Class, 0));
        let theirs = Arc::clone(&lock);
        let other = thread::spawn(move || *theirs.lock() += 1);
        let tried = lock.try_lock().map(|mut value| *value += 1);
        other.join().unwrap();
        assert_eq!(*lock.lock(), 1 + i32::from(tried.is_some()));
    });
}

/// Two values, one word. What a thread does in the one is seen by the next in the other: the plain
/// accesses to `both` are a race for loom unless the word orders them.
#[test]
fn locks_of_one_word_exclude_each_other_over_both_values() {
    model(|| {
        let word: std::sync::Arc<LockWord> = std::sync::Arc::default();
        let locks = Arc::new([0, 10].map(|value| Lock::sharing(word.clone(), Rank::Class, value)));
        let both = Arc::new(loom::cell::UnsafeCell::new(0));
        let increment = |lock: &Lock<i32>, both: &loom::cell::UnsafeCell<i32>| {
            let mut value = lock.lock();
            *value += 1;
            // SAFETY: a thread that holds either lock is alone, and loom checks just that.
            both.with_mut(|both| unsafe { *both += 1 });
        };
        let (theirs, also_both) = (Arc::clone(&locks), Arc::clone(&both));
        let other = thread::spawn(move || increment(&theirs[1], &also_both));
        increment(&locks[0], &both);
        let tried = locks[1].try_lock().map(|mut value| *value += 1).is_some();
        other.join().unwrap();
        assert_eq!(*locks[0].lock(), 1);
        assert_eq!(*locks[1].lock(), 11 + i32::from(tried));
        // SAFETY: the other thread is gone.
        assert_eq!(both.with(|both| unsafe { *both }), 2);
    });
}

/// A word with its lock in bit 0, and where its waiters sleep.
struct BitLocked {
    word: AtomicU64,
    waiters: BitLockWaiters,
}

impl BitLocked {
    fn new(word: u64) -> Arc<BitLocked> {
        Arc::new(BitLocked { word: AtomicU64::new(word), waiters: BitLockWaiters::new() })
    }

    fn lock(&self) {
        while self.word.fetch_or(1, Ordering::SeqCst) & 1 != 0 {
            self.wait();
        }
    }

    /// Relaxed: what orders the load is the fence in `wait_while`, which is on trial.
    fn wait(&self) {
        self.waiters.wait_while(0, || self.word.load(Ordering::Relaxed) & 1 != 0);
    }

    fn unlock(&self) {
        self.word.fetch_and(!1, Ordering::SeqCst);
        self.waiters.wake(0);
    }
}

#[test]
fn no_wake_up_is_lost_between_two_holders_of_a_bit() {
    model(|| {
        let bit = BitLocked::new(0);
        let inside = Arc::new(AtomicUsize::new(0));
        let (theirs, also_inside) = (Arc::clone(&bit), Arc::clone(&inside));
        let hold = |bit: &BitLocked, inside: &AtomicUsize| {
            bit.lock();
            assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "two holders of a bit");
            inside.fetch_sub(1, Ordering::Relaxed);
            bit.unlock();
        };
        let other = thread::spawn(move || hold(&theirs, &also_inside));
        hold(&bit, &inside);
        other.join().unwrap();
    });
}

#[test]
fn one_clearing_wakes_two_waiters() {
    model(|| {
        let bit = BitLocked::new(1);
        let others: Vec<_> = (0..2)
            .map(|_| {
                let bit = Arc::clone(&bit);
                thread::spawn(move || bit.wait())
            })
            .collect();
        bit.unlock();
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn a_bit_that_vanishes_wakes_its_waiter() {
    model(|| {
        let bit = BitLocked::new(1);
        let theirs = Arc::clone(&bit);
        let other = thread::spawn(move || theirs.wait());
        bit.word.store(0, Ordering::Relaxed); // as a discarded page: no ordering of its own
        bit.waiters.wake_all();
        other.join().unwrap();
    });
}

/// A server whose region is a cell that loom watches.
struct Watched {
    served: Arc<loom::cell::UnsafeCell<u64>>,
    range: std::ops::Range<usize>,
}

// SAFETY: loom's cell panics where two accesses are not ordered; that is what is tested.
unsafe impl Send for Watched {}
// SAFETY: as above.
unsafe impl Sync for Watched {}

// SAFETY: no signal handler asks it in a model.
unsafe impl Server for Watched {
    fn serve(&self, address: usize, _: Asker) -> Served {
        // SAFETY: nobody writes to the cell before `retire` has returned.
        self.served.with(|cell| assert_eq!(unsafe { *cell }, 0, "served after the end"));
        if self.range.contains(&address) { Served::Filled } else { Served::Foreign }
    }
}

fn watched(range: std::ops::Range<usize>) -> (std::sync::Arc<Watched>, impl Fn()) {
    let served = Arc::new(loom::cell::UnsafeCell::new(0));
    let ended = Arc::clone(&served);
    let end = move || {
        // SAFETY: `retire` has returned.
        ended.with_mut(|cell| unsafe { *cell = 1 });
    };
    (std::sync::Arc::new(Watched { served, range }), end)
}

#[test]
fn a_server_that_was_retired_is_not_used_any_more() {
    model(|| {
        let regions = Arc::new(Regions::<1>::new());
        let (server, end) = watched(10..20);
        let entry = regions.enter(10..20, server).expect("there is room");
        let table = Arc::clone(&regions);
        let fault = thread::spawn(move || table.serve(15, Asker::Message { thread: 1 }));
        entry.retire();
        end();
        assert_ne!(
            regions.serve(15, Asker::Message { thread: 1 }),
            Touched::Foreign,
            "its range is not forgotten"
        );
        assert_ne!(fault.join().unwrap(), Touched::Foreign);
    });
}

#[test]
fn a_slot_that_changes_hands_serves_nobody_else() {
    model(|| {
        let regions = Arc::new(Regions::<1>::new());
        let (first, end) = watched(10..20);
        let (second, _) = watched(30..40);
        let entry = regions.enter(10..20, first).expect("there is room");
        let table = Arc::clone(&regions);
        let fault = thread::spawn(move || {
            (
                table.serve(35, Asker::Message { thread: 1 }),
                table.serve(15, Asker::Message { thread: 1 }),
            )
        });
        drop(entry);
        end();
        let _second = regions.enter(30..40, second).expect("there is room again");
        assert_eq!(
            regions.serve(35, Asker::Message { thread: 1 }),
            Touched::Served(Served::Filled)
        );
        fault.join().unwrap();
    });
}

/// Serves nothing. It is asked about 25 only if the table took the start of one region and the end
/// of the next.
struct Never;

// SAFETY: no signal handler asks it in a model.
unsafe impl Server for Never {
    fn serve(&self, _: usize, _: Asker) -> Served {
        panic!("asked about an address that no region ever had")
    }
}

#[test]
fn a_range_is_never_the_start_of_one_region_and_the_end_of_the_next() {
    model(|| {
        let regions = Arc::new(Regions::<1>::new());
        let entry = regions.enter(10..20, std::sync::Arc::new(Never)).expect("there is room");
        let table = Arc::clone(&regions);
        let fault = thread::spawn(move || table.serve(25, Asker::Message { thread: 1 }));
        drop(entry);
        let _next = regions.enter(30..40, std::sync::Arc::new(Never)).expect("there is room again");
        assert_eq!(fault.join().unwrap(), Touched::Foreign);
    });
}

#[test]
fn a_fork_sees_all_that_was_done_inside_and_nothing_half_done() {
    model(|| {
        let forks = Arc::new(Forks::new());
        let done = Arc::new(loom::cell::UnsafeCell::new(0u64));
        let (gate, work) = (Arc::clone(&forks), Arc::clone(&done));
        let inside = thread::spawn(move || {
            let _inside = gate.go_inside();
            // SAFETY: no other thread looks at the cell while this one is inside.
            work.with_mut(|work| unsafe { *work += 1 });
        });
        forks.prepare();
        // SAFETY: no thread is inside.
        done.with(|done| assert!(unsafe { *done } <= 1));
        forks.resume(false);
        inside.join().unwrap();
        forks.prepare();
        // SAFETY: as above.
        done.with(|done| assert_eq!(unsafe { *done }, 1));
    });
}
