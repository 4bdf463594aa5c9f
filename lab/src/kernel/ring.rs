//! The parameter of the kernel by which FUSE over io_uring is offered, borrowed for a mount.
//!
//! Invariant: it is N again when the offer is dropped, or on a signal. Where it was Y before, it
//! stays so. Lock: none.

use crate::ground::{Cleanup, Deferred, LabError};
use std::fs;

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// While it is held, the kernel offers io_uring to new mounts.
pub(crate) struct RingOffer(#[expect(dead_code, reason = "held until it is dropped")] Deferred);

impl RingOffer {
    pub(crate) fn new(cleanup: &Cleanup) -> Result<RingOffer, LabError> {
        let missing =
            |error| LabError::missing("FUSE over io_uring", format!("{PARAMETER}: {error}"));
        let was_offered = fs::read_to_string(PARAMETER).map_err(missing)?.trim() == "Y";
        let deferred = cleanup.defer(move || {
            if !was_offered {
                let _ = fs::write(PARAMETER, "N");
            }
        });
        fs::write(PARAMETER, "Y").map_err(missing)?;
        Ok(RingOffer(deferred))
    }
}

/// How requests of a mounted tree come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Requests {
    /// By `/dev/fuse`
    Device,
    /// By io_uring
    IoUring,
}

impl Requests {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Requests::Device => "device",
            Requests::IoUring => "io-uring",
        }
    }

    /// An offer, if one is needed.
    pub(crate) fn offer(self, cleanup: &Cleanup) -> Result<Option<RingOffer>, LabError> {
        (self == Requests::IoUring).then(|| RingOffer::new(cleanup)).transpose()
    }
}
