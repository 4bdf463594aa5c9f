//! A region without changes.

use super::touching::Memory;
use crate::apparatus::ours::{self, Backend};
use crate::apparatus::paging::{self, Source};
use crate::ground::LabError;
use crate::pages::PAGE_SIZE;
use codec::Codec;
use region::{FaultCosts, FaultMode, Pager, PagerConfig, Quads, Region, RegionConfig, StoreConfig};
use std::sync::Arc;
use zsmalloc::MemoryConfig;
use zswap::GroupId;

/// A region's own.
const CHAIN_ORDER: u32 = 3;

/// What a region is measured as.
pub(super) struct Setup {
    pub(super) mode: FaultMode,
    pub(super) quads: Quads,
    pub(super) pages: usize,
}

pub(super) struct Folded<'a> {
    region: Region,
    source: &'a Source,
}

impl<'a> Folded<'a> {
    /// A region, filled, all of it in memory.
    pub(super) fn new(
        (backend, algorithm): (Backend, &Codec),
        setup: &Setup,
        source: &'a Source,
    ) -> Result<Folded<'a>, LabError> {
        let bytes = setup.pages * PAGE_SIZE;
        let memory = zsmalloc::Memory::new(MemoryConfig::for_disk(bytes as u64));
        let memory = memory.map_err(LabError::store("memory"))?;
        let store = match backend {
            Backend::Zram => StoreConfig::Zram,
            Backend::Zswap => {
                let cache = ours::cache(&memory, algorithm, CHAIN_ORDER, bytes as u64)?;
                StoreConfig::Zswap { cache, group: GroupId::ROOT }
            }
        };
        let config = PagerConfig { fault_mode: Some(setup.mode), ..PagerConfig::default() };
        let pager = Pager::new(Arc::clone(&memory), &config).map_err(paging::refused)?;
        let config = RegionConfig {
            store,
            algorithm: algorithm.clone(),
            quads: setup.quads,
            ..RegionConfig::default()
        };
        let mut region = Region::map(&pager, bytes, &config).map_err(paging::refused)?;
        source.fill(region.as_mut_slice())?;
        Ok(Folded { region, source })
    }
}

impl Memory for Folded<'_> {
    fn put_out(&mut self) -> Result<(), LabError> {
        paging::fold(&self.region).map(drop)
    }

    fn bytes(&self) -> &[u8] {
        self.region.as_slice()
    }

    fn verify(&self) -> Result<(), LabError> {
        self.source.verify(self.region.as_slice())
    }

    fn costs(&self) -> Option<FaultCosts> {
        Some(self.region.stats().fault_costs)
    }
}
