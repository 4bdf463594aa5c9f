//! The settings of a pager and of a region.
//!
//! ```text
//!   PagerConfig ----- FaultCosts             measured, unless the caller gives them
//!   RegionConfig ---- StoreConfig::Zram      algorithm, chain order, limit, tiers: the device's
//!                `--- StoreConfig::Zswap     they are the cache's, and the group's in it
//! ```
//!
//! Invariant: a configuration holds only values, and nothing here checks them. The bounds are
//! checked once, when the pager or the region is made. Later changes go through functions of the
//! region.

use host::FaultMode;
use std::sync::Arc;
use std::time::Duration;
use zram::{Algorithm, Codec, TiersConfig};
use zswap::{GroupId, Zswap};

/// The settings of a pager.
#[derive(Debug, Clone)]
pub struct PagerConfig {
    /// How faults are served. `None` means by signals. They come from a userfaultfd if the system
    /// has one that supports folding and lets this process have it. Otherwise pages that are out
    /// are closed ([`FaultMode::Protection`]), or have guards if the system refuses that too
    /// ([`FaultMode::Guards`]).
    pub fault_mode: Option<FaultMode>,
    /// Bytes of staging, at least 512 KiB. It holds pages on their way out, of all regions
    /// together.
    pub staging_bytes: usize,
    /// The cost of a fault. If it is `None`, the pager measures it.
    pub fault_costs: Option<FaultCosts>,
    /// The most mappings that all regions of the pager may make. `None` means an eighth of those
    /// that the system allows a process (`vm.max_map_count`), or half of them if pages that are out
    /// are closed.
    ///
    /// With a userfaultfd, once they are used up, a page can leave only if the whole gap around it
    /// is registered. First touches in that gap then cost a fault. If pages that are out are
    /// closed, each range of them takes a mapping. The fewer are left, the more neighbours a fault
    /// brings in, up to 64 pages, and near the end the pager pages out whole groups.
    pub mappings_max: Option<u64>,
}

/// The costs that decide how many pages beside its own a fault brings in, with [`Quads::Measured`].
///
/// A neighbour pays if more than `page / (overhead + page)` of the pages beside a faulting page are
/// wanted. If the region has a limit, `page_out` is added to both `page`s.
///
/// [`Quads::Measured`]: crate::Quads::Measured
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultCosts {
    /// A fault without its page: the way to the thread that serves it, and back.
    pub overhead: Duration,
    /// A page that comes alone: decoding it and putting it in place.
    pub page: Duration,
    /// A page that leaves: compressing and storing it. It counts only if the region has a limit.
    pub page_out: Duration,
}

impl Default for PagerConfig {
    /// Signals, 16 MiB of staging, measured costs, and a share of the mappings.
    fn default() -> PagerConfig {
        PagerConfig {
            fault_mode: None,
            staging_bytes: 16 << 20,
            fault_costs: None,
            mappings_max: None,
        }
    }
}

/// The store for a region's pages.
#[derive(Debug, Clone, Default)]
pub enum StoreConfig {
    /// A zram device of its own.
    #[default]
    Zram,
    /// An area of a cache. The cache has limits for all of its regions, and may have a disk.
    ///
    /// The disk is part of the program's memory: it must give back what was written. A checksum
    /// finds damage, but not content that was changed on purpose. In signal mode the thread that
    /// touches a page reads a disk that is a file (`disk::Disk::file`). Threads of the pager read
    /// any other disk, because its code must not run in the middle of the program's.
    ///
    /// The disk's code must not touch a region. If it touches a page that is on a disk, the process
    /// ends. In thread mode, the serving thread would wait for itself for any page that is out.
    Zswap {
        /// The cache; its memory is the pager's.
        cache: Arc<Zswap>,
        /// The group whose limit the pages count against.
        group: GroupId,
    },
}

/// When a fault on a stored page brings in neighbours.
///
/// The neighbours are the pages of its quad (the 4 aligned pages around it) or of its stretch (16)
/// that are stored as well, and in memory there. None come while the region is at its limit. A
/// fault with its quad takes about twice as long as one that brings in a single page. One with its
/// stretch takes about five times as long. With any setting, a walk makes pages come in ahead of
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Quads {
    /// Never. This is for programs that must keep the longest fault short, or need the memory.
    Never,
    /// The quad or the stretch, if that pays: see
    /// [`RegionStats::density`](crate::RegionStats::density).
    #[default]
    Measured,
    /// The quad, always. This is for programs whose touches are known to be dense.
    Always,
}

/// The settings of a region.
#[derive(Debug, Clone)]
pub struct RegionConfig {
    /// A name for the statistics of its store.
    pub name: String,
    /// The store for its pages.
    pub store: StoreConfig,
    /// For a device of its own: algorithm and level, and [`Codec::with_shuffle`] for a region of
    /// numbers. Contexts of any algorithm except lz4 are built when the region is mapped, two for
    /// each CPU, because a fault allocates nothing.
    pub algorithm: Codec,
    /// For a device of its own: chain order N, at most 2^N frames per zspage, 0 to 4.
    pub chain_order: u32,
    /// For a device of its own: the most bytes that compressed pages may take; 0 means no limit. A
    /// page that does not fit stays in memory.
    pub store_limit: u64,
    /// For a device of its own: how much denser pages become while they stay out. A thread of the
    /// pager does that, and all of its regions share it. `None`, or the density
    /// [`Fast`](crate::Density::Fast), means that pages stay as they left. An age begins when a
    /// page leaves, because a page that comes back is gone from the store. There is no disk, so
    /// `write_back` means nothing.
    pub tiers: Option<TiersConfig>,
    /// Bytes of the region that may be in memory, at least [`LIMIT_MIN`](crate::LIMIT_MIN). `None`
    /// means all of them. With a limit, first touches are faults too, so that the limit is kept
    /// from the first page on.
    pub resident_limit: Option<usize>,
    /// When a fault brings in its quad or stretch.
    pub quads: Quads,
}

impl Default for RegionConfig {
    /// A device of its own, lz4, chain order 3, no tiers, no limits, neighbours if they pay.
    fn default() -> RegionConfig {
        RegionConfig {
            name: "region".into(),
            store: StoreConfig::default(),
            algorithm: Codec::new(Algorithm::Lz4),
            chain_order: 3,
            store_limit: 0,
            tiers: None,
            resident_limit: None,
            quads: Quads::default(),
        }
    }
}
