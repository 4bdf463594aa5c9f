//! Making room when a client, an operator or a memory manager asks for it.
//!
//! ```text
//!   make_room       a client whose page was refused    frees what is pending, writes back
//!   shrink_to       an operator                        writes back, compacts
//!   shrinker_*      a memory manager                   counts what it gains, writes that back
//!   compact         an operator                        moves objects together
//! ```
//!
//! Invariant: the caller holds no lock that a deferred job might want. Locks: none here; those of
//! the write-back, one page after the other.

use host::PAGE_SIZE;

use super::zswap::Zswap;
use crate::shared::{Whose, WroteBack};
use crate::terms::GroupId;

impl Zswap {
    /// Makes room for pages of a group that [`Area::store_if_room`] refused: frees what is pending,
    /// writes back, compacts. False means that no room was made, and that trying again is of no
    /// use. It is true if the cache is not full (any more), whether compacting it freed anything or
    /// not, because others may have made room. So a caller that was refused because there was no
    /// memory tries again once. The caller holds no lock that a deferred job might want.
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

    /// Writes back up to `pages` entries, in the order's order, groups that allow it only.
    pub fn write_back(&self, pages: u64) -> WroteBack {
        self.core.write_back(pages, Whose::Everybodys)
    }

    /// Writes back, and compacts, until objects take at most `bytes` of touched frames; gives up
    /// when nothing more can be written, or after sixteen pages that could not.
    pub fn shrink_to(&self, bytes: u64) -> WroteBack {
        self.core.shrink_to(bytes, u64::MAX)
    }

    /// Entries that a memory manager gains by having them written back: those in memory, less those
    /// that came back from the disk lately, times what compression leaves of them. 0 while the
    /// shrinker is off.
    ///
    /// Every page that came back is protection for one, or for as many as reading it cost more than
    /// decompressing would have: that is measured. Counting uses half of the protection up. Source:
    /// `zswap_shrinker_count`.
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

    /// Writes back up to `pages` entries for a memory manager; stops at the first that cannot be.
    /// 0 while the shrinker is off. Source: `zswap_shrinker_scan`.
    pub fn shrinker_scan(&self, pages: u64) -> u64 {
        if !self.core.config.shrinker_enabled {
            return 0;
        }
        self.core.write_back(pages, Whose::Everybodys).pages
    }

    /// Compacts, and frees what is pending; gives the bytes by which touched frames became fewer.
    pub fn compact(&self) -> u64 {
        let before = self.core.pool.object_bytes_resident();
        self.core.pool.make_room();
        self.core.orders.compact();
        before.saturating_sub(self.core.pool.object_bytes_resident())
    }
}
