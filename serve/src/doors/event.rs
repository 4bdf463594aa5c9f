//! What happens at a door, for an owner that wants to know.
//!
//! ```text
//!   service: Refused, Displaced      session: Connected, Stalled, Recovered, Ended
//!        |                           machines: Foreign, Broken |
//!        |                           block devices: QueueLost  |
//!        '----------------------- Observer ---------------------'
//! ```
//!
//! Invariant: an observer is called on the thread of a connection or of its door, without a lock.
//! That thread waits until the observer returns, so the observer must not wait.
//!
//! Locks: none.

use super::peer::Peer;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// Reads and writes.
    Nbd,
    /// The disk of a virtual machine.
    VhostUser,
    /// Questions about the server.
    Control,
    /// Figures for monitoring.
    Metrics,
}

/// Why a client was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The door serves as many clients as it takes.
    Full {
        /// How many it takes.
        most: usize,
    },
    /// The process has no descriptor left for a connection.
    NoDescriptor,
    /// The system has no thread for it.
    NoThread,
}

/// What a client that stalls fails to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// It does not receive the answers that it asked for.
    Answers,
    /// It does not send the rest of a request.
    Request,
}

/// Something that happened at a door.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A client was not let in. It was told so if that was possible.
    Refused {
        /// What the door is for.
        purpose: Purpose,
        /// Why the client was not let in.
        why: Refused,
        /// The client.
        peer: Peer,
        /// The client that has most connections, and how many.
        busiest: Option<(Peer, usize)>,
    },
    /// A connection that had asked for nothing made way for another.
    Displaced {
        /// What the door is for.
        purpose: Purpose,
        /// The client of the connection that made way.
        peer: Peer,
    },
    /// A client has chosen an export, and is served.
    Connected {
        /// What the door is for.
        purpose: Purpose,
        /// The client.
        peer: Peer,
        /// The export's name.
        export: String,
    },
    /// A client stalls in the middle of a request or an answer.
    Stalled {
        /// The client.
        peer: Peer,
        /// What it fails to do.
        stall: Stall,
        /// How long it has done nothing.
        silent: Duration,
    },
    /// A client that had stalled goes on.
    Recovered {
        /// The client.
        peer: Peer,
    },
    /// A virtual machine was refused, because its disk was that of another server, and is gone.
    Foreign {
        /// The virtual machine.
        peer: Peer,
    },
    /// A virtual machine's queue is served no more, because its ring makes no sense.
    Broken {
        /// The virtual machine.
        peer: Peer,
        /// The reason, in a few words.
        why: &'static str,
    },
    /// A queue of a block device is served no more, although the server goes on.
    QueueLost {
        /// The name of the disk.
        device: String,
        /// The reason, in a few words.
        why: String,
    },
    /// An NBD connection, or that of a virtual machine, is over.
    Ended {
        /// What the door is for.
        purpose: Purpose,
        /// The client.
        peer: Peer,
        /// The reason, in a few words.
        why: &'static str,
        /// Whether the server had no memory for it.
        no_memory: bool,
    },
}

/// A function that is told of events. The default observer has none.
#[derive(Clone, Default)]
pub struct Observer(Option<Arc<Told>>);

type Told = dyn Fn(Event) + Send + Sync;

impl Observer {
    /// An observer that calls `told` with each event. `told` must not wait, because a client would
    /// wait with it.
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
