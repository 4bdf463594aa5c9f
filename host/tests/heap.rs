//! Claim: if the heap has bounds, large blocks that are freed go back to the system, whatever was
//! freed before them and whatever lies behind them.
//!
//! The test is a process of its own, because the settings of the C library's heap are those of the
//! process.
#![cfg(all(target_os = "linux", target_env = "gnu", not(any(loom, shuttle, miri))))]

use ramfold_host::{bound_heap, smaps};

const BLOCKS: usize = 40;
const BLOCK: usize = 1 << 20;

/// Allocates blocks, then something small that stays, and frees the blocks.
fn come_and_go(kept: &mut Vec<Vec<u8>>) {
    let blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|number| vec![number as u8 | 1; BLOCK]).collect();
    kept.push(vec![1; 64]);
    drop(blocks);
}

/// After the first large block was freed, the next ones came from an arena, which kept them.
#[test]
fn large_blocks_go_back_to_the_system() {
    assert!(bound_heap(), "the GNU library takes these settings");
    let mut kept = Vec::new();
    let before = smaps::anonymous_bytes().expect("/proc is mounted");
    let worker = std::thread::spawn(move || {
        (0..3).for_each(|_| come_and_go(&mut kept));
        let after = smaps::anonymous_bytes().expect("/proc is mounted");
        (after, kept.len())
    });
    let (after, kept) = worker.join().expect("no panic");
    assert!(after < before + BLOCK as u64, "{before} before, {after} with {kept} small ones");
}
