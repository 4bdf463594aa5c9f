//! The tree: which names are in which directory, and the attributes of each file.
//!
//! ```text
//!   look_up   a directory and a name -> a node        attr   size, mode and owner of a node
//!   list      the names in a directory                mode   its permissions
//! ```
//!
//! Names, modes and lengths are those of sysfs. A text's length is a page, whatever is in it.
//!
//! Invariant: devices are asked only for numbers and lists, so none of this waits for a request or
//! for write-back.
//!
//! Locks: none here. Handles and lives have their own.

use super::channel::wire::{Attr, Body, Caller, Range};
use super::config::{Complain, TextFile};
use super::handles::Handles;
use super::node::{Lives, Node, Part};
use disk::Disk;
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use zram::{Attribute, AttributeError, Device, Devices};

/// The length of a text that `stat` shows, which is that of every file in sysfs.
const TEXT_BYTES: u64 = 4096;
/// The best length of a read of a disk, in bytes.
const DISK_BLOCK: u32 = 4096;

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;

/// The cookie of the first device in a listing of the root. Those of other names are smaller.
const FIRST_DEVICE: u64 = 1 << 16; // 65536

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
    pub(super) point: PathBuf,
    lives: Lives,
    owner: (u32, u32),
    made: u64,
}

/// A name in a directory: its cookie, the name, and the node.
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
        let (handles, lives) = (Handles::new(), Lives::new());
        Self { devices, texts, handles, complain, point, lives, owner, made }
    }

    /// The device of a node. It is an error if the device was removed.
    pub(crate) fn device(&self, life: u64) -> Result<Arc<Device>, Errno> {
        self.lives.device(life).ok_or(Errno::NODEV)
    }

    pub(super) fn node(&self, caller: &Caller) -> Result<Node, Errno> {
        Node::from_number(caller.node).ok_or(Errno::STALE)
    }

    /// The permissions of a node.
    pub(super) fn mode(&self, node: Node) -> u32 {
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

    pub(super) fn attr(&self, node: Node) -> Result<Attr, Errno> {
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

    pub(super) fn look_up(&self, directory: Node, name: &[u8]) -> Result<Node, Errno> {
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

    /// The entries of a directory. Adding or removing a device changes no other entry's cookie.
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

    pub(super) fn list(&self, directory: Node, from: &Range, body: &mut Body) -> Result<(), Errno> {
        let rest = self.entries(directory)?.into_iter().filter(|entry| entry.0 > from.offset);
        for (cookie, name, node) in rest {
            if !body.dirent(node.number(), cookie, node.is_directory(), &name, from.len) {
                break;
            }
        }
        Ok(())
    }
}

/// The error number of an attribute's error.
pub(crate) fn errno(error: &AttributeError) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

fn numbered<'a>(names: impl Iterator<Item = (&'a str, Node)>) -> Vec<Entry> {
    (1..).zip(names).map(|(cookie, (name, node))| (cookie, name.to_owned(), node)).collect()
}
