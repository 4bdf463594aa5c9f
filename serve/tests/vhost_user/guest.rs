//! A virtual machine without a machine: its memory, its rings, and a driver that may misbehave.
//!
//! ```text
//!   memory:  [ queue 0: table, available, used ][ queue 1 .. ] .. [ data of queue 0 ][ .. 1 ] ..
//! ```
//!
//! Everything that a real guest could do to its memory can be done here by hand.

use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserHeaderFlag};
use vhost::vhost_user::{Frontend, VhostUserFrontend, VhostUserProtocolFeatures};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

pub(crate) const IN: u32 = 0;
pub(crate) const OUT: u32 = 1;
pub(crate) const FLUSH: u32 = 4;
pub(crate) const GET_ID: u32 = 8;
pub(crate) const DISCARD: u32 = 11;
pub(crate) const WRITE_ZEROES: u32 = 13;

pub(crate) const OK: u8 = 0;
pub(crate) const IOERR: u8 = 1;
pub(crate) const UNSUPP: u8 = 2;
/// What a status byte is before the server has written it.
pub(crate) const UNTOUCHED: u8 = 0xee;

pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;

const EVENT_IDX: u64 = 1 << 29;
pub(crate) const RO: u64 = 1 << 5;

/// Where the guest finds its memory.
pub(crate) const BASE: u64 = 1 << 30;
/// The difference between the addresses of the frontend and of the guest.
const FRONTEND: u64 = 0x7000_0000_0000;
pub(crate) const MEMORY: u64 = 24 << 20;
/// Bytes of a queue's rings.
const RINGS: u64 = 64 << 10;
/// Where data begins, and the bytes of it that each queue has.
const DATA: u64 = 8 << 20;
pub(crate) const DATA_BYTES: u64 = 2 << 20;
pub(crate) const SIZE: u16 = 128;

/// A guest that is connected.
pub(crate) struct Guest {
    pub(crate) frontend: Frontend,
    pub(crate) memory: GuestMemoryMmap,
    pub(crate) queues: Vec<Queue>,
    pub(crate) features: u64,
    pub(crate) file: File,
}

/// A queue as its driver knows it.
pub(crate) struct Queue {
    pub(crate) index: u16,
    kick: EventFd,
    call: EventFd,
    pub(crate) error: EventFd,
    available: u16,
    used: u16,
}

/// A descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    pub(crate) at: u64,
    pub(crate) len: u32,
    pub(crate) flags: u16,
    pub(crate) next: u16,
}

impl Descriptor {
    fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.at.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.flags.to_le_bytes());
        bytes[14..].copy_from_slice(&self.next.to_le_bytes());
        bytes
    }
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u8,
    pub(crate) data: Vec<u8>,
    /// Bytes that the server says it wrote.
    pub(crate) written: u32,
}

impl Guest {
    /// Connects, and sets up `queues` queues.
    pub(crate) fn connect(path: &Path, queues: u16) -> vhost::Result<Self> {
        let mut guest = Self::greet(path, u64::from(queues))?;
        guest.share()?;
        for index in 0..queues {
            guest.start(index, 0)?;
        }
        Ok(guest)
    }

    /// Connects, and agrees on features.
    pub(crate) fn greet(path: &Path, queues: u64) -> vhost::Result<Self> {
        let mut frontend = Frontend::connect(path, queues)?;
        frontend.set_owner()?;
        let features = frontend.get_features()?;
        frontend.set_features(features)?;
        let known = frontend.get_protocol_features()?;
        assert!(!known.contains(VhostUserProtocolFeatures::INFLIGHT_SHMFD), "{known:?}");
        frontend.set_protocol_features(known)?;
        frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        let file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(MEMORY).unwrap();
        let shared = FileOffset::new(file.try_clone().unwrap(), 0);
        let ranges = [(GuestAddress(BASE), MEMORY as usize, Some(shared))];
        let memory = GuestMemoryMmap::from_ranges_with_files(ranges).unwrap();
        Ok(Self { frontend, memory, queues: Vec::new(), features, file })
    }

