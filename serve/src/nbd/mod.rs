//! The server's side of the NBD protocol, as its specification `doc/proto.md` says. It has fixed
//! newstyle negotiation, TLS, structured replies and block status, but no extended headers.
//!
//! ```text
//!   server    listens, and gives each connection to
//!   handshake until the client has chosen an export        option, contexts, haggling
//!   transmission, until one side ends it                   a room below
//!   exports   what there is to choose
//! ```
//!
//! Invariants
//! - N1. Every request is answered once, in order, or the connection ends. A request that is
//!   refused or fails changes nothing outside its range, and the connection stays usable.
//! - N2. No disk call is under way while the server waits for the client.
//! - N3. A client makes the server hold at most what `limits` says, whatever it sends.
//!
//! Locks: none. Those of the devices are never held while a client is waited for.

mod contexts;
mod exports;
mod haggling;
mod handshake;
mod option;
mod server;
mod transmission;

pub use server::{Server, ServerConfig};
