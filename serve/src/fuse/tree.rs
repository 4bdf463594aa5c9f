//! What the kernel's requests mean here: names, modes, and which file is asked.
//!
//! ```text
//!   look up, list, stat, open     this file
//!   read, write of a text         text
//!   read, write, .. of a disk     block
//! ```
//!
//! Names, modes and errors are sysfs's: nothing can be made, renamed or removed; a mode holds for
//! the superuser too; a file's length is a page whatever is in it; truncating one does nothing.
//!
//! Invariant: what `is_quick` calls quick asks devices for numbers and lists only, which wait for
//! no request and no write-back. No lock is held here; handles have theirs.

use super::connection::{Files, Pace};
use super::handles::{Handle, Handles};
use super::node::{Lives, Node, Part};
use super::wire::{self, Attr, Body, Call, Caller, Range};
use super::{Complain, TextFile, block, text};
use disk::Disk;
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use zram::{Attribute, AttributeError, Device, Devices};

/// Length of a text, as `stat` shows it: what sysfs says of all its files.
const TEXT_BYTES: u64 = 4096;
/// Best length of a read of a disk.
const DISK_BLOCK: u32 = 4096;

/// What of the flags of open(2) says who reads and writes.
const ACCESS_MASK: u32 = 0b11;
const READ_ONLY: u32 = 0;
const WRITE_ONLY: u32 = 1;
const _: () = assert!(WRITE_ONLY < ACCESS_MASK, "two bits, of which both is neither");

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;

/// Flags of an open file.
mod opened {
    /// No page cache: a read is a request.
    pub(super) const DIRECT_IO: u32 = 1 << 0;
    /// Writes of several threads are under way together.
    pub(super) const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// Cookie of the first device in a listing of the root; those of other names come before.
const FIRST_DEVICE: u64 = 1 << 16;

/// Names in the directory of a device, besides its attributes.
const DEVICE_NAMES: [(&str, Part); 3] =
    [("disk", Part::Disk), ("block_state", Part::BlockState), ("zsmalloc", Part::Zsmalloc)];
/// Names in `zram-control`.
const CONTROL_NAMES: [(&str, Node); 2] =
    [("hot_add", Node::HotAdd), ("hot_remove", Node::HotRemove)];
const CONTROL: &str = "zram-control";
const CLASSES: &str = "classes";

/// The tree.
pub(crate) struct Tree {
    pub(crate) devices: Arc<Devices>,
    pub(crate) texts: Vec<TextFile>,
    pub(crate) handles: Handles,
    pub(crate) complain: Arc<Complain>,
    /// Where it is mounted.
    point: PathBuf,
    lives: Lives,
    owner: (u32, u32),
    made: u64,
}

/// A name in a directory: the cookie after it, the name, the node.
type Entry = (u64, String, Node);

impl Tree {
    pub(crate) fn new(
        devices: Arc<Devices>,
        texts: Vec<TextFile>,
        complain: Arc<Complain>,
        point: PathBuf,
    ) -> Self {
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let made = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let (handles, lives) = (Handles::default(), Lives::default());
        Self { devices, texts, handles, complain, point, lives, owner, made }
    }

    /// The device a node belongs to; one that was removed is no more.
    pub(crate) fn device(&self, life: u64) -> Result<Arc<Device>, Errno> {
        self.lives.device(life).ok_or(Errno::NODEV)
    }

    fn node(&self, caller: &Caller) -> Result<Node, Errno> {
        Node::from_number(caller.node).ok_or(Errno::STALE)
    }

    /// The permissions of a node.
    fn mode(&self, node: Node) -> u32 {
        match node {
            _ if node.is_directory() => 0o755,
            Node::HotAdd => 0o400,
            Node::HotRemove => 0o200,
            Node::Text(place) => self.texts.get(place).map_or(0, |text| u32::from(text.mode)),
            Node::Device(life, Part::Disk) if self.is_read_only(life) => 0o400,
            Node::Device(_, Part::Disk) => 0o600,
            Node::Device(_, Part::BlockState) => 0o400,
            Node::Device(_, Part::Attribute(attribute)) => u32::from(attribute.mode()),
            _ => 0o444,
        }
    }

    fn is_read_only(&self, life: u64) -> bool {
        let disk = self.device(life).ok().and_then(|device| device.disk());
        disk.is_some_and(|disk| disk.read_only())
    }

    fn attr(&self, node: Node) -> Result<Attr, Errno> {
        let (size, held) = match node {
            _ if node.is_directory() => (0, 0),
            Node::Device(life, Part::Disk) => {
                let size = self.device(life)?.size_bytes();
                (size, size)
            }
            Node::Device(life, _) => self.device(life).map(|_| (TEXT_BYTES, 0))?,
            _ => (TEXT_BYTES, 0),
        };
        let (kind, links) = if node.is_directory() { (DIRECTORY, 2) } else { (REGULAR, 1) };
        let (mode, owner, time) = (kind | self.mode(node), self.owner, self.made);
        let (node, block_size) = (node.number(), DISK_BLOCK);
        Ok(Attr { node, size, held, mode, links, block_size, owner, time })
    }

