//! The answering side of a control socket.
//!
//! Lock: none of its own; the handler is called with none held.

use super::{CONTROL_CONNECTIONS_MAX, IDLE_MAX, LINE_MAX, Request, Response};
use crate::door::Door;
use crate::error::ServeError;
use crate::event::{Observer, Purpose};
use crate::guests::Places;
use crate::limits::{self, CONTROL_RESERVE, REFUSAL_MAX, STOP_GRACE};
use crate::service::{Rules, Serve, Service, Ticket};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Answers requests; called from several threads at once.
pub type Handler = dyn Fn(Request) -> Response + Send + Sync;

/// A control socket with somebody behind it. Dropping it stops it.
pub struct Control {
    service: Service,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("connections", &self.connections()).finish_non_exhaustive()
    }
}

impl Control {
    /// Answers requests at each of these paths, or at none where one cannot be had.
    pub fn start(
        places: &[PathBuf],
        handler: Arc<Handler>,
        observer: Observer,
    ) -> Result<Self, ServeError> {
        let doors = places.iter().map(|path| Door::unix(path)).collect::<Result<Vec<_>, _>>()?;
        let serve: Arc<Serve> = Arc::new(move |ticket| {
            // The caller sees the line cut, and nobody else needs to know.
            let _ = converse(ticket, &*handler);
        });
        let most = CONTROL_CONNECTIONS_MAX.min(limits::descriptors() / 8).max(CONTROL_RESERVE);
        let rules = Rules {
            purpose: Purpose::Control,
            places: Places { most, serves_from_reserve: true },
            reserve: CONTROL_RESERVE,
            grace: STOP_GRACE,
            observer,
        };
        Ok(Self { service: Service::start(doors, rules, &serve)? })
    }

    /// Connections right now.
    pub fn connections(&self) -> usize {
        self.service.connections()
    }

    /// Finishes the answers under way, closes every connection and removes the socket.
    pub fn stop(&self) {
        self.service.stop();
    }

    /// Removes the socket and accepts no more, without waiting for answers under way.
    pub fn shut(&self) {
        self.service.shut();
    }
}

/// Answers line after line. `None` when the conversation is over.
fn converse(ticket: &Ticket, handler: &Handler) -> Option<()> {
    let socket = ticket.socket();
    socket.limit_receive(Some(IDLE_MAX)).ok()?;
    socket.limit_send(Some(IDLE_MAX)).ok()?;
    if ticket.refused().is_some() {
        return turn_away(ticket);
    }
    let mut lines = Lines::default();
    while !ticket.is_stopping() {
        let line = lines.next(|buffer| socket.receive(buffer).ok());
        // A caller that has made way for another may have asked in the same moment.
        if !ticket.engage("control") {
            return turn_away(ticket);
        }
        socket.send(answer(&line?, handler).as_bytes()).ok()?;
        ticket.wait();
    }
    None
}

/// Tells a caller that others are served in its place.
fn turn_away(ticket: &Ticket) -> Option<()> {
    let crowded = "the server has too many callers; try again in a moment".to_owned();
    ticket.socket().limit_send(Some(REFUSAL_MAX)).ok()?;
    ticket.socket().send(line(&Response::Error(crowded)).as_bytes()).ok()
}

fn answer(line: &[u8], handler: &Handler) -> String {
    let response = match serde_json::from_slice(line) {
        Ok(Request::Ping) => Response::Ok(serde_json::Value::Null),
        Ok(request) => handler(request),
        Err(error) => Response::Error(format!("not a request: {error}")),
    };
    self::line(&response)
}

/// A response as it is sent.
fn line(response: &Response) -> String {
    // A response is a tree of values with text as keys, which always has a JSON form.
    let mut text = serde_json::to_string(response)
        .unwrap_or_else(|error| format!("{{\"error\":\"no JSON form: {error:?}\"}}"));
    text.push('\n');
    text
}

/// Cuts what is received into lines.
#[derive(Default)]
struct Lines {
    pending: Vec<u8>,
    /// Bytes of `pending` that are known to hold no line end.
    searched: usize,
}

impl Lines {
    /// The next line without its end; `None` if there will be none or it is too long.
    fn next(&mut self, mut receive: impl FnMut(&mut [u8]) -> Option<usize>) -> Option<Vec<u8>> {
        let mut buffer = [0; 4096];
        loop {
            let unsearched = &self.pending[self.searched..];
            if let Some(at) = unsearched.iter().position(|&byte| byte == b'\n') {
                let rest = self.pending.split_off(self.searched + at + 1);
                let mut line = std::mem::replace(&mut self.pending, rest);
                self.searched = 0;
                line.pop();
                return Some(line);
            }
            self.searched = self.pending.len();
            if self.pending.len() > LINE_MAX {
                return None;
            }
            let n = receive(&mut buffer).filter(|&n| n > 0)?;
            self.pending.extend_from_slice(&buffer[..n]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The twin is `split` over the whole text at once.
        #[test]
        fn lines_do_not_depend_on_how_they_arrive(
            text in "[a-c\n]{0,200}",
            pieces in prop::collection::vec(1..40_usize, 1..50),
        ) {
            let mut input = text.as_bytes();
            let mut sizes = pieces.into_iter();
            let mut receive = |buffer: &mut [u8]| {
                let n = sizes.next().unwrap_or(usize::MAX).min(input.len()).min(buffer.len());
                buffer[..n].copy_from_slice(&input[..n]);
                input = &input[n..];
                Some(n)
            };
            let mut lines = Lines::default();
            let found: Vec<Vec<u8>> = std::iter::from_fn(|| lines.next(&mut receive)).collect();
            let mut twin: Vec<&[u8]> = text.as_bytes().split(|&byte| byte == b'\n').collect();
            twin.pop();
            prop_assert_eq!(found, twin);
        }
    }

    #[test]
    fn a_line_without_end_is_given_up() {
        let mut sent = 0;
        let endless = |buffer: &mut [u8]| {
            buffer.fill(b'x');
            sent += buffer.len();
            Some(buffer.len())
        };
        assert_eq!(Lines::default().next(endless), None);
        assert!(sent <= LINE_MAX + 2 * 4096, "{sent} bytes were taken in");
    }
}
