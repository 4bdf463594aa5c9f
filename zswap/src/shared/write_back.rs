//! Writing entries back to the disk, in the order in which they are to leave memory.
//!
//! ```text
//!   choose     tokens from the order -> each cell locked: blob copied, sectors claimed, marked
//!   write      the runs of sectors, no lock held
//!   complete   each cell locked: marked still? -> written: names the sectors, object freed
//!                                                 failed:  token back into the order
//!                                not?           -> sectors given back, because a load, a store or
//!                                                 an invalidation came between
//! ```
//!
//! Invariants
//! - I1 a page is in memory until it is on the disk. An entry's object is freed under the same hold
//!   of the lock under which the entry comes to name its sectors.
//! - I2 sectors that were claimed are named by an entry, or given back, when the turn ends.
//! - I3 a page that is chosen has a live token in hand. When the turn ends, the token is gone or
//!   back.
//! - I4 a cell is chosen once in a turn. Its page may be taken in hand twice, because it may come
//!   back while others are taken. So the cell's mark says of one copy that the cell still holds it.
//!
//! Locks: stream (if pages are decompressed for the disk), then one cell at a time. None is held
//! while the disk is called. Source: `zswap_writeback_entry`, `shrink_worker`.

use codec::Stream;
use host::PAGE_SIZE;
use zsmalloc::{CellGuard, LeafSums};

use super::core::Core;
use crate::backing::{Backing, OnDisk};
use crate::cells::{Event, Stored, stored};
use crate::order::Victim;
use crate::terms::GroupId;
use crate::writer::{MyTurn, Pick, Writer};

/// Pages of a batch.
const BATCH: usize = if cfg!(loom) { 2 } else { 256 }; // 1 MiB at most
/// Writing is given up until the next request after this many pages failed, as in the kernel.
const FAILURES_MAX: u64 = 16;

/// Whose entries are to be written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Entries of every group that allows it, in turn.
    Everybodys,
    /// Entries of one group, if it allows it.
    Of(GroupId),
}

/// The result of a write-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WroteBack {
    /// Pages that left memory.
    pub pages: u64,
    /// Bytes of their objects.
    pub bytes: u64,
    /// Pages that stayed because the disk failed or is full.
    pub failed: u64,
}

impl Core {
    /// Writes back up to `most` entries.
    pub(crate) fn write_back(&self, most: u64, whose: Whose) -> WroteBack {
        let mut total = WroteBack::default();
        let Some(backing) = &self.backing else { return total };
        backing.prepare();
        while total.pages < most && total.failed < FAILURES_MAX {
            let batch = (most - total.pages).min(BATCH as u64) as usize;
            let round = self.write_batch(backing, &mut self.turn.take(), batch, whose);
            total.pages += round.pages;
            total.bytes += round.bytes;
            total.failed += round.failed;
            if round == WroteBack::default() {
                break;
            }
        }
        total
    }

    fn write_batch(
        &self,
        backing: &Backing,
        writer: &mut MyTurn<'_>,
        most: usize,
        whose: Whose,
    ) -> WroteBack {
        let mut round = WroteBack::default();
        if !writer.begin(most) {
            return round;
        }
        round.failed += self.choose(backing, writer, most, whose);
        let full = writer.write(backing);
        self.counters.happened(Event::DiskFull, u64::from(full));
        writer.bridges.drain(..).for_each(|bridge| backing.free_bridge(bridge));
        for pick in &writer.picks {
            let failed = writer.runs[pick.run].failed;
            self.complete(backing, pick, failed, &mut round);
        }
        round
    }

    /// Fills the writer. Returns how many entries must stay because the disk is full.
    fn choose(&self, backing: &Backing, writer: &mut Writer, most: usize, whose: Whose) -> u64 {
        let mut victims = std::mem::take(&mut writer.victims);
        self.orders.next_victims(most, |group| self.may_leave(group, whose), &mut victims);
        let mut full = 0;
        let mut choose = |writer: &mut Writer, mut stream: Option<&mut Stream>| {
            for victim in &victims {
                let chosen = self.choose_one(backing, writer, victim, stream.as_deref_mut());
                full += u64::from(!chosen);
            }
        };
        if self.config.compressed_writeback {
            choose(writer, None);
        } else {
            self.with_stream(|stream| choose(writer, Some(stream)));
        }
        writer.victims = victims;
        full
    }

    fn may_leave(&self, group: GroupId, whose: Whose) -> bool {
        let asked = match whose {
            Whose::Of(own) => group == own,
            Whose::Everybodys => true,
        };
        asked && self.groups.may_write_back(group)
    }

    /// False if the entry must stay, because the disk has no room or the entry does not decode.
    fn choose_one(
        &self,
        backing: &Backing,
        writer: &mut Writer,
        victim: &Victim,
        stream: Option<&mut Stream>,
    ) -> bool {
        let Ok(mut slot) = self.pool.numbered_cell(victim.cell) else { return true };
        if !self.orders.in_hand(victim) || is_detached(&slot) {
            return true; // it is gone
        }
        if writer.has(victim.cell) {
            return true; // `complete` takes it out of the hand, whatever is there by then (I4)
        }
        let Stored::Blob { algorithm, .. } = Stored::in_cell(&slot) else { return true };
        let mut page = [0; PAGE_SIZE];
        let blob = self.blob_for_disk(algorithm, slot.bytes().unwrap_or(&[]), stream, &mut page);
        let room = blob.and_then(|blob| Some((blob, backing.claim(&mut writer.next, blob.len())?)));
        let Some((blob, at)) = room else {
            self.orders.keep(victim);
            self.counters.happened(Event::DiskFull, u64::from(blob.is_some()));
            return false;
        };
        backing.note(at, blob);
        writer.append(backing, Pick { victim: *victim, algorithm, at, run: 0 }, blob);
        stored::mark(&mut slot);
        true
    }

