//! The queue of deferred work against its naive twin, a list, and what it promises at its limits.
//!
//! Claims
//! - a value that was accepted is drained exactly once, a value handed back never;
//! - what is pending, and its bytes, is what was accepted and not drained, and never over budget;
//! - a push is refused only where no buffer or no payload is left, and never after a flush;
//! - a drain function that panics costs the values it took, no others.
#![cfg(not(any(loom, shuttle)))]

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use proptest::prelude::*;
use ramfold_zsmalloc::deferred::{NotQueued, Queue, QueueConfig, Values};

/// Eight to a buffer.
type Value = [u64; 64];
const CAPACITY: usize = 4096 / size_of::<Value>();

fn value(name: u64) -> Value {
    [name; 64]
}

/// What the drain function got, in order; where it panics, once.
#[derive(Default)]
struct Drained {
    names: Mutex<Vec<u64>>,
    /// Values until it panics; 0: it does not.
    fuse: AtomicUsize,
    /// Times a push said that a buffer became full, or that there was none.
    calls: AtomicU64,
}

impl Drained {
    fn take(&self, name: u64) {
        self.names.lock().expect("nobody panics with it").push(name);
        let burnt = self.fuse.load(Ordering::Relaxed);
        if burnt > 0 && self.fuse.fetch_sub(1, Ordering::Relaxed) == 1 {
            panic!("on purpose");
        }
    }

    fn all(&self) -> Vec<u64> {
        self.names.lock().expect("nobody panics with it").clone()
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

fn queue(shards: usize, buffers: usize, budget: u64) -> (Queue<Value>, Arc<Drained>) {
    let config = QueueConfig {
        shards: Some(shards),
        buffer_bytes: buffers * 4096,
        pending_bytes_max: budget,
    };
    let drained = Arc::new(Drained::default());
    let (values, calls) = (Arc::clone(&drained), Arc::clone(&drained));
    let drain = move |all: &mut Values<'_, Value>| {
        all.for_each(|value| values.take(value[0]));
    };
    let full = move || {
        calls.calls.fetch_add(1, Ordering::Relaxed);
    };
    (Queue::new(config, drain, full).expect("memory"), drained)
}

#[derive(Clone, Debug)]
enum Action {
    Push {
        count: usize,
        bytes: u64,
    },
    DrainSome(usize),
    Flush,
    /// A flush whose drain function panics after so many values.
    Panic(usize),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        8 => (1usize..20, 0u64..5000).prop_map(|(count, bytes)| Action::Push { count, bytes }),
        2 => (0usize..4).prop_map(Action::DrainSome),
        1 => Just(Action::Flush),
        1 => (1usize..30).prop_map(Action::Panic),
    ]
}

struct Twin {
    queue: Queue<Value>,
    drained: Arc<Drained>,
    /// By name, the bytes of every value there was.
    bytes: Vec<u64>,
    pending: HashSet<u64>,
    /// Values that the drain function has shown so far.
    seen: usize,
    refused: u64,
    budget: u64,
}

impl Twin {
    fn apply(&mut self, action: &Action) {
        match *action {
            Action::Push { count, bytes } => (0..count).for_each(|_| self.push(bytes)),
            Action::DrainSome(buffers) => {
                let drained = self.queue.drain_some(buffers);
                assert_eq!(self.collect(), drained);
                assert!(drained <= (buffers * CAPACITY) as u64);
            }
            Action::Flush => {
                let drained = self.queue.flush();
                assert_eq!(self.collect(), drained);
                assert!(self.pending.is_empty(), "left behind by a flush: {:?}", self.pending);
            }
            Action::Panic(after) => {
                self.drained.fuse.store(after, Ordering::Relaxed);
                let flushed = catch_unwind(AssertUnwindSafe(|| self.queue.flush()));
                self.drained.fuse.store(0, Ordering::Relaxed);
                let taken = self.collect();
                assert_eq!(flushed.is_err(), taken == after as u64, "{taken} of {after}");
                assert!(flushed.is_err() || self.pending.is_empty());
            }
        }
    }

    fn push(&mut self, bytes: u64) {
        let name = self.bytes.len() as u64;
        self.bytes.push(bytes);
        match self.queue.push(value(name), bytes) {
            Ok(()) => assert!(self.pending.insert(name)),
            Err(NotQueued(back)) => {
                assert_eq!(back, value(name), "handed back as it was");
                self.refused += 1;
            }
        }
    }

    /// Takes note of what was drained; gives how many values.
    fn collect(&mut self) -> u64 {
        let all = self.drained.all();
        for name in &all[self.seen..] {
            assert!(self.pending.remove(name), "{name} was drained and is not pending");
        }
        let new = all.len() - self.seen;
        self.seen = all.len();
        new as u64
    }

