//! The memory of streams: none before the first use, all of it after, and the same from then on.
//!
//! These tests check what streams report, and that the output buffer does not move. `allocation`
//! counts what comes from Rust's allocator. Allocations of the C libraries are known only from what
//! they report.

use ramfold_codec::{Algorithm, Codec, Stream, Streams};
use support::{codecs, page};

mod support;

#[test]
fn an_unused_stream_holds_nothing() {
    assert_eq!(Stream::new().heap_bytes(), 0);
    assert_eq!(Streams::for_cpus(64).heap_bytes(), 0);
}

/// The two directions are built apart, and each is counted.
#[test]
fn zstd_counts_the_context_of_each_direction() {
    let codec = Codec::new(Algorithm::Zstd);
    let mut both = Stream::new();
    let blob = codec.compress(&mut both, &[1; 4096]).unwrap().to_vec();
    let compressing = both.heap_bytes();
    let mut reader = Stream::new();
    codec.decompress(&mut reader, &blob, &mut [0; 4096]).unwrap();
    assert!(reader.heap_bytes() > 4096, "a decoder of {} bytes", reader.heap_bytes());
    codec.decompress(&mut both, &blob, &mut [0; 4096]).unwrap();
    assert_eq!(both.heap_bytes(), compressing + reader.heap_bytes());
}

#[test]
fn nothing_is_allocated_after_the_first_use() {
    for codec in codecs() {
        let text = &codec.to_string();
        let mut stream = Stream::new();
        // A short page comes first, so that the next page needs more than it did.
        let first = codec.compress(&mut stream, &[1]).unwrap();
        let place = first.as_ptr();
        let blob = first.to_vec();
        codec.decompress(&mut stream, &blob, &mut [0]).unwrap();
        let held = stream.heap_bytes();
        assert!(held > 4096, "{text}: {held} bytes cannot be all");
        for round in 0..1000 {
            let input = page(round);
            let blob = codec.compress(&mut stream, &input).unwrap();
            assert_eq!(blob.as_ptr(), place, "{text}: the output buffer moved");
            let blob = blob.to_vec();
            let mut back = [0; 4096];
            codec.decompress(&mut stream, &blob, &mut back).unwrap();
            assert_eq!(stream.heap_bytes(), held, "{text}: page {round} changed the memory");
        }
    }
}
