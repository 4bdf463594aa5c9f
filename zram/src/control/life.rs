//! A device as its client sees it: attributes that are read and written, and its figures.
//!
//! Invariant: every request to a device that was removed ends in `ENODEV`. Locks: those of the
//! request.

use host::PAGE_SIZE;

use super::device::Device;
use super::initialise::config;
use super::settings::{PRIMARY, Settings};
use super::show::show;
use super::store::store;
use super::work::{BlockStates, block_states};
use crate::attributes::{Attribute, AttributeError};
use crate::report::ZramStat;

impl Device {
    /// The text of an attribute, with its newline.
    ///
    /// # Errors
    ///
    /// `EACCES` if it can only be written; `ENODEV` if the device was removed.
    pub fn show(&self, attribute: Attribute) -> Result<String, AttributeError> {
        self.check_there()?;
        show(self, attribute)
    }

    /// Does what writing this text to an attribute does. Write-back, recompression and compaction
    /// may take long.
    ///
    /// # Errors
    ///
    /// The kernel's error numbers, each with a line that says what would be right.
    pub fn store(&self, attribute: Attribute, value: &[u8]) -> Result<(), AttributeError> {
        self.check_there()?;
        store(self, attribute, value).map_err(|error| error.of(attribute))
    }

    /// Everything that `stat --json` prints. It is zeros before the device has a size.
    pub fn stat(&self) -> ZramStat {
        let state = self.state();
        match &state.disk {
            Some(disk) => disk.stat(),
            None => self.stat_without_size(&state.settings),
        }
    }

    /// The figures of a device that has no size.
    fn stat_without_size(&self, settings: &Settings) -> ZramStat {
        let algorithm = settings.codec(PRIMARY).ok().flatten();
        ZramStat {
            name: self.name().into(),
            algorithm: algorithm.map_or_else(String::new, |codec| codec.to_string()),
            chain_order: self.shared().defaults().chain_order,
            mem_limit: settings.mem_limit,
            ..ZramStat::default()
        }
    }

    /// Why the device would be refused a size with its present algorithms and parameters. The
    /// kernel judges them only when it gets the size, which is late for the user who wrote them.
    pub fn objection(&self) -> Option<String> {
        let settings = self.state().settings.clone();
        config(self, &settings, PAGE_SIZE as u64).err().map(|error| error.to_string())
    }

    /// The kernel's table of size classes. It is empty before the device has a size.
    pub fn classes_text(&self) -> String {
        self.disk().map_or_else(String::new, |disk| disk.classes().to_string())
    }

    /// The text of `block_state` from a page on, at most `bytes_max` bytes of it. It has a line for
    /// each page that is stored. The result also says where to go on.
    ///
    /// # Errors
    ///
    /// `EINVAL` before the device has a size, as in the kernel.
    pub fn block_states(&self, page: u64, bytes_max: usize) -> Result<BlockStates, AttributeError> {
        self.check_there()?;
        block_states(self, page, bytes_max)
    }
}
