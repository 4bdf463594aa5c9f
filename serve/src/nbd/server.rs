//! The NBD server: it serves exports at any number of Unix sockets and TCP addresses, and on
//! sockets that were passed to it.
//!
//! ```text
//!   door --> service: a thread for each connection --> handshake --> transmission
//!                     '-- one too many -------------> handshake::turn_away
//! ```
//!
//! Invariants: all doors lead to the same exports. A server that does not start, or that has
//! stopped, leaves no socket behind.
//!
//! Locks: those of its service.

use super::exports::{Exports, OfDevices, OneDisk};
use super::handshake;
use super::transmission::{self, End, Link, Waits};
use crate::doors::{
    Door, Event, Meter, Observer, Passed, Place, Places, Purpose, Refused, Rules, Serve, Service,
    Ticket,
};
use crate::terms::{ServeError, limits, uri};
use crate::tls::{Tls, TlsConfig};
use disk::Disk;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use zram::Devices;

/// Where to serve, under which name, and within which limits.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The default export's name: 1 to 4096 bytes without NUL. Clients may also ask for the empty
    /// name.
    pub name: String,
    /// The description of a single disk, for clients that list exports. Devices have their own.
    pub description: String,
    /// Unix sockets to listen at.
    pub unix: Vec<PathBuf>,
    /// Addresses to listen at, each `HOST:PORT`.
    pub tcp: Vec<String>,
    /// Allows addresses that other machines can reach. NBD has no password.
    pub tcp_anywhere: bool,
    /// Sockets to listen on that were passed to this process. `tcp_anywhere` is not about them.
    pub passed: Vec<Passed>,
    /// TLS, if it is offered. The files are read when the server starts.
    pub tls: Option<TlsConfig>,
    /// How many connections are served at a time. One more is refused with a message. The server
    /// takes at most half of the descriptors that the process may have.
    pub connections_max: usize,
    /// How long a client's handshake may take.
    pub handshake_timeout: Duration,
    /// After so long without a request, a connection gives back most of its buffers.
    pub idle_after: Duration,
    /// A client that does nothing for so long, in the middle of a request or an answer, is reported
    /// to the observer.
    pub stall_after: Duration,
    /// How long requests under way may go on after the server is stopped.
    pub stop_grace: Duration,
    /// It is told what happens to connections.
    pub observer: Observer,
}

