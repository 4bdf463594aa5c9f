//! Hostile bytes that the twin and the decoder both read: mutations of blobs, blobs of random
//! sequences, and noise.
//!
//! A fifth of `RAMFOLD_FUZZ_SECONDS` (5) is spent here, or `RAMFOLD_FUZZ_INPUTS` are read.
//! `RAMFOLD_FUZZ_SEED` repeats a run.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::pages::Random;
use super::{compress, decompress, naive, raw, shipped, twin};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Blobs of a round, which share a page.
const ROUND: u64 = 50;

#[test]
fn decoder_and_twin_agree_on_any_bytes() {
    let seconds = number("RAMFOLD_FUZZ_SECONDS").unwrap_or(5);
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
    let mut seed = number("RAMFOLD_FUZZ_SEED").unwrap_or_else(|| now() as u64);
    let end = Instant::now() + Duration::from_millis(seconds * 1000 / 5);
    let twin = twin();
    loop {
        println!("RAMFOLD_FUZZ_SEED={seed}");
        (0..20).for_each(|case| round(&mut Random(seed.wrapping_mul(1 << 32) + case), Some(&twin)));
        seed = seed.wrapping_add(1);
        if Instant::now() >= end {
            break;
        }
    }
}

/// As many inputs as are wanted, without the twin, which is slow. At least half are mutations of
/// blobs.
#[test]
fn no_bytes_make_the_decoder_panic_or_write_beside_the_page() {
    let inputs = number("RAMFOLD_FUZZ_INPUTS").unwrap_or(20_000);
    let seed = number("RAMFOLD_FUZZ_SEED").unwrap_or(1);
    (0..inputs / ROUND)
        .for_each(|case| round(&mut Random(seed.wrapping_mul(1 << 40) + case), None));
}

/// One page, and many damaged blobs of it.
fn round(random: &mut Random, twin: Option<&naive::Tables>) {
    let page = random.page();
    let codec = if random.below(2) == 0 { shipped() } else { raw() };
    let whole = compress(&codec, &page);
    for _ in 0..ROUND {
        let blob = match random.below(8) {
            0 => noise(random),
            1 => spliced(random, &whole),
            _ => mutated(random, whole.clone()),
        };
        let len = if random.below(8) == 0 { 1 + random.below(4096) } else { page.len() };
        let ours = decompress(&codec, &blob, len);
        if let Some(twin) = twin {
            let expected = naive::decompress(twin, &blob, len);
            assert!(ours == expected, "{len} bytes of {blob:02x?}");
        }
    }
}

/// Up to eight changes: bits, bytes, a run, an end that is cut off, a byte more or less, a header.
fn mutated(random: &mut Random, mut blob: Vec<u8>) -> Vec<u8> {
    for _ in 0..=random.below(8) {
        let at = random.below(blob.len());
        match random.below(9) {
            0..=2 => blob[at] ^= 1 << random.below(8),
            3 => blob[at] = random.next() as u8,
            4 => {
                let end = (at + random.below(16) + 1).min(blob.len());
                blob[at..end].fill(random.next() as u8);
            }
            5 if at > 0 => blob.truncate(at),
            6 if blob.len() > 1 => drop(blob.remove(at)),
            7 => blob.insert(at, random.next() as u8),
            _ => {
                let early = at % 8.min(blob.len());
                blob[early] ^= 1 << random.below(8);
            }
        }
    }
    blob
}

/// A header that is likely to be taken, and any bits behind it.
fn noise(random: &mut Random) -> Vec<u8> {
    let count = random.below(200);
    let coded = random.below(2);
    let mut blob = (((coded << 13) | count) as u16).to_le_bytes().to_vec();
    let len = count + random.below(300);
    blob.extend(random.bytes(len));
    blob
}

/// The front of a blob, and then noise.
fn spliced(random: &mut Random, whole: &[u8]) -> Vec<u8> {
    let mut blob = whole[..random.below(whole.len())].to_vec();
    let len = random.below(200);
    blob.extend(random.bytes(len));
    blob
}
