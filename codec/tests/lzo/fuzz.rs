//! Random streams that the twin and the decoder both read: random instructions, damaged blobs, and
//! noise.
//!
//! A fifth of `RAMFOLD_FUZZ_SECONDS` (5) is spent here. `RAMFOLD_FUZZ_SEED` repeats a run.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::pages::Random;
use super::{compress, decompress, lzo, lzo_rle, naive};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn decoder_and_twin_agree_on_any_bytes() {
    let seconds = number("RAMFOLD_FUZZ_SECONDS").unwrap_or(5);
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
    let mut seed = number("RAMFOLD_FUZZ_SEED").unwrap_or_else(|| now() as u64);
    let end = Instant::now() + Duration::from_millis(seconds * 1000 / 5);
    loop {
        println!("RAMFOLD_FUZZ_SEED={seed}");
        (0..100).for_each(|case| one(&mut Random(seed.wrapping_mul(1 << 32) + case)));
        seed = seed.wrapping_add(1);
        if Instant::now() >= end {
            break;
        }
    }
}

fn one(random: &mut Random) {
    let page = random.page();
    let blob = match random.below(4) {
        0 => random_instructions(random),
        1 => damaged(random, compress(&lzo(), &page)),
        2 => damaged(random, compress(&lzo_rle(), &page)),
        _ => {
            let len = random.below(100);
            random.bytes(len)
        }
    };
    // The length that the stream really has, so that not every stream is refused because of it.
    let natural = naive::any_length(&blob).map(|page| page.len());
    for len in [natural.unwrap_or(4096).max(1), page.len(), 1, 4096] {
        let (ours, expected) = (decompress(&blob, len), naive::decompress(&blob, len));
        assert!(ours == expected, "{len} bytes of {blob:02x?}");
    }
}

fn damaged(random: &mut Random, mut blob: Vec<u8>) -> Vec<u8> {
    let at = random.below(blob.len());
    match random.below(4) {
        0 => blob[at] ^= 1 << random.below(8),
        1 => blob[at] = random.next() as u8,
        2 => blob.truncate(at),
        _ => drop(blob.remove(at)),
    }
    blob
}

/// Well-formed instructions whose sources may exist or not.
fn random_instructions(random: &mut Random) -> Vec<u8> {
    let version = random.below(3) as u8;
    let mut blob = if version < 2 { vec![17, version] } else { Vec::new() };
    let first = 1 + random.below(60);
    blob.push(17 + first as u8);
    blob.extend(random.bytes(first));
    let mut state = first.min(4);
    for _ in 0..random.below(60) {
        state = instruction(random, state, &mut blob);
    }
    blob.extend([0x11, 0, 0]);
    blob
}

fn instruction(random: &mut Random, state: usize, blob: &mut Vec<u8>) -> usize {
    let after = random.below(4);
    match random.below(5) {
        0 if state == 0 => {
            let count = 1 + random.below(15);
            blob.push(count as u8);
            blob.extend(random.bytes(count + 3));
            return 4;
        }
        0 => blob.extend([((random.below(4) << 2) | after) as u8, random.below(3) as u8]),
        1 => {
            let pair = ((random.below(64) << 2) | after) as u16;
            blob.push(0x20 | (1 + random.below(31) as u8));
            blob.extend(pair.to_le_bytes());
        }
        2 => {
            blob.extend([0x20, 1 + random.below(255) as u8]);
            blob.extend((((random.below(64) << 2) | after) as u16).to_le_bytes());
        }
        3 => {
            blob.extend([0x18 | random.below(8) as u8, 0xfc | after as u8, 0xff]);
            blob.push(random.below(20) as u8);
        }
        _ => {
            let code = ((2 + random.below(6)) << 5) | (random.below(8) << 2) | after;
            blob.extend([code as u8, random.below(6) as u8]);
        }
    }
    blob.extend(random.bytes(after));
    after
}
