//! The files that are open.
//!
//! ```text
//!   open --> handle: Text { what a read showed last }     attributes and other texts
//!                    Lines { the part that was read }     block_state, which may be long
//!                    Disk { Opened }                      keeps the device from being reset
//!   last close --> release, some time later, because the kernel does not wait for it
//! ```
//!
//! Invariants: a handle's number is never used again. A device is open as long as a handle of its
//! disk exists.
//!
//! Locks: the table's, which is a leaf, and one for each handle's text, of rank Text. Devices are
//! asked under the latter.

use super::holders::Holder;
use host::Rank;
use host::sync::unmodelled::Condvar;
use host::unmodelled::RankedMutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use zram::{Opened, Zram};

/// An open file.
pub(crate) enum Handle {
    /// The text that was shown last.
    Text(RankedMutex<Option<String>>),
    /// A long text, a part at a time.
    Lines(RankedMutex<Lines>),
    /// A disk.
    Disk(OpenDisk),
}

/// A disk that is open.
pub(crate) struct OpenDisk {
    opened: Opened,
    holder: Holder,
    /// It stays the same while the device is open, so it is looked up once.
    disk: OnceLock<Arc<Zram>>,
}

/// The part of a long text that is at hand.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// How many bytes of the text come before it.
    pub(crate) start: u64,
    pub(crate) text: String,
    /// The page at which the next part begins. `None` after the last part.
    pub(crate) next: Option<u64>,
}

/// The table of open files.
pub(crate) struct Handles {
    open: RankedMutex<Open>,
    released: Condvar,
}

#[derive(Default)]
struct Open {
    last: u64,
    closed: u64,
    handles: BTreeMap<u64, Arc<Handle>>,
}

impl Handles {
    /// No open files.
    pub(crate) fn new() -> Self {
        let open = RankedMutex::new(Rank::Leaf, Open::default());
        Self { open, released: Condvar::new() }
    }

    /// Adds an open file, and gives its number.
    pub(crate) fn insert(&self, handle: Handle) -> u64 {
        let mut open = self.open.lock();
        open.last += 1;
        let number = open.last;
        open.handles.insert(number, Arc::new(handle));
        number
    }

    /// The handle of a number.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<Handle>> {
        self.open.lock().handles.get(&number).cloned()
    }

    /// The processes that opened the disks, each with the name of the disk's device.
    pub(super) fn holders(&self) -> Vec<(String, Holder)> {
        let open = self.open.lock();
        let disk = |handle: &Arc<Handle>| match &**handle {
            Handle::Disk(OpenDisk { opened, holder, .. }) => {
                Some((opened.device().name().to_owned(), holder.clone()))
            }
            _ => None,
        };
        open.handles.values().filter_map(disk).collect()
    }

    /// Closes a file.
    pub(crate) fn remove(&self, number: u64) {
        let handle = self.open.lock().handles.remove(&number);
        // Dropped before waiting threads are woken, and without the lock, because a device is
        // asked.
        drop(handle);
        self.open.lock().closed += 1;
        self.released.notify_all();
    }

    /// How many files have been closed so far.
    pub(crate) fn closed(&self) -> u64 {
        self.open.lock().closed
    }

    /// Waits until more files have been closed than `seen`. False if `deadline` comes first.
    pub(crate) fn wait_for_close(&self, seen: u64, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let same = |open: &mut Open| open.closed == seen;
        !self.open.lock().sleep_while_for(&self.released, left, same).1
    }
}

impl Handle {
    /// A text that was not read yet.
    pub(crate) fn text() -> Self {
        Self::Text(RankedMutex::new(Rank::Text, None))
    }

    /// A long text that was not read yet.
    pub(crate) fn lines() -> Self {
        Self::Lines(RankedMutex::new(Rank::Text, Lines::at_start()))
    }

    /// A disk of a tree that is mounted at `point`. The thread of this number opened it.
    pub(crate) fn disk(opened: Opened, thread: u32, point: &Path) -> Self {
        let (holder, file) = (Holder::of(thread), point.join(opened.device().name()).join("disk"));
        let named = holder.clone();
        let opened = opened.held_by_whom(move || named.now(&file));
        Self::Disk(OpenDisk { opened, holder, disk: OnceLock::new() })
    }
}

impl OpenDisk {
    /// The disk, once it has a size.
    pub(crate) fn disk(&self) -> Option<&Arc<Zram>> {
        if self.disk.get().is_none() {
            let disk = self.opened.disk()?;
            // If another request was faster, it has set the same disk.
            let _ = self.disk.set(disk);
        }
        self.disk.get()
    }
}

impl Lines {
    /// No part at hand. The next one begins at the first page.
    pub(crate) fn at_start() -> Self {
        Self { start: 0, text: String::new(), next: Some(0) }
    }
}
