//! What happens at a door that its owner may want to know of.
//!
//! ```text
//!   service: Refused, Displaced      session: Connected, Stalled, Recovered, Ended
//!        '----------------------- Observer ---------------------'
//! ```
//!
//! Invariant: an observer is called without a lock, on the thread of the connection or of its
//! door, which waits until it returns: so it must not wait for anybody.

use crate::peer::Peer;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// Reads and writes.
    Nbd,
    /// Questions about the server.
    Control,
}

/// Why a client was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// As many clients as the door takes are being served.
    Full {
        /// How many that are.
        most: usize,
    },
    /// The process has no descriptor left for a connection.
    NoDescriptor,
    /// The system gave no thread for it.
    NoThread,
}

/// What a client that stalls does not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// It does not take the answers that it asked for.
    Answers,
    /// It does not send the rest of a request.
    Request,
}

/// Something that happened at a door.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A client was not let in, and was told so where that was possible.
    Refused {
        /// What for.
        purpose: Purpose,
        /// Why.
        why: Refused,
        /// Who wanted in.
        peer: Peer,
        /// Who has most of the connections, and how many.
        busiest: Option<(Peer, usize)>,
    },
    /// A connection that had asked for nothing made way for another.
    Displaced {
        /// What for.
        purpose: Purpose,
        /// Whose connection it was.
        peer: Peer,
    },
    /// A client has chosen an export, and is served.
    Connected {
        /// Who.
        peer: Peer,
        /// Which export.
        export: String,
    },
    /// A client has kept its connection waiting in the middle of something.
    Stalled {
        /// Who.
        peer: Peer,
        /// For what.
        stall: Stall,
        /// For how long so far.
        silent: Duration,
    },
    /// A client that had stalled goes on.
    Recovered {
        /// Who.
        peer: Peer,
    },
    /// An NBD connection is over.
    Ended {
        /// Whose.
        peer: Peer,
        /// Why, in a few words.
        why: &'static str,
        /// Whether the server had no memory for it.
        no_memory: bool,
    },
}

/// Somebody to be told of events, or nobody.
#[derive(Clone, Default)]
pub struct Observer(Option<Arc<Told>>);

type Told = dyn Fn(Event) + Send + Sync;

impl Observer {
    /// Has each event told to a function, which must not wait for anybody.
    pub fn new(told: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(told)))
    }

    pub(crate) fn tell(&self, event: Event) {
        self.0.iter().for_each(|told| told(event.clone()));
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observer").field(&self.0.is_some()).finish()
    }
}
