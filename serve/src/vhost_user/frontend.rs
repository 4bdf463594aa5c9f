//! What a frontend asks for about its rings and its memory, one message after the other.
//!
//! ```text
//!   message --> its rings: paused --> changed --> resumed, if all their parts are there
//! ```
//!
//! The library `vhost` reads messages and their descriptors, checks their form, and sends replies.
//! The order of a start is: features, memory, and for each ring its size, base, addresses, events
//! and enabling.
//!
//! Invariants
//! - F1. A ring goes on from where this server left it, or begins at 0. Any other frontend was
//!   served by a server that is gone, and what its guest has stored is gone, too. It is refused,
//!   because its guest would find zeros.
//! - F2. After `end`, no thread works for the frontend, and its memory is unmapped.
//!
//! Locks: the places where rings were left, a leaf.

use super::features::{config, features, protocol_features};
use super::memory::Regions;
use super::ring::{Ring, Table};
use super::wire;
use super::worker::Service;
use crate::terms::limits::{MEMORY_REGIONS_MAX, VHOST_QUEUES_MAX};
use host::unmodelled::RankedMutex;
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandler};

/// What a server remembers of frontends that are gone.
pub(super) struct History {
    /// Where each ring was left.
    pub(super) bases: RankedMutex<[u16; VHOST_QUEUES_MAX as usize]>,
    /// Rings that run, for people to look at.
    pub(super) running: AtomicUsize,
}

/// One frontend, on the thread of its connection.
pub(super) struct Frontend {
    service: Arc<Service>,
    history: Arc<History>,
    state: RefCell<State>,
}

struct State {
    rings: Vec<Ring>,
    regions: Regions,
    features: u64,
    /// A ring began where this server did not leave it.
    foreign: bool,
}

impl Frontend {
    pub(super) fn new(service: Arc<Service>, history: Arc<History>) -> Self {
        let rings = (0..VHOST_QUEUES_MAX).map(|_| Ring::new()).collect();
        let state = State { rings, regions: Regions::none(), features: 0, foreign: false };
        Self { service, history, state: RefCell::new(state) }
    }

    /// Whether it comes from another server, whose disk is gone (F1).
    pub(super) fn is_foreign(&self) -> bool {
        self.state.borrow().foreign
    }

    /// Ends all its rings.
    pub(super) fn end(&self) {
        let mut state = self.state.borrow_mut();
        let mut bases = Vec::new();
        for (index, ring) in state.rings.iter_mut().enumerate() {
            if ring.is_running() {
                ring.pause();
                bases.push((index, ring.base()));
            }
        }
        self.remember(&bases);
        state.regions = Regions::none();
        self.count(&state);
    }

    /// Changes one ring while no thread works on it.
    fn change<T>(
        &self,
        index: u32,
        how: impl FnOnce(&mut Ring, &Regions) -> Result<T>,
    ) -> Result<T> {
        let state = &mut *self.state.borrow_mut();
        let ring = state.rings.get_mut(index as usize).ok_or(Error::InvalidParam)?;
        ring.pause();
        let done = how(ring, &state.regions)?;
        ring.resume(&state.regions, &self.service).map_err(Error::ReqHandlerError)?;
        self.count(state);
        Ok(done)
    }

    /// Changes what all rings have in common while no thread works on them.
    fn change_all(&self, how: impl FnOnce(&mut State) -> io::Result<()>) -> Result<()> {
        let state = &mut *self.state.borrow_mut();
        state.rings.iter_mut().for_each(Ring::pause);
        how(state).map_err(Error::ReqHandlerError)?;
        for ring in &mut state.rings {
            ring.resume(&state.regions, &self.service).map_err(Error::ReqHandlerError)?;
        }
        self.count(state);
        Ok(())
    }

    fn remember(&self, bases: &[(usize, u16)]) {
        let mut known = self.history.bases.lock();
        bases.iter().for_each(|&(index, base)| known[index] = base);
    }

    fn count(&self, state: &State) {
        let running = state.rings.iter().filter(|ring| ring.is_running()).count();
        // relaxed: one independent number, for people and tests to look at.
        self.history.running.store(running, Ordering::Relaxed);
    }
}

fn unsupported<T>() -> Result<T> {
    Err(Error::InvalidOperation("not supported"))
}

impl VhostUserBackendReqHandler for Frontend {
    fn set_owner(&self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&self) -> Result<()> {
        unsupported()
    }

    fn reset_device(&self) -> Result<()> {
        unsupported()
    }

    fn get_features(&self) -> Result<u64> {
        Ok(features(&*self.service.disk))
    }