    /// The bytes that go to the disk: the blob, or the page if there is a stream. `None` if the
    /// blob does not decode; a load of the page will report that.
    fn blob_for_disk<'b>(
        &self,
        algorithm: usize,
        blob: &'b [u8],
        stream: Option<&mut Stream>,
        page: &'b mut [u8],
    ) -> Option<&'b [u8]> {
        match stream {
            None => Some(blob),
            Some(stream) => {
                self.decode(algorithm, blob, Some(stream), page).ok()?;
                Some(page)
            }
        }
    }

    /// Ends what `choose_one` began.
    fn complete(&self, backing: &Backing, pick: &Pick, failed: bool, round: &mut WroteBack) {
        let cell = self.pool.numbered_cell(pick.victim.cell);
        let Some(mut slot) = cell.ok().filter(|slot| !is_detached(slot)) else {
            return backing.free(pick.at); // with its leaf
        };
        if failed || !stored::is_marked(&slot) {
            // If another page was stored in the cell, that page is in hand now.
            self.orders.keep(&pick.victim);
            round.failed += u64::from(failed);
            self.counters.happened(Event::WriteBackFail, u64::from(failed));
            stored::unmark(&mut slot);
            return backing.free(pick.at);
        }
        let (before, group) = (Stored::in_cell(&slot), pick.victim.group);
        self.orders.evicted(&pick.victim);
        stored::put_disk(&mut slot, pick.algorithm, pick.at);
        self.settle(&slot, before, group, Event::WrittenBackPages);
        self.groups.wrote_back(group);
        round.pages += 1;
        round.bytes += before.tally().bytes;
    }

    /// Writes a page to the disk that is in no cell yet. `None` if that is not possible.
    pub(crate) fn write_through(&self, data: &[u8]) -> Option<OnDisk> {
        let backing = self.backing.as_ref()?;
        backing.prepare();
        let mut writer = self.turn.take();
        let Some(at) = backing.claim(&mut writer.next, data.len()) else {
            self.counters.happened(Event::DiskFull, 1);
            return None;
        };
        backing.note(at, data);
        if backing.write(at.sector, data).is_err() {
            backing.free(at);
            self.counters.happened(Event::WriteBackFail, 1);
            return None;
        }
        Some(at)
    }
}

/// True if the cell's leaf is out of its table and waits to be drained.
fn is_detached(slot: &CellGuard<'_>) -> bool {
    LeafSums(slot.leaf_word()).is_detached()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Area, Loaded, Memory, MemoryConfig, Zswap, ZswapConfig};
    use disk::RamDisk;

    fn store(area: &Area, version: u8) {
        let page: Vec<u8> = (0..PAGE_SIZE).map(|at| version ^ (at % 7) as u8).collect();
        area.store(0, &page, crate::GroupId::ROOT).expect("room");
    }

    /// Which version page 0 has, and where it was.
    fn load(area: &Area) -> (u8, Loaded) {
        let mut data = vec![0; PAGE_SIZE];
        let loaded = area.load(0, &mut data).expect("no fault");
        (data[0], loaded)
    }

    /// The page comes back while others are taken in hand, and is taken again. It is stored over
    /// between its two turns to be copied. The copy that is completed must be of the latest
    /// content.
    #[test]
    fn a_page_that_is_twice_in_one_batch_is_what_was_stored_last() {
        let memory = Memory::new(MemoryConfig::for_disk(16 << 20)).expect("a memory");
        let disk = RamDisk::new(1 << 20).expect("a size");
        let backing = Some(Arc::new(disk) as Arc<dyn disk::Disk>);
        let config = ZswapConfig { backing, worker: false, ..ZswapConfig::new("twice") };
        let zswap = Zswap::new(memory, config).expect("a cache");
        let area = zswap.add_area(512).expect("room");
        store(&area, 1);
        let (core, mut round) = (&zswap.core, WroteBack::default());
        let backing = core.backing.as_ref().expect("given");
        backing.prepare();
        let mut writer = core.turn.take();
        assert!(writer.begin(2));
        let mut victims = Vec::new();
        core.orders.next_victims(1, |_| true, &mut victims);
        assert_eq!(load(&area), (1, Loaded::Memory));
        store(&area, 2);
        core.orders.next_victims(1, |_| true, &mut victims);
        assert!(victims.len() == 2 && victims[0] == victims[1], "{victims:?}");
        assert!(core.choose_one(backing, &mut writer, &victims[0], None));
        store(&area, 3);
        assert!(core.choose_one(backing, &mut writer, &victims[1], None));
        writer.write(backing);
        for pick in &writer.picks {
            core.complete(backing, pick, false, &mut round);
        }
        drop(writer);
        assert_eq!(round.pages, 0, "what was copied is not there any more");
        zswap.check().expect("no defect");
        assert_eq!(zswap.write_back(1).pages, 1, "it is in its ring again");
        assert_eq!(load(&area), (3, Loaded::Disk));
        zswap.check().expect("no defect");
    }
}
