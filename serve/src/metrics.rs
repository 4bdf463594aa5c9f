//! Figures for monitoring, over HTTP: one document, at `/metrics`.
//!
//! ```text
//!   GET /metrics HTTP/1.1        at most 8 KiB, within a second
//!   Accept: ..openmetrics..  --> caller's function --> 200, the document, and the end
//! ```
//!
//! A scrape is one line and some headers, so no library speaks HTTP here. There is no keep-alive,
//! no compression and no body to read.
//!
//! Invariants
//! - A client costs one thread for at most `REQUEST_MAX` and `ANSWER_MAX`, and there are at most
//!   `SCRAPES_MAX` of them.
//! - What is not a request for the document is answered by a status, and never by silence, unless
//!   the client sends nothing.
//!
//! Locks: none here, and none is held while the document is made.

use crate::doors::{Door, Observer, Place, Places, Purpose, Rules, Serve, Service, Ticket};
use crate::terms::ServeError;
use rustix::io::Errno;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most bytes of a request.
pub const REQUEST_BYTES_MAX: usize = 8 << 10; // 8 KiB
/// How long a request may take to come.
pub const REQUEST_MAX: Duration = Duration::from_secs(1);
/// How long a client may take to receive.
pub const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How many clients are answered at a time.
pub const SCRAPES_MAX: usize = 8;

/// A form of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    /// The text format of Prometheus, 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl MetricsFormat {
    /// Its media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The form that a client asks for: the one it likes better, and OpenMetrics if it likes both
    /// as well. OpenMetrics must be named. Without a word it is the form of Prometheus.
    fn of(headers: &str) -> Self {
        let accept = headers.lines().skip(1).filter_map(|line| line.split_once(':'));
        let accept = accept.filter(|(name, _)| name.trim().eq_ignore_ascii_case("accept"));
        let ranges = accept.flat_map(|(_, value)| value.split(',')).map(weighed);
        let ranges: Vec<(String, f32)> = ranges.collect();
        let weight_of = |names: &[&str]| {
            // Of one name there may be several versions.
            let of_name = |name: &&str| {
                let weights = ranges.iter().filter(|(range, _)| range == name);
                weights.map(|(_, weight)| *weight).reduce(f32::max)
            };
            // The first of the names that is there is the most exact one.
            names.iter().find_map(of_name).unwrap_or(0.0)
        };
        let open = weight_of(&["application/openmetrics-text"]);
        let plain = weight_of(&["text/plain", "text/*", "*/*"]);
        if open > 0.0 && open >= plain { Self::OpenMetrics } else { Self::Prometheus }
    }
}

/// A range of media types without its parameters, and its weight: 0 to 1, and 1 without a word.
fn weighed(range: &str) -> (String, f32) {
    let text = range.to_ascii_lowercase().replace([' ', '\t'], "");
    let mut parts = text.split(';');
    let name = parts.next().unwrap_or_default().to_owned();
    let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok());
    (name, weight.unwrap_or(1.0))
}

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsPlace {
    /// A Unix socket, which only its owner can open.
    Unix(PathBuf),
    /// `HOST:PORT`.
    Tcp {
        /// The address.
        address: String,
        /// Whether it may be one that other machines can reach.
        anywhere: bool,
    },
}

/// Makes the document. It is called from several threads at once.
pub type Render = dyn Fn(MetricsFormat) -> String + Send + Sync;

