//! The disk of a device that a door serves as a whole.
//!
//! Invariant: while the result lives, the device is neither reset nor removed. Locks: the device's.

use crate::terms::ServeError;
use std::sync::Arc;
use zram::{Device, Opened, Zram};

/// Opens a device for a door of this name, and gives its disk.
pub(crate) fn open_sized(
    device: &Arc<Device>,
    door: &'static str,
) -> Result<(Opened, Arc<Zram>), ServeError> {
    let refused = |why: String| ServeError::NoDisk(why);
    let opened = device.open().map_err(|error| refused(error.to_string()))?.held_by(door);
    let disk = opened.disk().ok_or_else(|| refused(format!("{} has no size", device.name())))?;
    Ok((opened, disk))
}
