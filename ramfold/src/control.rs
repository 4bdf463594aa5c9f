//! What a running server answers on its control socket.
//!
//! ```text
//!   stat              {"name", .., "server": {"pid", "connections", "uris"}}
//!   classes           {"text": the kernel's table, "rows": [{..}, ..]}
//!   set               "what was done"
//!   check             {"zspages", "objects", .., "moved"}, or the defect as an error
//! ```
//!
//! Lock: none here; each answer is made of exact numbers that were true one after the other.

use std::sync::Arc;

use serde_json::{Value, json};
use serve::Server;
use serve::control::{Request, Response};
use zram::Zram;

use crate::attribute::Change;
use crate::document;

/// The disk and the server in front of it.
pub(crate) struct Answers {
    device: Arc<Zram>,
    server: Arc<Server>,
}

impl Answers {
    pub(crate) fn new(device: Arc<Zram>, server: Arc<Server>) -> Answers {
        Answers { device, server }
    }

    pub(crate) fn answer(&self, request: Request) -> Response {
        let answer = match request {
            Request::Stat => Ok(self.stat()),
            Request::Classes => Ok(document::classes(&self.device.classes())),
            Request::Set { attribute, value } => {
                Change::parse(&attribute, &value).map(|change| change.apply(&self.device).into())
            }
            Request::Check => self.check(),
            _ => Err("this server is older than the question".to_owned()),
        };
        answer.map_or_else(Response::Error, Response::Ok)
    }

    fn stat(&self) -> Value {
        let stat = self.device.stat().with_buffers(self.server.buffer_bytes() as u64);
        let mut answer = document::stat(&stat);
        answer["server"] = json!({
            "pid": std::process::id(),
            "connections": self.server.connections(),
            "uris": self.server.uris(),
        });
        answer
    }

    fn check(&self) -> Result<Value, String> {
        let report = self.device.check().map_err(|defect| format!("defect: {defect}"))?;
        Ok(document::check(&report))
    }
}
