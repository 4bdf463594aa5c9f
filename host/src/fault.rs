//! The fault path: how a missing page comes in when the program touches it.
//!
//! ```text
//!   touch --> SIGBUS, SIGSEGV ---> on_fault ---.                        .--> Server::serve
//!        `--> message to a thread -> FaultThread --> Regions::serve(address)
//!                                                                       `--> not ours: the handler
//!                                                                            that was there before
//! ```
//!
//! A [`Server`] may run inside a signal handler, in the middle of any code except this crate's own
//! work. Soundness rests on the rules under its `# Safety`, and implementing it is `unsafe`. A
//! server allocates nothing, does not log and does not panic.
//!
//! Three more rules keep the process alive, and a breach of them ends it or lets it touch the same
//! page for ever. A server touches no memory of a region. It takes no lock that a thread may hold
//! while that thread touches memory of a region. An [`Asker`] that [is not of](Asker::is_of) its
//! region's mode is answered [`Served::Foreign`], because other code has closed the page.
//!
//! A server that panics all the same ends the process, with the words of the panic. Nothing unwinds
//! out of the handler, and the threads are [`Vital`].
//!
//! Invariant: a fault in a region is served, or it ends the process with a message. The program
//! never reads wrong bytes.
//!
//! [`watch`] is the only door to the one static of this room. The static is needed because a signal
//! handler has no argument by which it could find its regions.
//!
//! Locks: entering a region and installing the handler, both leaves. Serving a fault takes none
//! here.

#[cfg(not(any(loom, miri)))]
#[cfg_attr(test, expect(unsafe_code, reason = "a test blocks signals of its own thread"))]
mod blocking;
#[cfg(not(any(loom, miri)))]
mod calls;
#[cfg(not(any(loom, miri)))]
#[expect(unsafe_code, reason = "serves faults, and copies pages to where they are missing")]
mod filled;
#[cfg(not(any(loom, miri)))]
mod follower;
#[cfg(not(any(loom, miri)))]
mod handler;
#[cfg(all(feature = "lent", not(any(loom, miri))))]
#[expect(unsafe_code, reason = "puts zeros over a mapping whose file is gone")]
mod lent;
#[cfg(not(any(loom, miri)))]
mod messages;
#[cfg(not(any(loom, miri)))]
#[expect(unsafe_code, reason = "calls the action that a signal had before")]
mod previous;
#[expect(unsafe_code, reason = "servers are called by pointer while R1 keeps them")]
mod regions;
#[cfg(not(any(loom, miri)))]
#[expect(unsafe_code, reason = "asks the system about its threads")]
mod scheduling;
#[cfg(not(any(loom, miri)))]
#[expect(unsafe_code, reason = "the handler, its installing, and what it is given by the system")]
mod signal;
#[cfg(not(any(loom, miri)))]
#[expect(unsafe_code, reason = "runs a function on another stack")]
mod stacks;
#[cfg(not(any(loom, miri)))]
mod stuck;
#[cfg(not(any(loom, miri)))]
mod thread;

#[cfg(not(any(loom, miri)))]
pub use crate::machine::{Vital, die, die_at};
#[cfg(not(any(loom, miri)))]
pub use blocking::BlockedLooks;
#[cfg(not(any(loom, miri)))]
pub use calls::Call;
#[cfg(not(any(loom, miri)))]
pub use filled::Filled;
#[cfg(not(any(loom, miri)))]
pub use handler::HandlerLooks;
#[cfg(all(feature = "lent", not(any(loom, miri))))]
pub use lent::Lent;
pub use regions::{Asker, REGIONS_MAX, Regions, Served, Server, Touched, Watch};
#[cfg(not(any(loom, miri)))]
pub use signal::{begin_call, calls_begun, is_blocked, step_aside, step_back, watch};
#[cfg(not(any(loom, miri)))]
pub use stuck::StuckLooks;
#[cfg(not(any(loom, miri)))]
pub use thread::FaultThread;
