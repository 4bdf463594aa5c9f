//! The store of a process's pages: slots of a zram device, or of a disk.
//!
//! ```text
//!   slot   free <--> one page's content, which one book names, or the books of forked children too
//!                    in the device --writer--> on the disk
//! ```
//!
//! A page moves to the disk while others read it. Who reads looks where the page is, reads, and
//! looks again. The page goes from memory after its new place is known, so what was read is the
//! page's content if its place has not changed.
//!
//! Invariants: a slot that is in use has content until the last book has given it back. P1 and P2
//! of `written`.
//!
//! Lock: that of the slots, a short one. The device has its own.

use super::doubles::Doubles;
use super::order::Kind;
use super::windows;
use super::writer::{Pages, Writer};
use super::written::{At, Pick, Written};
use crate::board::Packing;
use crate::places::{PAGE, Word};
use disk::Seal;
use host::{Rank, RankedMutex, RankedMutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use zram::{Memory, MemoryConfig, Zram, ZramConfig};

/// Frames of a store's arena at least.
pub(super) const FRAMES_MIN: u64 = 1 << 14; // 64 MiB
/// Bytes by which what is wasted may grow until a compaction,
const WASTE_MIN: u64 = 1 << 20; // 1 MiB
/// and this part of the compressed bytes.
const WASTE_DIVISOR: u64 = 8;
/// Pages go to the disk if those in memory take this part of what the process may have.
const MEMORY_PART: u64 = 2;
/// Slots at least if there is a disk: 64 GiB of pages.
const SLOTS_MIN: u64 = 1 << 24; // 16777216 slots

/// Bytes of the program in which pages are likely to hold the same kind of data.
const PLACE: usize = 2 << 20; // 2 MiB

/// Where pages are kept that are out.
pub(crate) struct Store {
    zram: Zram,
    slots: RankedMutex<Slots>,
    /// What was wasted after the last compaction, or less if it was less since then.
    wasted: AtomicU64,
    /// If there is a disk: how its pages are told from other bytes.
    seal: Option<Arc<Seal>>,
    /// Pages that were read from the disk since that was asked.
    fetched: AtomicU64,
    /// The disk has refused something a moment ago.
    refuses: AtomicBool,
}

#[derive(Default)]
struct Slots {
    written: Written,
    /// Room for a batch, while nothing is written.
    spare: Option<Pages>,
    free: Vec<u32>,
    /// Slots from here on were never used.
    next: u32,
    /// Books, and doubles, beyond the first that name a slot.
    shared: HashMap<u32, u32>,
    doubles: Doubles,
}

/// What a store holds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Held {
    /// Pages, times 4096.
    pub(crate) orig_data_size: u64,
    /// Bytes that they take compressed.
    pub(crate) compr_data_size: u64,
    /// Of the first: pages on the disk, times 4096.
    pub(crate) disk: u64,
}

impl Store {
    /// An empty store for at most `bytes` of compressed pages.
    ///
    /// # Errors
    ///
    /// In words, if the system has no address space.
    pub(crate) fn new(packing: impl Into<Packing>, bytes: u64) -> Result<Store, String> {
        Store::with(packing.into(), bytes, None)
    }

    /// The same, with a disk behind it.
    ///
    /// # Errors
    ///
    /// As for `new`.
    pub(crate) fn backed(packing: impl Into<Packing>, bytes: u64) -> Result<Store, String> {
        Store::with(packing.into(), bytes, Some(Arc::new(Seal::random())))
    }

