//! Questions to a running server, and its answers. Each is one JSON object on a line.
//!
//! ```text
//!   {"cmd":"ping"}                                        -> {"ok":null}
//!   {"cmd":"stat"}                                        -> {"ok":{..}}
//!   {"cmd":"check","device":"zram1"}                      -> {"ok":{..}}
//!   {"cmd":"add","name":"data","size":1073741824}         -> {"ok":"what was done"}
//!   {"cmd":"set","attribute":"mem_limit","value":"64M"}   -> {"error":"why not"}
//! ```
//!
//! This crate carries them, and a handler of the caller's gives them meaning. A request that the
//! server cannot understand is answered with an error, and the connection goes on.
//!
//! Invariants
//! - A line has at most `LINE_MAX` bytes. A longer one ends the connection.
//! - A connection without a request is closed after `IDLE_MAX`.
//! - Only its owner can open the socket.
//!
//! Locks: none.

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

/// The most bytes of a request.
pub const LINE_MAX: usize = 64 << 10; // 64 KiB
/// The most bytes of an answer.
pub const ANSWER_MAX: usize = 16 << 20; // 16 MiB
/// How many connections a control socket takes at a time.
pub const CONTROL_CONNECTIONS_MAX: usize = 128;
/// How long a connection may ask nothing before it is closed.
pub const IDLE_MAX: Duration = Duration::from_secs(30);
/// How long a caller waits for an answer to its ping before it looks whether the server is stopped.
pub const LOOK_AFTER: Duration = Duration::from_secs(2);
/// How long a caller waits for an answer to its ping. It is long because CPUs may be scarce.
pub const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a caller waits for an answer. It is long because recounting a large disk takes a while.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(120);

/// A question or an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cmd", rename_all = "lowercase", from = "wire::Request")]
#[non_exhaustive]
pub enum Request {
    /// Asks only whether the server answers.
    Ping,
    /// Asks for all figures.
    Stat {
        /// Of this device, or of all.
        #[serde(skip_serializing_if = "Option::is_none")]
        device: Option<String>,
    },
    /// Asks for the table of size classes.
    Classes {
        /// Of this device, or of all.
        #[serde(skip_serializing_if = "Option::is_none")]
        device: Option<String>,
    },
    /// Asks for free pages by migratetype and order.
    Pagetypeinfo,
    /// Asks for the text of an attribute.
    Get {
        /// Its name, which is zram's.
        attribute: String,
    },
    /// Changes an attribute.
    Set {
        /// Its name, which is zram's.
        attribute: String,
        /// Its new value, empty for an attribute that takes none.
        value: String,
    },
    /// Has everything recounted and compared with the counters.
    Check {
        /// Of this device, or of all.
        #[serde(skip_serializing_if = "Option::is_none")]
        device: Option<String>,
    },
    /// Adds a device that has a size from the start.
    Add {
        /// Its name, which is its export's too.
        name: String,
        /// Bytes on its disk.
        size: u64,
    },
    /// Removes a device that is not in use.
    Remove {
        /// Its name.
        name: String,
    },
}

impl Request {
    /// Asks for the figures of all devices.
    pub const STAT: Request = Request::Stat { device: None };
    /// Asks for the tables of all devices.
    pub const CLASSES: Request = Request::Classes { device: None };
    /// Has all devices recounted.
    pub const CHECK: Request = Request::Check { device: None };
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Response {
    /// The request was done. This is what was asked for.
    Ok(Value),
    /// The request was not done. This is why.
    Error(String),
}
