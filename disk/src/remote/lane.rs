//! One connection to a server after the other.
//!
//! ```text
//!   up --lost--> making --> up ..
//!                   '--> down: after a pause --> making
//! ```
//!
//! Invariants
//! - L1 one thread at a time makes a connection. The others wait for it.
//! - L2 a connection is made when the server has closed the one before.
//!
//! Locks: `link` and `doubt`, leaves, held for moments. No connection is made or waited for under
//! them.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use host::unmodelled::RankedMutex;
use host::{Event, Rank};

use super::connection::Connection;

/// How long to wait before a connection is tried again, at first and at most.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(10);
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long the server may take to close the last connection.
const CLOSING: Duration = Duration::from_secs(1);

/// See the module documentation.
pub(super) struct Lane {
    link: RankedMutex<Link>,
    /// A connection was made, or could not be.
    tried: Event,
    /// The server did not answer. It is tried again at this time.
    doubt: RankedMutex<Option<Instant>>,
}

/// Whether a request tries a server that did not answer.
pub(super) enum Trial {
    /// It has answered.
    None,
    Now,
    Later,
}

/// The connection, or what is done about it.
enum Link {
    Up(Arc<Connection>),
    /// One thread is making one.
    Making,
    Down {
        /// The last connection, if the server has not closed it yet.
        last: Option<Arc<Connection>>,
        /// It is not tried before this.
        next: Instant,
        pause: Duration,
        why: String,
    },
}

impl Lane {
    /// A lane with its first connection.
    pub(super) fn new(connection: Arc<Connection>) -> Lane {
        Lane {
            link: RankedMutex::new(Rank::Leaf, Link::Up(connection)),
            tried: Event::new(),
            doubt: RankedMutex::new(Rank::Leaf, None),
        }
    }

    /// Notes that the server did not answer. It is tried again after a pause.
    pub(super) fn doubt(&self, pause: Duration) {
        *self.doubt.lock() = Some(Instant::now() + pause);
    }

    /// Notes that the server has answered.
    pub(super) fn trust(&self) {
        *self.doubt.lock() = None;
    }

    /// Whether a request is to try a server that did not answer. The next one does after a pause.
    pub(super) fn trial(&self, pause: Duration) -> Trial {
        let now = Instant::now();
        let mut doubt = self.doubt.lock();
        match *doubt {
            None => Trial::None,
            Some(next) if now < next => Trial::Later,
            Some(_) => {
                *doubt = Some(now + pause);
                Trial::Now
            }
        }
    }

    /// Whether its connection is there.
    pub(super) fn is_up(&self) -> bool {
        matches!(&*self.link.lock(), Link::Up(connection) if !connection.is_lost())
    }

    /// A connection. `make` makes one after the last, and `remade` hears of it. The error says why
    /// there was none until the time was up.
    pub(super) fn connection(
        &self,
        until: Instant,
        make: impl Fn(Option<&Connection>) -> io::Result<Arc<Connection>>,
        remade: impl Fn(),
    ) -> Result<Arc<Connection>, String> {
        loop {
            let (seen, now) = (self.tried.seen(), Instant::now());
            let (wait, why) = match &*self.link.lock() {
                Link::Up(connection) if !connection.is_lost() && now < until => {
                    return Ok(Arc::clone(connection));
                }
                Link::Up(_) => (Duration::ZERO, "its connection was lost".to_owned()),
                Link::Making => {
                    let why = "it does not take a connection, or has not closed the last one";
                    (until.saturating_duration_since(now), why.to_owned())
                }
                Link::Down { next, why, .. } => (next.saturating_duration_since(now), why.clone()),
            };
            if now >= until {
                return Err(why);
            }
            if wait.is_zero() {
                self.make(&make, &remade);
            } else {
                self.tried.wait(seen, wait.min(until - now));
            }
        }
    }

    /// Makes a connection, unless another thread does.
    fn make(
        &self,
        make: impl Fn(Option<&Connection>) -> io::Result<Arc<Connection>>,
        remade: impl Fn(),
    ) {
        let (last, pause) = {
            let mut link = self.link.lock();
            let found = match &*link {
                Link::Up(connection) if connection.is_lost() => {
                    (Some(Arc::clone(connection)), PAUSE_MIN)
                }
                Link::Down { last, pause, .. } => (last.clone(), *pause),
                _ => return,
            };
            *link = Link::Making;
            found
        };
        let link = match make(last.as_deref()) {
            Ok(connection) => {
                remade();
                Link::Up(connection)
            }
            Err(error) => Link::Down {
                last: last.filter(|last| !last.is_over(Instant::now())),
                next: Instant::now() + pause,
                pause: (pause * 2).min(PAUSE_MAX),
                why: error.to_string(),
            },
        };
        *self.link.lock() = link;
        self.tried.raise();
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let link = std::mem::replace(&mut *self.link.lock(), Link::Making);
        if let Link::Up(connection) = link {
            connection.close(Instant::now() + CLOSING);
        }
    }
}