    /// The region that holds all of the memory.
    pub(crate) fn region(&self) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: BASE,
            memory_size: MEMORY,
            userspace_addr: BASE + FRONTEND,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        }
    }

    pub(crate) fn share(&mut self) -> vhost::Result<()> {
        self.frontend.set_mem_table(&[self.region()]).map(drop)
    }

    /// Sets up a queue, with a first request of this number.
    pub(crate) fn start(&mut self, index: u16, base: u16) -> vhost::Result<()> {
        let events = || EventFd::new(EFD_NONBLOCK).unwrap();
        let queue = Queue {
            index,
            kick: events(),
            call: events(),
            error: events(),
            available: base,
            used: base,
        };
        self.memory.write_slice(&vec![0; RINGS as usize], GuestAddress(rings(index))).unwrap();
        for word in [4096 + 2, 8192 + 2] {
            self.memory.write_obj(base, GuestAddress(rings(index) + word)).unwrap();
        }
        let number = usize::from(index);
        let places = VringConfigData {
            queue_max_size: SIZE,
            queue_size: SIZE,
            flags: 0,
            desc_table_addr: rings(index) + FRONTEND,
            avail_ring_addr: rings(index) + 4096 + FRONTEND,
            used_ring_addr: rings(index) + 8192 + FRONTEND,
            log_addr: None,
        };
        self.frontend.set_vring_num(number, SIZE)?;
        self.frontend.set_vring_base(number, base)?;
        self.frontend.set_vring_addr(number, &places)?;
        self.frontend.set_vring_err(number, &queue.error)?;
        self.frontend.set_vring_call(number, &queue.call)?;
        self.frontend.set_vring_kick(number, &queue.kick)?;
        self.frontend.set_vring_enable(number, true)?;
        self.queues.push(queue);
        Ok(())
    }

    /// The configuration space.
    pub(crate) fn config(&mut self, len: u32) -> Vec<u8> {
        let asked = vec![0; len as usize];
        let flags = VhostUserConfigFlags::empty();
        self.frontend.get_config(0, len, flags, &asked).expect("it has a configuration").1
    }

    /// Where the data of a queue is.
    pub(crate) fn data(queue: usize) -> u64 {
        BASE + DATA + queue as u64 * DATA_BYTES
    }

    pub(crate) fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(at)).unwrap();
    }

    pub(crate) fn get(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_slice(&mut bytes, GuestAddress(at)).unwrap();
        bytes
    }

    /// Writes a descriptor of a queue's table.
    pub(crate) fn describe(&self, queue: usize, place: u16, descriptor: Descriptor) {
        let table = rings(self.queues[queue].index);
        self.put(table + u64::from(place) * 16, &descriptor.bytes());
    }

    /// Offers the chain that begins at `head`, without a kick.
    pub(crate) fn offer(&mut self, queue: usize, head: u16) {
        let ring = &mut self.queues[queue];
        let at = rings(ring.index) + 4096;
        let place = at + 4 + u64::from(ring.available % SIZE) * 2;
        self.memory.write_obj(head, GuestAddress(place)).unwrap();
        ring.available = ring.available.wrapping_add(1);
        let order = std::sync::atomic::Ordering::SeqCst;
        self.memory.store(ring.available, GuestAddress(at + 2), order).unwrap();
    }

    /// Sets the count of requests that the driver claims to have offered.
    pub(crate) fn claim(&mut self, queue: usize, available: u16) {
        let at = rings(self.queues[queue].index) + 4096 + 2;
        self.memory.write_obj(available, GuestAddress(at)).unwrap();
    }

    pub(crate) fn kick(&self, queue: usize) {
        self.queues[queue].kick.write(1).unwrap();
    }

    /// Waits for the next answer on a queue. `None` if there is none within the time.
    pub(crate) fn answered(&mut self, queue: usize, within: Duration) -> Option<(u32, u32)> {
        let order = std::sync::atomic::Ordering::SeqCst;
        let at = rings(self.queues[queue].index) + 8192;
        // Whenever the count of answers has this value, the server is to tell.
        let wanted = at - 4096 + 4 + u64::from(SIZE) * 2;
        loop {
            let ring = &mut self.queues[queue];
            if self.features & EVENT_IDX != 0 {
                self.memory.store(ring.used, GuestAddress(wanted), order).unwrap();
            }
            let used: u16 = self.memory.load(GuestAddress(at + 2), order).unwrap();
            if used != ring.used {
                let place = at + 4 + u64::from(ring.used % SIZE) * 8;
                ring.used = ring.used.wrapping_add(1);
                let word = |at| self.memory.read_obj::<u32>(GuestAddress(at)).unwrap();
                return Some((word(place), word(place + 4)));
            }
            if !is_told(&ring.call, within) {
                return None;
            }
        }
    }

    /// Sends a request whose data lies in pieces of up to `piece` bytes, and waits for its answer.
    pub(crate) fn request(
        &mut self,
        queue: usize,
        kind: u32,
        sector: u64,
        data: Data<'_>,
    ) -> Answer {
        self.request_in(queue, kind, sector, data, 64 << 10)
    }

    pub(crate) fn request_in(
        &mut self,
        queue: usize,
        kind: u32,
        sector: u64,
        data: Data<'_>,
        piece: usize,
    ) -> Answer {
        let at = Self::data(queue);
        let (header, status, bytes) = (at, at + 64, at + 4096);
        self.put(header, &header_of(kind, sector));
        self.put(status, &[UNTOUCHED]);
        let (len, flags) = match data {
            Data::None => (0, 0),
            Data::To(data) => {
                self.put(bytes, data);
                (data.len(), 0)
            }
            Data::From(len) => (len, WRITE),
        };
        let mut chain = vec![(header, 16, 0)];
        let pieces = (0..len).step_by(piece.max(1));
        chain.extend(pieces.map(|from| (bytes + from as u64, piece.min(len - from) as u32, flags)));
        chain.push((status, 1, WRITE));
        self.chain(queue, &chain);
        self.offer(queue, 0);
        self.kick(queue);
        let (id, written) = self.answered(queue, PATIENCE).expect("an answer");
        assert_eq!(id, 0, "the chain that was offered");
        let data = if flags == WRITE { self.get(bytes, len) } else { Vec::new() };
        Answer { status: self.get(status, 1)[0], data, written }
    }

    /// Writes a chain of buffers from place 0 of the table on.
    pub(crate) fn chain(&self, queue: usize, buffers: &[(u64, u32, u16)]) {
        self.chain_at(queue, 0, buffers);
    }

    /// The same, from another place on.
    pub(crate) fn chain_at(&self, queue: usize, first: u16, buffers: &[(u64, u32, u16)]) {
        for (step, &(at, len, flags)) in buffers.iter().enumerate() {
            let (place, is_last) = (first + step as u16, step + 1 == buffers.len());
            let flags = flags | if is_last { 0 } else { NEXT };
            self.describe(queue, place, Descriptor { at, len, flags, next: place + 1 });
        }
    }

    pub(crate) fn read(&mut self, queue: usize, sector: u64, len: usize) -> Answer {
        self.request(queue, IN, sector, Data::From(len))
    }

    pub(crate) fn write(&mut self, queue: usize, sector: u64, data: &[u8]) -> u8 {
        self.request(queue, OUT, sector, Data::To(data)).status
    }

    /// Discards or zeroes ranges, given as sector, sectors and flags.
    pub(crate) fn zero(&mut self, kind: u32, ranges: &[(u64, u32, u32)]) -> u8 {
        let bytes = |&(sector, sectors, flags): &(u64, u32, u32)| {
            [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
        };
        let data: Vec<u8> = ranges.iter().flat_map(bytes).collect();
        self.request(0, kind, 0, Data::To(&data)).status
    }
}

/// The data of a request.
#[derive(Clone, Copy)]
pub(crate) enum Data<'a> {
    None,
    To(&'a [u8]),
    From(usize),
}

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn header_of(kind: u32, sector: u64) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat()
}

pub(crate) fn rings(index: u16) -> u64 {
    BASE + u64::from(index) * RINGS
}

/// Whether an event is written to within the time. It takes the event's count.
pub(crate) fn is_told(event: &EventFd, within: Duration) -> bool {
    let begun = Instant::now();
    loop {
        match event.read() {
            Ok(_) => return true,
            Err(_) if begun.elapsed() >= within => return false,
            Err(_) => sleep(Duration::from_micros(100)),
        }
    }
}
