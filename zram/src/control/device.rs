//! A device, from being added to being removed.
//!
//! ```text
//!   added --disksize--> initialised --reset--> as added
//!     '-- settings        '-- a Zram, and settings that may change still
//! ```
//!
//! Invariants
//! - I1 while it is opened its disk stays: a reset needs a claim, and a claim that nobody has it
//!   open.
//! - I2 a thread that asks for a number waits for no request, no write-back and no reset.
//!
//! Locks, in this order: the turn (one of disksize, reset, write-back, recompression and idle
//! marking at a time, and every setting that is fixed with the size), the state (held to look or
//! to set a word). The list of holders is a leaf.

use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use zsmalloc::Memory;

use super::claim::{Claims, Turn, removed};
use super::settings::Settings;
use super::shared::Shared;
use crate::attributes::AttributeError;
use crate::device::Zram;
use crate::post::Policy;

/// One device.
pub struct Device {
    id: u32,
    name: String,
    shared: Arc<Shared>,
    claims: Claims,
    turn: Mutex<()>,
    state: RwLock<State>,
}

/// What a device is at the moment.
pub(crate) struct State {
    pub(crate) settings: Settings,
    /// Once it has a size.
    pub(crate) disk: Option<Arc<Zram>>,
    /// While it has one, if its memory is to be held at a target.
    pub(crate) policy: Option<Policy>,
}

impl State {
    /// Blocks that may be written back still: those that were set, less what was written since.
    pub(crate) fn writeback_limit(&self) -> u64 {
        let kept = self.settings.writeback_limit;
        self.disk.as_ref().map_or(kept, |disk| disk.writeback_limit())
    }
}

impl Device {
    /// One that was just added.
    pub(crate) fn new(id: u32, name: String, shared: Arc<Shared>) -> Device {
        let state = State { settings: Settings::new(shared.defaults()), disk: None, policy: None };
        let (claims, turn) = (Claims::default(), Mutex::default());
        Device { id, name, shared, claims, turn, state: RwLock::new(state) }
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its name, `zram` and the number unless it was given another.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The most bytes that its stored pages may take; 0 for no limit.
    pub fn mem_limit(&self) -> u64 {
        self.state().settings.mem_limit
    }

    /// Whether anybody has it open.
    pub fn is_open(&self) -> bool {
        self.claims.count() > 0
    }

    /// The holders that have it open and gave a name.
    pub fn holders(&self) -> Vec<String> {
        self.claims.names()
    }

    /// Its disk, once it has a size. A caller that keeps it should have the device
    /// [opened](Self::open), because after a reset that disk is no longer the device's.
    pub fn disk(&self) -> Option<Arc<Zram>> {
        self.state().disk.clone()
    }

    /// Bytes of the disk; 0 before it has a size.
    pub fn size_bytes(&self) -> u64 {
        self.state().disk.as_ref().map_or(0, |disk| disk.config().disksize)
    }

    /// What is shared with the other devices.
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

    /// What is fixed with the size can be set no more.
    pub(crate) fn check_uninitialised(&self) -> Result<(), AttributeError> {
        match self.state().disk {
            Some(_) => {
                let message = "the device is initialised already; reset it first";
                Err(AttributeError::busy(message))
            }
            None => Ok(()),
        }
    }

    /// The state, to look at.
    pub(crate) fn state(&self) -> RwLockReadGuard<'_, State> {
        // It is whole after every statement that changes it.
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, to set a word of it.
    pub(crate) fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn to do what only one may do at a time. It guards no data.
    pub(crate) fn turn(&self) -> Result<Turn<'_>, AttributeError> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
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
