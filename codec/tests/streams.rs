//! Streams shared by threads. One thread uses a stream at a time, their bytes are counted exactly,
//! and a panic of one thread does not affect another.
//!
//! Invariant under test: while no stream is in use, the counter is the sum of what they report.

use ramfold_codec::{Algorithm, Codec, Stream, Streams};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const PAGE: [u8; 4096] = [7; 4096];

/// Longer than anything here takes on any machine.
const HANG: Duration = Duration::from_secs(60);

/// What one stream holds once it has compressed a page.
fn held_by_one(codec: &Codec) -> usize {
    let mut stream = Stream::new();
    codec.compress(&mut stream, &PAGE).expect("a page compresses");
    stream.heap_bytes()
}

fn compress(streams: &Streams, hint: usize, codec: &Codec) {
    streams
        .with(hint, |stream| codec.compress(stream, &PAGE).map(|_| ()))
        .expect("a page compresses");
}

#[test]
fn there_are_two_per_cpu_and_at_least_one_cpu() {
    assert_eq!([0, 1, 8].map(|cpus| Streams::for_cpus(cpus).count()), [2, 2, 16]);
}

#[test]
fn only_streams_in_use_are_counted_and_each_once() {
    let codec = Codec::new(Algorithm::Zstd);
    let one = held_by_one(&codec);
    let streams = Streams::for_cpus(2);
    for (hint, built) in [(0, 1), (0, 1), (3, 2), (4, 2), (usize::MAX, 2), (2, 3)] {
        compress(&streams, hint, &codec);
        assert_eq!(streams.heap_bytes(), built * one, "after hint {hint}");
    }
}

/// A stream keeps four contexts of Zstandard: four small ones push four large ones out.
#[test]
fn a_stream_that_shrinks_is_counted_down() {
    let streams = Streams::for_cpus(1);
    let fresh = Streams::for_cpus(1);
    for level in 16..=19 {
        compress(&streams, 0, &Codec::with_level(Algorithm::Zstd, level).unwrap());
    }
    let large = streams.heap_bytes();
    for level in 1..=4 {
        let codec = Codec::with_level(Algorithm::Zstd, level).unwrap();
        compress(&streams, 0, &codec);
        compress(&fresh, 0, &codec);
    }
    assert!(streams.heap_bytes() < large);
    assert_eq!(streams.heap_bytes(), fresh.heap_bytes());
}

#[test]
fn a_busy_stream_is_passed_over() {
    let streams = &Streams::for_cpus(1);
    let codec = &Codec::new(Algorithm::Lz4);
    let (done, other_is_done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let served = streams.with(0, |_| {
            scope.spawn(move || {
                compress(streams, 0, codec);
                done.send(())
            });
            // The limit only turns a hang into a failure.
            other_is_done.recv_timeout(HANG)
        });
        assert!(served.is_ok(), "stream 1 was free, but the thread waited for stream 0");
    });
    assert_eq!(streams.heap_bytes(), held_by_one(codec));
}

#[test]
fn when_all_are_busy_the_hinted_one_is_waited_for() {
    let streams = &Streams::for_cpus(1);
    let (all_taken, waiting) = (&Barrier::new(3), &Barrier::new(2));
    thread::scope(|scope| {
        let (release_first, first) = mpsc::channel::<()>();
        let (release_second, second) = mpsc::channel::<()>();
        let (done, waiter_is_done) = mpsc::channel::<()>();
        for (hint, gate) in [(0, first), (1, second)] {
            scope.spawn(move || {
                streams.with(hint, |_| {
                    all_taken.wait();
                    gate.recv()
                })
            });
        }
        all_taken.wait();
        scope.spawn(move || {
            waiting.wait();
            compress(streams, 1, &Codec::new(Algorithm::Lz4));
            done.send(())
        });
        waiting.wait();
        assert_eq!(streams.heap_bytes(), 0, "no stream is free, so none was used");
        release_second.send(()).unwrap();
        // The limit only turns a hang into a failure.
        let served = waiter_is_done.recv_timeout(HANG);
        assert!(served.is_ok(), "stream 1 is free again, but the thread waits for another");
        release_first.send(()).unwrap();
    });
    assert!(streams.heap_bytes() > 0, "the waiting thread got its turn");
}

#[test]
fn a_panic_poisons_nothing_and_is_counted() {
    let streams = Streams::for_cpus(1);
    let codec = Codec::new(Algorithm::Zstd);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        streams.with(0, |stream| {
            codec.compress(stream, &PAGE).unwrap();
            panic!("in the caller's closure");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(streams.heap_bytes(), held_by_one(&codec), "what the panic left is counted");
    compress(&streams, 0, &codec);
    assert_eq!(streams.heap_bytes(), held_by_one(&codec), "the same stream serves on");
}

#[test]
fn many_threads_get_back_what_they_put_in() {
    let streams = Streams::for_cpus(2);
    let held = thread::scope(|scope| {
        for number in 0..8_usize {
            let streams = &streams;
            scope.spawn(move || (0..200).for_each(|round| turn(streams, number, round)));
        }
        scope.spawn(|| streams.heap_bytes()).join().unwrap()
    });
    assert!(held <= streams.heap_bytes(), "nothing was given back on the way");
    let sum: usize =
        (0..streams.count()).map(|hint| streams.with(hint, |stream| stream.heap_bytes())).sum();
    assert_eq!(streams.heap_bytes(), sum, "the counter against a recount");
}

/// Compresses and decompresses a page of this thread's own, under two separate leases.
fn turn(streams: &Streams, number: usize, round: usize) {
    let codec = Codec::new(Algorithm::ALL[round % Algorithm::ALL.len()]);
    let page: Vec<u8> = (0..4096).map(|at| (at / (number + 1) + round) as u8).collect();
    let blob = streams.with(number, |stream| codec.compress(stream, &page).map(<[u8]>::to_vec));
    let blob = blob.expect("a page compresses");
    let mut back = vec![0; page.len()];
    let outcome = streams.with(number + 1, |stream| codec.decompress(stream, &blob, &mut back));
    assert!(outcome.is_ok() && back == page, "thread {number}, round {round}: {outcome:?}");
}