    fn check(&self) {
        let expected = self.pending.iter().map(|&name| self.bytes[name as usize]).sum::<u64>();
        let meters = self.queue.meters();
        let counted = self.queue.check(|value| self.bytes[value[0] as usize]).expect("no defect");
        assert_eq!(counted, (meters.pending_values, meters.pending_bytes));
        assert_eq!(meters.pending_values, self.pending.len() as u64);
        // A buffer that a panic left half-drained keeps its payload until it is empty.
        assert!(meters.pending_bytes >= expected && meters.pending_bytes <= self.budget);
        let total: u64 = self.bytes.iter().sum();
        assert!(meters.pending_bytes <= total);
        assert_eq!(meters.fallbacks, self.refused);
        assert_eq!(meters.drained_values, self.seen as u64);
        assert_eq!(meters.behind.is_zero(), self.pending.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn a_queue_is_its_twin(
        actions in prop::collection::vec(action(), 1..80),
        shards in 1usize..4,
        buffers in 0usize..6,
        budget in prop_oneof![Just(0), 1u64..100_000, Just(1 << 20)],
    ) {
        let (queue, drained) = queue(shards, buffers, budget);
        let pending = HashSet::new();
        let mut twin = Twin { queue, drained, bytes: vec![], pending, seen: 0, refused: 0, budget };
        for action in &actions {
            twin.apply(action);
            twin.check();
        }
        let (drained, pending, seen) = (twin.drained, twin.pending, twin.seen);
        drop(twin.queue);
        let last: HashSet<u64> = drained.all()[seen..].iter().copied().collect();
        prop_assert_eq!(last, pending, "dropping the queue drains what is left");
    }
}

#[test]
fn every_buffer_can_be_filled_and_then_values_come_back() {
    let (queue, drained) = queue(1, 3, 1 << 20);
    for round in 1..4 {
        for name in 0..4 * CAPACITY as u64 {
            queue.push(value(name), 1).expect("four buffers");
        }
        let before = drained.calls();
        assert_eq!(queue.push(value(99), 1), Err(NotQueued(value(99))));
        assert_eq!(drained.calls(), before + 1, "whoever drains is told that there is no buffer");
        assert_eq!(queue.meters().fallbacks, round);
        assert_eq!(queue.drain_some(usize::MAX), 4 * CAPACITY as u64, "full ones are queued");
    }
    assert_eq!(queue.meters().drains, 3 * 4);
}

#[test]
fn a_queue_for_a_store_takes_all_its_pages_at_once() {
    const PAGES: u64 = 300_000;
    for config in [QueueConfig::for_pages(PAGES), QueueConfig::default()] {
        let drained = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&drained);
        let drain = move |all: &mut Values<'_, u64>| {
            // Relaxed: read after the queue is dropped.
            count.fetch_add(all.count() as u64, Ordering::Relaxed);
        };
        let queue = Queue::new(config, drain, || {}).expect("memory");
        let refused = (0..PAGES).filter(|&page| queue.push(page, 4096).is_err()).count() as u64;
        assert_eq!(refused == 0, config == QueueConfig::for_pages(PAGES), "{refused} came back");
        drop(queue);
        assert_eq!(drained.load(Ordering::Relaxed), PAGES - refused);
    }
}

#[test]
fn whoever_drains_is_told_of_each_full_buffer() {
    let (queue, drained) = queue(1, 3, 1 << 20);
    for name in 0..CAPACITY as u64 - 1 {
        queue.push(value(name), 1).expect("room");
    }
    assert_eq!((drained.calls(), queue.drain_some(9)), (0, 0), "a partly filled one waits");
    queue.push(value(0), 1).expect("room");
    assert_eq!((drained.calls(), queue.drain_some(9)), (1, CAPACITY as u64));
}

#[test]
fn payload_is_bounded_whatever_the_buffers_have_room_for() {
    let (queue, _drained) = queue(2, 100, 4096);
    let mut pending = 0;
    while queue.push(value(0), 100).is_ok() {
        pending += 100;
        assert_eq!(queue.pending_bytes(), pending);
    }
    assert!((3072..=4096).contains(&pending), "{pending}: within the budget, and most of it");
    assert_eq!(
        queue.push(value(1), 1 << 40),
        Err(NotQueued(value(1))),
        "never, and nothing overflows"
    );
    queue.flush();
    assert!(queue.push(value(1), 100).is_ok());
    assert!(queue.push(value(1), 2000).is_err(), "more than a shard's buffer is ever granted");
}

#[test]
fn a_queue_without_payload_budget_takes_nothing() {
    let (queue, drained) = queue(2, 4, 0);
    assert!(queue.push(value(1), 0).is_err() && queue.push(value(1), 1).is_err());
    drop(queue);
    assert!(drained.all().is_empty());
}

