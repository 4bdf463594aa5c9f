//! A mount that looks like the kernel's: devices as directories, attributes as files, and the disk
//! itself as a file fit for a loop device.
//!
//! ```text
//!   kernel --/dev/fuse--> connection (threads, roles, waiters) --> tree --> text   attributes
//!                            wire                       node    block  the disk
//!   mount, mountinfo: where                             handles: who has what open
//! ```
//!
//! No library speaks the protocol here, for three reasons. A thread must be able to hand a request
//! to another thread, so that one is always free for quick requests. Threads set process flags
//! before they serve. Unmounting must be refused while the mount is in use. Decision 38 tells the
//! rest.
//!
//! Invariants: a quick request is answered however long others take. A disk that is open through
//! the mount is neither reset nor removed.
//!
//! Locks: those of the open files, and those of `channel`.

mod block;
mod channel;
mod config;
mod files;
mod guard;
mod handles;
mod holders;
mod mount;
mod mountinfo;
mod node;
mod text;
mod tree;

pub use channel::{FuseWay, NoRing};
pub use config::{Complain, FuseConfig, TextFile};
pub use mount::UnmountError;
pub use mountinfo::{
    Mounted, again as mounted_again, all as mounts, at as mounted_at, cover as mounted_over,
};

use crate::terms::ServeError;
use channel::{Connection, How, RING_DATA_MAX};
use mount::Mount;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use tree::Tree;
use zram::Devices;

/// A mounted tree. Dropping it unmounts it, lazily if it is in use.
pub struct Fuse {
    mount: Mount,
    connection: Connection,
    tree: Arc<Tree>,
}

impl fmt::Debug for Fuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fuse")
            .field("directory", &self.directory())
            .field("way", self.way())
            .finish_non_exhaustive()
    }
}

impl Fuse {
    /// Mounts the tree of some devices.
    ///
    /// # Errors
    ///
    /// [`ServeError`]: the directory cannot be mounted over, or this system or this user cannot
    /// mount.
    pub fn mount(devices: Arc<Devices>, config: FuseConfig) -> Result<Self, ServeError> {
        let (mount, device) = Mount::new(&config.directory)?;
        if let Some(ours) = mount.device_number() {
            devices.guard_paths(Box::new(move |path| guard::judge(path, ours)));
        }
        let tree =
            Arc::new(Tree::new(devices, config.texts, config.complain, mount.point().into()));
        let how = How { threads: config.threads, ring: config.io_uring.then_some(RING_DATA_MAX) };
        let connection = Connection::start(device, Arc::clone(&tree) as _, &how)
            .map_err(|source| ServeError::Mount { path: config.directory, source })?;
        Ok(Self { mount, connection, tree })
    }

    /// Where it is mounted, without symbolic links.
    pub fn directory(&self) -> &Path {
        self.mount.point()
    }

    /// Unmounts it, unless it is in use.
    ///
    /// # Errors
    ///
    /// [`UnmountError::Busy`] if a file of it is open or a process is in a directory of it,
    /// [`UnmountError::Covered`] if another mount is over it, and [`UnmountError::Failed`] if the
    /// system refuses.
    pub fn unmount(&self) -> Result<(), UnmountError> {
        self.mount.unmount()
    }

    /// Takes it out of the directory tree. Files that are open stay usable until they are closed.
    ///
    /// # Errors
    ///
    /// [`UnmountError::Covered`] or [`UnmountError::Failed`], as for [`Fuse::unmount`].
    pub fn unmount_lazily(&self) -> Result<(), UnmountError> {
        self.mount.unmount_lazily()
    }

    /// Waits until it is unmounted and no file of it is open.
    pub fn wait(&self) {
        self.connection.join();
    }

    /// The most threads that work on its data.
    pub fn threads(&self) -> usize {
        self.connection.threads()
    }

    /// How requests come from the kernel.
    pub fn way(&self) -> &FuseWay {
        self.connection.way()
    }

    /// Bytes that the buffers of all its threads hold right now.
    pub fn buffer_bytes(&self) -> usize {
        self.connection.buffer_bytes()
    }

    /// The processes and loop devices that have disks open, and the other places where it is
    /// mounted, as far as the system names them.
    pub fn holders(&self) -> Vec<String> {
        let mut holders = holders::all(&self.tree.handles.holders(), self.mount.point());
        let elsewhere = self.mount.elsewhere().into_iter();
        holders.extend(elsewhere.map(|point| format!("the mount at {}", point.display())));
        holders
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use zram::{DeviceDefaults, Memory, MemoryConfig};

    const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

    /// While it is held, the kernel offers io_uring to new mounts.
    struct Offer;

    impl Offer {
        /// `None` where the system does not let this test, which says so.
        fn new() -> Option<Offer> {
            let may = rustix::process::geteuid().is_root() && fs::write(PARAMETER, "Y").is_ok();
            if !may {
                println!("skipped: needs root, and {PARAMETER} (Linux 6.14)");
            }
            may.then_some(Offer)
        }
    }

    impl Drop for Offer {
        fn drop(&mut self) {
            let _ = fs::write(PARAMETER, "N");
        }
    }

    /// The kernel holds requests back until it has entries of every queue, or has refused one.
    #[test]
    fn entries_that_the_kernel_refuses_leave_the_device() {
        let Some(_offer) = Offer::new() else { return };
        let point = std::env::temp_dir().join(format!("ramfold-refused-{}", std::process::id()));
        let memory = Memory::new(MemoryConfig::for_disk(1 << 20)).unwrap();
        let devices = Arc::new(Devices::new(memory, DeviceDefaults::default()));
        // The kernel wants room for 8192 bytes at least.
        for (room, by_ring) in [(4096, false), (RING_DATA_MAX, true)] {
            let (mount, device) = Mount::new(&point).unwrap();
            let complain: Arc<Complain> = Arc::new(|_| {});
            let tree = Tree::new(Arc::clone(&devices), Vec::new(), complain, point.clone());
            let how = How { threads: 2, ring: Some(room) };
            let connection = Connection::start(device, Arc::new(tree), &how).unwrap();
            let is_refused = matches!(connection.way(), FuseWay::Device(NoRing::Refused(_)));
            assert_eq!(is_refused, !by_ring, "{:?}", connection.way());
            for _ in 0..100 {
                let names = fs::read_dir(&point).unwrap().map(|entry| entry.unwrap().file_name());
                assert_eq!(names.collect::<Vec<_>>(), ["zram-control"]);
            }
            mount.unmount().unwrap();
            connection.join();
        }
        fs::remove_dir(point).unwrap();
    }
}
