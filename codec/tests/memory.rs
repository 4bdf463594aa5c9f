//! What streams hold: nothing before use, all of it after the first,
//! and the same ever after.
//!
//! A counting allocator would need unsafe code and would not see the C libraries' allocations;
//! what is checked is what they report, and that the output stays where it is.

use codec::{Algorithm, Codec, Stream, Streams};

fn page(seed: u32) -> Vec<u8> {
    let words = (0..1024_u32).map(|word| ((word / 3) ^ seed).wrapping_mul(2_654_435_761));
    words.flat_map(u32::to_le_bytes).collect()
}

#[test]
fn an_unused_stream_holds_nothing() {
    assert_eq!(Stream::new().heap_bytes(), 0);
    assert_eq!(Streams::for_cpus(64).heap_bytes(), 0);
}

#[test]
fn decompressing_lz4_allocates_nothing() {
    let codec = Codec::new(Algorithm::Lz4);
    let blob = codec.compress(&mut Stream::new(), &[1; 4096]).unwrap().to_vec();
    let mut stream = Stream::new();
    codec.decompress(&mut stream, &blob, &mut [0; 4096]).unwrap();
    assert_eq!(stream.heap_bytes(), 0);
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
    for text in ["lz4", "lz4:17", "zstd:-7", "zstd:1", "zstd", "zstd:9", "zstd:15", "zstd:22"] {
        let codec: Codec = text.parse().unwrap();
        let mut stream = Stream::new();
        // A short page first, so that what follows asks for more than it did.
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
