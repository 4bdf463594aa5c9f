//! The store of a process's pages: slots of a zram device.
//!
//! ```text
//!   slot   free <--> one page's content, which one book names, or the books of forked children too
//! ```
//!
//! Invariant: a slot that is in use has content until the last book has given it back.
//!
//! Lock: that of the free slots, a short one. The device has its own.

use crate::places::{PAGE, Word};
use host::{Rank, RankedMutex, RankedMutexGuard};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use zram::{Codec, Memory, MemoryConfig, Zram, ZramConfig};

/// Frames of a store's arena at least.
const FRAMES_MIN: u64 = 1 << 14; // 64 MiB
/// Bytes by which what is wasted may grow until a compaction,
const WASTE_MIN: u64 = 1 << 20; // 1 MiB
/// and this part of the compressed bytes.
const WASTE_DIVISOR: u64 = 8;

/// Bytes of the program in which pages are likely to hold the same kind of data.
const PLACE: usize = 2 << 20; // 2 MiB

/// Where pages are kept that are out.
pub(crate) struct Store {
    zram: Zram,
    slots: RankedMutex<Slots>,
    /// What was wasted after the last compaction, or less if it was less since then.
    wasted: AtomicU64,
}

#[derive(Default)]
struct Slots {
    free: Vec<u32>,
    /// Slots from here on were never used.
    next: u32,
    /// Books beyond the first that name a slot.
    shared: HashMap<u32, u32>,
}

/// What a store holds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Held {
    /// Pages, times 4096.
    pub(crate) orig_data_size: u64,
    /// Bytes that they take compressed.
    pub(crate) compr_data_size: u64,
}

impl Store {
    /// An empty store for at most `bytes` of compressed pages.
    ///
    /// # Errors
    ///
    /// In words, if the system has no address space.
    pub(crate) fn new(codec: Codec, bytes: u64) -> Result<Store, String> {
        let frames = (bytes / PAGE as u64).max(FRAMES_MIN);
        let entries = frames.saturating_mul(16).min(u64::from(Word::SLOTS_MAX));
        let memory = Memory::new(MemoryConfig {
            arena_frames: u32::try_from(frames).unwrap_or(u32::MAX),
            entries_max: entries,
            expected_bytes: bytes,
            // The pager does what a worker would do.
            worker: false,
        });
        let memory = memory.map_err(|error| error.to_string())?;
        let mut config = ZramConfig::new("run", entries * PAGE as u64);
        config.algorithm = codec.with_sampled_shuffle();
        config.chain_order = 4;
        let zram = Zram::new(memory, config).map_err(|error| error.to_string())?;
        zram.prepare().map_err(|error| error.to_string())?;
        let slots = RankedMutex::new(Rank::Leaf, Slots::default());
        Ok(Store { zram, slots, wasted: AtomicU64::new(0) })
    }

    /// Keeps the page of an address, and gives its slot; `None` if there is no room.
    pub(crate) fn keep(&self, address: usize, page: &[u8]) -> Option<u32> {
        let slot = self.lock().take(self.zram.pages())?;
        let place = (address / PLACE) as u64;
        match self.zram.write_page_of(u64::from(slot), place, page) {
            Ok(()) => Some(slot),
            Err(_) => {
                self.lock().free.push(slot);
                None
            }
        }
    }

    /// Reads a page. False if it is damaged.
    pub(crate) fn read(&self, slot: u32, to: &mut [u8]) -> bool {
        self.zram.read_page(u64::from(slot), to).is_ok()
    }

    /// Starts loading a page.
    pub(crate) fn prefetch(&self, slot: u32) {
        self.zram.prefetch_page(u64::from(slot));
    }

    /// One more book names a slot.
    pub(crate) fn share(&self, slot: u32) {
        *self.lock().shared.entry(slot).or_insert(0) += 1;
    }

    /// A book does not name a slot any more.
    pub(crate) fn give_back(&self, slot: u32) {
        let mut slots = self.lock();
        if let Some(others) = slots.shared.get_mut(&slot) {
            *others -= 1;
            if *others == 0 {
                slots.shared.remove(&slot);
            }
            return;
        }
        drop(slots);
        let page = u64::from(slot);
        if self.zram.discard_pages(page..page + 1).is_ok() {
            self.lock().free.push(slot);
        }
    }

    /// Compacts, if that frees memory.
    pub(crate) fn compact(&self) {
        self.zram.compact();
    }

    /// Compacts if more is wasted than after the last compaction: pages came back, or the program
    /// gave them up, and what they took is free and still in memory. One thread does this.
    pub(crate) fn tidy(&self) {
        let (waste, compressed) = (self.waste(), self.held().compr_data_size);
        // relaxed: one thread has it.
        let least = self.wasted.load(Ordering::Relaxed).min(waste);
        let is_much = waste > least + WASTE_MIN + compressed / WASTE_DIVISOR;
        if is_much {
            self.compact();
        }
        // relaxed: as above.
        self.wasted.store(if is_much { self.waste() } else { least }, Ordering::Relaxed);
    }

