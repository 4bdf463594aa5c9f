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
//! The room stands on the texts of attributes, and on the device with all that is done to it. In it
//! `device` is below what is done to one: `initialise`, `work`, `show`, `store`; `life` hands that
//! on to clients, and `devices` is the list.
//!
//! | item | what it is |
//! |---|---|
//! | [`Devices`] | the devices there are; `hot_add`, `hot_remove` |
//! | [`Device`] | one of them, with its life |
//! | [`Attribute`] | the names, and who may read and write them |
//! | [`AttributeError`] | why not, with its `errno` |
//! | [`Opened`] | a device in use: it cannot be reset meanwhile |
//!
//! [`Attribute`]: crate::Attribute
//! [`AttributeError`]: crate::AttributeError

mod claim;
mod device;
mod devices;
mod initialise;
mod life;
mod opened;
mod settings;
mod shared;
mod show;
mod store;
mod work;

pub use device::Device;
pub use devices::Devices;
pub use opened::Opened;
pub use shared::{DeviceDefaults, PathGuard};
pub use work::BlockStates;
