//! Answers to the kernel's requests: which file is asked, and what it does.
//!
//! ```text
//!   look up, list, stat           tree
//!   open, close                   here; the open file goes into handles
//!   read, write of a text         text
//!   read, write, .. of a disk     block
//! ```
//!
//! As in sysfs, nothing can be made, renamed or removed, and truncating a text does nothing.
//!
//! Invariant: a request that `pace` calls quick asks devices only for numbers and lists. These wait
//! for no other request and for no write-back.
//!
//! Locks: none here, and none is held while a device is asked. Handles have their own.

use super::channel::wire::{self, Body, Call, Caller, Range};
use super::channel::{Files, Pace};
use super::handles::Handle;
use super::node::{Node, Part};
use super::tree::{Tree, errno};
use super::{block, text};
use disk::Disk;
use rustix::io::Errno;

/// The bits in the flags of open(2) that say whether the file is read or written.
const ACCESS_MASK: u32 = 0b11;
const READ_ONLY: u32 = 0;
const WRITE_ONLY: u32 = 1;
/// The most bytes of a short request.
const SHORT_MAX: u64 = 64 << 10; // 64 KiB
/// The most bytes of a moderate one: what the kernel reads ahead, and a file of common length.
const MODERATE_MAX: u64 = 128 << 10; // 128 KiB
/// Bytes that other requests may write between the look at the limit and a write.
const ROOM_BESIDES: u64 = 4 << 20; // 4 MiB
const _: () = assert!(WRITE_ONLY < ACCESS_MASK, "two bits, of which both is neither");

/// Flags of an open file.
mod opened {
    /// The page cache is not used, so every read is a request.
    pub(super) const DIRECT_IO: u32 = 1 << 0;
    /// Writes of several threads may be under way at once.
    pub(super) const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

impl Tree {
    fn open(&self, node: Node, flags: u32, thread: u32, body: &mut Body) -> Result<(), Errno> {
        self.check_mode(node, flags)?;
        let (handle, how) = match node {
            Node::Device(life, Part::Disk) => {
                let opened = self.device(life)?.open().map_err(|error| errno(&error))?;
                let how = opened::DIRECT_IO | opened::PARALLEL_DIRECT_WRITES;
                (Handle::disk(opened, thread, &self.point), how)
            }
            Node::Device(_, Part::BlockState) => (Handle::lines(), opened::DIRECT_IO),
            _ => (Handle::text(), opened::DIRECT_IO),
        };
        body.opened(self.handles.insert(handle), how);
        Ok(())
    }

    /// Checks the mode for the superuser too. The kernel does not, but sysfs does.
    fn check_mode(&self, node: Node, flags: u32) -> Result<(), Errno> {
        let (reads, writes) = match flags & ACCESS_MASK {
            READ_ONLY => (true, false),
            WRITE_ONLY => (false, true),
            _ => (true, true),
        };
        let mode = self.mode(node);
        let refused = reads && mode & 0o444 == 0 || writes && mode & 0o222 == 0;
        if refused { Err(Errno::ACCESS) } else { Ok(()) }
    }

    /// Lengths are fixed. Setting one to zero, as `>` does in a shell, changes nothing.
    fn change(&self, node: Node, what: u32, size: u64, body: &mut Body) -> Result<(), Errno> {
        use wire::change::{GID, MODE, SIZE, UID};
        if what & (MODE | UID | GID) != 0 {
            return Err(Errno::PERM);
        }
        let attr = self.attr(node)?;
        let is_disk = matches!(node, Node::Device(_, Part::Disk));
        if what & SIZE != 0 && is_disk && size != 0 && size != attr.size {
            return Err(Errno::INVAL);
        }
        body.attr(&attr);
        Ok(())
    }

    fn write(&self, node: Node, range: &Range, data: &[u8], body: &mut Body) -> Result<(), Errno> {
        let written = match node {
            Node::Device(_, Part::Disk) => {
                self.with_disk(range, |disk| block::write(disk, range, data))?
            }
            _ => text::store(self, node, data)?,
        };
        body.u32(written as u32).u32(0);
        Ok(())
    }