/// A document that is served. Dropping it stops it.
pub struct Metrics {
    service: Service,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl Metrics {
    /// Serves the document.
    ///
    /// # Errors
    ///
    /// [`ServeError`] if the place cannot be listened at, or a thread cannot be started.
    pub fn start(
        place: &MetricsPlace,
        render: Arc<Render>,
        observer: Observer,
    ) -> Result<Self, ServeError> {
        let door = match place {
            MetricsPlace::Unix(path) => Door::unix(path)?,
            MetricsPlace::Tcp { address, anywhere } => Door::tcp(address, *anywhere)?,
        };
        let serve: Arc<Serve> = Arc::new(move |ticket| {
            // Only the client needs to know how it ended, and it sees the connection close.
            let _ = answer(ticket, &*render);
        });
        let rules = Rules {
            purpose: Purpose::Metrics,
            places: Places { most: SCRAPES_MAX, serves_from_reserve: false },
            reserve: 1,
            grace: REQUEST_MAX,
            observer,
        };
        Ok(Self { service: Service::start(vec![door], rules, &serve)? })
    }

    /// Where the document is: an address, or `unix:` and a path.
    pub fn address(&self) -> String {
        match self.service.doors().first().map(Door::place) {
            Some(Place::Tcp(address)) => format!("http://{address}/metrics"),
            Some(Place::Unix { path, .. }) => format!("unix:{}", path.display()),
            Some(Place::Unreachable) | None => String::new(),
        }
    }

    /// Stops it, and removes its socket.
    pub fn stop(&self) {
        self.service.stop();
    }

    /// Removes its socket, without waiting for answers under way.
    pub fn shut(&self) {
        self.service.shut();
    }
}

/// Why there is no document, as HTTP says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    BadRequest,
    NotFound,
    NotAllowed,
    TooSlow,
    TooLarge,
    Busy,
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::NotAllowed => "405 Method Not Allowed",
            Self::TooSlow => "408 Request Timeout",
            Self::TooLarge => "431 Request Header Fields Too Large",
            Self::Busy => "503 Service Unavailable",
        }
    }
}

/// Answers one request. `None` if the client is gone.
fn answer(ticket: &Ticket, render: &Render) -> Option<()> {
    let socket = ticket.socket();
    socket.limit_send(Some(ANSWER_MAX)).ok()?;
    let judged = match ticket.refused() {
        Some(_) => Err(Status::Busy),
        None => receive(ticket)?.and_then(|text| judge(&text)),
    };
    let (head, body) = match judged {
        Ok(format) => {
            (format!("200 OK\r\nContent-Type: {}", format.content_type()), render(format))
        }
        Err(status) => {
            let allow = if status == Status::NotAllowed { "\r\nAllow: GET" } else { "" };
            let kind = "Content-Type: text/plain; charset=utf-8";
            let line = status.line();
            (format!("{line}\r\n{kind}{allow}"), format!("{line}; see /metrics\n"))
        }
    };
    let length = body.len();
    let head = format!("HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    socket.send(head.as_bytes()).ok()?;
    socket.send(body.as_bytes()).ok()
}

/// The request up to the end of its headers. `None` if the client is gone.
fn receive(ticket: &Ticket) -> Option<Result<String, Status>> {
    let until = Instant::now() + REQUEST_MAX;
    let (mut text, mut buffer) = (Vec::new(), [0; 1024]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Some(Err(Status::TooSlow));
        }
        ticket.socket().limit_receive(Some(left.max(Duration::from_millis(1)))).ok()?;
        match ticket.socket().receive(&mut buffer) {
            Ok(0) => return None,
            Ok(count) => text.extend_from_slice(&buffer[..count]),
            Err(Errno::AGAIN) => return Some(Err(Status::TooSlow)),
            Err(_) => return None,
        }
        if text.len() > REQUEST_BYTES_MAX {
            return Some(Err(Status::TooLarge));
        }
        if let Some(end) = head_end(&text) {
            text.truncate(end);
            return Some(String::from_utf8(text).map_err(|_| Status::BadRequest));
        }
    }
}

/// Where the headers end: after the end of the last line before an empty one. A line may end
/// without a carriage return, as RFC 9112 (2.2) lets a server accept.
fn head_end(text: &[u8]) -> Option<usize> {
    let ends = |at: usize| {
        let next = &text[at + 1..];
        text[at] == b'\n' && (next.starts_with(b"\n") || next.starts_with(b"\r\n"))
    };
    (0..text.len()).find(|&at| ends(at)).map(|at| at + 1)
}

