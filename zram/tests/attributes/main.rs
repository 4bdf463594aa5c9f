//! The attributes against the kernel's table of them: formats to the byte, errors to the number.
//!
//! Claims
//! - each row of the table "Attributes" in docs/zram.md is checked by the test it names;
//! - what is refused changes nothing, and says on one line what would be right;
//! - a device that somebody holds is neither reset nor removed, and who holds it is told;
//! - devices live as a twin of a few lines says, and no text does harm;
//! - devices come and go under traffic, and leave nothing behind;
//! - the steps of the kernel's selftests and of LTP's zram01 to zram03 that need no mount pass.

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
