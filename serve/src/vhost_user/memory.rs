//! The guest's memory, as far as the frontend shares it.
//!
//! ```text
//!   region:  guest address, length  --> a mapping of the frontend's file here
//!            frontend's address     --> guest address, for the rings
//! ```
//!
//! Invariants
//! - A region lies within its file when it is mapped, and no two overlap. A frontend that makes its
//!   file shorter afterwards ends the server (SIGBUS). Only its own user can connect.
//! - The mappings are shared and belong to the frontend's file: they are no anonymous memory of
//!   the server, and no buffer of its accounts.
//!
//! Locks: none.

use crate::terms::limits::MEMORY_REGIONS_MAX;
use std::fs::File;
use std::io;
use std::sync::Arc;
use vhost::vhost_user::message::VhostUserMemoryRegion;
use vm_memory::{GuestAddress, GuestMemoryMmap, GuestRegionMmap};

/// The regions of a frontend.
pub(super) struct Regions {
    memory: Arc<GuestMemoryMmap>,
    addresses: Vec<Addresses>,
}

/// Where a region is for the frontend and for the guest.
struct Addresses {
    frontend: u64,
    guest: u64,
    len: u64,
}

impl Regions {
    /// No memory.
    pub(super) fn none() -> Self {
        Self { memory: Arc::new(GuestMemoryMmap::new()), addresses: Vec::new() }
    }

    /// The regions of a table, each with its file.
    pub(super) fn of(table: &[VhostUserMemoryRegion], files: Vec<File>) -> io::Result<Self> {
        let mut regions = Self::none();
        for (region, file) in table.iter().zip(files) {
            regions.add(region, file)?;
        }
        Ok(regions)
    }

    /// Maps one more region.
    pub(super) fn add(&mut self, region: &VhostUserMemoryRegion, file: File) -> io::Result<()> {
        if self.addresses.len() >= MEMORY_REGIONS_MAX {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        // The library has checked that the sum does not overflow.
        if file.metadata()?.len() < region.mmap_offset.saturating_add(region.memory_size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mapped = region.mmap_region(file).map_err(io::Error::other)?;
        let mapped = GuestRegionMmap::new(mapped, GuestAddress(region.guest_phys_addr));
        let mapped = mapped.ok_or(io::ErrorKind::InvalidInput)?;
        let memory = self.memory.insert_region(Arc::new(mapped)).map_err(io::Error::other)?;
        self.memory = Arc::new(memory);
        let (frontend, guest) = (region.user_addr, region.guest_phys_addr);
        self.addresses.push(Addresses { frontend, guest, len: region.memory_size });
        Ok(())
    }

    /// Forgets a region.
    pub(super) fn remove(&mut self, region: &VhostUserMemoryRegion) -> io::Result<()> {
        let (guest, len) = (region.guest_phys_addr, region.memory_size);
        let left = self.memory.remove_region(GuestAddress(guest), len).map_err(io::Error::other)?;
        self.memory = Arc::new(left.0);
        self.addresses.retain(|one| one.guest != guest);
        Ok(())
    }

    /// The memory, for a queue.
    pub(super) fn memory(&self) -> &Arc<GuestMemoryMmap> {
        &self.memory
    }

    /// The guest's address of what is at this address of the frontend.
    pub(super) fn guest_address(&self, frontend: u64) -> Option<u64> {
        let within = |one: &&Addresses| frontend.wrapping_sub(one.frontend) < one.len;
        let found = self.addresses.iter().find(within)?;
        (frontend - found.frontend).checked_add(found.guest)
    }
}
