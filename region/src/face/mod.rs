//! The face of the crate: regions, vectors in them, and what is done to their pages.
//!
//! ```text
//!   RegionVec   a vector of plain data       vec_iter: elements go in and come out one by one
//!      |
//!   Region      its bytes, lent as slices    ending: how it is dropped
//!      |-- RegionControl    pages go and come while the bytes are lent
//!      `-- Pinned     bytes that stay in memory while they are lent
//!
//!   RawRegion   its address, for other languages    life: what both kinds have, and its end
//!      `-- Field, Plot   one of them for many small users
//! ```
//!
//! It stands on all other rooms, and no other room uses it.

mod control;
mod ending;
mod field;
mod life;
mod pinned;
mod raw;
mod region;
mod vec;
mod vec_iter;

pub use control::RegionControl;
pub use ending::Teardown;
pub use field::{Field, Plot};
pub use pinned::{Pinned, PinnedMut};
pub use raw::RawRegion;
pub use region::Region;
pub use vec::{PushError, RegionVec};
pub use vec_iter::IntoIter;
