//! Recounting a device: pool, zone, and every slot. The content of each slot must still decode.
//!
//! Invariants that it checks
//! - The counters are the sums over the slots, and the word of each leaf has those over its own.
//! - Slots have no bits that their content excludes.
//! - The blocks of the backing disk in use are those that slots name. Those that are tainted and
//!   not in use are counted.
//! - Tables that were trained take the bytes that are counted. A page whose tables are gone does
//!   not decode.
//! - Each object of the pool is named by one slot, shared or pending. Every page in memory decodes.
//! - A shared object is used by as many slots as it counts.
//! - Words of units are what is counted of them. Pages that cells say to be in units live there.
//!
//! Locks: one cell at a time. If the device is in use, sums may differ because the pool or the
//! counters moved meanwhile. That is no defect, and the report says that it happened.

use std::fmt;

use codec::CodecError;
use disk::DiskError;
use host::PAGE_SIZE;
use zsmalloc::{Content, LEAF_CELLS, LeafSums, LeafTally, PoolCheck};

use crate::cells::flags::{IDLE, MARK, PP};
use crate::cells::stored::pages;
use crate::cells::unit::{bit_of, unit_of};
use crate::cells::{SharedUses, Stored, kind};
use crate::device::Zram;
use crate::page::{Decoded, undecoded};

/// What a recount found, when it found no defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZramCheck {
    /// The pool's recount.
    pub pool: PoolCheck,
    /// Slots that hold something.
    pub pages_stored: u64,
    /// Pages decoded, all of them without error.
    pub pages_decoded: u64,
    /// True when requests changed the device during the recount, so that sums were not compared.
    pub moved: bool,
}

/// A device that contradicts itself, or a page that does not decode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZramDefect(
    /// What was found where.
    pub String,
);

impl fmt::Display for ZramDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ZramDefect {}

impl Zram {
    /// Recounts everything and compares it with the counters.
    ///
    /// # Errors
    ///
    /// The first contradiction found.
    pub fn check(&self) -> Result<ZramCheck, ZramDefect> {
        let before = self.motion();
        let memory = self.slots.pool.memory();
        memory.check_zone().map_err(|defect| ZramDefect(format!("zone: {defect}")))?;
        memory.defect().map_or(Ok(()), |defect| Err(ZramDefect(defect.to_string())))?;
        let pool = self.slots.pool.check().map_err(|defect| ZramDefect(defect.to_string()))?;
        let mut counted = Count::default();
        for index in 0..self.slots.root_len() {
            self.check_leaf(index, &mut counted)?;
        }
        let compared = self.compare(&pool, &counted);
        // This is read after the last counter, so changes that began before that are seen here.
        let rest = before.is_some() && self.motion() == before;
        let moved = pool.moved > 0 || pool.in_flight > 0 || !rest;
        if !moved {
            compared?;
        }
        let pages_decoded = counted.tally.counts[kind::BLOB];
        Ok(ZramCheck { pool, pages_stored: pages(counted.tally), pages_decoded, moved })
    }

    /// Reads every page that is on the backing disk, compares its checksum and decodes it. Returns
    /// how many pages there were. This does not count as a use of a page.
    ///
    /// # Errors
    ///
    /// [`ZramDefect`] for the first page that is damaged or cannot be read.
    pub fn check_backing(&self) -> Result<u64, ZramDefect> {
        let mut pages = 0;
        for index in (0..self.slots.root_len()).filter(|&index| self.slots.leaf(index).is_some()) {
            let first = (index * LEAF_CELLS) as u64;
            for page in first..(first + LEAF_CELLS as u64).min(self.pages()) {
                let Stored::Disk { at, .. } = self.peek(page) else { continue };
                let failed = |error| ZramDefect(format!("page {page}: {error}"));
                self.try_back(page, at).map_err(failed)?;
                pages += 1;
            }
        }
        Ok(pages)
    }

    /// A value that is another one after every change of a slot or of the pool. `None` while a
    /// change is under way.
    fn motion(&self) -> Option<(u64, u32)> {
        Some((self.counters.changes()?, self.slots.pool.operations()))
    }

    fn check_leaf(&self, index: usize, counted: &mut Count) -> Result<(), ZramDefect> {
        let Some(leaf) = self.slots.leaf(index) else { return Ok(()) };
        let before = counted.tally;
        for cell in 0..LEAF_CELLS {
            if self.slots.pool.peek(leaf, cell).is_none_or(|content| content == Content::Empty) {
                continue;
            }
            let page = (index * LEAF_CELLS + cell) as u64;
            self.check_slot(page, counted)
                .map_err(|error| ZramDefect(format!("page {page}: {error}")))?;
        }
        let sums = self.slots.pool.leaf_word(leaf).map(|word| LeafSums(word).tally());
        let found = counted.tally.since(before);
        if sums != Some(found) {
            counted.wrong_sums.get_or_insert(WrongSums { index, found, sums });
        }
        Ok(())
    }

    fn check_slot(&self, page: u64, counted: &mut Count) -> Result<(), DiskError> {
        let mut data = [0; PAGE_SIZE];
        self.with_stream(|stream| {
            let Some(slot) = self.slots.lock(page) else { return Ok(()) };
            let stored = self.aside.kept(&slot);
            counted.tally.add(stored.tally());
            counted.stray_bits |= slot.client() & allowed_not(stored);
            if let Stored::Same(same) = stored {
                counted.interned += u64::from(same.is_interned());
            }
            if let Stored::Shared { number } = stored {
                *counted.shared.entry(number).or_default() += 1;
            }
            match stored {
                Stored::Unit { page: named } if named != page => {
                    return Err(undecoded(page, CodecError::Corrupt));
                }
                Stored::Unit { .. } if self.is_decoded_with_another(page) => return Ok(()),
                _ => {}
            }
            // A page on the backing disk is not read here. `check_backing` reads it.
            match self.decode(&slot, Some(stream), &mut data) {
                Ok(Decoded::Page | Decoded::Back(_)) => Ok(()),
                Err(error) => Err(undecoded(page, error)),
            }
        })
    }

