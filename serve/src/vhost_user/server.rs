//! The door: a socket to which a virtual machine comes for one disk.
//!
//! ```text
//!   door --> service: a thread for each connection --> seat --> messages (frontend) --> rings
//!                                                       '--- taken: refused after SEAT_MAX
//! ```
//!
//! Invariants
//! - S1. One frontend at a time has the disk, because a second guest would break its file system.
//!   Another one waits up to `SEAT_MAX`, so that a machine that is started again finds its place.
//! - S2. A connection that has sent nothing has no seat.
//! - S3. The disk is held from the start of the server on, and for each frontend by its name.
//!
//! Locks: the seat, a leaf; those of its service.

use super::frontend::{Frontend, History};
use super::wire::ID_BYTES;
use super::worker::Service as QueueService;
use crate::doors::{
    Door, Event, Meter, Observer, Peer, Places, Purpose, Refused, Rules, Serve, Service, Ticket,
    open_sized,
};
use crate::terms::{ServeError, limits};
use disk::Disk;
use host::Rank;
use host::sync::unmodelled::Condvar;
use host::unmodelled::RankedMutex;
use std::fmt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use vhost::vhost_user::{BackendReqHandler, Error};
use zram::{Device, Opened};

/// Where to serve one disk to virtual machines, and within which limits.
#[derive(Clone, Debug)]
pub struct VhostUserConfig {
    /// The name of the disk. A guest sees its first 20 bytes as the serial number.
    pub name: String,
    /// The Unix socket to listen at.
    pub path: PathBuf,
    /// After so long without a request, a queue gives back its memory for data.
    pub idle_after: Duration,
    /// How long requests under way may go on after the server is stopped.
    pub stop_grace: Duration,
    /// It is told what happens to frontends.
    pub observer: Observer,
}

impl VhostUserConfig {
    /// A configuration with the usual limits ([`limits`]).
    pub fn new(name: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            path: path.into(),
            idle_after: limits::IDLE_AFTER,
            stop_grace: limits::STOP_GRACE,
            observer: Observer::default(),
        }
    }
}

/// A running vhost-user server of one disk. Dropping it stops it.
pub struct VhostUser {
    service: Service,
    house: Arc<House>,
    path: PathBuf,
    _opened: Option<Opened>,
}

/// What all connections share.
struct House {
    name: String,
    disk: Arc<dyn Disk>,
    device: Option<Arc<Device>>,
    meter: Arc<Meter>,
    history: Arc<History>,
    /// The frontend that has the disk.
    seat: RankedMutex<Option<Peer>>,
    left: Condvar,
    idle_after: Duration,
    observer: Observer,
}

impl fmt::Debug for VhostUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VhostUser").field("path", &self.path).finish_non_exhaustive()
    }
}

impl VhostUser {
    /// Serves a disk.
    ///
    /// # Errors
    ///
    /// [`ServeError`]: the path is taken or cannot be made, or no thread can be started.
    pub fn start(disk: Arc<dyn Disk>, config: VhostUserConfig) -> Result<Self, ServeError> {
        Self::start_with(disk, None, config)
    }

    /// Serves a device that has a size. It is neither reset nor removed while the server runs.
    ///
    /// # Errors
    ///
    /// Those of [`start`](Self::start), and [`ServeError::NoDisk`] if the device has no size or
    /// cannot be opened.
    pub fn start_device(device: &Arc<Device>, config: VhostUserConfig) -> Result<Self, ServeError> {
        let (opened, disk) = open_sized(device, "the vhost-user server")?;
        Self::start_with(disk, Some(opened), config)
    }

    fn start_with(
        disk: Arc<dyn Disk>,
        opened: Option<Opened>,
        config: VhostUserConfig,
    ) -> Result<Self, ServeError> {
        let door = Door::unix(&config.path)?;
        let bases = RankedMutex::new(Rank::Leaf, [0; limits::VHOST_QUEUES_MAX as usize]);
        let house = Arc::new(House {
            name: config.name,
            disk,
            device: opened.as_ref().map(|opened| Arc::clone(opened.device())),
            meter: Arc::default(),
            history: Arc::new(History { bases, running: AtomicUsize::new(0) }),
            seat: RankedMutex::new(Rank::Leaf, None),
            left: Condvar::new(),
            idle_after: config.idle_after,
            observer: config.observer.clone(),
        });
        let rules = Rules {
            purpose: Purpose::VhostUser,
            places: Places { most: limits::FRONTENDS_MAX, serves_from_reserve: false },
            reserve: 0,
            grace: config.stop_grace,
            observer: config.observer,
        };
        let serving = Arc::clone(&house);
        let serve: Arc<Serve> = Arc::new(move |ticket| serving.converse(ticket));
        let service = Service::start(vec![door], rules, &serve)?;
        Ok(Self { service, house, path: config.path, _opened: opened })
    }

