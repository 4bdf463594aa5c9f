//! Accepts connections and gives each a thread, until told to stop.
//!
//! ```text
//!   start -> accepting --stop()--> doors shut, inputs ended --all gone or grace over-->
//!            everything ended -> threads joined
//! ```
//!
//! Invariants
//! - S1. A connection is listed from before its thread starts until after its thread is done
//!   with it; how many are served, and who makes way, is in [`Guests`].
//! - S2. After `stop` returns no thread of the service runs and no socket path of its is left.
//! - S3. Without a descriptor left a client is still accepted, on one of the reserve: it is served
//!   or told why not, and nobody waits in the socket's queue for ever.
//!
//! Lock: one, around the list; nothing is waited for under it but the list itself.

use crate::door::Door;
use crate::error::ServeError;
use crate::event::{Event, Observer, Purpose, Refused};
use crate::guests::{Guests, Places};
use crate::peer::Peer;
use crate::reserve::Reserve;
use crate::socket::Socket;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Between two tries to accept when the system is out of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a service does with a connection; called on the connection's own thread.
pub(crate) type Serve = dyn Fn(&Ticket) + Send + Sync;

/// What a service is for, and within which limits.
pub(crate) struct Rules {
    pub(crate) purpose: Purpose,
    pub(crate) places: Places,
    /// Descriptors kept for when there are no others.
    pub(crate) reserve: usize,
    /// For requests under way when it stops.
    pub(crate) grace: Duration,
    pub(crate) observer: Observer,
}

/// Listening sockets and the threads behind them.
pub(crate) struct Service {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    doors: Vec<Door>,
    rules: Rules,
    reserve: Reserve,
    stopping: AtomicBool,
    guests: Mutex<Guests>,
    changed: Condvar,
}

/// A listed connection; dropping it takes it off the list.
pub(crate) struct Ticket {
    shared: Arc<Shared>,
    number: u64,
    socket: Arc<Socket>,
    peer: Peer,
    refused: Option<Refused>,
}

impl Service {
    /// Starts accepting at every door.
    pub(crate) fn start(
        doors: Vec<Door>,
        rules: Rules,
        serve: &Arc<Serve>,
    ) -> Result<Self, ServeError> {
        let shared = Arc::new(Shared {
            doors,
            reserve: Reserve::new(rules.reserve),
            rules,
            stopping: AtomicBool::new(false),
            guests: Mutex::default(),
            changed: Condvar::new(),
        });
        let service = Self { shared, threads: Mutex::default() };
        for index in 0..service.shared.doors.len() {
            let (shared, serve) = (Arc::clone(&service.shared), Arc::clone(serve));
            let accept = move || accept_all(&shared, index, &*serve);
            let handle = host::thread::spawn("accept", accept).map_err(ServeError::Thread)?;
            service.lock_threads().push(handle);
        }
        Ok(service)
    }

    /// Where it listens.
    pub(crate) fn doors(&self) -> &[Door] {
        &self.shared.doors
    }

    /// Connections right now.
    pub(crate) fn connections(&self) -> usize {
        self.shared.guests().count()
    }

    /// Connections that are engaged in this right now.
    pub(crate) fn engaged_in(&self, what: &str) -> usize {
        self.shared.guests().engaged_in(what)
    }

    /// Stops; requests under way get the grace period. May be called again and from anywhere
    /// but a connection's own thread.
    pub(crate) fn stop(&self) {
        self.shut();
        self.shared.end_all(Socket::end_input);
        self.shared.wait_until_empty(self.shared.rules.grace);
        self.shared.end_all(Socket::end);
        for handle in self.lock_threads().drain(..) {
            // A connection whose disk panicked makes its accept thread panic at the end; the
            // connection is gone either way.
            let _ = handle.join();
        }
    }

    /// The beginning of `stop`, which waits for nobody: no more connections, no socket path left.
    pub(crate) fn shut(&self) {
        // Pairs with the Acquire in `is_stopping`, so that who sees the flag sees what led to it.
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.doors.iter().for_each(Door::close);
    }

