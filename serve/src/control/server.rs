//! The answering side of a control socket.
//!
//! ```text
//!   bytes --Lines--> one line --parse--> Request --handler--> Response --> one line
//! ```
//!
//! Invariant: a line gets one answer, and the answers have the order of the lines.
//!
//! Locks: none here, and none is held while the handler runs.

use super::{CONTROL_CONNECTIONS_MAX, IDLE_MAX, LINE_MAX, Request, Response};
use crate::doors::{Door, Observer, Passed, Places, Purpose, Rules, Serve, Service, Ticket};
use crate::terms::ServeError;
use crate::terms::limits::{self, CONTROL_RESERVE, REFUSAL_MAX, STOP_GRACE};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Answers requests. It is called from several threads at once.
pub type Handler = dyn Fn(Request) -> Response + Send + Sync;

/// A control socket that is served. Dropping it stops it.
pub struct Control {
    service: Service,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("connections", &self.connections()).finish_non_exhaustive()
    }
}

impl Control {
    /// Answers requests at each of these paths, and on sockets that were passed to this process. If
    /// one of them fails, none is served.
    ///
    /// # Errors
    ///
    /// [`ServeError`] if a socket cannot be made or a thread cannot be started.
    pub fn start(
        places: &[PathBuf],
        passed: &[Passed],
        handler: Arc<Handler>,
        observer: Observer,
    ) -> Result<Self, ServeError> {
        let made = places.iter().map(|path| Door::unix(path));
        let passed = passed.iter().map(Door::passed);
        let doors = passed.chain(made).collect::<Result<Vec<_>, _>>()?;
        let serve: Arc<Serve> = Arc::new(move |ticket| {
            // Only the caller needs to know how it ended, and it sees the connection close.
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

    /// How many connections there are right now.
    pub fn connections(&self) -> usize {
        self.service.connections()
    }

    /// Finishes the answers under way, closes every connection and removes the sockets.
    pub fn stop(&self) {
        self.service.stop();
    }

    /// Removes the sockets and accepts no more, without waiting for answers under way.
    pub fn shut(&self) {
        self.service.shut();
    }
}

/// Answers line after line. It returns `None` at the end of the conversation.
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
        // This caller may have asked in the moment in which it made way for another.
        if !ticket.engage("control") {
            return turn_away(ticket);
        }
        socket.send(answer(&line?, handler).as_bytes()).ok()?;
        ticket.wait();
    }
    None
}

/// Tells a caller that it is not served, because there are too many.
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
    // A response is a tree of values with strings as keys, which always has a JSON form.
    let mut text = serde_json::to_string(response)
        .unwrap_or_else(|error| format!("{{\"error\":\"no JSON form: {error:?}\"}}"));
    text.push('\n');
    text
}

/// Cuts what is received into lines.
#[derive(Default)]
struct Lines {
    pending: Vec<u8>,
    /// Bytes at the start of `pending` that are known to have no line end.
    searched: usize,
}

impl Lines {
    /// The next line without its end. `None` if there will be none, or if it is too long.
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
