//! What a cache is made with, and the bounds of each value.
//!
//! Names and defaults are those of the kernel's module parameters. `compressor` is
//! [`ZswapConfig::algorithm`], and `max_pool_percent` is [`Limit::Percent`].
//! `accept_threshold_percent` and `shrinker_enabled` have the same names here.
//!
//! ```text
//!   0                                  accept threshold     limit
//!   |--------------------------------------|------------------|
//!     pages are taken                        until the limit    stores write back, or are refused
//!                                            was met
//! ```
//!
//! Invariant: a cache exists only with values that passed `check` and `Limit::bytes`, where each
//! bound is stated. A configuration itself is only values, and any program may fill it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use codec::{Algorithm, Codec};
use disk::Disk;
use host::{PAGE_SIZE, limits};
use zsmalloc::{ChainSize, Rule};

use super::error::ZswapError;

/// A full cache takes pages again at this percentage of its limit, the kernel's default.
const ACCEPT_THRESHOLD_PERCENT: u32 = 90;
/// The limit in percent of the machine's memory, the kernel's default.
const LIMIT_PERCENT: u32 = 20;

/// The most bytes that compressed pages may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Bytes of touched frames, rounded down to whole pages. If it is 0, no page is stored.
    Bytes(u64),
    /// Percent of the machine's memory, 0 to 100.
    Percent(u32),
    /// As much as the memory has.
    None,
}

impl Limit {
    /// The limit in bytes.
    pub(crate) fn bytes(self) -> Result<u64, ZswapError> {
        match self {
            Limit::Bytes(bytes) => Ok(bytes / PAGE_SIZE as u64 * PAGE_SIZE as u64),
            Limit::Percent(percent @ 0..=100) => {
                let total = limits::memory_available().mem_total;
                let total = total.ok_or(ZswapError::UnknownMemory)?;
                let percent = Limit::Bytes((u128::from(total) * u128::from(percent) / 100) as u64);
                percent.bytes()
            }
            Limit::Percent(percent) => Err(ZswapError::BadPercent { percent }),
            Limit::None => Ok(u64::MAX),
        }
    }
}

/// The rule that chooses the next page to leave memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EvictionOrder {
    /// S3-FIFO: pages that are stored once leave before those that come back.
    #[default]
    S3Fifo,
    /// The kernel's: the page stored longest ago leaves first, but each page has a second chance.
    Kernel,
}

impl EvictionOrder {
    /// Every order there is.
    pub const ALL: [EvictionOrder; 2] = [EvictionOrder::S3Fifo, EvictionOrder::Kernel];

    /// Its name in options and rows.
    pub fn name(self) -> &'static str {
        match self {
            EvictionOrder::S3Fifo => "s3-fifo",
            EvictionOrder::Kernel => "kernel-order",
        }
    }
}

/// What the cache does with a page that does not compress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Incompressible {
    /// It takes a frame of its own, and has its turn in the order, as in the kernel.
    #[default]
    Raw,
    /// It goes to the backing disk at once. If that is not possible, it is kept raw.
    Disk,
    /// It is refused.
    Reject,
}

impl Incompressible {
    /// Every policy.
    pub const ALL: [Incompressible; 3] =
        [Incompressible::Raw, Incompressible::Disk, Incompressible::Reject];

    /// Its name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Incompressible::Raw => "raw",
            Incompressible::Disk => "disk",
            Incompressible::Reject => "reject",
        }
    }
}

impl fmt::Display for Incompressible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Incompressible {
    type Err = String;

    fn from_str(name: &str) -> Result<Incompressible, String> {
        let found = Incompressible::ALL.into_iter().find(|policy| policy.name() == name);
        found.ok_or_else(|| format!("unknown policy \"{name}\": raw, disk, reject"))
    }
}

/// What a cache is made with.
#[derive(Clone)]
pub struct ZswapConfig {
    /// The cache's name, as reports show it.
    pub name: String,
    /// Algorithm and level of new entries; [`Zswap::set_algorithm`](crate::Zswap::set_algorithm)
    /// changes it.
    pub algorithm: Codec,
    /// Chain order N: at most 2^N frames per zspage, 0 to 4.
    pub chain_order: u32,
    /// How size classes are chosen.
    pub rule: Rule,
    /// The most bytes that compressed pages may take.
    pub limit: Limit,
    /// A cache that has been full takes pages again at this percentage of its limit, 1 to 100. At
    /// 100 it does so as soon as there is room for one page.
    pub accept_threshold_percent: u32,
    /// The rule that chooses which entry leaves memory next.
    pub order: EvictionOrder,
    /// What becomes of a page that does not compress.
    pub incompressible: Incompressible,
    /// The disk for pages that leave memory. Its content is overwritten.
    pub backing: Option<Arc<dyn Disk>>,
    /// Whether pages stay compressed on the backing disk. Then two thirds less is written and read,
    /// and no page is compressed or decompressed for the disk.
    pub compressed_writeback: bool,
    /// Whether [`Zswap::shrinker_count`](crate::Zswap::shrinker_count) offers entries to a memory
    /// manager.
    pub shrinker_enabled: bool,
    /// Whether the cache may start a thread that writes back in the background when the limit is
    /// met.
    pub worker: bool,
    /// What a study compares.
    #[cfg(feature = "study")]
    pub study: super::study::Study,
}

impl ZswapConfig {
    /// The kernel's defaults, without a backing disk.
    pub fn new(name: &str) -> ZswapConfig {
        ZswapConfig {
            name: name.into(),
            algorithm: Codec::new(Algorithm::Lz4),
            chain_order: 3,
            rule: Rule::LeastWaste,
            limit: Limit::Percent(LIMIT_PERCENT),
            accept_threshold_percent: ACCEPT_THRESHOLD_PERCENT,
            order: EvictionOrder::default(),
            incompressible: Incompressible::default(),
            backing: None,
            compressed_writeback: true,
            shrinker_enabled: false,
            worker: true,
            #[cfg(feature = "study")]
            study: super::study::Study::default(),
        }
    }

    /// The chain size, if every value is within its bounds.
    pub(crate) fn check(&self) -> Result<ChainSize, ZswapError> {
        let percent = self.accept_threshold_percent;
        if !(1..=100).contains(&percent) {
            return Err(ZswapError::BadPercent { percent });
        }
        let order = self.chain_order;
        ChainSize::from_order(order).ok_or(ZswapError::BadChainOrder { order })
    }
}

impl fmt::Debug for ZswapConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backing = self.backing.as_ref().map(|disk| disk.size_bytes());
        f.debug_struct("ZswapConfig")
            .field("name", &self.name)
            .field("algorithm", &self.algorithm)
            .field("limit", &self.limit)
            .field("order", &self.order)
            .field("backing_bytes", &backing)
            .finish_non_exhaustive()
    }
}