    fn look_up(&self, directory: Node, name: &[u8]) -> Result<Node, Errno> {
        let name = std::str::from_utf8(name).map_err(|_| Errno::NOENT)?;
        let found = match directory {
            Node::Root if name == CONTROL => Some(Node::Control),
            Node::Root => self.look_up_root(name),
            Node::Control => CONTROL_NAMES.iter().find(|row| row.0 == name).map(|row| row.1),
            Node::Device(life, Part::Directory) => {
                let known = DEVICE_NAMES.iter().find(|row| row.0 == name).map(|row| row.1);
                let attribute = || Attribute::from_name(name).map(Part::Attribute);
                known.or_else(attribute).map(|part| Node::Device(life, part))
            }
            Node::Device(life, Part::Zsmalloc) => {
                (name == CLASSES).then_some(Node::Device(life, Part::Classes))
            }
            _ => return Err(Errno::NOTDIR),
        };
        found.ok_or(Errno::NOENT)
    }

    fn look_up_root(&self, name: &str) -> Option<Node> {
        let text = self.texts.iter().position(|text| text.name == name).map(Node::Text);
        text.or_else(|| self.devices.find(name).map(|device| self.directory_of(&device)))
    }

    fn directory_of(&self, device: &Arc<Device>) -> Node {
        Node::Device(self.lives.of(device), Part::Directory)
    }

    /// What is in a directory. A device that comes or goes meanwhile moves nobody's cookie.
    fn entries(&self, directory: Node) -> Result<Vec<Entry>, Errno> {
        Ok(match directory {
            Node::Root => {
                let texts = self.texts.iter().enumerate();
                let texts = texts.map(|(place, text)| (text.name, Node::Text(place)));
                let mut entries = numbered([(CONTROL, Node::Control)].into_iter().chain(texts));
                entries.extend(self.devices.list().iter().map(|device| {
                    let cookie = FIRST_DEVICE + u64::from(device.id());
                    (cookie, device.name().to_owned(), self.directory_of(device))
                }));
                entries
            }
            Node::Control => numbered(CONTROL_NAMES.into_iter()),
            Node::Device(life, Part::Directory) => {
                let attributes = Attribute::ALL.map(|of| (of.name(), Part::Attribute(of)));
                let parts = DEVICE_NAMES.into_iter().chain(attributes);
                numbered(parts.map(|(name, part)| (name, Node::Device(life, part))))
            }
            Node::Device(life, Part::Zsmalloc) => {
                numbered([(CLASSES, Node::Device(life, Part::Classes))].into_iter())
            }
            _ => return Err(Errno::NOTDIR),
        })
    }

    fn list(&self, directory: Node, from: &Range, body: &mut Body) -> Result<(), Errno> {
        let rest = self.entries(directory)?.into_iter().filter(|entry| entry.0 > from.offset);
        for (cookie, name, node) in rest {
            if !body.dirent(node.number(), cookie, node.is_directory(), &name, from.len) {
                break;
            }
        }
        Ok(())
    }

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

    /// The kernel lets the superuser pass; sysfs does not, and neither does this.
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

    /// Lengths are what they are: setting one to nothing, as `>` does, changes nothing.
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

    /// Asks the disk of an open handle; one without a size has no bytes.
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
        let waits = |range, waits: fn(&dyn Disk, &Range) -> bool| match self
            .with_disk(range, |disk| Ok(waits(disk, range)))
        {
            Ok(true) => Pace::Waiting,
            _ => Pace::Slow,
        };
        match (call, part) {
            (Call::Read(range), Some(Part::Disk)) => waits(range, block::read_waits),
            (Call::Write(range, _), Some(Part::Disk)) => waits(range, block::change_waits),
            (Call::Fallocate(range, _), Some(Part::Disk)) => waits(range, block::change_waits),
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
            // What was written is in the store, and nowhere further to go. Told so, the kernel
            // asks no more, and a file system's every fsync costs a request less.
            Call::Fsync => return Err(Errno::NOSYS),
            Call::Init(_) | Call::Read(_) | Call::Unknown => return Err(Errno::NOSYS),
        }
        Ok(())
    }
}

/// The system's number for what an attribute says.
pub(crate) fn errno(error: &AttributeError) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

fn numbered<'a>(names: impl Iterator<Item = (&'a str, Node)>) -> Vec<Entry> {
    (1..).zip(names).map(|(cookie, (name, node))| (cookie, name.to_owned(), node)).collect()
}
