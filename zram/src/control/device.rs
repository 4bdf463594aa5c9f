//! A device, from being added to being removed.
//!
//! ```text
//!   added --disksize--> initialised --reset--> as when added
//!     '-- settings        '-- a Zram, and settings that may still change
//! ```
//!
//! Invariants
//! - I1 while a device is open its disk stays. A reset needs a claim, and a claim needs that the
//!   device is not open.
//! - I2 a thread that asks for a figure waits for no request, no write-back and no reset.
//!
//! Locks: the turn and the state, of the ranks DeviceTurn and DeviceState. The turn is for one
//! thing at a time: disksize, reset, write-back, recompression, idle marking, `memory_target`, and
//! each setting that is fixed with the size. The state is held to look, or to set a word. The list
//! of holders is a leaf.

use std::sync::Arc;

use disk::NbdReport;
use host::Rank;
use host::unmodelled::{RankedMutex, RankedReadGuard, RankedRwLock, RankedWriteGuard};
use zsmalloc::Memory;

use super::claim::{Claims, Turn, removed};
use super::settings::Settings;
use super::shared::Shared;
use crate::attributes::{Attribute, AttributeError};
use crate::device::Zram;
use crate::post::{Policy, Tiers};

/// One device.
pub struct Device {
    id: u32,
    name: String,
    shared: Arc<Shared>,
    claims: Claims,
    turn: RankedMutex<()>,
    state: RankedRwLock<State>,
}

/// The present state of a device.
pub(crate) struct State {
    pub(crate) settings: Settings,
    /// Its disk, once it has a size.
    pub(crate) disk: Option<Arc<Zram>>,
    /// Its policy, while it has a disk whose memory is held at a target.
    pub(crate) policy: Option<Policy>,
    /// Its tiers, while it has a disk with some.
    pub(crate) tiers: Option<Tiers>,
}

impl State {
    /// Blocks that may still be written back: those that were set, less those written since.
    pub(crate) fn writeback_limit(&self) -> u64 {
        let kept = self.settings.writeback_limit;
        self.disk.as_ref().map_or(kept, |disk| disk.writeback_limit())
    }
}

impl Device {
    /// A device that was just added.
    pub(crate) fn new(id: u32, name: String, shared: Arc<Shared>) -> Device {
        let settings = Settings::new(shared.defaults());
        let state = State { settings, disk: None, policy: None, tiers: None };
        let turn = RankedMutex::new(Rank::DeviceTurn, ());
        let state = RankedRwLock::new(Rank::DeviceState, state);
        Device { id, name, shared, claims: Claims::new(), turn, state }
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its name: `zram` and the number, unless it was given another.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The most bytes that its stored pages may take; 0 means no limit.
    pub fn mem_limit(&self) -> u64 {
        self.state().settings.mem_limit
    }

    /// Bytes that its stored pages are held at; 0 means no target.
    pub fn memory_target(&self) -> u64 {
        self.state().settings.memory_target
    }

    /// Whether the device is open.
    pub fn is_open(&self) -> bool {
        self.claims.count() > 0
    }

    /// The holders that have it open and gave a name.
    pub fn holders(&self) -> Vec<String> {
        self.claims.names()
    }

    /// Its disk, once it has a size. A caller that keeps the disk should have the device
    /// [opened](Self::open), because after a reset that disk is no longer the device's.
    pub fn disk(&self) -> Option<Arc<Zram>> {
        self.state().disk.clone()
    }

    /// Bytes of the disk; 0 before it has a size.
    pub fn size_bytes(&self) -> u64 {
        self.state().disk.as_ref().map_or(0, |disk| disk.config().disksize)
    }

    /// What became of the requests to its backing device, if that is of an NBD server.
    pub fn remote_backing(&self) -> Option<NbdReport> {
        Some(self.state().settings.backing.as_ref()?.remote.as_ref()?.report())
    }

    /// The part that all devices share.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn memory(&self) -> Arc<Memory> {
        Arc::clone(self.shared.memory())
    }

    pub(crate) fn claims(&self) -> &Claims {
        &self.claims
    }

    /// The disk of a device that has a size.
    pub(crate) fn initialised(&self) -> Result<Arc<Zram>, AttributeError> {
        let missing =
            || AttributeError::invalid("the device is not initialised; write disksize first");
        self.disk().ok_or_else(missing)
    }

    /// Fails if the device has a size, because some settings are fixed with it.
    pub(crate) fn check_uninitialised(&self) -> Result<(), AttributeError> {
        match self.state().disk {
            Some(_) => {
                let message = "the device is initialised already; reset it first";
                Err(AttributeError::busy(message))
            }
            None => Ok(()),
        }
    }

    /// Turns tiers off, if there are some, because an attribute is written that does their work.
    pub(crate) fn turn_tiers_off(&self, attribute: Attribute) {
        // The thread is waited for outside of the lock.
        let tiers = self.state_mut().tiers.take();
        if let Some(tiers) = tiers {
            tiers.turn_off(&format!("{} was written", attribute.name()));
        }
    }

    /// The state, for reading.
    pub(crate) fn state(&self) -> RankedReadGuard<'_, State> {
        self.state.read()
    }

    /// The state, for setting a word of it.
    pub(crate) fn state_mut(&self) -> RankedWriteGuard<'_, State> {
        self.state.write()
    }

    /// The turn for work that only one thread may do at a time. It guards no data.
    pub(crate) fn turn(&self) -> Result<Turn<'_>, AttributeError> {
        let turn = self.turn.lock();
        self.check_there().map(|()| turn)
    }

    /// Fails once the device was removed.
    pub(crate) fn check_there(&self) -> Result<(), AttributeError> {
        if self.claims.is_removed() { Err(removed(&self.name)) } else { Ok(()) }
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("name", &self.name).finish_non_exhaustive()
    }
}
