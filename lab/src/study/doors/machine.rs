//! Reads over vhost-user: a driver of one queue, without a virtual machine.
//!
//! ```text
//!   memory:   [ table | available | used | for each place: header, status, page ]
//!   place n:  descriptors 3n (header), 3n + 1 (page), 3n + 2 (status)
//! ```
//!
//! It kicks only when the server waits, and asks to be told of the next answer only before it
//! waits itself, as a driver of Linux does (`EVENT_IDX`).
//!
//! Invariant: a place is asked for again only after its answer.

use super::client::Client;
use crate::ground::LabError;
use crate::pages::PAGE_SIZE;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;

/// Places of the ring.
const SIZE: u16 = 128;
const BASE: u64 = 1 << 30;
const MEMORY: usize = 1 << 20;
const AVAILABLE: u64 = BASE + 0x1000;
const USED: u64 = BASE + 0x2000;
const PLACES: u64 = BASE + 0x4000;
/// Bytes of a place: header and status in the first page.
const PLACE: u64 = 2 * PAGE_SIZE as u64;
const STATUS: u64 = 64;
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const EVENT_IDX: u64 = 1 << 29;
const VERSION_1: u64 = 1 << 32;
const PROTOCOL_FEATURES: u64 = 1 << 30;
const SECTORS: u64 = PAGE_SIZE as u64 / 512;

/// A frontend, its memory and its queue.
pub(super) struct Reader {
    _frontend: Frontend,
    memory: GuestMemoryMmap,
    kick: EventFd,
    call: EventFd,
    available: u16,
    used: u16,
    page: Box<[u8; PAGE_SIZE]>,
}

impl Reader {
    pub(super) fn connect(path: &Path, depth: u16) -> Result<Reader, LabError> {
        let failed = |error: vhost::Error| broken(&error);
        let io = || LabError::io("the memory of a guest");
        let file = memfd_create("guest", MemfdFlags::CLOEXEC);
        let file = File::from(file.map_err(|error| broken(&error))?);
        file.set_len(MEMORY as u64).map_err(io())?;
        let shared = FileOffset::new(file.try_clone().map_err(io())?, 0);
        let memory =
            GuestMemoryMmap::from_ranges_with_files([(GuestAddress(BASE), MEMORY, Some(shared))]);
        let memory = memory.map_err(|error| broken(&error))?;
        let mut frontend = Frontend::connect(path, 1).map_err(failed)?;
        frontend.set_owner().map_err(failed)?;
        let offered = frontend.get_features().map_err(failed)?;
        let wanted = VERSION_1 | EVENT_IDX | PROTOCOL_FEATURES;
        frontend.set_features(offered & wanted).map_err(failed)?;
        let known = frontend.get_protocol_features().map_err(failed)?;
        frontend.set_protocol_features(known).map_err(failed)?;
        let (kick, call) = (EventFd::new(0).map_err(io())?, EventFd::new(0).map_err(io())?);
        start(&mut frontend, &file, &kick, &call).map_err(failed)?;
        let page = Box::new([0; PAGE_SIZE]);
        let reader =
            Reader { _frontend: frontend, memory, kick, call, available: 0, used: 0, page };
        (0..depth).try_for_each(|place| reader.chain(place))?;
        Ok(reader)
    }

    /// Writes the descriptors of a place, which never change.
    fn chain(&self, place: u16) -> Result<(), LabError> {
        let at = PLACES + u64::from(place) * PLACE;
        let first = place * 3;
        let buffers = [
            (at, 16, NEXT),
            (at + PAGE_SIZE as u64, PAGE_SIZE as u32, NEXT | WRITE),
            (at + STATUS, 1, WRITE),
        ];
        for (number, (at, len, flags)) in (first..).zip(buffers) {
            let next = number + 1;
            let bytes = [
                &at.to_le_bytes()[..],
                &len.to_le_bytes(),
                &flags.to_le_bytes(),
                &next.to_le_bytes(),
            ];
            self.put(BASE + u64::from(number) * 16, &bytes.concat())?;
        }
        Ok(())
    }

    fn put(&self, at: u64, bytes: &[u8]) -> Result<(), LabError> {
        self.memory.write_slice(bytes, GuestAddress(at)).map_err(|error| broken(&error))
    }

