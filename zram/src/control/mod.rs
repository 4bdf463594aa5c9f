//! Devices as the kernel shows them: attributes that are text, one directory for each device.
//!
//! ```text
//!   DIR/zram-control/hot_add, hot_remove        DIR/zram0/disksize, mm_stat, ..    disk
//!              |                                        |                            |
//!           Devices ---------- Device "zram0" ----------'  show, store              open
//!                                  |                                                 |
//!                 settings, while it has no size      Zram, once it has one  <-------'
//! ```
//!
//! ```text
//!                    store disksize                    store reset, nobody has it open
//!   uninitialised -------------------> initialised ------------------------------------.
//!        ^                                                                              |
//!        '------------------------------------------------------------------------------'
//! ```
//!
//! Nothing here knows files: a mount, a socket or a program asks [`Device::show`] and
//! [`Device::store`], and gets the kernel's bytes or the kernel's error number, with a line that
//! says what would be right.
//!
//! | item | what it is |
//! |---|---|
//! | [`Devices`] | the devices there are; `hot_add`, `hot_remove` |
//! | [`Device`] | one of them, with its life |
//! | [`Attribute`] | the names, and who may read and write them |
//! | [`AttributeError`] | why not, with its `errno` |
//! | [`Opened`] | a device somebody uses: it cannot be reset meanwhile |

mod attribute;
mod claim;
mod devices;
mod errno;
mod initialise;
mod judge;
mod life;
mod number;
mod pairs;
mod parameters;
mod post;
mod settings;
mod show;
mod store;

pub use attribute::Attribute;
pub use claim::Opened;
pub use devices::{DeviceDefaults, Devices, PathGuard};
pub use errno::{AttributeError, Errno};
pub use life::{BlockStates, Device};