    fn lock_threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Accepts at one door until the service stops; returns when its connections are over.
fn accept_all(shared: &Arc<Shared>, door: usize, serve: &Serve) {
    let Some(door) = shared.doors.get(door) else { return };
    thread::scope(|scope| {
        while let Some((socket, scarce)) = shared.accept(door) {
            let peer = Peer::of(&socket);
            let Some(ticket) = shared.admit(socket, peer, scarce) else { continue };
            let served = host::thread::spawn_scoped(scope, "connection", move || serve(&ticket));
            // Without a thread it is dropped, which closes it.
            if served.is_err() {
                shared.tell_refused(Refused::NoThread, peer, None);
            }
        }
    });
}

impl Shared {
    /// The next connection, and whether it took a descriptor of the reserve; `None` when the
    /// service stops.
    fn accept(&self, door: &Door) -> Option<(Socket, bool)> {
        let mut scarce = false;
        while !self.is_stopping() {
            if !scarce {
                self.reserve.refill();
            }
            match door.accept() {
                // Others may have ended while this one was waited for.
                Ok(socket) => return Some((socket, scarce && !self.reserve.refill())),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::MFILE | Errno::NFILE) if self.reserve.release() => scarce = true,
                Err(_) => {
                    scarce = false;
                    self.pause();
                }
            }
        }
        None
    }

    /// Lists a connection, unless the service stops or it is one too many to be told why.
    fn admit(self: &Arc<Self>, socket: Socket, peer: Peer, scarce: bool) -> Option<Ticket> {
        let socket = Arc::new(socket);
        let admission = {
            let mut guests = self.guests();
            // Looked at under the lock: `end_all` comes after the flag is set and takes the lock,
            // so a connection listed here either saw no flag and will be ended, or is refused.
            if self.is_stopping() {
                return None;
            }
            guests.admit(Arc::clone(&socket), peer, &self.rules.places, scarce)
        };
        let purpose = self.rules.purpose;
        if let Some(peer) = admission.displaced {
            self.rules.observer.tell(Event::Displaced { purpose, peer });
        }
        if let Some(why) = admission.refused {
            self.tell_refused(why, peer, admission.busiest);
        }
        let (shared, refused) = (Arc::clone(self), admission.refused);
        admission.number.map(|number| Ticket { shared, number, socket, peer, refused })
    }

    fn tell_refused(&self, why: Refused, peer: Peer, busiest: Option<(Peer, usize)>) {
        let purpose = self.rules.purpose;
        self.rules.observer.tell(Event::Refused { purpose, why, peer, busiest });
    }

    fn is_stopping(&self) -> bool {
        // Pairs with the Release in `shut`.
        self.stopping.load(Ordering::Acquire)
    }

    fn end_all(&self, how: fn(&Socket)) {
        self.guests().sockets().for_each(how);
    }

    fn wait_until_empty(&self, limit: Duration) {
        let some_left = |guests: &mut Guests| guests.count() > 0;
        // Only the list is of interest, and it is valid even if a thread died holding it.
        drop(self.changed.wait_timeout_while(self.guests(), limit, some_left));
    }

    /// Waits until a connection ends, which frees a descriptor, or a moment.
    fn pause(&self) {
        drop(self.changed.wait_timeout(self.guests(), ACCEPT_PAUSE));
    }

    fn guests(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    /// The connection itself.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Who is at its other end.
    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    /// Why it is only to be told that it is not served.
    pub(crate) fn refused(&self) -> Option<Refused> {
        self.refused
    }

    /// From now on it does not make way for others; false if it has.
    pub(crate) fn engage(&self, what: &str) -> bool {
        self.shared.guests().engage(self.number, what)
    }

    /// From now on it may have to make way again.
    pub(crate) fn wait(&self) {
        self.shared.guests().wait(self.number);
    }

    /// Whether it made way for another.
    pub(crate) fn is_displaced(&self) -> bool {
        self.shared.guests().is_displaced(self.number)
    }

    /// Whether the service stops, and with it this connection.
    pub(crate) fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }

    /// Tells whoever observes the service.
    pub(crate) fn tell(&self, event: Event) {
        self.shared.rules.observer.tell(event);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // The client sees the end now, though others may still hold the socket for a moment.
        self.socket.end();
        self.shared.guests().remove(self.number);
        self.shared.changed.notify_all();
    }
}
