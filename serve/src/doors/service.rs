//! Accepts connections and gives each a thread, until it is stopped.
//!
//! ```text
//!   start -> accepting --stop()--> doors shut, inputs ended --all gone or grace over-->
//!            everything ended -> threads joined
//! ```
//!
//! Invariants
//! - S1. A connection is listed before its thread starts, and until its thread is done with it.
//!   [`Guests`] decides how many are served, and which makes way.
//! - S2. After `stop` returns, no thread of the service runs, and its socket paths are gone.
//! - S3. If the process has no descriptor left, a client is accepted on one of the reserve. It is
//!   served or told why not. So no client waits in the socket's queue for ever.
//!
//! Locks: one around the list of connections, a leaf. Under it a thread waits only for the list to
//! change. One around the list of accept threads, of rank Ending: `stop` holds it while it joins
//! them, so that a second `stop` does not return before them (S2).

use super::door::Door;
use super::event::{Event, Observer, Purpose, Refused};
use super::guests::{Guests, Places};
use super::peer::Peer;
use super::reserve::Reserve;
use super::socket::Socket;
use crate::terms::ServeError;
use host::Rank;
use host::sync::unmodelled::Condvar;
use host::unmodelled::{RankedMutex, RankedMutexGuard};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The pause between two tries to accept if the system is out of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a service does with a connection. It is called on the connection's own thread.
pub(crate) type Serve = dyn Fn(&Ticket) + Send + Sync;

/// What a service is for, and its limits.
pub(crate) struct Rules {
    pub(crate) purpose: Purpose,
    pub(crate) places: Places,
    /// How many descriptors are kept in reserve.
    pub(crate) reserve: usize,
    /// How long requests under way may go on after it is stopped.
    pub(crate) grace: Duration,
    pub(crate) observer: Observer,
}

/// Listening sockets and the threads behind them.
pub(crate) struct Service {
    shared: Arc<Shared>,
    threads: RankedMutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    doors: Vec<Door>,
    rules: Rules,
    reserve: Reserve,
    stopping: AtomicBool,
    guests: RankedMutex<Guests>,
    changed: Condvar,
}

/// A listed connection. Dropping it closes the connection and takes it off the list.
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
            guests: RankedMutex::new(Rank::Leaf, Guests::default()),
            changed: Condvar::new(),
        });
        let service = Self { shared, threads: RankedMutex::new(Rank::Ending, Vec::new()) };
        for index in 0..service.shared.doors.len() {
            let (shared, serve) = (Arc::clone(&service.shared), Arc::clone(serve));
            let accept = move || accept_all(&shared, index, &*serve);
            let handle = host::thread::spawn("accept", accept).map_err(ServeError::Thread)?;
            service.threads.lock().push(handle);
        }
        Ok(service)
    }

    /// The doors at which it listens.
    pub(crate) fn doors(&self) -> &[Door] {
        &self.shared.doors
    }

    /// How many connections there are right now.
    pub(crate) fn connections(&self) -> usize {
        self.shared.guests().count()
    }

    /// How many connections are engaged in `what` right now.
    pub(crate) fn engaged_in(&self, what: &str) -> usize {
        self.shared.guests().engaged_in(what)
    }

    /// Stops the service. Requests under way get the grace period. It may be called again, and from
    /// any thread except those of its connections.
    pub(crate) fn stop(&self) {
        self.shut();
        self.shared.end_all(Socket::end_input);
        self.shared.wait_until_empty(self.shared.rules.grace);
        self.shared.end_all(Socket::end);
        for handle in self.threads.lock().drain(..) {
            // If a disk panics, the accept thread of its connection panics at the end. The
            // connection is gone either way.
            let _ = handle.join();
        }
    }

    /// The beginning of `stop`, without waiting: accepts no more, and removes the socket paths.
    pub(crate) fn shut(&self) {
        // Release pairs with the Acquire in `is_stopping`, so that a thread that sees the flag sees
        // what led to it.
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.doors.iter().for_each(Door::close);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Accepts at one door until the service stops. It returns after its connections have ended.
fn accept_all(shared: &Arc<Shared>, door: usize, serve: &Serve) {
    let Some(door) = shared.doors.get(door) else { return };
    thread::scope(|scope| {
        while let Some((socket, scarce)) = shared.accept(door) {
            let peer = Peer::of(&socket);
            let Some(ticket) = shared.admit(socket, peer, scarce) else { continue };
            let served = host::thread::spawn_scoped(scope, "connection", move || serve(&ticket));
            // If there is no thread, the ticket was dropped, which closed the connection.
            if served.is_err() {
                shared.tell_refused(Refused::NoThread, peer, None);
            }
        }
    });
}

impl Shared {
    /// The next connection, and whether it took a descriptor of the reserve. `None` if the service
    /// stops.
    fn accept(&self, door: &Door) -> Option<(Socket, bool)> {
        let mut scarce = false;
        while !self.is_stopping() {
            if !scarce {
                self.reserve.refill();
            }
            match door.accept() {
                // Other connections may have ended during the wait.
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

    /// Lists a connection. `None` if the service stops, or if it is one too many to be told why.
    fn admit(self: &Arc<Self>, socket: Socket, peer: Peer, scarce: bool) -> Option<Ticket> {
        let socket = Arc::new(socket);
        let admission = {
            let mut guests = self.guests();
            // The flag is looked at under the lock. `stop` sets it, and then ends all listed
            // connections under the lock. So this connection sees the flag, or is ended by `stop`.
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
        // Acquire pairs with the Release in `shut`, so that a thread that sees the flag sees what
        // led to it.
        self.stopping.load(Ordering::Acquire)
    }

    fn end_all(&self, how: fn(&Socket)) {
        self.guests().sockets().for_each(how);
    }

    fn wait_until_empty(&self, limit: Duration) {
        let some_left = |guests: &mut Guests| guests.count() > 0;
        drop(self.guests().sleep_while_for(&self.changed, limit, some_left));
    }

    /// Waits until a connection ends, which frees a descriptor, but at most `ACCEPT_PAUSE`.
    fn pause(&self) {
        let guests = self.guests();
        let count = guests.count();
        let same = |guests: &mut Guests| guests.count() >= count;
        drop(guests.sleep_while_for(&self.changed, ACCEPT_PAUSE, same));
    }

    fn guests(&self) -> RankedMutexGuard<'_, Guests> {
        self.guests.lock()
    }
}

impl Ticket {
    /// The connection itself.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The client at its other end.
    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    /// Why the connection is not served, if it is not.
    pub(crate) fn refused(&self) -> Option<Refused> {
        self.refused
    }

    /// From now on the connection does not make way for others. False if it has done so already.
    pub(crate) fn engage(&self, what: &str) -> bool {
        self.shared.guests().engage(self.number, what)
    }

    /// From now on the connection may have to make way again.
    pub(crate) fn wait(&self) {
        self.shared.guests().wait(self.number);
    }

    /// Whether the connection made way for another.
    pub(crate) fn is_displaced(&self) -> bool {
        self.shared.guests().is_displaced(self.number)
    }

    /// Whether the service stops, and this connection with it.
    pub(crate) fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }

    /// Tells the observer of the service.
    pub(crate) fn tell(&self, event: Event) {
        self.shared.rules.observer.tell(event);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // The client sees the end now, although the list may hold the socket for a moment longer.
        self.socket.end();
        self.shared.guests().remove(self.number);
        self.shared.changed.notify_all();
    }
}
