//! Questions to a running server and their answers: one JSON object per line, each way.
//!
//! ```text
//!   {"cmd":"ping"}                                        -> {"ok":null}
//!   {"cmd":"stat"}                                        -> {"ok":{..}}
//!   {"cmd":"set","attribute":"mem_limit","value":"64M"}   -> {"error":"why not"}
//! ```
//!
//! This crate carries them; what they mean is the handler's business. A request the server
//! cannot understand is answered with an error, and the connection goes on.
//!
//! Invariants: a line is at most `LINE_MAX` bytes, one more ends the connection; a connection
//! without a request is closed after `IDLE_MAX`; the socket can be opened by its owner only.

mod call;
mod locate;
mod server;
mod wire;

pub use call::{ControlError, call, call_within};
pub use locate::{Running, clear_killed, list, locate};
pub use server::{Control, Handler};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// Bytes in a request.
pub const LINE_MAX: usize = 64 << 10; // 64 KiB
/// Bytes in an answer.
pub const ANSWER_MAX: usize = 16 << 20; // 16 MiB
/// Connections to a control socket at a time.
pub const CONTROL_CONNECTIONS_MAX: usize = 128;
/// How long a connection may say nothing.
pub const IDLE_MAX: Duration = Duration::from_secs(30);
/// How long a caller waits for any answer before it looks whether the server is stopped.
pub const LOOK_AFTER: Duration = Duration::from_secs(2);
/// How long a caller waits for any answer at all: the machine may be short of CPUs.
pub const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a caller waits for an answer; recounting a large disk takes a while.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(120);

/// A question or an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cmd", rename_all = "lowercase", from = "wire::Request")]
#[non_exhaustive]
pub enum Request {
    /// Nothing: whether anybody answers.
    Ping,
    /// All numbers.
    Stat,
    /// The table of size classes.
    Classes,
    /// Free pages by migratetype and order.
    Pagetypeinfo,
    /// Change something.
    Set {
        /// What; the names are zram's.
        attribute: String,
        /// To what; empty for those that take no value.
        value: String,
    },
    /// Recount everything and compare with the counters.
    Check,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Response {
    /// It was done; this is what was asked for.
    Ok(Value),
    /// It was not done; this is why.
    Error(String),
}
