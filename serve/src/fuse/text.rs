//! Files that are text. A read shows the text of one moment, and a write is one command.
//!
//! ```text
//!   read at offset 0          the text is made again, and kept with the handle
//!   read at another offset    from the text that is kept
//!   write at any offset       one command; bytes beyond a page are the next command
//!   hot_add                   adds one device for each open, at the first read
//! ```
//!
//! Invariant: the text of a handle stays the same until the next read at offset 0. Only
//! block_state, which may be long, is made a part at a time.
//!
//! Lock: the handle's, of rank Text, while it adds a device or makes a part of a long text. Only
//! requests of that handle wait for it.

use super::channel::wire::Range;
use super::handles::{Handle, Lines};
use super::node::{Node, Part};
use super::tree::{Tree, errno};
use host::unmodelled::RankedMutex;
use rustix::io::Errno;
use std::time::{Duration, Instant};
use zram::{Attribute, AttributeError};

/// The most bytes of a command, which is what sysfs takes at once.
const COMMAND_MAX: usize = 4096;
/// How many bytes of a long text are made at once.
const PART_BYTES: usize = 64 << 10; // 64 KiB
/// The time within which the kernel tells us that a file was closed.
const CLOSE_GRACE: Duration = Duration::from_millis(100);

/// Reads a text.
pub(super) fn read(
    tree: &Tree,
    node: Node,
    range: &Range,
    buffer: &mut [u8],
) -> Result<usize, Errno> {
    let handle = tree.handles.get(range.handle).ok_or(Errno::BADF)?;
    match &*handle {
        Handle::Text(kept) => read_text(tree, node, kept, range.offset, buffer),
        Handle::Lines(lines) => read_lines(tree, node, &mut lines.lock(), range.offset, buffer),
        Handle::Disk(_) => Err(Errno::BADF),
    }
}

fn read_text(
    tree: &Tree,
    node: Node,
    kept: &RankedMutex<Option<String>>,
    offset: u64,
    buffer: &mut [u8],
) -> Result<usize, Errno> {
    if node == Node::HotAdd {
        return add_once(tree, &mut kept.lock(), offset, buffer);
    }
    // It is made without the lock, because texts about the memory come from the program.
    let stale = offset == 0 || kept.lock().is_none();
    let made = stale.then(|| show(tree, node)).transpose()?;
    let mut kept = kept.lock();
    if let Some(text) = made {
        *kept = Some(text);
    }
    Ok(copy(kept.as_deref().unwrap_or_default(), offset, buffer))
}

/// Adds a device at the first read. Another read of the handle waits for it.
fn add_once(
    tree: &Tree,
    kept: &mut Option<String>,
    offset: u64,
    buffer: &mut [u8],
) -> Result<usize, Errno> {
    if kept.is_none() {
        *kept = Some(show(tree, Node::HotAdd)?);
    }
    Ok(copy(kept.as_deref().unwrap_or_default(), offset, buffer))
}

fn show(tree: &Tree, node: Node) -> Result<String, Errno> {
    match node {
        Node::HotAdd => tree.devices.show_hot_add().map_err(|error| errno(&error)),
        Node::Text(place) => Ok((tree.texts.get(place).ok_or(Errno::NOENT)?.text)()),
        Node::Device(life, Part::Classes) => Ok(tree.device(life)?.classes_text()),
        Node::Device(life, Part::Attribute(attribute)) => {
            tree.device(life)?.show(attribute).map_err(|error| errno(&error))
        }
        _ => Err(Errno::INVAL),
    }
}

fn read_lines(
    tree: &Tree,
    node: Node,
    lines: &mut Lines,
    offset: u64,
    buffer: &mut [u8],
) -> Result<usize, Errno> {
    let Node::Device(life, Part::BlockState) = node else { return Err(Errno::INVAL) };
    if offset == 0 || offset < lines.start {
        *lines = Lines::at_start();
    }
    let device = tree.device(life)?;
    loop {
        let found = copy(&lines.text, offset - lines.start, buffer);
        let (0, Some(page)) = (found, lines.next) else { return Ok(found) };
        let part = device.block_states(page, PART_BYTES).map_err(|error| errno(&error))?;
        lines.start += lines.text.len() as u64;
        (lines.text, lines.next) = (part.text, part.next);
    }
}

/// Copies the text from an offset on into the buffer, and gives how many bytes that were.
fn copy(text: &str, offset: u64, buffer: &mut [u8]) -> usize {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
    let rest = &text.as_bytes()[start..];
    let len = rest.len().min(buffer.len());
    buffer[..len].copy_from_slice(&rest[..len]);
    len
}

/// Does the command in these bytes, and gives how many of them it took.
pub(super) fn store(tree: &Tree, node: Node, data: &[u8]) -> Result<usize, Errno> {
    let command = &data[..data.len().min(COMMAND_MAX)];
    let stored = match node {
        Node::HotRemove => patiently(tree, || tree.devices.store_hot_remove(command)),
        Node::Device(life, Part::Attribute(Attribute::Reset)) => {
            let device = tree.device(life)?;
            patiently(tree, || device.store(Attribute::Reset, command))
        }
        Node::Device(life, Part::Attribute(attribute)) => {
            tree.device(life)?.store(attribute, command)
        }
        _ => return Err(Errno::INVAL),
    };
    stored.map(|()| command.len()).map_err(|error| {
        (tree.complain)(&error.to_string());
        errno(&error)
    })
}

/// Tries again while files are being closed. A process that closed a file goes on before we are
/// told, and it must not find the device busy because of that file.
fn patiently(
    tree: &Tree,
    store: impl Fn() -> Result<(), AttributeError>,
) -> Result<(), AttributeError> {
    let deadline = Instant::now() + CLOSE_GRACE;
    loop {
        let seen = tree.handles.closed();
        match store() {
            Err(error) if error.errno() == Errno::BUSY.raw_os_error() => {
                if !tree.handles.wait_for_close(seen, deadline) {
                    return Err(error);
                }
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use zram::{DeviceDefaults, Devices, Memory, MemoryConfig};

    /// A process closes a disk and resets the device. We are told of the closing only later.
    #[test]
    fn a_reset_waits_for_a_close_that_is_on_its_way() {
        let memory = Memory::new(MemoryConfig::for_disk(1 << 20)).unwrap();
        let devices = Arc::new(Devices::new(memory, DeviceDefaults::default()));
        let device = devices.get(devices.hot_add().unwrap()).unwrap();
        let none = Arc::new(|_: &str| ());
        let tree = Tree::new(Arc::clone(&devices), Vec::new(), none, "/nonexistent".into());
        let disk = || Handle::disk(device.open().unwrap(), 0, "/nonexistent".as_ref());
        let open = tree.handles.insert(disk());
        let reset = || {
            let found = device.store(Attribute::Reset, b"1");
            tree.handles.remove(open);
            found
        };
        assert_eq!(patiently(&tree, reset), Ok(()));
        let _kept = tree.handles.insert(disk());
        let refused = patiently(&tree, || device.store(Attribute::Reset, b"1"));
        assert_eq!(refused.map_err(|error| error.errno()), Err(Errno::BUSY.raw_os_error()));
    }
}