    fn with(packing: Packing, bytes: u64, seal: Option<Arc<Seal>>) -> Result<Store, String> {
        let frames = (bytes / PAGE as u64).max(FRAMES_MIN);
        let least = if seal.is_some() { SLOTS_MIN } else { 0 };
        let entries = frames.saturating_mul(16).max(least).min(u64::from(Word::SLOTS_MAX));
        let memory = Memory::new(MemoryConfig {
            arena_frames: u32::try_from(frames).unwrap_or(u32::MAX),
            entries_max: entries,
            expected_bytes: bytes,
            // The pager does what a worker would do.
            worker: false,
        });
        let memory = memory.map_err(|error| error.to_string())?;
        let mut config = ZramConfig::new("run", entries * PAGE as u64);
        config.algorithm = packing.codec.with_sampled_shuffle();
        config.track_ages = packing.tiers.is_some();
        config.chain_order = 4;
        let zram = Zram::new(memory, config).map_err(|error| error.to_string())?;
        zram.prepare().map_err(|error| error.to_string())?;
        let slots = RankedMutex::new(Rank::Leaf, Slots::default());
        let (wasted, fetched) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Store { zram, slots, wasted, seal, fetched, refuses: AtomicBool::new(false) })
    }

    /// Keeps the page of an address, and gives its slot; `None` if there is no room. A slot that
    /// the page has still is taken, if it has the same bytes.
    pub(crate) fn keep(&self, address: usize, page: &[u8]) -> Option<u32> {
        let double = self.lock().doubles.take(address);
        if let Some((slot, compares)) = double {
            if compares && self.has(slot, page) {
                self.lock().doubles.was_same();
                return Some(slot);
            }
            self.give_back(slot);
        }
        self.keep_anew(address, page).or_else(|| {
            let all = self.lock().doubles.take_all();
            all.iter().for_each(|&slot| self.give_back(slot));
            if all.is_empty() { None } else { self.keep_anew(address, page) }
        })
    }

    /// Keeps a page in a slot that was free.
    fn keep_anew(&self, address: usize, page: &[u8]) -> Option<u32> {
        let slot = self.lock().take(self.zram.pages())?;
        let place = (address / PLACE) as u64;
        if self.zram.write_page_of(u64::from(slot), place, page).is_err() {
            let mut slots = self.lock();
            slots.doubles.freed(slot);
            slots.free.push(slot);
            return None;
        }
        if self.seal.is_some() {
            self.kept(slot);
        }
        Some(slot)
    }

    /// Whether a slot has these bytes. One that cannot be read has others.
    fn has(&self, slot: u32, page: &[u8]) -> bool {
        let mut bytes = vec![0; PAGE];
        self.read(slot, &mut bytes).is_ok() && bytes == page
    }

    /// The page of a slot is in place at its address, and a book does not name the slot any more.
    /// While a fork shares the store, the slot may stay.
    pub(crate) fn came(&self, address: usize, slot: u32) {
        let named_no_more = self.lock().doubles.came(address, slot);
        named_no_more.into_iter().for_each(|slot| self.give_back(slot));
    }

    /// Says whether another process shares the store, and after how many forks. When that has
    /// ended, the slots of pages that came back are free, some at each call.
    pub(crate) fn set_shared_by(&self, forks: Option<u32>) {
        let leaving = {
            let mut slots = self.lock();
            slots.doubles.set_shared_by(forks);
            slots.doubles.leaving()
        };
        leaving.into_iter().for_each(|slot| self.give_back(slot));
    }

    /// Whether another process shares the store.
    pub(crate) fn is_shared(&self) -> bool {
        self.lock().doubles.is_shared()
    }

    /// A page came that may go to the disk. One that repeats a word takes no memory.
    fn kept(&self, slot: u32) {
        let page = u64::from(slot);
        let state = self.zram.block_states(page..page + 1).next();
        if let Some(state) = state.filter(|state| !state.same) {
            let kind = if state.huge { Kind::Stubborn } else { Kind::Other };
            self.lock().written.kept(slot, kind);
        }
    }

    /// Reads a page.
    ///
    /// # Errors
    ///
    /// Why its content is lost, in words.
    pub(crate) fn read(&self, slot: u32, to: &mut [u8]) -> Result<(), &'static str> {
        let Some(seal) = &self.seal else { return self.read_memory(slot, to) };
        loop {
            let at = self.lock().written.at(slot);
            let read = match &at {
                None => self.read_memory(slot, to),
                Some(at) => self.read_disk(seal, slot, at, to),
            };
            if self.lock().written.at(slot) == at {
                return read;
            }
        }
    }

    fn read_memory(&self, slot: u32, to: &mut [u8]) -> Result<(), &'static str> {
        let read = self.zram.read_page(u64::from(slot), to);
        read.map_err(|_| "a page of its memory does not decode")
    }

    fn read_disk(
        &self,
        seal: &Seal,
        slot: u32,
        at: &At,
        to: &mut [u8],
    ) -> Result<(), &'static str> {
        // relaxed: a figure.
        self.fetched.fetch_add(1, Ordering::Relaxed);
        if !windows::read(at.address, to) {
            return Err("a page of its memory cannot be read from the disk of --backing");
        }
        if seal.sum([at.block.into(), slot.into()], to) != at.sum {
            return Err("a page of its memory is damaged on the disk of --backing");
        }
        Ok(())
    }

    /// Starts loading a page.
    pub(crate) fn prefetch(&self, slot: u32) {
        let at = self.seal.as_ref().and_then(|_| self.lock().written.at(slot));
        match at {
            Some(at) => windows::prefetch(at.address),
            None => self.zram.prefetch_page(u64::from(slot)),
        }
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
        slots.doubles.freed(slot);
        if !slots.written.forget(slot) {
            return;
        }
        drop(slots);
        let page = u64::from(slot);
        if self.zram.discard_pages(page..page + 1).is_ok() {
            self.lock().free.push(slot);
        }
    }

    /// Whether there is a disk.
    pub(crate) fn is_backed(&self) -> bool {
        self.seal.is_some()
    }

    /// Bytes that pages in memory take compressed.
    pub(crate) fn compressed(&self) -> u64 {
        self.zram.compr_data_size()
    }

    /// Which pages are to go to the disk now, in a process that may have so many bytes.
    pub(crate) fn overflow(&self, quota: u64) -> Option<Pick> {
        self.seal.as_ref()?;
        // relaxed: it is advice.
        if self.refuses.load(Ordering::Relaxed) {
            return None;
        }
        if self.compressed() > quota / MEMORY_PART {
            return Some(Pick::All);
        }
        self.lock().written.is_stubborn().then_some(Pick::Stubborn)
    }

    /// Says whether the disk has refused something a moment ago. Then it is as if there were none.
    pub(crate) fn set_refuses(&self, refuses: bool) {
        // relaxed: it is advice.
        self.refuses.store(refuses, Ordering::Relaxed);
    }

    /// Begins a batch: picks pages and copies them. False if there is nothing to do, or no file.
    pub(crate) fn begin_batch(&self, writer: &mut Writer, pick: Pick) -> bool {
        let Some(seal) = &self.seal else { return false };
        if writer.waits() || !self.has_window(writer) {
            return false;
        }
        writer.seal.get_or_insert_with(|| Arc::clone(seal));
        let mut pages = {
            let mut slots = self.lock();
            let mut pages = slots.spare.take().unwrap_or_else(Pages::new);
            writer.first = slots.written.windows.next().start;
            let picked = slots.written.pick(pick);
            pages.slots[..picked.len()].copy_from_slice(picked);
            pages.count = picked.len();
            pages
        };
        for at in 0..pages.count {
            let slot = pages.slots[at];
            pages.sums[at] = self.read(slot, pages.page(at)).is_ok().then_some(0);
        }
        let is_any = pages.count > 0;
        writer.pages = Some(pages);
        if !is_any {
            self.end_batch(writer);
        }
        is_any
    }

    /// Whether the current window has blocks left. Otherwise another is begun.
    fn has_window(&self, writer: &mut Writer) -> bool {
        if writer.file.is_some() && !self.lock().written.windows.next().is_empty() {
            return true;
        }
        let Some(file) = writer.open() else { return false };
        let has = self.lock().written.windows.begin(file);
        if !has {
            writer.file = None;
            writer.refuse(0, &std::io::ErrorKind::OutOfMemory.into());
        }
        has
    }

    /// Ends a batch: its pages are on the disk, if it was written. Returns how many left memory.
    pub(crate) fn end_batch(&self, writer: &mut Writer) -> usize {
        let Some(pages) = writer.pages.take() else { return 0 };
        let done = std::mem::replace(&mut writer.done, Ok(()));
        let sums = done.is_ok().then_some(&pages.sums[..]);
        let left = self.lock().written.wrote(sums);
        for (at, &slot) in pages.slots[..pages.count].iter().enumerate() {
            if left >> at & 1 != 0 {
                let page = u64::from(slot);
                // The slot is one of the device's.
                let _ = self.zram.discard_pages(page..page + 1);
            }
        }
        if let Err(error) = done {
            writer.refuse(pages.count as u64, &error);
        }
        let late = {
            let mut slots = self.lock();
            slots.spare = Some(pages);
            slots.written.end()
        };
        late.into_iter().for_each(|slot| self.give_back(slot));
        left.count_ones() as usize
    }

    /// Recounts what is on the disk.
    #[cfg(test)]
    pub(super) fn check(&self) {
        self.lock().written.check();
    }

    /// Windows that there are.
    #[cfg(test)]
    pub(super) fn windows(&self) -> usize {
        self.lock().written.windows.count()
    }

    /// Writes one batch, all of it. Returns how many pages left memory.
    pub(crate) fn write_some(&self, writer: &mut Writer, pick: Pick) -> usize {
        if !self.begin_batch(writer, pick) {
            return 0;
        }
        writer.write();
        self.end_batch(writer)
    }

    /// Pages that were read from the disk since this was asked.
    pub(crate) fn take_fetched(&self) -> u64 {
        // relaxed: a figure.
        self.fetched.swap(0, Ordering::Relaxed)
    }

    /// In a forked child that goes on with this store: the writer was the parent's.
    pub(crate) fn begin_anew(&self) {
        self.take_fetched();
        let late = self.lock().written.begin_anew();
        late.into_iter().for_each(|slot| self.give_back(slot));
    }

    /// Compacts, if that frees memory.
    pub(crate) fn compact(&self) {
        self.zram.compact();
    }

    /// Compacts if more is wasted than after the last compaction: pages came back, or the program
    /// gave them up, and what they took is free and still in memory. One thread does this.
    pub(crate) fn tidy(&self) {
        if self.seal.is_some() {
            self.lock().written.windows.close_empty();
        }
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
    pub(super) fn waste(&self) -> u64 {
        self.zram.memory().mapped_bytes().saturating_sub(self.held().compr_data_size)
    }

    /// The device, for work on its pages that changes none.
    pub(crate) fn device(&self) -> &Zram {
        &self.zram
    }

    /// What is held.
    pub(crate) fn held(&self) -> Held {
        let [here, compr_data_size, ..] = self.zram.mm_stat().0;
        let (live, doubles) = {
            let slots = self.lock();
            (self.seal.as_ref().map_or(0, |_| slots.written.windows.live()), slots.doubles.count())
        };
        let disk = live * PAGE as u64;
        // Pages with doubles are in memory.
        let orig_data_size = (here + disk).saturating_sub((doubles * PAGE) as u64);
        Held { orig_data_size, compr_data_size, disk }
    }

    fn lock(&self) -> RankedMutexGuard<'_, Slots> {
        self.slots.lock()
    }
}

impl Slots {
    fn take(&mut self, slots: u64) -> Option<u32> {
        let slot = self.free.pop().or_else(|| {
            let slot = self.next;
            (u64::from(slot) < slots).then(|| {
                self.next += 1;
                slot
            })
        })?;
        self.doubles.filled(slot);
        Some(slot)
    }
}
