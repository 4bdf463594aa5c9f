//! Making room when a client, an operator or a memory manager asks for it.
//!
//! ```text
//!   make_room       a client whose page was refused    frees what is pending, writes back
//!   shrink_to       an operator                        writes back, compacts
//!   shrinker_*      a memory manager                   counts what it gains, writes that back
//!   compact         an operator                        moves objects together
//! ```
//!
//! Invariant: the caller holds no lock that a deferred job might want. Locks: none here. Those of
//! the write-back are taken for one page after the other.

use host::PAGE_SIZE;

use super::zswap::Zswap;
use crate::shared::{Whose, WroteBack};
use crate::terms::GroupId;

impl Zswap {
    /// Makes room for pages of a group that [`Area::store_if_room`] refused. It frees what is
    /// pending, writes back and compacts. The caller holds no lock that a deferred job might want.
    ///
    /// False means that no room was made and that trying again is of no use. True means that the
    /// cache is not full now, whether this call freed anything or not, because other threads may
    /// have made room. So a caller that was refused because there was no memory should try again
    /// only once.
    ///
    /// [`Area::store_if_room`]: crate::Area::store_if_room
    pub fn make_room(&self, group: GroupId) -> bool {
        let core = &self.core;
        if core.groups.is_full(group) && !core.make_group_room(group) {
            return false;
        }
        let before = core.pool.object_bytes_resident();
        if !core.is_full() {
            core.pool.make_room();
            return true;
        }
        if core.limit() == 0 {
            return false;
        }
        core.make_room();
        core.pool.object_bytes_resident() < before || !core.is_full()
    }

    /// Writes back up to `pages` entries, in the order's sequence, of groups that allow it.
    pub fn write_back(&self, pages: u64) -> WroteBack {
        self.core.write_back(pages, Whose::Everybodys)
    }

    /// Writes back, and compacts, until objects take at most `bytes` of touched frames. It gives up
    /// when nothing more can be written, or after sixteen pages that could not be.
    pub fn shrink_to(&self, bytes: u64) -> WroteBack {
        self.core.shrink_to(bytes, u64::MAX)
    }

    /// The number of pages of memory that a memory manager gains by having entries written back.
    /// These are the entries in memory, less the protected ones, times what compression leaves of a
    /// page. 0 while the shrinker is off.
    ///
    /// Every page that came back from the disk lately protects one entry, or more if reading it
    /// took longer than decompressing would have. That time is measured. Each count uses up half of
    /// the protection. Source: `zswap_shrinker_count`.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use ramfold_zswap::{GroupId, Limit, Memory, MemoryConfig, Zswap, ZswapConfig};
    /// # let memory = Memory::new(MemoryConfig::for_disk(16 << 20))?;
    /// let backing: Arc<dyn ramfold_zswap::Disk> = Arc::new(disk::RamDisk::new(1 << 20)?);
    /// let config = ZswapConfig {
    ///     backing: Some(backing),
    ///     shrinker_enabled: true,
    ///     limit: Limit::None,
    ///     ..ZswapConfig::new("cache")
    /// };
    /// let cache = Zswap::new(memory, config)?;
    /// let area = cache.add_area(512)?;
    /// for page in 0..64 {
    ///     let data: [u8; 4096] = std::array::from_fn(|at| (at * at / 9 + page) as u8);
    ///     area.store(page as u64, &data, GroupId::ROOT)?;
    /// }
    /// assert!(cache.shrinker_count() > 0);
    /// assert_eq!(cache.shrinker_scan(8), 8, "pages that are on the disk now");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shrinker_count(&self) -> u64 {
        if !self.core.config.shrinker_enabled || self.core.backing.is_none() {
            return 0;
        }
        let tally = self.core.counters.tally();
        let entries = self.core.orders.len().max(1);
        let freeable = entries.saturating_sub(self.core.refaults.take_protection());
        let gained = u128::from(tally.bytes) * u128::from(freeable) / u128::from(entries);
        (gained / PAGE_SIZE as u128) as u64
    }

    /// Writes back up to `pages` entries for a memory manager. It gives up when sixteen pages could
    /// not be written. 0 while the shrinker is off. Source: `zswap_shrinker_scan`.
    pub fn shrinker_scan(&self, pages: u64) -> u64 {
        if !self.core.config.shrinker_enabled {
            return 0;
        }
        self.core.write_back(pages, Whose::Everybodys).pages
    }

    /// Compacts, and frees what is pending. Returns by how many bytes the touched frames shrank.
    pub fn compact(&self) -> u64 {
        let before = self.core.pool.object_bytes_resident();
        self.core.pool.make_room();
        self.core.orders.compact();
        before.saturating_sub(self.core.pool.object_bytes_resident())
    }
}
