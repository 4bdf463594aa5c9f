//! How many pages a fault brings in beside its own.
//!
//! ```text
//!   Around    a walk: the next 2, 4, 8, ... pages          window by window
//!             else: the quad or the stretch around it, if that pays
//!               |-- Density    how many neighbours are wanted, measured by trials
//!               `-- Worth      what a fault and a page cost      overhead: the fault's own part
//! ```
//!
//! It stands on `places` (trials) and `terms`. It only gives numbers. The room `way_in` brings the
//! pages.

mod around;
mod density;
mod overhead;
mod worth;

pub(crate) use around::Around;
pub(crate) use density::is_watched;
pub(crate) use overhead::of_fault;
pub(crate) use worth::Worth;
