//! The mount of `serve --fuse`, and the files in it that are not a device's.
//!
//! Invariant: the mount has at least two threads. Locks: none.

use std::path::Path;
use std::sync::Arc;

use serve::fuse::{Complain, Fuse, FuseConfig, TextFile};
use zram::Devices;

use super::log::Log;
use super::page_types;
use crate::line::Failure;

/// Threads besides one for each CPU: one that always listens, and one that may wait for a disk
/// underneath.
const THREADS_BESIDES: usize = 2;
/// The most threads. More would only wait for each other.
const THREADS_MAX: usize = 16;

/// Mounts the tree.
pub(super) fn mount(
    directory: &Path,
    devices: &Arc<Devices>,
    log: &Log,
) -> Result<Arc<Fuse>, Failure> {
    let of = |text: fn(&zsmalloc::Memory) -> String| {
        let devices = Arc::clone(devices);
        Arc::new(move || text(devices.memory())) as Arc<dyn Fn() -> String + Send + Sync>
    };
    let texts = vec![
        TextFile { name: "pagetypeinfo", mode: 0o400, text: of(page_types::text) },
        TextFile { name: "buddyinfo", mode: 0o444, text: of(page_types::buddy_text) },
    ];
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let log = log.clone();
    let complain: Arc<Complain> = Arc::new(move |what: &str| log.complain(what));
    let config = FuseConfig {
        directory: directory.to_owned(),
        threads: (cpus + THREADS_BESIDES).min(THREADS_MAX),
        texts,
        complain,
    };
    Ok(Arc::new(Fuse::mount(Arc::clone(devices), config)?))
}
