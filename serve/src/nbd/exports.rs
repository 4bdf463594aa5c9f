//! What an NBD server offers: one disk, or every device that has a size.
//!
//! ```text
//!   client: LIST    --> list()                    names and descriptions
//!   client: GO name --> open(name) --> Export     held until the connection is over
//! ```
//!
//! Invariants: an export's size never changes while it is open, and the empty name means the first
//! export.
//!
//! Locks: those of the devices. None is held while a client is waited for.

use super::transmission::Export;
use crate::doors::Peer;
use disk::Disk;
use std::sync::Arc;
use zram::{Device, Devices};

/// The exports of a server. They may change while it runs.
pub(crate) trait Exports: Send + Sync {
    /// Names and descriptions. The default export is the first.
    fn list(&self) -> Vec<(String, String)>;

    /// Opens the export of a name. The empty name means the first export.
    ///
    /// # Errors
    ///
    /// Why it cannot be opened, in words for the client.
    fn open(&self, name: &str, client: Peer) -> Result<Export, String>;
}

/// One disk.
pub(crate) struct OneDisk {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) disk: Arc<dyn Disk>,
}

impl Exports for OneDisk {
    fn list(&self) -> Vec<(String, String)> {
        vec![(self.name.clone(), self.description.clone())]
    }

    fn open(&self, name: &str, _: Peer) -> Result<Export, String> {
        if !name.is_empty() && name != self.name {
            return Err("no such export".to_owned());
        }
        let (name, description) = (self.name.clone(), self.description.clone());
        Ok(Export::new(name, description, Arc::clone(&self.disk), None))
    }
}

/// Every device that has a size. A device that a client has open is neither reset nor removed.
pub(crate) struct OfDevices {
    /// The name of the default export.
    pub(crate) first: String,
    pub(crate) devices: Arc<Devices>,
}

impl OfDevices {
    fn described(device: &Device) -> Option<(String, String)> {
        let algorithm = device.disk()?.config().algorithm.to_string();
        let description = format!("ramfold, compressed with {algorithm}");
        Some((device.name().to_owned(), description))
    }
}

impl Exports for OfDevices {
    fn list(&self) -> Vec<(String, String)> {
        let devices = self.devices.list();
        let mut list: Vec<_> = devices.iter().filter_map(|it| Self::described(it)).collect();
        // The sort is stable, so the others stay in the order of their numbers.
        list.sort_by_key(|(name, _)| *name != self.first);
        list
    }

    fn open(&self, name: &str, client: Peer) -> Result<Export, String> {
        let name = if name.is_empty() { &self.first } else { name };
        let device = self.devices.find(name).ok_or("no such export")?;
        let opened = device.open().map_err(|error| error.to_string())?;
        let opened = opened.held_by(format!("an NBD client ({client})"));
        let sizeless = || format!("{name} has no size yet; write one to {name}/disksize");
        let disk = opened.disk().ok_or_else(sizeless)?;
        let (name, description) = Self::described(&device).ok_or_else(sizeless)?;
        Ok(Export::new(name, description, disk, Some(opened)))
    }
}