    fn load(&self, at: u64) -> Result<u16, LabError> {
        // Acquire pairs with the server's Release of its count, so that what it counted is there.
        self.memory.load(GuestAddress(at), Ordering::Acquire).map_err(|error| broken(&error))
    }

    fn store(&self, at: u64, word: u16) -> Result<(), LabError> {
        // Release pairs with the server's Acquire of our count, so that what we counted is there.
        self.memory.store(word, GuestAddress(at), Ordering::Release).map_err(|error| broken(&error))
    }
}

/// Hands the memory and one ring to the server.
fn start(
    frontend: &mut Frontend,
    file: &File,
    kick: &EventFd,
    call: &EventFd,
) -> Result<(), vhost::Error> {
    use std::os::fd::AsRawFd;
    frontend.set_mem_table(&[VhostUserMemoryRegionInfo {
        guest_phys_addr: BASE,
        memory_size: MEMORY as u64,
        userspace_addr: BASE,
        mmap_offset: 0,
        mmap_handle: file.as_raw_fd(),
    }])?;
    frontend.set_vring_num(0, SIZE)?;
    frontend.set_vring_base(0, 0)?;
    let places = VringConfigData {
        queue_max_size: SIZE,
        queue_size: SIZE,
        flags: 0,
        desc_table_addr: BASE,
        avail_ring_addr: AVAILABLE,
        used_ring_addr: USED,
        log_addr: None,
    };
    frontend.set_vring_addr(0, &places)?;
    frontend.set_vring_call(0, call)?;
    frontend.set_vring_kick(0, kick)?;
    frontend.set_vring_enable(0, true)
}

impl Client for Reader {
    fn ask(&mut self, place: usize, page: usize) -> Result<(), LabError> {
        let at = PLACES + place as u64 * PLACE;
        let mut header = [0; 16]; // kind 0: a read
        header[8..].copy_from_slice(&(page as u64 * SECTORS).to_le_bytes());
        self.put(at, &header)?;
        self.put(at + STATUS, &[u8::MAX])?;
        let slot = AVAILABLE + 4 + u64::from(self.available % SIZE) * 2;
        self.put(slot, &(place as u16 * 3).to_le_bytes())?;
        self.available = self.available.wrapping_add(1);
        self.store(AVAILABLE + 2, self.available)?;
        // SeqCst pairs with the server's fence before its last look for requests, so that one of
        // the two sees what the other wrote.
        fence(Ordering::SeqCst);
        let wanted = self.load(USED + 4 + u64::from(SIZE) * 8)?;
        if wanted == self.available.wrapping_sub(1) {
            self.kick.write(1).map_err(LabError::io("a kick"))?;
        }
        Ok(())
    }

    fn answer(&mut self) -> Result<(usize, &[u8]), LabError> {
        while self.load(USED + 2)? == self.used {
            self.store(AVAILABLE + 4 + u64::from(SIZE) * 2, self.used)?;
            // SeqCst pairs with the server's fence before it looks whether to tell, so that one of
            // the two sees what the other wrote.
            fence(Ordering::SeqCst);
            if self.load(USED + 2)? != self.used {
                break;
            }
            self.call.read().map_err(LabError::io("an answer over vhost-user"))?;
        }
        let slot = USED + 4 + u64::from(self.used % SIZE) * 8;
        self.used = self.used.wrapping_add(1);
        let head: u32 = self.memory.read_obj(GuestAddress(slot)).map_err(|error| broken(&error))?;
        let place = head as usize / 3;
        let at = PLACES + place as u64 * PLACE;
        let status: u8 =
            self.memory.read_obj(GuestAddress(at + STATUS)).map_err(|error| broken(&error))?;
        if status != 0 {
            return Err(broken(&format!("status {status}")));
        }
        let from = GuestAddress(at + PAGE_SIZE as u64);
        self.memory.read_slice(&mut self.page[..], from).map_err(|error| broken(&error))?;
        Ok((place, &self.page[..]))
    }
}

fn broken(why: &dyn std::fmt::Display) -> LabError {
    LabError::Store { what: "a disk over vhost-user".into(), why: why.to_string() }
}