    /// Whether another page of a unit decodes the frame for all of them: the first that lives.
    fn is_decoded_with_another(&self, page: u64) -> bool {
        let live = self.values.units.as_ref().map_or(0, |units| units.unit(unit_of(page)).live);
        live & bit_of(page) != 0 && live & (bit_of(page) - 1) != 0
    }

    fn compare(&self, pool: &PoolCheck, counted: &Count) -> Result<(), ZramDefect> {
        #[cfg(all(test, not(loom)))]
        tests::meanwhile(self);
        let kept = self.counters.tally();
        if counted.tally != kept {
            return Err(ZramDefect(format!("slots hold {:?}, counters {kept:?}", counted.tally)));
        }
        if let Some(WrongSums { index, found, sums }) = counted.wrong_sums {
            return Err(ZramDefect(format!(
                "leaf {index} holds {found:?}, its word says {sums:?}"
            )));
        }
        if counted.stray_bits != 0 {
            return Err(ZramDefect(format!("slots have bits {:#x}", counted.stray_bits)));
        }
        self.aside.check(&self.slots).map_err(ZramDefect)?;
        self.generations.check().map_err(ZramDefect)?;
        let mut pending = self.counters.pending();
        pending.objects += pool.pending;
        let slots = counted.tally.counts[kind::BLOB];
        let shared = self.values.sharing.as_ref().map(|it| it.stat()).unwrap_or_default();
        let units = self.values.units.as_ref().map(|it| (it.stat().pages, it.pieces()));
        let (in_units, pieces) = units.unwrap_or_default();
        let named = slots + pending.objects + shared.objects + pieces;
        if named != pool.objects + shared.pages + in_units {
            let pool = pool.objects;
            let what = format!("slots name {slots} objects, {pending:?}, the pool has {pool}");
            return Err(ZramDefect(what));
        }
        if let Some(sharing) = &self.values.sharing {
            let all_drained = self.memory().deferred().jobs == 0;
            sharing.check(&counted.shared, all_drained).map_err(ZramDefect)?;
        }
        if let Some(units) = &self.values.units {
            units.check().map_err(ZramDefect)?;
        }
        self.check_uses("interned words", counted.interned, self.values.words.uses())?;
        self.check_blocks(counted.tally.counts[kind::DISK])
    }

    fn check_blocks(&self, slots: u64) -> Result<(), ZramDefect> {
        let Some(backing) = &self.values.backing else { return Ok(()) };
        let blocks = &backing.blocks;
        let (used, quarantined) = (blocks.recount(), blocks.recount_quarantined());
        let in_use = ("in use", used, blocks.in_use());
        for (what, bits, counted) in [in_use, ("quarantined", quarantined, blocks.quarantined())] {
            if bits != counted {
                return Err(ZramDefect(format!("{bits} blocks are {what}, counted {counted}")));
            }
        }
        self.check_uses("blocks of the backing disk", slots, used)
    }

    /// Compares the uses of words or blocks by slots with their own counts. Pending objects may use
    /// some too.
    fn check_uses(&self, what: &str, slots: u64, uses: u64) -> Result<(), ZramDefect> {
        let all_drained = self.memory().deferred().jobs == 0;
        if slots > uses || slots < uses && all_drained {
            return Err(ZramDefect(format!("{slots} slots use {what}, counted {uses}")));
        }
        Ok(())
    }
}

/// The client's bits that no slot with this content may have while nothing is under way.
fn allowed_not(stored: Stored) -> u8 {
    match stored {
        Stored::Blob { .. } | Stored::Unit { .. } => PP,
        Stored::Nothing
        | Stored::Unknown
        | Stored::Same(_)
        | Stored::Disk { .. }
        | Stored::Shared { .. } => PP | IDLE | MARK,
    }
}

#[derive(Default)]
struct Count {
    tally: LeafTally,
    interned: u64,
    /// How many slots name each shared object.
    shared: SharedUses,
    /// Client's bits that were found where they must not be.
    stray_bits: u8,
    /// The first leaf whose word differs from its cells.
    wrong_sums: Option<WrongSums>,
}

struct WrongSums {
    index: usize,
    found: LeafTally,
    sums: Option<LeafTally>,
}

#[cfg(all(test, not(loom)))]
mod damage;

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use crate::{Zram, ZramConfig, small};

    thread_local! {
        /// Runs on this thread between a recount and the look at the counters.
        static MEANWHILE: Cell<Option<fn(&Zram)>> = const { Cell::new(None) };
    }

    pub(super) fn meanwhile(device: &Zram) {
        if let Some(act) = MEANWHILE.take() {
            act(device);
        }
    }

    #[test]
    fn a_request_between_recount_and_counters_is_motion_and_no_defect() {
        let device =
            Zram::new(small::memory(), ZramConfig::new("zram0", 1 << 20)).expect("a device");
        let acts: [fn(&Zram); 2] = [
            |device| device.write_page(3, &[7; 4096]).expect("room"),
            |device| device.discard_pages(3..4).expect("in range"),
        ];
        for act in acts {
            MEANWHILE.set(Some(act));
            assert!(device.check().expect("no defect").moved);
            assert!(!device.check().expect("no defect").moved, "at rest again");
        }
    }
}
