//! Threads that store, load, remove, write back and compact at once. Everything is recounted when
//! they rest.
//!
//! A page's cell is a mutex, and its value is the group of the page that it holds. Leaves are
//! detached in between, and drained as a store drains them: cell by cell. Then the next thread that
//! stores gets them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

const THREADS: u64 = 3;
const ROUNDS: usize = 40_000;

struct Crowd {
    orders: Orders,
    cells: Vec<Mutex<Option<GroupId>>>,
    evicted: AtomicU64,
}

/// xorshift64*: a thread's own choices.
fn next(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
}

impl Crowd {
    fn new(kind: EvictionOrder) -> Crowd {
        let cells = (0..CELLS).map(|_| Mutex::new(None)).collect();
        let orders = Orders::new(kind, CELLS).expect("small");
        Crowd { orders, cells, evicted: AtomicU64::new(0) }
    }

    fn lock(&self, cell: u32) -> std::sync::MutexGuard<'_, Option<GroupId>> {
        self.cells[cell as usize].lock().expect("nobody panicked")
    }

    /// One random operation on a random cell of three leaves.
    fn step(&self, state: &mut u64, groups: u64) {
        let leaf_cells = LEAF_CELLS as u64;
        let cell = (leaf_cells + next(state) % (3 * leaf_cells - 1)) as u32;
        let (number, group) = (CellNumber::new(cell), GroupId((next(state) % groups) as u8));
        match next(state) % 64 {
            0..40 => {
                let mut page = self.lock(cell);
                if page.is_some() && next(state).is_multiple_of(2) {
                    self.orders.load(number);
                }
                self.orders.push(number, group).expect("there is room");
                *page = Some(group);
            }
            40..48 => {
                let mut page = self.lock(cell);
                let _ = page.take().map(|_| self.orders.load(number));
            }
            48..52 => {
                let mut page = self.lock(cell);
                self.orders.remove(number);
                *page = None;
            }
            52..62 => self.evict(state),
            62 => self.orders.compact(),
            _ => {}
        }
    }

    fn evict(&self, state: &mut u64) {
        let mut victims = Vec::new();
        self.orders.next_victims(8, |_| true, &mut victims);
        for victim in victims {
            let mut page = self.lock(victim.cell.get());
            if next(state).is_multiple_of(8) {
                self.orders.keep(&victim);
            } else if self.orders.evicted(&victim) {
                *page = None;
                self.evicted.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// As a store does it: the pages are gone at once. Later each cell is emptied, and the leaf
    /// starts again.
    fn detach(&self, leaf: u32) {
        self.orders.detach(LeafId::new(leaf).expect("not 0"));
        for cell in cells_of(leaf as usize) {
            let mut page = self.lock(cell.get());
            self.orders.remove(cell);
            *page = None;
        }
        self.orders.forget(LeafId::new(leaf).expect("not 0"));
    }

    fn check(&self) {
        let held = (0..CELLS as u32).filter_map(|cell| {
            let group = *self.lock(cell);
            group.map(|group| (CellNumber::new(cell), group))
        });
        let recount = self.orders.check(held.collect::<Vec<_>>().into_iter());
        assert_eq!(recount.expect("as the cells say").in_hand, 0);
    }
}

fn crowd(kind: EvictionOrder, groups: u64) {
    let crowd = Crowd::new(kind);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let crowd = &crowd;
            scope.spawn(move || {
                let mut state = 0x9E37_79B9_7F4A_7C15 + thread;
                for round in 0..ROUNDS {
                    crowd.step(&mut state, groups);
                    if thread == 0 && round % 512 == 511 {
                        crowd.detach(1 + (next(&mut state) % 3) as u32);
                    }
                }
            });
        }
    });
    crowd.check();
    assert!(crowd.evicted.load(Ordering::Relaxed) > 1000, "victims were found");
}

#[test]
fn threads_in_one_group_leave_every_page_its_token() {
    EvictionOrder::ALL.into_iter().for_each(|kind| crowd(kind, 1));
}

#[test]
fn threads_in_three_groups_leave_every_page_its_token() {
    EvictionOrder::ALL.into_iter().for_each(|kind| crowd(kind, 3));
}
