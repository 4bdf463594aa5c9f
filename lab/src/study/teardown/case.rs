//! What is dropped together, and how ours is made and freed.
//!
//! ```text
//!   Case    regions of a size, dropped at the same moment
//!   Shape   the store of ours behind them, and the Free by which they go
//! ```

use crate::apparatus::ours::{Backend, Layout};
use crate::apparatus::paging;
use crate::ground::LabError;
use crate::pages::PAGE_SIZE;
use codec::Codec;
use region::FaultMode;
use std::time::Duration;
use zsmalloc::deferred::QueueConfig;

/// Until the growth must be gone, and until a child has ended.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
pub(super) const NS_PER_MS: f64 = 1e6;
/// The part of the growth that must be gone in the end.
pub(super) const GONE: f64 = 0.98;

/// How paging went in each region.
pub(super) const PAGING: [&str; 3] =
    ["pageout_ns_per_page", "faultin_ns_per_page", "faultin_sequential_ns_per_page"];

/// How our memory is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Free {
    /// Drop a region, and free all of it in the call
    Sync,
    /// Drop a region, handed over as a whole
    Range,
    /// As sync, without userfaultfd: pages that are out are closed
    SyncClosed,
    /// As range, without userfaultfd
    RangeClosed,
    /// As sync, without userfaultfd: pages that are out have guards (Linux 6.15)
    SyncGuarded,
    /// As range, without userfaultfd: pages that are out have guards (Linux 6.15)
    RangeGuarded,
    /// Free slot after slot of a device or area, in the call
    Slots,
    /// Free the slots of a device or area, and queue their objects
    Handles,
    /// Queue the slots of a device or area
    Entries,
}

impl Free {
    /// Those that need no Linux newer than 6.8.
    pub(super) const USUAL: [Free; 7] = [
        Free::Sync,
        Free::Range,
        Free::SyncClosed,
        Free::RangeClosed,
        Free::Slots,
        Free::Handles,
        Free::Entries,
    ];

    /// Whether a device is emptied slot after slot, whose pool may have any lock design.
    pub(super) fn is_of_a_device(self, backend: Backend) -> bool {
        backend == Backend::Zram && matches!(self, Free::Slots | Free::Handles | Free::Entries)
    }

    /// How faults of its regions are served.
    pub(super) fn fault_mode(self) -> FaultMode {
        match self {
            Free::SyncClosed | Free::RangeClosed => FaultMode::Protection,
            Free::SyncGuarded | Free::RangeGuarded => FaultMode::Guards,
            _ => FaultMode::Signal,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Free::Sync => "sync",
            Free::Range => "range",
            Free::SyncClosed => "sync-closed",
            Free::RangeClosed => "range-closed",
            Free::SyncGuarded => "sync-guarded",
            Free::RangeGuarded => "range-guarded",
            Free::Slots => "slots",
            Free::Handles => "handles",
            Free::Entries => "entries",
        }
    }
}

/// How ours is made.
#[derive(Clone)]
pub(super) struct Shape {
    pub(super) backend: Backend,
    pub(super) algorithm: Codec,
    pub(super) chain_order: u32,
    pub(super) free: Free,
    pub(super) layout: Layout,
    pub(super) buffer_bytes: Option<u64>,
}

impl Shape {
    /// The queue of a device of so many pages.
    pub(super) fn queue(&self, pages: u64) -> QueueConfig {
        let bounded = |bytes: u64| QueueConfig {
            buffer_bytes: bytes as usize,
            pending_bytes_max: u64::MAX,
            ..QueueConfig::default()
        };
        self.buffer_bytes.map_or(QueueConfig::for_pages(pages), bounded)
    }
}

/// Regions of a size, dropped together.
#[derive(Clone, Copy)]
pub(super) struct Case {
    pub(super) mib: u64,
    pub(super) threads: u32,
    pub(super) run: u32,
}

impl Case {
    /// Of one region.
    pub(super) fn pages(self) -> usize {
        (self.mib << 20) as usize / PAGE_SIZE
    }

    /// Of all regions.
    pub(super) fn bytes(self) -> u64 {
        u64::from(self.threads) * (self.mib << 20)
    }

    pub(super) fn refuse_if_too_large(self) -> Result<(), LabError> {
        let what = format!("--mib {} --threads {}", self.mib, self.threads);
        paging::refuse_if_too_large(self.bytes(), &what)
    }
}