    /// Whether a write makes no room for itself first, which may take long.
    fn has_room(&self, range: &Range) -> bool {
        let handle = self.handles.get(range.handle);
        match handle.as_deref() {
            Some(Handle::Disk(open)) => {
                open.disk().is_none_or(|disk| disk.has_room_for(range.len + ROOM_BESIDES))
            }
            _ => true,
        }
    }

    /// Asks the disk of an open handle. A disk without a size has no bytes.
    fn with_disk<T>(
        &self,
        range: &Range,
        ask: impl FnOnce(&dyn Disk) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let handle = self.handles.get(range.handle).ok_or(Errno::BADF)?;
        let Handle::Disk(open) = &*handle else { return Err(Errno::BADF) };
        match open.disk() {
            Some(disk) => ask(&**disk),
            None => ask(&block::Empty),
        }
    }
}

impl Files for Tree {
    fn pace(&self, caller: &Caller, call: &Call<'_>) -> Pace {
        let part = match Node::from_number(caller.node) {
            Some(Node::Device(_, part)) => Some(part),
            _ => None,
        };
        let waits = |range, waits: fn(&dyn Disk, &Range) -> bool, else_pace| match self
            .with_disk(range, |disk| Ok(waits(disk, range)))
        {
            Ok(true) => Pace::Waiting,
            _ => else_pace,
        };
        let by_size = |range: &Range| match range.len {
            len if len <= SHORT_MAX => Pace::Short,
            len if len <= MODERATE_MAX => Pace::Moderate,
            _ => Pace::Slow,
        };
        match (call, part) {
            (Call::Read(range), Some(Part::Disk)) => {
                waits(range, block::read_waits, by_size(range))
            }
            (Call::Write(range, _), Some(Part::Disk)) => {
                let pace = if self.has_room(range) { by_size(range) } else { Pace::Slow };
                waits(range, block::change_waits, pace)
            }
            (Call::Fallocate(range, _), Some(Part::Disk)) => {
                waits(range, block::change_waits, Pace::Slow)
            }
            (Call::Read(_), Some(Part::BlockState)) | (Call::Lseek(..), _) => Pace::Slow,
            (Call::Write(..) | Call::Fallocate(..), _) => Pace::Waiting,
            _ => Pace::Quick,
        }
    }

    fn read(&self, caller: &Caller, range: &Range, buffer: &mut [u8]) -> Result<usize, Errno> {
        match self.node(caller)? {
            Node::Device(_, Part::Disk) => {
                self.with_disk(range, |disk| block::read(disk, range, buffer))
            }
            node => text::read(self, node, range, buffer),
        }
    }

    fn answer(&self, caller: &Caller, call: &Call<'_>, body: &mut Body) -> Result<(), Errno> {
        let node = self.node(caller)?;
        match *call {
            Call::Lookup(name) => body.entry(&self.attr(self.look_up(node, name)?)?),
            Call::GetAttr => body.attr(&self.attr(node)?),
            Call::SetAttr(what, size) => self.change(node, what, size, body)?,
            Call::Open(flags) => self.open(node, flags, caller.thread, body)?,
            Call::OpenDir => body.opened(0, 0),
            Call::ReadDir(range) => self.list(node, &range, body)?,
            Call::Write(range, data) => self.write(node, &range, data, body)?,
            Call::Close(handle) => self.handles.remove(handle),
            Call::Fallocate(range, mode) => {
                self.with_disk(&range, |disk| block::allocate(disk, &range, mode))?;
            }
            Call::Lseek(range, whence) => {
                let at = self.with_disk(&range, |disk| block::seek(disk, range.offset, whence))?;
                body.u64(at);
            }
            Call::StatFs => body.statfs(),
            Call::CloseDir | Call::Destroy | Call::Note => {}
            Call::Create => return Err(Errno::ACCESS),
            Call::ChangeNames => return Err(Errno::PERM),
            // Written data is in the store already. After this answer the kernel sends no more such
            // requests, so every fsync of a file system costs one request less.
            Call::Fsync => return Err(Errno::NOSYS),
            Call::Init(_) | Call::Read(_) | Call::Unknown => return Err(Errno::NOSYS),
        }
        Ok(())
    }
}