    /// The name of the disk.
    pub fn name(&self) -> &str {
        &self.house.name
    }

    /// The socket's path in the form that was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The frontend that has the disk right now.
    pub fn frontend(&self) -> Option<Peer> {
        *self.house.seat.lock()
    }

    /// How many queues are served right now. Each has a thread.
    pub fn queues(&self) -> usize {
        // relaxed: one independent number, for people to look at.
        self.house.history.running.load(Ordering::Relaxed)
    }

    /// Bytes that the buffers of all queues hold right now.
    pub fn buffer_bytes(&self) -> usize {
        self.house.meter.bytes()
    }

    /// Stops the server. It removes the socket's path, lets each queue finish the request that it
    /// is at, closes every connection, and waits for every thread. A second call does nothing.
    pub fn stop(&self) {
        self.service.stop();
    }

    /// Removes the socket's path and accepts no more, without waiting. It is for a process that
    /// must end while `stop` may take long.
    pub fn shut(&self) {
        self.service.shut();
    }
}

impl House {
    /// Serves a frontend from its first message to its last.
    fn converse(&self, ticket: &Ticket) {
        if ticket.refused().is_some() || ticket.socket().wait_for_input().is_err() {
            return;
        }
        let peer = ticket.peer();
        if ticket.is_displaced() || !self.sit(ticket) {
            return;
        }
        let why = self.serve(ticket).unwrap_or_else(|error| words(&error, ticket.is_stopping()));
        *self.seat.lock() = None;
        self.left.notify_all();
        let purpose = Purpose::VhostUser;
        ticket.tell(Event::Ended { purpose, peer, why, no_memory: false });
    }

    /// Takes the seat. False if another frontend keeps it.
    fn sit(&self, ticket: &Ticket) -> bool {
        let taken = |seat: &mut Option<Peer>| seat.is_some() && !ticket.is_stopping();
        let (mut seat, is_taken) =
            self.seat.lock().sleep_while_for(&self.left, limits::SEAT_MAX, taken);
        if is_taken || seat.is_some() {
            let busiest = seat.map(|peer| (peer, 1));
            drop(seat);
            let (purpose, why) = (Purpose::VhostUser, Refused::Full { most: 1 });
            ticket.tell(Event::Refused { purpose, why, peer: ticket.peer(), busiest });
            return false;
        }
        *seat = Some(ticket.peer());
        true
    }

    fn serve(&self, ticket: &Ticket) -> Result<&'static str, Error> {
        let peer = ticket.peer();
        let _opened = self.open(peer);
        let stream = ticket.socket().try_clone().map_err(Error::SocketError)?;
        if !ticket.engage(&self.name) {
            return Ok("it made way for another");
        }
        let (purpose, export) = (Purpose::VhostUser, self.name.clone());
        ticket.tell(Event::Connected { purpose, peer, export });
        #[expect(clippy::arc_with_non_send_sync, reason = "the library shares it on this thread")]
        let frontend = Arc::new(Frontend::new(self.queue_service(peer), self.history.clone()));
        let mut messages =
            BackendReqHandler::from_stream(UnixStream::from(stream), frontend.clone());
        let mut outcome = Ok(());
        while matches!(outcome, Ok(()) | Err(Error::SocketRetry(_))) {
            outcome = messages.handle_request();
        }
        frontend.end();
        if frontend.is_foreign() {
            ticket.tell(Event::Foreign { peer });
            return Ok("its disk was that of another server");
        }
        outcome.map(|()| "")
    }

    /// Holds the device in the name of the frontend.
    fn open(&self, peer: Peer) -> Option<Opened> {
        let opened = self.device.as_ref()?.open().ok()?;
        Some(opened.held_by(format!("a virtual machine ({peer})")))
    }

    fn queue_service(&self, peer: Peer) -> Arc<QueueService> {
        let mut id = [0; ID_BYTES];
        id.iter_mut().zip(self.name.bytes()).for_each(|(id, byte)| *id = byte);
        Arc::new(QueueService {
            disk: Arc::clone(&self.disk),
            id,
            meter: Arc::clone(&self.meter),
            idle_after: self.idle_after,
            observer: self.observer.clone(),
            peer,
        })
    }
}

/// How a connection ended, in a few words.
fn words(error: &Error, is_stopping: bool) -> &'static str {
    match error {
        _ if is_stopping => "the server stops",
        Error::Disconnected | Error::PartialMessage | Error::SocketBroken(_) => {
            "closed by the frontend"
        }
        Error::SocketError(_) | Error::SocketConnect(_) => "the connection failed",
        Error::ReqHandlerError(_) => "its memory or its events cannot be used",
        Error::InvalidParam => "it set up a queue that cannot be",
        _ => "it sent what is no message of the protocol",
    }
}