#[test]
fn dropping_goes_on_after_a_panic_and_passes_it_on() {
    let (queue, drained) = queue(1, 3, 1 << 20);
    let names = 0..3 * CAPACITY as u64 + 2;
    names.clone().for_each(|name| queue.push(value(name), 1).expect("room"));
    drained.fuse.store(CAPACITY + 3, Ordering::Relaxed);
    let panic = catch_unwind(AssertUnwindSafe(|| drop(queue))).expect_err("it is not swallowed");
    assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
    let mut all = drained.all();
    all.sort_unstable();
    assert_eq!(all, names.collect::<Vec<_>>());
}

#[test]
fn values_that_a_drain_function_leaves_are_noticed_and_stay() {
    let config = QueueConfig { shards: Some(1), ..QueueConfig::default() };
    let takes_one = |values: &mut Values<'_, u64>| {
        values.next();
    };
    let mut queue = Queue::new(config, takes_one, || {}).expect("memory");
    (0..3).for_each(|name| queue.push(name, 10).expect("room"));
    let flushed = catch_unwind(AssertUnwindSafe(|| queue.flush()));
    assert!(flushed.is_err(), "a drain function takes all");
    let meters = queue.meters();
    assert_eq!((meters.pending_values, meters.pending_bytes), (2, 30));
    assert_eq!(queue.flush_with(|values| assert_eq!(values.by_ref().count(), 2)), 2);
    assert_eq!(queue.pending_bytes(), 0);
    assert_eq!(queue.check(|_| 10), Ok((0, 0)));
}

#[test]
fn memory_that_cannot_be_had_is_an_error() {
    let config = QueueConfig { buffer_bytes: usize::MAX, ..QueueConfig::default() };
    let drain = |values: &mut Values<'_, u64>| values.for_each(drop);
    assert!(Queue::new(config, drain, || {}).is_err());
}

/// Others may fill buffers as fast as one is drained, so a thread that drains is done with those
/// that there were.
#[test]
fn a_drain_ends_though_as_much_is_pushed_meanwhile() {
    const ROUNDS: usize = 100;
    let own = Arc::new(OnceLock::<Weak<Queue<Value>>>::new());
    let (to, left) = (Arc::clone(&own), AtomicUsize::new(ROUNDS));
    let drain = move |all: &mut Values<'_, Value>| {
        let queue = to.get().and_then(Weak::upgrade);
        // Relaxed: one thread. Bounded, so that a drain without end fails instead.
        let refills = left.load(Ordering::Relaxed) > 0;
        for value in all.by_ref() {
            if let Some(queue) = queue.as_ref().filter(|_| refills) {
                queue.push(value, 1).expect("a buffer is being drained, the others are free");
            }
        }
        left.fetch_sub(usize::from(refills), Ordering::Relaxed);
    };
    let config =
        QueueConfig { shards: Some(1), buffer_bytes: 4 * 4096, pending_bytes_max: 1 << 20 };
    let queue = Arc::new(Queue::new(config, drain, || {}).expect("memory"));
    own.set(Arc::downgrade(&queue)).expect("once");
    let names = 0..2 * CAPACITY as u64;
    names.clone().for_each(|name| queue.push(value(name), 1).expect("room"));
    for _ in 0..3 {
        assert_eq!(queue.drain_some(usize::MAX), names.end, "two buffers, as there were");
        assert_eq!(queue.meters().pending_values, names.end, "and two again");
        assert_eq!(queue.drain_some(1), CAPACITY as u64);
    }
}

/// Threads that push, one that drains, one that flushes: each value is drained once, or handed
/// back.
#[test]
fn nothing_is_lost_or_drained_twice_between_threads() {
    const THREADS: u64 = 3;
    const VALUES: u64 = 20_000;
    let (queue, drained) = queue(2, 3, 1 << 30);
    let stop = AtomicU64::new(0);
    let refused: Mutex<Vec<u64>> = Mutex::default();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (queue, refused, stop) = (&queue, &refused, &stop);
            scope.spawn(move || {
                for name in thread * VALUES..(thread + 1) * VALUES {
                    if let Err(NotQueued(back)) = queue.push(value(name), 7) {
                        refused.lock().expect("no panic").push(back[0]);
                    }
                }
                stop.fetch_add(1, Ordering::Relaxed);
            });
        }
        let (queue, stop) = (&queue, &stop);
        let running = move || stop.load(Ordering::Relaxed) < THREADS;
        scope.spawn(move || {
            while running() {
                queue.drain_some(2);
            }
        });
        scope.spawn(move || {
            while running() {
                queue.flush();
            }
        });
    });
    queue.flush();
    assert_eq!(queue.check(|_| 7), Ok((0, 0)));
    let mut all = drained.all();
    all.append(&mut refused.lock().expect("no panic"));
    all.sort_unstable();
    assert_eq!(all, (0..THREADS * VALUES).collect::<Vec<_>>());
}