/// What a request asks for.
fn judge(text: &str) -> Result<MetricsFormat, Status> {
    let line = text.lines().next().unwrap_or_default();
    let words: Vec<&str> = line.split(' ').collect();
    let [method, path, version] = words[..] else { return Err(Status::BadRequest) };
    if !version.starts_with("HTTP/1.") {
        return Err(Status::BadRequest);
    }
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    match (method, path) {
        (_, path) if path != "/metrics" => Err(Status::NotFound),
        ("GET", _) => Ok(MetricsFormat::of(text)),
        _ => Err(Status::NotAllowed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_line_ends_the_headers() {
        let rows: [(&[u8], Option<usize>); 8] = [
            (b"GET / HTTP/1.1\r\n\r\n", Some(16)),
            (b"GET / HTTP/1.1\n\nrest", Some(15)),
            (b"GET / HTTP/1.1\nA: b\r\n\n", Some(21)),
            (b"GET / HTTP/1.1\nA: b\n\r\n", Some(20)),
            (b"GET / HTTP/1.1\r\nA: b\r\n\r", None),
            (b"GET / HTTP/1.1\r\nA: b\r\n", None),
            (b"GET / HTTP/1.1\n", None),
            (b"", None),
        ];
        for (text, expected) in rows {
            assert_eq!(head_end(text), expected, "{:?}", String::from_utf8_lossy(text));
        }
        let line = "GET /metrics HTTP/1.1\r\n";
        let text = format!("{line}Accept: text/*;q=0.5, application/openmetrics-text\r\n\r\n");
        let head = &text[..head_end(text.as_bytes()).unwrap()];
        assert_eq!(judge(head), Ok(MetricsFormat::OpenMetrics), "nothing stays of the line's end");
    }

    #[test]
    fn only_a_get_of_the_document_is_answered_with_it() {
        use MetricsFormat::{OpenMetrics, Prometheus};
        let rows = [
            ("GET /metrics HTTP/1.1", Ok(Prometheus)),
            ("GET /metrics?x=1 HTTP/1.0\r\nHost: a", Ok(Prometheus)),
            (
                "GET /metrics HTTP/1.1\r\naccept: application/openmetrics-text;version=1.0.0;q=0.6,\
                 text/plain;version=0.0.4;q=0.5",
                Ok(OpenMetrics),
            ),
            ("GET /metrics HTTP/1.1\r\nAccept: text/plain", Ok(Prometheus)),
            ("GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;q=0", Ok(Prometheus)),
            (
                "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text; q=0.3, */*;q=0.4",
                Ok(Prometheus),
            ),
            (
                "GET /metrics HTTP/1.1\r\nAccept: text/*;q=0.5, Application/OpenMetrics-Text;q=0.5",
                Ok(OpenMetrics),
            ),
            (
                "GET /metrics HTTP/1.1\r\nAccept: */*;q=0.9, text/plain;q=0.2\r\n\
                 Accept: application/openmetrics-text;charset=utf-8;q=0.3",
                Ok(OpenMetrics),
            ),
            ("GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-textual", Ok(Prometheus)),
            (
                "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=0.1;q=0.1, \
                 application/openmetrics-text;version=1.0.0;q=0.9, text/plain;q=0.5",
                Ok(OpenMetrics),
            ),
            ("GET / HTTP/1.1", Err(Status::NotFound)),
            ("POST /other HTTP/1.1", Err(Status::NotFound)),
            ("POST /metrics HTTP/1.1", Err(Status::NotAllowed)),
            ("HEAD /metrics HTTP/1.1", Err(Status::NotAllowed)),
            ("GET /metrics", Err(Status::BadRequest)),
            ("GET /metrics HTTP/2", Err(Status::BadRequest)),
            ("", Err(Status::BadRequest)),
        ];
        for (text, expected) in rows {
            assert_eq!(judge(text), expected, "{text:?}");
        }
    }
}
