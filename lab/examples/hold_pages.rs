//! Holds pages of a known pattern until its standard input ends: what the tests of `lab corpus`
//! dump.

use std::io::Read;

const PAGE: usize = 4096;
/// Pages held.
const PAGES: usize = 300;

/// Page `index` of what is held.
fn pattern(index: usize) -> Vec<u8> {
    let word = (index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let words = (0..PAGE as u64 / 8).map(|at| word ^ (at / 5));
    words.flat_map(u64::to_le_bytes).collect()
}

fn main() -> std::io::Result<()> {
    let mut memory = vec![0; (PAGES + 1) * PAGE];
    let start = memory.as_ptr().align_offset(PAGE);
    for (index, page) in memory[start..].chunks_exact_mut(PAGE).take(PAGES).enumerate() {
        page.copy_from_slice(&pattern(index));
    }
    println!("holding");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    assert!(memory[start..][..PAGE] == pattern(0), "the pages were held to the end");
    Ok(())
}
