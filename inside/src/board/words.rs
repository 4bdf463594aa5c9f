//! Texts in words of the board.
//!
//! Invariant: a text is written before any process of the run is started. Lock: none.

use std::sync::atomic::{AtomicU64, Ordering};

/// Writes a text, or as much of it as there is room for, to words that are zeros.
pub(super) fn put_text(words: &[AtomicU64], text: &[u8]) {
    for (word, bytes) in words.iter().zip(text.chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        // relaxed: no process of the run has been started.
        word.store(u64::from_le_bytes(whole), Ordering::Relaxed);
    }
}

/// The text in words.
pub(super) fn text(words: &[AtomicU64]) -> Vec<u8> {
    // relaxed: written before this process was started.
    let words = words.iter().map(|word| word.load(Ordering::Relaxed));
    words.flat_map(u64::to_le_bytes).take_while(|&byte| byte != 0).collect()
}
