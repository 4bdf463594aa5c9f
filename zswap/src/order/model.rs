//! The order under every interleaving that two preemptions allow: `--lib` with `--cfg loom`.
//!
//! A page's cell is a lock, and the value that it guards is whether the page is in memory. The
//! order must agree with that value in the end, whichever thread was first.
//!
//! Claims
//! - A page that is loaded while it is taken, or written, is either loaded or written, not both.
//! - A page that is stored again while its old token is dropped has one token.
//! - A leaf that is detached while a page of it is stored, loaded or taken leaves no page and no
//!   count.
//! - A page that is loaded, or stored again, while its token moves to another block is not lost.
//!
//! Invariant under test: O1. At the end of each scenario `check` recounts the order and compares it
//! with the pages that are in memory.

use std::sync::Arc;

use host::sync::Mutex;
use loom::thread;
use zsmalloc::{CellNumber, LeafId};

use super::orders::Orders;
use crate::terms::{EvictionOrder, GroupId};

/// Leaves 1 and 2 have cells 2 to 5.
const CELLS: u64 = 6;

struct Cache {
    orders: Orders,
    in_memory: Vec<Mutex<bool>>,
}

impl Cache {
    fn new(kind: EvictionOrder, stored: &[u32]) -> Arc<Cache> {
        let orders = Orders::new(kind, CELLS).expect("small tables");
        let in_memory = (0..CELLS + 2).map(|_| Mutex::new(false)).collect();
        let cache = Arc::new(Cache { orders, in_memory });
        stored.iter().for_each(|&cell| cache.store(cell));
        cache
    }

    fn store(&self, cell: u32) {
        let mut in_memory = self.in_memory[cell as usize].lock().expect("not poisoned");
        let pushed = self.orders.push(CellNumber::new(cell), GroupId::default());
        pushed.expect("there is room");
        *in_memory = true;
    }

    fn load(&self, cell: u32) -> bool {
        let mut in_memory = self.in_memory[cell as usize].lock().expect("not poisoned");
        if *in_memory {
            self.orders.load(CellNumber::new(cell));
        }
        std::mem::take(&mut *in_memory)
    }

    fn evict(&self) -> bool {
        let mut victims = Vec::new();
        self.orders.next_victims(1, |_| true, &mut victims);
        let Some(victim) = victims.pop() else { return false };
        let mut in_memory = self.in_memory[victim.cell.get() as usize].lock().expect("unharmed");
        let held = self.orders.in_hand(&victim) && *in_memory;
        // It is also false if its leaf was detached meanwhile. Then the leaf is drained.
        let written = held && self.orders.evicted(&victim);
        *in_memory &= !written;
        written
    }

    fn check(&self) {
        let stored = |&cell: &u32| *self.in_memory[cell as usize].lock().expect("unharmed");
        let pages = (2..CELLS as u32).filter(stored);
        let pages = pages.map(|cell| (CellNumber::new(cell), GroupId::default()));
        let recount = self.orders.check(pages.collect::<Vec<_>>().into_iter());
        assert_eq!(recount.expect("as the cells say").in_hand, 0);
    }
}

/// `loom::model` with room for many atomics.
fn model(scenario: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.check(scenario);
}

#[test]
fn a_page_is_loaded_or_written() {
    for kind in EvictionOrder::ALL {
        model(move || {
            let cache = Cache::new(kind, &[2]);
            let other = Arc::clone(&cache);
            let evictor = thread::spawn(move || other.evict());
            let loaded = cache.load(2);
            assert!(evictor.join().expect("no panic") != loaded, "one of them has it");
            cache.check();
        });
    }
}

#[test]
fn a_page_comes_back_while_its_token_is_dropped() {
    for kind in EvictionOrder::ALL {
        model(move || {
            let cache = Cache::new(kind, &[2]);
            assert!(cache.load(2));
            let other = Arc::clone(&cache);
            let evictor = thread::spawn(move || other.evict());
            cache.store(2);
            let written = evictor.join().expect("no panic");
            assert!(cache.load(2) != written, "it is in memory unless it was written");
            cache.check();
        });
    }
}

#[test]
fn a_leaf_goes_while_its_pages_are_used() {
    let uses: [fn(&Cache); 3] = [
        |cache| _ = cache.load(2),
        |cache| _ = cache.evict(),
        |cache| {
            let _ = cache.load(3);
            let in_memory = cache.in_memory[3].lock().expect("unharmed");
            // This comes before the cell is drained below, because the drain waits for its lock.
            cache.orders.push(CellNumber::new(3), GroupId::default()).expect("room");
            drop(in_memory);
        },
    ];
    for used in uses {
        model(move || {
            let cache = Cache::new(EvictionOrder::S3Fifo, &[2, 3]);
            let other = Arc::clone(&cache);
            let user = thread::spawn(move || used(&other));
            let leaf = LeafId::new(1).expect("not 0");
            cache.orders.detach(leaf);
            user.join().expect("no panic");
            cache.orders.forget(leaf);
            for cell in 2..4 {
                cache.orders.remove(CellNumber::new(cell));
                *cache.in_memory[cell as usize].lock().expect("unharmed") = false;
            }
            assert_eq!(cache.orders.len(), 0);
            cache.check();
        });
    }
}

#[test]
fn a_page_is_loaded_while_its_token_moves() {
    model(|| {
        // Two blocks of four tokens and one more; most of the first block's are stale.
        let cache = Cache::new(EvictionOrder::Kernel, &[2, 3, 4, 5]);
        for cell in [2, 3, 4, 5, 2] {
            assert!(cache.load(cell));
            cache.store(cell);
        }
        let other = Arc::clone(&cache);
        let compactor = thread::spawn(move || other.orders.compact());
        assert!(cache.load(4), "it was stored");
        cache.store(4);
        compactor.join().expect("no panic");
        cache.check();
    });
}