impl ServerConfig {
    /// A configuration with the usual limits ([`limits`]) and no listener.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            unix: Vec::new(),
            tcp: Vec::new(),
            tcp_anywhere: false,
            passed: Vec::new(),
            tls: None,
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
    tls: Option<Tls>,
    name: String,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Server {
    /// Serves one disk. It listens at every place of `config`, or fails and listens at none.
    ///
    /// # Errors
    ///
    /// [`ServeError`]: the name is not one for NBD, there is no place to listen, a place
    /// is taken, or no thread can be started.
    pub fn start(disk: Arc<dyn Disk>, config: ServerConfig) -> Result<Self, ServeError> {
        let (name, description) = (config.name.clone(), config.description.clone());
        Self::start_with(Arc::new(OneDisk { name, description, disk }), config)
    }

    /// Serves every device that has a size. `config.name` is the name of the default one.
    ///
    /// # Errors
    ///
    /// Those of [`start`](Self::start).
    pub fn start_devices(devices: Arc<Devices>, config: ServerConfig) -> Result<Self, ServeError> {
        let first = config.name.clone();
        Self::start_with(Arc::new(OfDevices { first, devices }), config)
    }

    fn start_with(exports: Arc<dyn Exports>, config: ServerConfig) -> Result<Self, ServeError> {
        let len = config.name.len();
        if len == 0 || len > limits::NAME_MAX || config.name.contains('\0') {
            return Err(ServeError::BadName { len });
        }
        let tls = config.tls.as_ref().map(Tls::load).transpose()?;
        let doors = open_doors(&config)?;
        let meter = Arc::new(Meter::default());
        let waits = Waits {
            handshake: config.handshake_timeout,
            idle_after: config.idle_after,
            stall_after: config.stall_after,
        };
        let (counted, offered) = (Arc::clone(&meter), tls.clone());
        let serve: Arc<Serve> = Arc::new(move |ticket| {
            converse(&Offer { exports: &*exports, tls: offered.as_ref() }, ticket, &counted, waits);
        });
        let most = config.connections_max.min(limits::descriptors() / 2).max(1);
        let rules = Rules {
            purpose: Purpose::Nbd,
            places: Places { most, serves_from_reserve: false },
            reserve: limits::NBD_RESERVE,
            grace: config.stop_grace,
            observer: config.observer,
        };
        let service = Service::start(doors, rules, &serve)?;
        Ok(Self { service, meter, tls, name: config.name })
    }

    /// The addresses at which clients find the default export, those of [`uris_of`](Self::uris_of).
    pub fn uris(&self) -> Vec<String> {
        self.uris_of(&self.name)
    }

    /// The addresses at which clients find the export of this name. A socket with an abstract name
    /// has none.
    pub fn uris_of(&self, name: &str) -> Vec<String> {
        // A client that may also come without TLS is not made to have certificates.
        let tls = self.tls.as_ref().filter(|tls| tls.is_required()).map(Tls::directory);
        self.service.doors().iter().filter_map(|door| uri(name, door.place(), tls)).collect()
    }

    /// How many connections are served this export right now.
    pub fn connections_to(&self, name: &str) -> usize {
        self.service.engaged_in(name)
    }

    /// How many connections there are right now, with those in their handshake.
    pub fn connections(&self) -> usize {
        self.service.connections()
    }

    /// Bytes that the buffers of all connections hold right now.
    pub fn buffer_bytes(&self) -> usize {
        self.meter.bytes()
    }

    /// Stops the server. It removes the socket paths and accepts no more, gives requests under way
    /// the grace period, closes every connection, and waits for every thread. A second call does
    /// nothing.
    pub fn stop(&self) {
        self.service.stop();
    }

    /// Removes the socket paths and accepts no more, without waiting. It is for a process that must
    /// end while `stop` may take long.
    pub fn shut(&self) {
        self.service.shut();
    }
}

/// What clients may choose, and how.
struct Offer<'a> {
    exports: &'a dyn Exports,
    tls: Option<&'a Tls>,
}

/// Serves one connection, or refuses it, from its first byte to its last.
fn converse(offer: &Offer<'_>, ticket: &Ticket, meter: &Arc<Meter>, waits: Waits) {
    let ended = match ticket.refused() {
        None => serve(offer, &mut Link::new(ticket, meter, waits)),
        Some(why) => {
            let brief = Waits { handshake: waits.handshake.min(limits::REFUSAL_MAX), ..waits };
            handshake::turn_away(&mut Link::new(ticket, meter, brief), &words(why))
        }
    };
    let end = ended.err().unwrap_or(End::Done);
    if ticket.refused().is_none() {
        let (peer, no_memory) = (ticket.peer(), end == End::NoMemory);
        let purpose = Purpose::Nbd;
        ticket.tell(Event::Ended { purpose, peer, why: end.words(), no_memory });
    }
}

/// Serves one connection from its first byte to its last.
fn serve(offer: &Offer<'_>, link: &mut Link<'_>) -> Result<(), End> {
    let (export, agreed) = handshake::negotiate(offer.exports, offer.tls, link)?;
    link.engage(export.name())?;
    let (peer, name) = (link.peer(), export.name().to_owned());
    link.tell(Event::Connected { purpose: Purpose::Nbd, peer, export: name });
    transmission::run(&export, agreed, link)
}

/// Why a client is refused, in words for it.
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

fn uri(name: &str, place: &Place, tls: Option<&Path>) -> Option<String> {
    match place {
        Place::Unix { path, .. } => Some(uri::unix(name, path, tls)),
        Place::Tcp(address) => Some(uri::tcp(name, *address, tls)),
        Place::Unreachable => None,
    }
}

fn open_doors(config: &ServerConfig) -> Result<Vec<Door>, ServeError> {
    let unix = config.unix.iter().map(|path| Door::unix(path));
    let tcp = config.tcp.iter().map(|address| Door::tcp(address, config.tcp_anywhere));
    let passed = config.passed.iter().map(Door::passed);
    let doors = passed.chain(unix).chain(tcp).collect::<Result<Vec<_>, _>>()?;
    if doors.is_empty() { Err(ServeError::NoListener) } else { Ok(doors) }
}
