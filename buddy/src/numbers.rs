//! Values and arithmetic: frames, orders, types, states, and what can go wrong.
//!
//! This is the ground of the crate.

mod defect;
mod error;
mod migratetype;
mod occupancy;
mod order;
mod pfn;
mod run;
mod state;
mod sync;
mod which;

pub use defect::ZoneDefect;
pub use error::{AllocError, FreeError, IsolateError, OfflineError, ReserveError, TakeError};
pub use migratetype::Migratetype;
pub use occupancy::{AllocatedRun, Occupancy};
pub(crate) use occupancy::{Kind, Used};
pub use order::{MAX_ORDER, ORDERS, Order, PAGEBLOCK_ORDER, RUN_FRAMES_MAX};
pub use pfn::{PAGEBLOCK_FRAMES, PageblockIndex, Pfn};
pub use run::FreedRun;
pub use state::Warm;
pub(crate) use state::{Role, State};
pub(crate) use sync::{
    Arc, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, PoisonError, TryLockError,
};
pub(crate) use which::{SLOTS, Which, slot};
