//! The attributes against the kernel's table of them: formats to the byte, errors to the number.
//!
//! Claims
//! - Each row of the table "Attributes" in docs/zram.md is checked by the test that it names.
//! - A request that is refused changes nothing, and says on one line what would be right.
//! - A device that is open is neither reset nor removed, and the error names its holder.
//! - Devices behave as a twin of a few lines does, and no text does harm.
//! - Devices come and go under traffic, and leave nothing behind.
//! - The steps of the kernel's selftests and of LTP's zram01 to zram03 that need no mount pass.

mod algorithms;
mod backing;
mod devices;
mod life;
mod limits;
mod post;
mod rig;
mod stats;
mod steps;
mod twin;
