//! Recounting a cache: pool, order, disk and every entry. Entries in memory are decoded too.
//!
//! Invariants that it checks
//! - The counters are the sums over the cells, and the word of each leaf has the sums over its own.
//! - Each object of the pool belongs to an entry, or is pending.
//! - Every entry in memory decodes and has one live token. No other token is live.
//! - Every entry on the disk has its sectors for itself. No other sector is in use.
//!
//! Locks: one cell at a time. If the cache is in use, sums may differ because a page moved
//! meanwhile. That is no defect, and the report says that it happened.

use std::collections::HashSet;
use std::fmt;

use host::PAGE_SIZE;
use zsmalloc::PoolCheck;
use zsmalloc::{CellNumber, Content, LEAF_CELLS, LeafId, LeafSums, LeafTally};

use super::zswap::Zswap;
use crate::areas::Area;
use crate::cells::{LIVE_MAX, Stored, kind};
use crate::shared::Core;
use crate::terms::GroupId;

/// What a recount found, when it found no defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZswapCheck {
    /// The pool's recount.
    pub pool: PoolCheck,
    /// Entries, in memory and on the disk, same-filled ones included.
    pub entries: u64,
    /// Entries in memory that were decoded, all of them without error.
    pub pages_decoded: u64,
    /// True when requests changed the cache during the recount, so that sums were not compared.
    pub moved: bool,
}

/// A cache that contradicts itself, or a page that does not decode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZswapDefect(
    /// What was found where.
    pub String,
);

impl fmt::Display for ZswapDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ZswapDefect {}

/// What the cells of all areas add up to.
#[derive(Default)]
struct Count {
    tally: LeafTally,
    algorithms: [u64; LIVE_MAX],
    in_memory: Vec<(CellNumber, GroupId)>,
    group_bytes: Vec<u64>,
    sectors: HashSet<u32>,
    interned: u64,
    defect: Option<String>,
}

impl Zswap {
    /// Recounts everything and compares it with the counters. Write-back waits meanwhile.
    ///
    /// # Errors
    ///
    /// The first contradiction found.
    pub fn check(&self) -> Result<ZswapCheck, ZswapDefect> {
        let core = &*self.core;
        // No page is on its way to the disk while this thread has the turn.
        let _turn = core.turn.take();
        let before = self.motion();
        let memory = core.pool.memory();
        memory.check_zone().map_err(|defect| ZswapDefect(format!("zone: {defect}")))?;
        memory.defect().map_or(Ok(()), |defect| Err(ZswapDefect(defect.to_string())))?;
        let pool = core.pool.check().map_err(|defect| ZswapDefect(defect.to_string()))?;
        let mut counted = Count { group_bytes: vec![0; GroupId::COUNT], ..Count::default() };
        let areas = self.all_areas();
        for area in &areas {
            for index in 0..area.inner.slots.root_len() {
                core.check_leaf(area, index, &mut counted)?;
            }
        }
        let pages_decoded = counted.in_memory.len() as u64;
        let entries = [kind::BLOB, kind::SAME, kind::DISK].map(|kind| counted.tally.counts[kind]);
        let compared = core.compare(&pool, counted).map_err(ZswapDefect);
        // An area whose last handle was dropped is counted until it is empty.
        let all = core.counters.areas() == areas.len() as u64;
        let at_rest = all && before.is_some() && self.motion() == before;
        let moved = pool.moved > 0 || pool.in_flight > 0 || !at_rest;
        if !moved {
            compared?;
        }
        Ok(ZswapCheck { pool, entries: entries.iter().sum(), pages_decoded, moved })
    }

    /// A value that is another one after every change. `None` while a change is under way.
    fn motion(&self) -> Option<([u64; 4], u32)> {
        Some((self.core.counters.motion()?, self.core.pool.operations()))
    }
}

impl Core {
    fn check_leaf(&self, area: &Area, index: usize, sum: &mut Count) -> Result<(), ZswapDefect> {
        let Some(leaf) = area.inner.slots.leaf(index) else { return Ok(()) };
        let before = sum.tally;
        for cell in 0..LEAF_CELLS {
            if self.pool.peek(leaf, cell).is_some_and(|content| content != Content::Empty) {
                let page = (index * LEAF_CELLS + cell) as u64;
                let id = area.id();
                self.check_cell(area, page, sum)
                    .map_err(|defect| ZswapDefect(format!("area {id}, page {page}: {defect}")))?;
            }
        }
        self.check_sums(leaf, before, sum);
        Ok(())
    }