    /// Bytes in memory beyond those of the compressed pages: what is free, and tables.
    fn waste(&self) -> u64 {
        self.zram.memory().mapped_bytes().saturating_sub(self.held().compr_data_size)
    }

    /// What is held.
    pub(crate) fn held(&self) -> Held {
        let [orig_data_size, compr_data_size, ..] = self.zram.mm_stat().0;
        Held { orig_data_size, compr_data_size }
    }

    fn lock(&self) -> RankedMutexGuard<'_, Slots> {
        self.slots.lock()
    }
}

impl Slots {
    fn take(&mut self, slots: u64) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        let slot = self.next;
        (u64::from(slot) < slots).then(|| {
            self.next += 1;
            slot
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zram::Algorithm;

    #[test]
    fn a_slot_lives_as_long_as_a_book_names_it() {
        let store = Store::new(Codec::new(Algorithm::Lz4), 1 << 20).expect("a store");
        let page: Vec<u8> = (0..PAGE).map(|at| (at / 9) as u8).collect();
        let slot = store.keep(0, &page).expect("room");
        store.share(slot);
        store.give_back(slot);
        let mut read = vec![0; PAGE];
        assert!(store.read(slot, &mut read) && read == page);
        assert_eq!(store.held().orig_data_size, PAGE as u64);
        store.give_back(slot);
        assert_eq!(store.held().orig_data_size, 0);
        assert_eq!(store.keep(0, &page), Some(slot), "it is free");
    }

    #[test]
    fn what_pages_took_that_have_gone_is_given_back() {
        let store = Store::new(Codec::new(Algorithm::Lz4), 1 << 26).expect("a store");
        let mut chance = 88_172_645_463_325_252u64;
        let mut page = vec![0; PAGE];
        let slots: Vec<u32> = (0..4000)
            .map(|_| {
                page[..PAGE / 2].iter_mut().for_each(|byte| {
                    chance ^= chance << 13;
                    chance ^= chance >> 7;
                    chance ^= chance << 17;
                    *byte = chance as u8;
                });
                store.keep(0, &page).expect("room")
            })
            .collect();
        store.tidy();
        assert!(store.held().compr_data_size > 7 << 20, "{:?}", store.held());
        slots.into_iter().for_each(|slot| store.give_back(slot));
        assert!(store.waste() > 7 << 20, "it waits for the next pages");
        store.tidy();
        assert!(store.waste() < 2 << 20, "{} bytes", store.waste());
    }

    #[test]
    fn numbers_take_less_than_text_beside_them_and_both_come_back() {
        let store = Store::new(Codec::new(Algorithm::Lz4), 1 << 26).expect("a store");
        let numbers = |at: usize| -> Vec<u8> {
            (0..512).flat_map(|n| ((at * 512 + n) * 1_000_003).to_le_bytes()).collect()
        };
        let text = |at: usize| -> Vec<u8> {
            (0..).flat_map(|n| format!("{at} and {n}; ").into_bytes()).take(PAGE).collect()
        };
        let kinds: [(usize, &dyn Fn(usize) -> Vec<u8>); 2] = [(0, &numbers), (1 << 30, &text)];
        let mut held = [0; 2];
        let mut kept = Vec::new();
        for at in 0..1024 {
            for (kind, (start, page)) in kinds.iter().enumerate() {
                let before = store.held().compr_data_size;
                let slot = store.keep(start + at * PAGE, &page(at)).expect("room");
                held[kind] += store.held().compr_data_size - before;
                kept.push((slot, page(at)));
            }
        }
        assert!(held[0] < 1024 * 1500, "lz4 by itself takes 2.7 KiB: {held:?}");
        let mut read = vec![0; PAGE];
        for (slot, page) in kept {
            assert!(store.read(slot, &mut read) && read == page, "slot {slot}");
        }
    }

    #[test]
    fn a_full_store_refuses() {
        let store = Store::new(Codec::new(Algorithm::Lz4), 0).expect("a store");
        let mut chance = 88_172_645_463_325_252u64;
        let mut page = vec![0; PAGE];
        let mut kept = Vec::new();
        while let Some(slot) = store.keep(0, &page) {
            page.iter_mut().for_each(|byte| {
                chance ^= chance << 13;
                chance ^= chance >> 7;
                chance ^= chance << 17;
                *byte = chance as u8;
            });
            kept.push(slot);
        }
        assert!(kept.len() as u64 > FRAMES_MIN / 2, "{}", kept.len());
        let freed = kept[kept.len() / 2];
        store.give_back(freed);
        assert_eq!(store.keep(0, &page), Some(freed), "there is room for one");
    }
}
