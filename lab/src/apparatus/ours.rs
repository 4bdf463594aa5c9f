//! Stores of this project, as the studies use them: a zram in a memory of its own, a zswap in one
//! that others use too.
//!
//! ```text
//!   disk    Memory <- Zram                 one run's own, gone before the next
//!   cache   Memory <- Zswap -> RamDisk     the memory is the caller's, and its pager's
//!
//!   Layout   design         shards
//!            hierarchical   one        study S0's base
//!            pool           one        study S4
//!            class          one        S0, and nothing else
//!            class          spread     S0, and a shard of each class for each CPU: our own step
//! ```

use crate::ground::LabError;
use crate::pages::PAGE_SIZE;
use crate::rows::Row;
use codec::Codec;
use disk::{Disk, RamDisk};
use std::sync::Arc;
use zram::{Zram, ZramConfig};
use zsmalloc::study::LockDesign;
use zsmalloc::{Memory, MemoryConfig, Rule};
use zswap::{Limit, Zswap, ZswapConfig};

/// The name in rows.
pub(crate) const NAME: &str = "zram";
/// The same of the cache in front of a disk.
const ZSWAP: &str = "zswap";

/// The stores of ours that memory can be paged out to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Backend {
    Zram,
    Zswap,
}

impl Backend {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Backend::Zram => NAME,
            Backend::Zswap => ZSWAP,
        }
    }
}

/// Shards of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Shards {
    /// One
    One,
    /// One for each CPU, and at most four, once two threads have met at a class
    Spread,
}

impl Shards {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Shards::One => "one",
            Shards::Spread => "spread",
        }
    }

    /// What a pool is asked for.
    pub(crate) fn asked(self) -> Option<usize> {
        match self {
            Shards::One => Some(1),
            Shards::Spread => None,
        }
    }
}

/// How the locks of a pool are laid out. A design has as many shards here as in its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) design: LockDesign,
    pub(crate) shards: Shards,
}

impl Layout {
    /// What a pool has if nobody asks.
    pub(crate) const DEFAULT: Layout = Layout { design: LockDesign::Class, shards: Shards::Spread };

    /// Those that there are of some designs with some shards. Only the class design can be spread.
    pub(crate) fn of(designs: &[LockDesign], shards: &[Shards]) -> Vec<Layout> {
        let of_design = |&design: &LockDesign| {
            let known: &[Shards] =
                if design == LockDesign::Class { shards } else { &[Shards::One] };
            known.iter().map(move |&shards| Layout { design, shards })
        };
        designs.iter().flat_map(of_design).collect()
    }

    /// Names it in a row.
    pub(crate) fn name_in(self, row: &mut Row) {
        row.set("design", self.design.name()).set("shards", self.shards.name());
    }
}

/// A zswap that may hold whatever its memory has room for, before a disk for `bytes` of pages.
/// Nothing goes there by itself.
pub(crate) fn cache(
    memory: &Arc<Memory>,
    algorithm: &Codec,
    chain_order: u32,
    bytes: u64,
) -> Result<Arc<Zswap>, LabError> {
    cache_for(zswap::study::Study::default(), memory, algorithm, chain_order, bytes)
}

/// The same with what a study compares.
pub(crate) fn cache_for(
    study: zswap::study::Study,
    memory: &Arc<Memory>,
    algorithm: &Codec,
    chain_order: u32,
    bytes: u64,
) -> Result<Arc<Zswap>, LabError> {
    let disk = RamDisk::new(bytes + SPARE_BYTES).map_err(|error| LabError::store(ZSWAP)(error))?;
    let config = ZswapConfig {
        algorithm: algorithm.clone(),
        chain_order,
        limit: Limit::None,
        backing: Some(Arc::new(disk)),
        study,
        ..ZswapConfig::new("lab")
    };
    let cache = Zswap::new(Arc::clone(memory), config).map_err(LabError::store(ZSWAP))?;
    Ok(Arc::new(cache))
}

/// What a disk behind a cache has besides room for every page.
const SPARE_BYTES: u64 = 1 << 20;

/// How a disk under study is made.
pub(crate) struct Shape {
    pub(crate) algorithm: Codec,
    pub(crate) chain_order: u32,
    pub(crate) rule: Rule,
    /// Pages of the disk.
    pub(crate) slots: usize,
    /// Whether compaction evacuates sparse pageblocks.
    pub(crate) evacuation: bool,
    /// The locks of its pool.
    pub(crate) design: LockDesign,
}

impl Shape {
    fn bytes(&self) -> u64 {
        (self.slots * PAGE_SIZE) as u64
    }
}

/// A fresh disk over a memory of its own: what one run held is gone before the next.
pub(crate) fn disk(shape: &Shape) -> Result<Zram, LabError> {
    disk_in(MemoryConfig::for_disk(shape.bytes()), shape, None)
}

/// The same with an algorithm that pages may be recompressed with.
pub(crate) fn recompressing(shape: &Shape, to: &Codec) -> Result<Zram, LabError> {
    disk_in(MemoryConfig::for_disk(shape.bytes()), shape, Some(to))
}

fn disk_in(
    memory: MemoryConfig,
    shape: &Shape,
    recompress: Option<&Codec>,
) -> Result<Zram, LabError> {
    let memory = Memory::new(memory).map_err(LabError::store(NAME))?;
    memory.set_evacuation(shape.evacuation);
    let config = ZramConfig {
        algorithm: shape.algorithm.clone(),
        chain_order: shape.chain_order,
        rule: shape.rule,
        recompression: [recompress.cloned(), None, None],
        study: shape.design.into(),
        ..ZramConfig::new("lab", shape.bytes())
    };
    Zram::new(memory, config).map_err(LabError::store(NAME))
}

/// Writes one page.
pub(crate) fn write(disk: &Zram, slot: usize, page: &[u8]) -> Result<(), LabError> {
    let offset = (slot * PAGE_SIZE) as u64;
    disk.write(offset, page).map_err(|error| failed("write", slot, &error))
}

/// Reads one page.
pub(crate) fn read(disk: &Zram, slot: usize, page: &mut [u8]) -> Result<(), LabError> {
    let offset = (slot * PAGE_SIZE) as u64;
    disk.read(offset, page).map_err(|error| failed("read", slot, &error))
}

fn failed(what: &str, slot: usize, error: &disk::DiskError) -> LabError {
    LabError::Store { what: format!("{NAME}: {what} of page {slot}"), why: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zsmalloc::{Pool, PoolConfig};

    #[test]
    fn only_the_class_design_is_spread() {
        let all = Layout::of(&LockDesign::ALL, &[Shards::One, Shards::Spread]);
        let names: Vec<String> = all
            .iter()
            .map(|layout| format!("{} {}", layout.design.name(), layout.shards.name()))
            .collect();
        assert_eq!(names, ["hierarchical one", "pool one", "class one", "class spread"]);
        assert_eq!(Layout::of(&[LockDesign::Class], &[Shards::Spread]), [Layout::DEFAULT]);
    }

    #[test]
    fn a_pool_has_the_shards_that_a_row_names() {
        let memory =
            Memory::new(MemoryConfig { worker: false, ..MemoryConfig::for_disk(1 << 20) }).unwrap();
        for layout in Layout::of(&LockDesign::ALL, &[Shards::One]) {
            let study = layout.design.into();
            let config =
                PoolConfig { study, shards: layout.shards.asked(), ..PoolConfig::default() };
            assert_eq!(Pool::new(memory.clone(), config).unwrap().shards(), 1, "{layout:?}");
        }
    }
}