    fn set_features(&self, chosen: u64) -> Result<()> {
        if chosen & !features(&*self.service.disk) != 0 {
            return Err(Error::InvalidParam);
        }
        self.change_all(|state| {
            state.features = chosen;
            let with_events = chosen & wire::F_EVENT_IDX != 0;
            for ring in &mut state.rings {
                ring.watch_events(with_events);
                // Without features of vhost-user there is no message that enables a ring.
                if chosen & wire::F_PROTOCOL_FEATURES == 0 {
                    ring.enable(true);
                }
            }
            Ok(())
        })
    }

    fn set_mem_table(
        &self,
        table: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        self.change_all(|state| {
            // Those before are unmapped first, so that memory is never mapped twice.
            state.regions = Regions::none();
            state.regions = Regions::of(table, files)?;
            Ok(())
        })?;
        Ok(None)
    }

    fn set_vring_num(&self, index: u32, num: u32) -> Result<()> {
        let resize = |ring: &mut Ring| ring.resize(num).then_some(());
        self.change(index, |ring, _| resize(ring).ok_or(Error::InvalidParam))
    }

    fn set_vring_addr(
        &self,
        index: u32,
        _: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        _: u64,
    ) -> Result<()> {
        self.change(index, |ring, regions| {
            let guest = |at| regions.guest_address(at).ok_or(Error::InvalidParam);
            let table = Table {
                descriptors: guest(descriptors)?,
                available: guest(available)?,
                used: guest(used)?,
            };
            ring.place(&table, regions).then_some(()).ok_or(Error::InvalidParam)
        })
    }

    fn set_vring_base(&self, index: u32, base: u32) -> Result<()> {
        let base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        let left_at = self.history.bases.lock().get(index as usize).copied();
        if base != 0 && left_at.is_some_and(|left_at| left_at != base) {
            self.state.borrow_mut().foreign = true;
            return Err(Error::InvalidParam);
        }
        self.change(index, |ring, _| {
            ring.start_at(base);
            Ok(())
        })
    }

    fn get_vring_base(&self, index: u32) -> Result<VhostUserVringState> {
        let base = self.change(index, |ring, _| {
            ring.end();
            Ok(ring.base())
        })?;
        self.remember(&[(index as usize, base)]);
        Ok(VhostUserVringState::new(index, base.into()))
    }

    fn set_vring_kick(&self, index: u8, file: Option<File>) -> Result<()> {
        self.change(index.into(), |ring, _| ring.kicked_by(file).map_err(Error::ReqHandlerError))
    }

    fn set_vring_call(&self, index: u8, file: Option<File>) -> Result<()> {
        self.change(index.into(), |ring, _| {
            ring.called_by(file);
            Ok(())
        })
    }

    fn set_vring_err(&self, index: u8, file: Option<File>) -> Result<()> {
        self.change(index.into(), |ring, _| {
            ring.errors_to(file);
            Ok(())
        })
    }

    fn get_protocol_features(&self) -> Result<VhostUserProtocolFeatures> {
        Ok(protocol_features())
    }

    fn set_protocol_features(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&self) -> Result<u64> {
        Ok(VHOST_QUEUES_MAX.into())
    }

    fn set_vring_enable(&self, index: u32, enable: bool) -> Result<()> {
        self.change(index, |ring, _| {
            ring.enable(enable);
            Ok(())
        })
    }

    fn get_config(&self, offset: u32, size: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        Ok(config(&*self.service.disk, offset, size))
    }

    fn set_config(&self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        unsupported()
    }

    fn set_gpu_socket(&self, _: GpuBackend) -> Result<()> {
        unsupported()
    }

    fn get_shared_object(&self, _: VhostUserSharedMsg) -> Result<File> {
        unsupported()
    }

    fn get_inflight_fd(&self, _: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        unsupported()
    }

    fn set_inflight_fd(&self, _: &VhostUserInflight, _: File) -> Result<()> {
        unsupported()
    }

    fn get_max_mem_slots(&self) -> Result<u64> {
        Ok(MEMORY_REGIONS_MAX as u64)
    }

    fn add_mem_region(
        &self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _: Option<bool>,
    ) -> Result<Option<u64>> {
        self.change_all(|state| state.regions.add(region, file))?;
        Ok(None)
    }

    fn remove_mem_region(&self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        self.change_all(|state| state.regions.remove(region))
    }

    fn set_device_state_fd(
        &self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        unsupported()
    }

    fn check_device_state(&self) -> Result<()> {
        unsupported()
    }

    fn get_shmem_config(&self) -> Result<VhostUserShMemConfig> {
        unsupported()
    }

    fn set_log_base(&self, _: &VhostUserLog, _: File) -> Result<()> {
        unsupported()
    }
}
