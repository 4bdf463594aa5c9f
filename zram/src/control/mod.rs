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
//!                    store disksize                    store reset, it is not open
//!   uninitialised -------------------> initialised ------------------------------------.
//!        ^                                                                              |
//!        '------------------------------------------------------------------------------'
//! ```
//!
//! Nothing here knows files. A mount, a socket or a program calls [`Device::show`] and
//! [`Device::store`]. It gets the kernel's bytes, or the kernel's error number with a line that
//! says what would be right.
//!
//! The room stands on the texts of attributes, and on the device with all that is done to it. In
//! this room `device` is below the things that are done to one: `initialise`, `work`, `show`,
//! `store`. `life` offers these to clients, and `devices` is the list.
//!
//! | item | what it is |
//! |---|---|
//! | [`Devices`] | the list of devices; `hot_add`, `hot_remove` |
//! | [`Device`] | one of them, from being added to being removed |
//! | [`Attribute`] | the names, and whether they can be read and written |
//! | [`AttributeError`] | why a request failed, with its `errno` |
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
