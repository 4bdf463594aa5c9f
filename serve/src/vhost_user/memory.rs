//! The guest's memory, as far as the frontend shares it.
//!
//! ```text
//!   region:  guest address, length  --> a mapping of the frontend's file here
//!            frontend's address     --> guest address, for the rings
//! ```
//!
//! Invariants
//! - A region lies within its file when it is mapped, and no two overlap.
//! - A file that is made shorter afterwards turns its region into zeros, and the memory is lost.
//!   What was copied from a memory that is not lost after that is what the guest had there.
//! - The mappings are shared and belong to the frontend's file: they are no anonymous memory of
//!   the server, and no buffer of its accounts.
//!
//! Locks: none.

use crate::terms::limits::MEMORY_REGIONS_MAX;
use host::fault::Lent;
use std::fs::File;
use std::io;
use std::sync::Arc;
use vhost::vhost_user::message::VhostUserMemoryRegion;
use vm_memory::{GuestAddress, GuestMemoryMmap, GuestRegionMmap};

/// The regions of a frontend.
pub(super) struct Regions {
    memory: Memory,
    addresses: Vec<Addresses>,
}

/// The guest's memory, as a queue has it.
#[derive(Clone)]
pub(super) struct Memory {
    pub(super) map: GuestMemoryMmap,
    lent: Vec<Arc<Lent>>,
}

impl Memory {
    /// Whether the frontend took some of it away.
    pub(super) fn is_lost(&self) -> bool {
        self.lent.iter().any(|lent| lent.is_lost())
    }
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
        let memory = Memory { map: GuestMemoryMmap::new(), lent: Vec::new() };
        Self { memory, addresses: Vec::new() }
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
        let mapped = Arc::new(region.mmap_region(file).map_err(io::Error::other)?);
        // It is watched before a queue has it, and as long as one does.
        let lent = Lent::watch(Arc::clone(&mapped)).map_err(io::Error::other)?;
        let mapped = GuestRegionMmap::with_arc(mapped, GuestAddress(region.guest_phys_addr));
        let mapped = mapped.ok_or(io::ErrorKind::InvalidInput)?;
        let map = self.memory.map.insert_region(Arc::new(mapped)).map_err(io::Error::other)?;
        self.memory.map = map;
        self.memory.lent.push(Arc::new(lent));
        let (frontend, guest) = (region.user_addr, region.guest_phys_addr);
        self.addresses.push(Addresses { frontend, guest, len: region.memory_size });
        Ok(())
    }

    /// Forgets a region.
    pub(super) fn remove(&mut self, region: &VhostUserMemoryRegion) -> io::Result<()> {
        let (guest, len) = (region.guest_phys_addr, region.memory_size);
        let left = self.memory.map.remove_region(GuestAddress(guest), len);
        self.memory.map = left.map_err(io::Error::other)?.0;
        // The two lists have the same order.
        let at = self.addresses.iter().position(|one| one.guest == guest);
        if let Some(at) = at {
            self.addresses.remove(at);
            self.memory.lent.remove(at);
        }
        Ok(())
    }

    /// The memory, for a queue.
    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The guest's address of what is at this address of the frontend.
    pub(super) fn guest_address(&self, frontend: u64) -> Option<u64> {
        let within = |one: &&Addresses| frontend.wrapping_sub(one.frontend) < one.len;
        let found = self.addresses.iter().find(within)?;
        (frontend - found.frontend).checked_add(found.guest)
    }
}
