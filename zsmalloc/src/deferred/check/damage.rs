//! Each rule of a queue's recount, against a queue that was damaged on purpose.
//!
//! Claim: the recount names what is wrong.

use crate::deferred::{Queue, QueueConfig};

/// A queue with a value in a shard's buffer, and one in a buffer that waits.
fn queue() -> Queue<u64> {
    let config = QueueConfig { shards: Some(1), ..QueueConfig::default() };
    let queue = Queue::new(config, |values| values.for_each(drop), || {});
    let queue = queue.expect("a few pages");
    queue.push(10, 10).expect("room");
    queue.queue_all();
    queue.push(20, 20).expect("room");
    queue
}

#[track_caller]
fn shows(damage: impl FnOnce(&Queue<u64>), finding: &str) {
    let queue = queue();
    assert_eq!(queue.check(|&value| value), Ok((2, 30)), "sound before the damage");
    damage(&queue);
    let defect = queue.check(|&value| value).expect_err("damaged").0;
    assert!(defect.contains(finding), "{defect:?} is not about {finding:?}");
    // What is damaged cannot be torn down.
    std::mem::forget(queue);
}

#[test]
fn a_wrong_payload_is_found() {
    shows(|queue| queue.shards[0].0.lock().bytes -= 1, "values of 20 bytes in a buffer of 19");
    shows(|queue| queue.shards[0].0.lock().bytes += 1, "values of 20 bytes in a buffer of 21");
    let quota = |queue: &Queue<u64>| queue.shards[0].0.lock().quota = 19;
    shows(quota, "20 bytes, granted were 19");
}

#[test]
fn a_wrong_grant_and_a_lost_buffer_are_found() {
    shows(|queue| queue.shards[0].0.lock().quota += 1, "payload and buffers: counted");
    let lost = |queue: &Queue<u64>| {
        let mut depot = queue.depot.lock();
        let mut buffer = depot.give_free();
        assert!(buffer.exists());
        buffer.quota = 0;
        std::mem::forget(buffer);
    };
    shows(lost, "payload and buffers: counted");
}
