//! The NBD server: one disk, served at any number of Unix sockets and TCP addresses.
//!
//! Invariants: all listeners lead to the same export; a server that does not start leaves no
//! socket behind, and so does one that has stopped.

use crate::buffer::Meter;
use crate::door::{Door, Place};
use crate::error::ServeError;
use crate::limits;
use crate::link::Link;
use crate::nbd::{self, Export};
use crate::service::{Serve, Service};
use crate::uri;
use disk::Disk;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What to serve, where, and within which limits.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The export's name; clients may also ask for the empty one.
    pub name: String,
    /// Shown to clients that list exports.
    pub description: String,
    /// Unix sockets to listen at.
    pub unix: Vec<PathBuf>,
    /// Addresses to listen at, each `HOST:PORT`.
    pub tcp: Vec<String>,
    /// Allows addresses that other machines can reach. NBD has no password.
    pub tcp_anywhere: bool,
    /// One connection more is closed at once.
    pub connections_max: usize,
    /// For a client to say what it wants.
    pub handshake_timeout: Duration,
    /// After so long without a request a connection's big buffers are given back.
    pub idle_after: Duration,
    /// For requests under way when the server stops.
    pub stop_grace: Duration,
}

impl ServerConfig {
    /// The usual limits and no listener.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            unix: Vec::new(),
            tcp: Vec::new(),
            tcp_anywhere: false,
            connections_max: limits::CONNECTIONS_MAX,
            handshake_timeout: limits::HANDSHAKE_TIMEOUT,
            idle_after: limits::IDLE_AFTER,
            stop_grace: limits::STOP_GRACE,
        }
    }
}

/// A running server. Dropping it stops it.
pub struct Server {
    service: Service,
    meter: Arc<Meter>,
    name: String,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Server {
    /// Listens everywhere it should, or fails without having listened anywhere.
    pub fn start(disk: Arc<dyn Disk>, config: ServerConfig) -> Result<Self, ServeError> {
        let len = config.name.len();
        if len == 0 || len > limits::NAME_MAX || config.name.contains('\0') {
            return Err(ServeError::BadName { len });
        }
        let doors = open_doors(&config)?;
        let meter = Arc::new(Meter::default());
        let export = Export::new(disk, config.name.clone(), config.description);
        let (counted, handshake, idle) =
            (Arc::clone(&meter), config.handshake_timeout, config.idle_after);
        let serve: Arc<Serve> = Arc::new(move |ticket| {
            // Why a connection ended concerns the client, who knows; nobody else is told.
            let _ = nbd::serve(&export, &mut Link::new(ticket, &counted, handshake), idle);
        });
        let service = Service::start(doors, config.connections_max, config.stop_grace, &serve)?;
        Ok(Self { service, meter, name: config.name })
    }

    /// Where clients find the export, one address per listener.
    pub fn uris(&self) -> Vec<String> {
        self.service.doors().iter().map(|door| self.uri(door.place())).collect()
    }

    /// Connections right now, those in their handshake included.
    pub fn connections(&self) -> usize {
        self.service.connections()
    }

    /// Bytes held right now in the buffers of all connections.
    pub fn buffer_bytes(&self) -> usize {
        self.meter.bytes()
    }

    /// Stops accepting, gives requests under way the grace period, closes every connection,
    /// waits for every thread and removes the socket paths. A second call does nothing.
    pub fn stop(&self) {
        self.service.stop();
    }

    /// Removes the socket paths and accepts no more, without waiting: for a process that is about
    /// to end while `stop` may be held up.
    pub fn shut(&self) {
        self.service.shut();
    }

    fn uri(&self, place: &Place) -> String {
        match place {
            Place::Unix { path, .. } => uri::unix(&self.name, path),
            Place::Tcp(address) => uri::tcp(&self.name, *address),
        }
    }
}

fn open_doors(config: &ServerConfig) -> Result<Vec<Door>, ServeError> {
    let unix = config.unix.iter().map(|path| Door::unix(path));
    let tcp = config.tcp.iter().map(|address| Door::tcp(address, config.tcp_anywhere));
    let doors = unix.chain(tcp).collect::<Result<Vec<_>, _>>()?;
    if doors.is_empty() { Err(ServeError::NoListener) } else { Ok(doors) }
}
