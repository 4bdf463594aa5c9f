//! Claim: the freed memory that a heap keeps goes back to the system when it is asked to.
//!
//! The test is a process of its own, because it looks at all memory of its process.
#![cfg(all(target_os = "linux", target_env = "gnu", not(any(loom, shuttle, miri))))]

use ramfold_host::{give_back_heap, smaps};

/// What is freed below a block in use stays in glibc's heap: only its end shrinks by itself.
#[test]
fn free_memory_below_a_block_in_use_goes_back_to_the_system() {
    const BLOCK: usize = 64 << 10; // below the size that is mapped by itself
    const BLOCKS: u64 = 512; // 32 MiB
    let held = || smaps::anonymous_bytes().expect("/proc is mounted");
    let before = held();
    let blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|_| vec![1; BLOCK]).collect();
    let last = vec![1_u8; BLOCK];
    let full = held();
    assert!(full >= before + (28 << 20), "what was written is anonymous: {before}, then {full}");
    drop(blocks);
    assert_eq!(give_back_heap(), Some("malloc_trim"), "the test runs with glibc's malloc");
    let trimmed = held();
    assert!(trimmed + (24 << 20) < full, "32 MiB were freed: {full} bytes, then {trimmed}");
    assert_eq!(last[BLOCK - 1], 1);
}
