//! Accepts connections and gives each a thread, until told to stop.
//!
//! ```text
//!   start -> accepting --stop()--> doors shut, inputs ended --all gone or grace over-->
//!            everything ended -> threads joined
//! ```
//!
//! Invariants
//! - S1. A connection is listed from before its thread starts until after its thread is done
//!   with it; at most `connections_max` are listed.
//! - S2. After `stop` returns no thread of the service runs and no socket path of its is left.
//!
//! Lock: one, around the list; nothing is waited for under it but the list itself.

use crate::door::Door;
use crate::error::ServeError;
use crate::socket::Socket;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Between two tries to accept when the system is out of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a service does with a connection; called on the connection's own thread.
pub(crate) type Serve = dyn Fn(&Ticket) + Send + Sync;

/// Listening sockets and the threads behind them.
pub(crate) struct Service {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    grace: Duration,
}

struct Shared {
    doors: Vec<Door>,
    connections_max: usize,
    stopping: AtomicBool,
    live: Mutex<Live>,
    changed: Condvar,
}

#[derive(Default)]
struct Live {
    next: u64,
    sockets: BTreeMap<u64, Arc<Socket>>,
}

/// A listed connection; dropping it takes it off the list.
pub(crate) struct Ticket {
    shared: Arc<Shared>,
    number: u64,
    socket: Arc<Socket>,
}

impl Service {
    /// Starts accepting at every door.
    pub(crate) fn start(
        doors: Vec<Door>,
        connections_max: usize,
        grace: Duration,
        serve: &Arc<Serve>,
    ) -> Result<Self, ServeError> {
        let shared = Arc::new(Shared {
            doors,
            connections_max,
            stopping: AtomicBool::new(false),
            live: Mutex::default(),
            changed: Condvar::new(),
        });
        let service = Self { shared, threads: Mutex::default(), grace };
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
        self.shared.live().sockets.len()
    }

    /// Stops; requests under way get the grace period. May be called again and from anywhere
    /// but a connection's own thread.
    pub(crate) fn stop(&self) {
        self.shut();
        self.shared.end_all(Socket::end_input);
        self.shared.wait_until_empty(self.grace);
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
        while let Some(socket) = shared.accept(door) {
            // Over the limit, or without a thread for it: dropped, which closes it.
            let Some(ticket) = shared.admit(socket) else { continue };
            let _ = host::thread::spawn_scoped(scope, "connection", move || serve(&ticket));
        }
    });
}

impl Shared {
    /// The next connection, or `None` when the service stops.
    fn accept(&self, door: &Door) -> Option<Socket> {
        while !self.is_stopping() {
            match door.accept() {
                Ok(socket) => return Some(socket),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => self.pause(),
            }
        }
        None
    }

    /// Lists a connection, unless there are too many or the service stops.
    fn admit(self: &Arc<Self>, socket: Socket) -> Option<Ticket> {
        let mut live = self.live();
        // Looked at under the lock: `end_all` comes after the flag is set and takes the lock,
        // so a connection listed here either saw no flag and will be ended, or is refused.
        if self.is_stopping() || live.sockets.len() >= self.connections_max {
            return None;
        }
        let (number, socket) = (live.next, Arc::new(socket));
        live.next += 1;
        live.sockets.insert(number, Arc::clone(&socket));
        Some(Ticket { shared: Arc::clone(self), number, socket })
    }

    fn is_stopping(&self) -> bool {
        // Pairs with the Release in `shut`.
        self.stopping.load(Ordering::Acquire)
    }

    fn end_all(&self, how: fn(&Socket)) {
        self.live().sockets.values().for_each(|socket| how(socket));
    }

    fn wait_until_empty(&self, limit: Duration) {
        let some_left = |live: &mut Live| !live.sockets.is_empty();
        // Only the list is of interest, and it is valid even if a thread died holding it.
        drop(self.changed.wait_timeout_while(self.live(), limit, some_left));
    }

    /// Waits until a connection ends, which frees a descriptor, or a moment.
    fn pause(&self) {
        drop(self.changed.wait_timeout(self.live(), ACCEPT_PAUSE));
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    /// The connection itself.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Whether the service stops, and with it this connection.
    pub(crate) fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // The client sees the end now, though others may still hold the socket for a moment.
        self.socket.end();
        self.shared.live().sockets.remove(&self.number);
        self.shared.changed.notify_all();
    }
}
