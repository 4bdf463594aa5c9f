//! The kernel's attributes as text: their names and modes, and what may be written to them.
//!
//! Nothing here knows a device. `judge` says whether some device could take a text, before there is
//! one. The files below it read the texts. The room stands on the terms of the crate alone.

pub(crate) mod algorithms;
mod attribute;
mod errno;
mod judge;
mod number;
mod pairs;
pub(crate) mod values;
pub(crate) mod work;

pub use attribute::Attribute;
pub use errno::{AttributeError, Errno};
pub(crate) use number::signed;
