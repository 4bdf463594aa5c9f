//! Scenarios of the queue of deferred work: two values to a buffer, and every thread on the first
//! CPU, so that all want the first shard.
//!
//! Claims: a value that was accepted is drained once, and by the time that a flush which began
//! after its push returns; a value handed back is never drained.

use super::model;
use loom::sync::Mutex;
use loom::thread;
use ramfold_zsmalloc::deferred::{Queue, QueueConfig, Values};
use std::sync::Arc;

/// What was drained so far. A mutex of loom's, so that others may come between the depot and it.
type Log = Arc<Mutex<Vec<u32>>>;

fn queue(shards: usize, buffers: usize) -> (Arc<Queue<u32>>, Log) {
    let config = QueueConfig {
        shards: Some(shards),
        buffer_bytes: buffers * 4096,
        ..QueueConfig::default()
    };
    let log: Log = Arc::new(Mutex::new(Vec::new()));
    let drained = Arc::clone(&log);
    let drain = move |values: &mut Values<'_, u32>| {
        drained.lock().expect("no panic").extend(values);
    };
    (Arc::new(Queue::new(config, drain, || {}).expect("memory")), log)
}

/// Pushes all of them; gives those that came back.
fn push(queue: &Queue<u32>, values: &[u32]) -> Vec<u32> {
    values.iter().filter_map(|&value| Some(queue.push(value, 1).err()?.0)).collect()
}

fn has(log: &Log, value: u32) -> bool {
    log.lock().expect("no panic").contains(&value)
}

/// Everything was drained once, except what came back.
#[track_caller]
fn expect(log: &Log, back: &[Vec<u32>], values: &[u32]) {
    let mut all = [log.lock().expect("no panic").clone(), back.concat()].concat();
    all.sort_unstable();
    assert_eq!(all, values);
}

#[test]
fn push_against_rotation_against_drain() {
    model(|| {
        let (queue, log) = queue(1, 1);
        let other = Arc::clone(&queue);
        let pusher = thread::spawn(move || push(&other, &[1, 2, 3]));
        queue.drain_some(2);
        let back = pusher.join().expect("pusher");
        queue.flush();
        expect(&log, &[back], &[1, 2, 3]);
        assert_eq!(queue.check(|_| 1), Ok((0, 0)));
    });
}

#[test]
fn flush_against_push() {
    model(|| {
        let (queue, log) = queue(1, 2);
        assert!(push(&queue, &[1]).is_empty());
        let other = Arc::clone(&queue);
        let pusher = thread::spawn(move || push(&other, &[2, 3]));
        queue.flush();
        assert!(has(&log, 1), "pushed before the flush");
        let back = pusher.join().expect("pusher");
        queue.flush();
        expect(&log, &[back], &[1, 2, 3]);
    });
}

/// Were buffers taken out of shards without the turn, one flush would not see what the other is
/// about to queue.
#[test]
fn flush_against_flush() {
    model(|| {
        let (queue, log) = queue(1, 2);
        assert!(push(&queue, &[1]).is_empty());
        let other = Arc::clone(&queue);
        let flusher = thread::spawn(move || other.flush());
        queue.flush();
        assert!(has(&log, 1), "whoever drains it");
        flusher.join().expect("flusher");
        expect(&log, &[], &[1]);
    });
}

/// A flush waits for the buffer that another thread is draining.
#[test]
fn flush_against_drain() {
    model(|| {
        let (queue, log) = queue(1, 2);
        assert!(push(&queue, &[1, 2]).is_empty());
        let other = Arc::clone(&queue);
        let drainer = thread::spawn(move || other.drain_some(1));
        queue.flush();
        assert!(has(&log, 1) && has(&log, 2));
        drainer.join().expect("drainer");
        expect(&log, &[], &[1, 2]);
    });
}

#[test]
fn exhaustion_against_drain() {
    model(|| {
        let (queue, log) = queue(1, 0);
        let other = Arc::clone(&queue);
        let pusher = thread::spawn(move || push(&other, &[1, 2]));
        let back = push(&queue, &[3, 4]);
        queue.drain_some(1);
        let theirs = pusher.join().expect("pusher");
        let refused = (back.len() + theirs.len()) as u64;
        assert_eq!(queue.meters().fallbacks, refused);
        queue.flush();
        expect(&log, &[back, theirs], &[1, 2, 3, 4]);
        assert_eq!(queue.check(|_| 1), Ok((0, 0)));
    });
}

/// A thread that finds its shard taken, as one that was moved to another CPU would, uses the next.
#[test]
fn two_threads_on_one_cpu_use_two_shards() {
    model(|| {
        let (queue, log) = queue(2, 1);
        let other = Arc::clone(&queue);
        let pusher = thread::spawn(move || push(&other, &[1, 2]));
        let back = push(&queue, &[3]);
        queue.flush();
        assert!(has(&log, 3) || back == [3]);
        let theirs = pusher.join().expect("pusher");
        queue.flush();
        expect(&log, &[back, theirs], &[1, 2, 3]);
    });
}

/// The last to let go of the queue drains it, whichever thread that is.
#[test]
fn drop_with_values() {
    model(|| {
        let (queue, log) = queue(1, 2);
        let pusher = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || push(&queue, &[1, 2, 3]))
        };
        let back = push(&queue, &[4]);
        drop(queue);
        let theirs = pusher.join().expect("pusher");
        expect(&log, &[back, theirs], &[1, 2, 3, 4]);
    });
}
