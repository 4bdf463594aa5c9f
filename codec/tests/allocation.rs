//! Allocations from Rust's allocator. After its first use a stream makes none, and before that it
//! makes no more than it reports.
//!
//! Allocations of the C libraries are not seen here. `memory` checks what they report. This test
//! has its own `main`, because the allocator counts for all threads, and a test harness has some.

use ramfold_codec::{Algorithm, Codec, Stream};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use support::{codecs, page};

mod support;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() {
    decompressing_without_a_stream_allocates_nothing();
    what_comes_from_rusts_allocator_is_counted_exactly();
    four_codecs_in_turn_rebuild_nothing();
}

fn decompressing_without_a_stream_allocates_nothing() {
    for codec in codecs().into_iter().filter(|codec| !codec.needs_stream_to_decompress()) {
        let blob =
            codec.compress(&mut Stream::new(), &page(1)).expect("a page there and back").to_vec();
        let (mut stream, mut back) = (Stream::new(), [0; 4096]);
        let allocated = Region::new(ALLOCATOR);
        codec.decompress(&mut stream, &blob, &mut back).expect("a page there and back");
        codec.decompress_stateless(&blob, &mut back).expect("a page there and back");
        assert_eq!(allocated.change().allocations, 0, "{codec}");
        assert_eq!(stream.heap_bytes(), 0, "{codec}");
    }
}

/// Our own code and the libraries written in Rust hold as much as the stream reports.
fn what_comes_from_rusts_allocator_is_counted_exactly() {
    let in_rust = |codec: &Codec| {
        matches!(
            codec.algorithm(),
            Algorithm::LzoRle | Algorithm::Lzo | Algorithm::Deflate | Algorithm::Pagelz
        )
    };
    for codec in codecs().into_iter().filter(in_rust) {
        let mut stream = Stream::new();
        let mut back = [0; 4096];
        let mut blob = Vec::with_capacity(8192);
        let allocated = Region::new(ALLOCATOR);
        blob.extend_from_slice(
            codec.compress(&mut stream, &page(1)).expect("a page there and back"),
        );
        codec.decompress(&mut stream, &blob, &mut back).expect("a page there and back");
        let change = allocated.change();
        let held = change.bytes_allocated - change.bytes_deallocated;
        assert_eq!(stream.heap_bytes(), held, "{codec}");
        drop(stream);
        let change = allocated.change();
        assert_eq!(change.bytes_allocated, change.bytes_deallocated, "{codec}: left behind");
    }
}

/// Four codecs take turns on one stream, as in a page store with recompression.
fn four_codecs_in_turn_rebuild_nothing() {
    let all = codecs();
    for four in all.windows(4).chain(all.rchunks(4)) {
        let mut stream = Stream::new();
        let (mut back, mut blob) = ([0; 4096], Vec::with_capacity(8192));
        let mut turn = |stream: &mut Stream, seed| {
            for codec in four {
                blob.clear();
                blob.extend_from_slice(
                    codec.compress(stream, &page(seed)).expect("a page there and back"),
                );
                codec.decompress(stream, &blob, &mut back).expect("a page there and back");
            }
        };
        turn(&mut stream, 0);
        let held = stream.heap_bytes();
        let inputs = page(1).capacity();
        let allocated = Region::new(ALLOCATOR);
        (0..8).for_each(|seed| turn(&mut stream, seed));
        let change = allocated.change();
        assert_eq!(
            change.bytes_allocated,
            8 * four.len() * inputs,
            "more than the pages: {four:?}"
        );
        assert_eq!(stream.heap_bytes(), held, "{four:?}");
    }
}