    fn check_sums(&self, leaf: LeafId, before: LeafTally, sum: &mut Count) {
        let found = sum.tally.since(before);
        let said = self.pool.leaf_word(leaf).map(|word| LeafSums(word).tally());
        if said != Some(found) {
            let defect = format!("{leaf:?} holds {found:?}, its word says {said:?}");
            sum.defect.get_or_insert(defect);
        }
    }

    fn check_cell(&self, area: &Area, page: u64, sum: &mut Count) -> Result<(), String> {
        let mut data = [0; PAGE_SIZE];
        self.with_stream(|stream| {
            let Some(slot) = area.inner.slots.lock(page) else { return Ok(()) };
            let stored = Stored::in_cell(&slot);
            sum.tally.add(stored.tally());
            stored.algorithm().into_iter().for_each(|it| sum.algorithms[it] += 1);
            match stored {
                Stored::Nothing => {}
                Stored::Unknown => return Err(format!("page {page}: a value that means nothing")),
                Stored::Same(same) => sum.interned += u64::from(same.is_interned()),
                Stored::Blob { algorithm, len } => {
                    let group = self.groups.of(slot.number());
                    sum.in_memory.push((slot.number(), group));
                    sum.group_bytes[group.index()] += len as u64;
                    let blob = slot.bytes().unwrap_or(&[]);
                    let decoded = self.decode(algorithm, blob, Some(stream), &mut data);
                    decoded.map_err(|error| error.to_string())?;
                }
                Stored::Disk { at, .. } => {
                    let claimed = self.backing.as_ref().is_some_and(|it| it.is_claimed(at));
                    let sectors = at.sectors();
                    let alone = (at.sector..at.sector + sectors).all(|it| sum.sectors.insert(it));
                    if !claimed || !alone {
                        return Err(format!("{at:?}: claimed {claimed}, for itself {alone}"));
                    }
                }
            }
            Ok(())
        })
    }

    fn compare(&self, pool: &PoolCheck, counted: Count) -> Result<(), String> {
        counted.defect.map_or(Ok(()), Err)?;
        let kept = self.counters.sums();
        if counted.tally != kept {
            return Err(format!("cells hold {:?}, counters {kept:?}", counted.tally));
        }
        let pending = self.counters.pending();
        let objects = counted.tally.counts[kind::BLOB];
        if objects + pending.objects + pool.pending != pool.objects {
            return Err(format!("cells name {objects} objects, {pending:?}, the pool {pool:?}"));
        }
        let in_memory = counted.in_memory.into_iter();
        let tokens = self.orders.check(in_memory)?;
        if tokens.in_hand > 0 {
            return Err(format!("nobody writes, and in hands are {} entries", tokens.in_hand));
        }
        let said = std::array::from_fn(|index| self.counters.of_algorithm(index));
        if counted.algorithms != said {
            return Err(format!(
                "entries by algorithm: {:?}, counted {said:?}",
                counted.algorithms
            ));
        }
        for group in self.groups.stats().iter().skip(1) {
            let bytes = counted.group_bytes[group.id.index()];
            if bytes != group.current {
                return Err(format!("{group:?} has {bytes} bytes"));
            }
        }
        self.compare_shared(counted.interned, counted.sectors.len() as u64)
    }

    fn compare_shared(&self, interned: u64, sectors: u64) -> Result<(), String> {
        let uses = self.words.uses();
        if interned != uses {
            return Err(format!("{interned} cells use interned words, counted {uses}"));
        }
        let Some(backing) = &self.backing else { return Ok(()) };
        let (used, quarantined) = (backing.sectors().0, backing.quarantined());
        let bits = backing.recount();
        if used != sectors || bits != sectors + quarantined {
            return Err(format!(
                "entries have {sectors} sectors, {used} counted, {bits} bits set; \
                 {quarantined} are quarantined"
            ));
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod damage;
