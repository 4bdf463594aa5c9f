//! A server of a plain RAM disk whose sockets lie in its own directory.

use crate::client::Client;
use disk::{Disk, RamDisk};
use ramfold_serve::{Server, ServerConfig};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Bytes on the usual disk, not a multiple of anything.
pub(crate) const SIZE: u64 = (8 << 20) + 777;

/// A directory that is gone at the end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("serve-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running server and where it is. The server goes first.
pub(crate) struct Fixture {
    pub(crate) server: Server,
    pub(crate) socket: PathBuf,
    _scratch: Scratch,
}

impl Fixture {
    pub(crate) fn ram() -> Self {
        Self::of(Arc::new(RamDisk::new(SIZE).unwrap()))
    }

    pub(crate) fn of(disk: Arc<dyn Disk>) -> Self {
        Self::with(disk, |_| {})
    }

    pub(crate) fn with(disk: Arc<dyn Disk>, adjust: impl FnOnce(&mut ServerConfig)) -> Self {
        let scratch = Scratch::new();
        let socket = scratch.path("nbd.sock");
        let mut config = ServerConfig::new("ram");
        config.description = "plain memory".into();
        config.unix.push(socket.clone());
        adjust(&mut config);
        Self { server: Server::start(disk, config).unwrap(), socket, _scratch: scratch }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn open(&self, structured: bool) -> Client {
        Client::open(&self.socket, structured).expect("a good client is served")
    }

    /// Checks that the server still serves, and holds nothing for clients that are gone.
    pub(crate) fn assert_well(&self) {
        let mut client = self.open(true);
        client.read(0, 4096).expect("a good client is answered");
        drop(client);
        wait_until("every connection is over", || self.server.connections() == 0);
        wait_until("every buffer is given back", || self.server.buffer_bytes() == 0);
    }
}

/// Waits for something that must come true; how long it takes is not the point.
pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "never: {what}");
        sleep(Duration::from_millis(2));
    }
}

/// Bytes that repeat only after a prime number of them.
pub(crate) fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i + seed) % 251) as u8).collect()
}
