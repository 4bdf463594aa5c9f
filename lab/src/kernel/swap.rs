//! The kernel's zram as the system's only swap.
//!
//! ```text
//!   set up --swap_on--> swapped on; no read-ahead, no zswap before it --swap_off--> set up
//!               the claim gives all of it back as found, however the program ends
//! ```

use super::{Claim, KernelZram};
use crate::error::LabError;
use std::fs;
use std::io;
use std::process::{Command, Stdio};

/// Read-ahead of swapped pages, a power of two of them.
const CLUSTER: &str = "/proc/sys/vm/page-cluster";
const ZSWAP: &str = "/sys/module/zswap/parameters/enabled";
/// What a swap area is to have besides room for every page: its header, and clusters of slots that
/// a CPU keeps to itself. The last few pages find no slot without.
pub(crate) const SPARE_BYTES: u64 = 32 << 20;

impl KernelZram {
    /// Makes the device, set up before, the swap of this machine: each page for itself, straight
    /// to the device.
    pub(crate) fn swap_on(&self) -> Result<(), LabError> {
        self.with("swap on", |claim| {
            // The tools open the device themselves.
            claim.file = None;
            fs::write(CLUSTER, "0")?;
            // A kernel without zswap has nothing to switch off.
            let _ = fs::write(ZSWAP, "N");
            claim.tool("mkswap")?;
            claim.tool("swapon")
        })
    }

    /// Ends that; whatever is still swapped out comes back into memory.
    pub(crate) fn swap_off(&self) -> Result<(), LabError> {
        self.with("swap off", |claim| claim.tool("swapoff"))
    }
}

impl Claim {
    /// Runs one of util-linux's tools on the device.
    fn tool(&self, name: &str) -> io::Result<()> {
        let output = Command::new(name).arg(&self.device).stdin(Stdio::null()).output();
        let output = output.map_err(|error| io::Error::other(format!("{name}: {error}")))?;
        let said = String::from_utf8_lossy(&output.stderr);
        let failed = || io::Error::other(format!("{name}: {}", said.trim()));
        output.status.success().then_some(()).ok_or_else(failed)
    }
}
