//! What the child fills and gives up: a disk, or an area of a cache that has no other.
//!
//! Invariant: a store is made for one path, and differs from those for others only in what its
//! study says.
//!
//! There is no worker in either's memory, except for the paths that queue: what would be deferred
//! to it is done by the caller.

use super::path::Path;
use crate::apparatus::ours::{self, Backend};
use crate::ground::LabError;
use crate::pages::PAGE_SIZE;
use codec::{Algorithm, Codec};
use disk::Disk;
use std::sync::Arc;
use zram::study::{FreeDesign, QueueConfig, Study};
use zram::{Zram, ZramConfig};
use zsmalloc::{Memory, MemoryConfig};
use zswap::{Area, FreeWhen, GroupId};

const CHAIN_ORDER: u32 = 3;

pub(super) enum Held {
    Zram(Box<Zram>),
    Zswap(Area),
}

impl Held {
    /// Empty, with room for `slots` pages, made for a path; and its memory.
    pub(super) fn new(
        backend: Backend,
        form: Path,
        slots: usize,
    ) -> Result<(Held, Arc<Memory>), LabError> {
        let algorithm = Codec::new(Algorithm::Lz4);
        let bytes = (slots * PAGE_SIZE) as u64;
        let config = MemoryConfig { worker: form.is_queued(), ..MemoryConfig::for_disk(bytes) };
        let memory = Memory::new(config).map_err(LabError::store("memory"))?;
        let deferred = QueueConfig::for_pages(slots as u64);
        let held = match backend {
            Backend::Zram => {
                let free = match form {
                    Path::Entries => FreeDesign::Entries,
                    Path::Handles => FreeDesign::Handles,
                    _ => FreeDesign::Range,
                };
                let config = ZramConfig {
                    algorithm,
                    chain_order: CHAIN_ORDER,
                    study: Study { free, deferred, ..Study::default() },
                    ..ZramConfig::new("lab", bytes)
                };
                let disk = Zram::new(Arc::clone(&memory), config);
                Held::Zram(Box::new(disk.map_err(LabError::store("zram"))?))
            }
            Backend::Zswap => {
                let free = match form {
                    Path::Handles => zswap::study::Free::Handles,
                    _ => zswap::study::Free::AtOnce,
                };
                let study = zswap::study::Study { free, deferred };
                let cache = ours::cache_for(study, &memory, &algorithm, CHAIN_ORDER, bytes)?;
                Held::Zswap(cache.add_area(slots as u64).map_err(LabError::store("zswap"))?)
            }
        };
        Ok((held, memory))
    }

    pub(super) fn write(&self, slot: usize, page: &[u8]) -> Result<(), LabError> {
        match self {
            Held::Zram(disk) => ours::write(disk, slot, page),
            Held::Zswap(area) => {
                let stored = area.store(slot as u64, page, GroupId::ROOT);
                stored.map_err(|error| LabError::store("store")(error))
            }
        }
    }

    /// Reads a page that stays.
    pub(super) fn read(&self, slot: usize, page: &mut [u8]) -> Result<(), LabError> {
        match self {
            Held::Zram(disk) => ours::read(disk, slot, page),
            Held::Zswap(area) => {
                let read = area.peek(slot as u64, page);
                read.map(drop).map_err(|error| LabError::store("peek")(error))
            }
        }
    }

    /// Pages that are stored.
    pub(super) fn stored_pages(&self) -> u64 {
        match self {
            Held::Zram(disk) => disk.stat().orig_data_size / PAGE_SIZE as u64,
            Held::Zswap(area) => area.stat().stored_pages,
        }
    }

    /// Gives all pages up; what is left of it.
    pub(super) fn give_up(self, slots: usize, path: Path) -> Result<Option<Held>, LabError> {
        match path {
            Path::Slots | Path::Entries | Path::Handles => {
                (0..slots).try_for_each(|slot| self.discard(slot, 1))?
            }
            Path::Range => self.discard(0, slots)?,
            Path::Drop => return Ok(None),
        }
        Ok(Some(self))
    }

    fn discard(&self, first: usize, count: usize) -> Result<(), LabError> {
        match self {
            Held::Zram(disk) => {
                let bytes = |pages: usize| (pages * PAGE_SIZE) as u64;
                let done = disk.discard(bytes(first), bytes(count));
                done.map_err(|error| LabError::store("discard")(error))
            }
            Held::Zswap(area) => {
                area.invalidate_pages(first as u64..(first + count) as u64, FreeWhen::Soon);
                Ok(())
            }
        }
    }
}
