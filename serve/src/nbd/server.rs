//! The NBD server: its exports, served at any number of Unix sockets and TCP addresses.
//!
//! Invariants: all listeners lead to the same exports; a server that does not start leaves no
//! socket behind, and so does one that has stopped.

use super::exports::{Exports, OfDevices, OneDisk};
use super::handshake;
use super::transmission::{self, End, Link, Waits};
use crate::doors::{
    Door, Event, Meter, Observer, Place, Places, Purpose, Refused, Rules, Serve, Service, Ticket,
};
use crate::terms::{ServeError, limits, uri};
use disk::Disk;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use zram::Devices;

/// What to serve, where, and within which limits.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The default export's name; clients may also ask for the empty one.
    pub name: String,
    /// Of a single disk: shown to clients that list exports.
    pub description: String,
    /// Unix sockets to listen at.
    pub unix: Vec<PathBuf>,
    /// Addresses to listen at, each `HOST:PORT`.
    pub tcp: Vec<String>,
    /// Allows addresses that other machines can reach. NBD has no password.
    pub tcp_anywhere: bool,
    /// One connection more is told so, and closed. Never more than half of the descriptors that
    /// the process may have.
    pub connections_max: usize,
    /// For a client to say what it wants.
    pub handshake_timeout: Duration,
    /// After so long without a request a connection's big buffers are given back.
    pub idle_after: Duration,
    /// A client that does nothing for so long in the middle of something is told of.
    pub stall_after: Duration,
    /// For requests under way when the server stops.
    pub stop_grace: Duration,
    /// Told what happens to connections.
    pub observer: Observer,
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
            stall_after: limits::STALL_AFTER,
            stop_grace: limits::STOP_GRACE,
            observer: Observer::default(),
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
    /// Serves one disk. Listens everywhere it should, or fails without having listened anywhere.
    pub fn start(disk: Arc<dyn Disk>, config: ServerConfig) -> Result<Self, ServeError> {
        let (name, description) = (config.name.clone(), config.description.clone());
        Self::start_with(Arc::new(OneDisk { name, description, disk }), config)
    }

    /// The same of every device that has a size; `config.name` is the default one's.
    pub fn start_devices(devices: Arc<Devices>, config: ServerConfig) -> Result<Self, ServeError> {
        let first = config.name.clone();
        Self::start_with(Arc::new(OfDevices { first, devices }), config)
    }

    fn start_with(exports: Arc<dyn Exports>, config: ServerConfig) -> Result<Self, ServeError> {
        let len = config.name.len();
        if len == 0 || len > limits::NAME_MAX || config.name.contains('\0') {
            return Err(ServeError::BadName { len });
        }
        let doors = open_doors(&config)?;
        let meter = Arc::new(Meter::default());
        let waits = Waits {
            handshake: config.handshake_timeout,
            idle_after: config.idle_after,
            stall_after: config.stall_after,
        };
        let counted = Arc::clone(&meter);
        let serve: Arc<Serve> =
            Arc::new(move |ticket| converse(&*exports, ticket, &counted, waits));
        let most = config.connections_max.min(limits::descriptors() / 2).max(1);
        let rules = Rules {
            purpose: Purpose::Nbd,
            places: Places { most, serves_from_reserve: false },
            reserve: limits::NBD_RESERVE,
            grace: config.stop_grace,
            observer: config.observer,
        };
        let service = Service::start(doors, rules, &serve)?;
        Ok(Self { service, meter, name: config.name })
    }

    /// Where clients find the default export, one address per listener.
    pub fn uris(&self) -> Vec<String> {
        self.uris_of(&self.name)
    }

    /// The same of the export of a name.
    pub fn uris_of(&self, name: &str) -> Vec<String> {
        self.service.doors().iter().map(|door| uri(name, door.place())).collect()
    }

    /// Connections that are served this export right now.
    pub fn connections_to(&self, name: &str) -> usize {
        self.service.engaged_in(name)
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
}

/// One connection, from its first byte to its last.
fn converse(exports: &dyn Exports, ticket: &Ticket, meter: &Arc<Meter>, waits: Waits) {
    let ended = match ticket.refused() {
        None => serve(exports, &mut Link::new(ticket, meter, waits)),
        Some(why) => {
            let brief = Waits { handshake: waits.handshake.min(limits::REFUSAL_MAX), ..waits };
            handshake::turn_away(&mut Link::new(ticket, meter, brief), &words(why))
        }
    };
    let end = ended.err().unwrap_or(End::Done);
    if ticket.refused().is_none() {
        let (peer, no_memory) = (ticket.peer(), end == End::NoMemory);
        ticket.tell(Event::Ended { peer, why: end.words(), no_memory });
    }
}

/// Serves one connection from its first byte to its last.
fn serve(exports: &dyn Exports, link: &mut Link<'_>) -> Result<(), End> {
    let (export, agreed) = handshake::negotiate(exports, link)?;
    link.engage(export.name())?;
    let (peer, name) = (link.peer(), export.name().to_owned());
    link.tell(Event::Connected { peer, export: name });
    transmission::run(&export, agreed, link)
}

/// For the client.
fn words(why: Refused) -> String {
    match why {
        Refused::Full { most } => {
            format!("the server has all the {most} connections that it takes; try again later")
        }
        Refused::NoDescriptor | Refused::NoThread => {
            "the server has no room for another connection; try again later".to_owned()
        }
    }
}

fn uri(name: &str, place: &Place) -> String {
    match place {
        Place::Unix { path, .. } => uri::unix(name, path),
        Place::Tcp(address) => uri::tcp(name, *address),
    }
}

fn open_doors(config: &ServerConfig) -> Result<Vec<Door>, ServeError> {
    let unix = config.unix.iter().map(|path| Door::unix(path));
    let tcp = config.tcp.iter().map(|address| Door::tcp(address, config.tcp_anywhere));
    let doors = unix.chain(tcp).collect::<Result<Vec<_>, _>>()?;
    if doors.is_empty() { Err(ServeError::NoListener) } else { Ok(doors) }
}
