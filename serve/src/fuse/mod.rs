//! A mount that looks like the kernel's: devices as directories, attributes as files, and the disk
//! itself as a file fit for a loop device.
//!
//! ```text
//!   kernel --/dev/fuse--> connection (threads, roles, waiters) --> tree --> text   attributes
//!                            wire                       node    block  the disk
//!   mount, mountinfo: where                             handles: who has what open
//! ```
//!
//! Why the protocol is spoken here, in a few hundred lines, and not by a library: a request for
//! data must be handed from the thread that received it to another one, so that one is always free
//! for those who only look; the threads set process flags before they serve; a mount in use is to
//! be refused, not detached. Decision 38 says why this is not a library.

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

pub use config::{Complain, FuseConfig, TextFile};
pub use mount::UnmountError;

use crate::terms::ServeError;
use channel::Connection;
use mount::Mount;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use tree::Tree;
use zram::Devices;

/// A mounted tree. Dropping it unmounts it, lazily if somebody uses it.
pub struct Fuse {
    mount: Mount,
    connection: Connection,
    tree: Arc<Tree>,
    threads: usize,
}

impl fmt::Debug for Fuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fuse")
            .field("directory", &self.directory())
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

impl Fuse {
    /// Mounts the tree of some devices.
    ///
    /// # Errors
    ///
    /// What is at the directory, or what this system or this user lacks.
    pub fn mount(devices: Arc<Devices>, config: FuseConfig) -> Result<Self, ServeError> {
        let (mount, device) = Mount::new(&config.directory)?;
        if let Some(ours) = mount.device_number() {
            devices.guard_paths(Box::new(move |path| guard::judge(path, ours)));
        }
        let tree =
            Arc::new(Tree::new(devices, config.texts, config.complain, mount.point().into()));
        let connection = Connection::start(device, Arc::clone(&tree) as _, config.threads)
            .map_err(|source| ServeError::Mount { path: config.directory, source })?;
        Ok(Self { mount, connection, tree, threads: config.threads })
    }

    /// Where it is mounted, without symbolic links.
    pub fn directory(&self) -> &Path {
        self.mount.point()
    }

    /// Unmounts it, unless somebody uses it.
    ///
    /// # Errors
    ///
    /// [`UnmountError::Busy`]: a file is open, or a process is in a directory of it.
    pub fn unmount(&self) -> Result<(), UnmountError> {
        self.mount.unmount()
    }

    /// Takes it out of the directory tree; who has files of it open keeps them until they close.
    ///
    /// # Errors
    ///
    /// [`UnmountError::Failed`].
    pub fn unmount_lazily(&self) -> Result<(), UnmountError> {
        self.mount.unmount_lazily()
    }

    /// Waits until it is unmounted and nobody has a file of it open.
    pub fn wait(&self) {
        self.connection.join();
    }

    /// Threads that serve it.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Bytes held right now in the buffers of all of them.
    pub fn buffer_bytes(&self) -> usize {
        self.connection.buffer_bytes()
    }

    /// Who has disks open, of those who can be named.
    pub fn holders(&self) -> Vec<String> {
        holders::all(&self.tree.handles.holders(), self.mount.point())
    }
}
