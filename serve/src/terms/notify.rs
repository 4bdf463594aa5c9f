//! The service manager, told how the server is, like `sd_notify(3)`.
//!
//! ```text
//!   NOTIFY_SOCKET=/run/systemd/notify   a path, or @NAME in the abstract namespace
//!   WATCHDOG_USEC=30000000              a server that is silent for so long is ended
//!   WATCHDOG_PID=1234                   whose watchdog it is
//!
//!   doors open --> READY=1 --> every beat: the line is made anew --> STATUS=.. (if it is another)
//!                                '- a lock that is never given back     WATCHDOG=1
//!                                   makes no line, and no WATCHDOG=1
//!   before it ends --> STOPPING=1
//! ```
//!
//! Progress is that the line of status was made. Its maker takes locks of the server.
//! A request that waits for a disk, or a client that hangs, is no lack of progress: ending the
//! server would lose all that is stored.
//!
//! Invariants
//! - Nothing is sent if `NOTIFY_SOCKET` is not set or empty.
//! - No program that this process starts has the variables.
//! - `WATCHDOG=1` is sent by the thread that made the line, after it was made.
//! - A manager that reads nothing holds up a message for at most [`PATIENCE`].
//!
//! Locks: none.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

const SOCKET: &str = "NOTIFY_SOCKET";
const MICROSECONDS: &str = "WATCHDOG_USEC";
const PID: &str = "WATCHDOG_PID";

/// How long a message waits for room in the socket of a manager.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The time between two lines of status, unless the watchdog wants them sooner.
const BEAT: Duration = Duration::from_secs(5);
/// Messages for each interval of the watchdog. Two of them may come late.
const BEATS: u32 = 3;
/// A watchdog that wants more is not served in time, and no CPU is used up for it.
const BEAT_MIN: Duration = Duration::from_millis(10);

/// The service manager that started this process and asked to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manager {
    socket: OsString,
    watchdog: Option<Duration>,
}

impl Manager {
    /// The manager that the environment names, if it names one. It also removes the variables, so
    /// it is called before there are threads.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if `WATCHDOG_USEC` or `WATCHDOG_PID` is no number, and the
    /// system's error if the variables cannot be removed.
    pub fn take() -> io::Result<Option<Manager>> {
        let [socket, watchdog, pid] = [SOCKET, MICROSECONDS, PID].map(env::var_os);
        if [&socket, &watchdog, &pid].iter().all(|variable| variable.is_none()) {
            return Ok(None);
        }
        host::forget_variables(&[SOCKET, MICROSECONDS, PID])?;
        let Some(socket) = socket.filter(|name| !name.is_empty()) else { return Ok(None) };
        let watchdog = watchdog_of(watchdog.as_deref(), pid.as_deref(), std::process::id())?;
        Ok(Some(Manager { socket, watchdog }))
    }

    /// Says that the server serves, and from then on how it is, until the result is dropped.
    /// `line` makes the line of status.
    ///
    /// # Errors
    ///
    /// Those of [`send`], and the system's if it refuses a thread.
    pub fn ready(&self, line: impl Fn() -> String + Send + 'static) -> io::Result<Beats> {
        send(&self.socket, "READY=1")?;
        let (beats, ended) = sync_channel(0);
        let manager = self.clone();
        host::thread::spawn("manager", move || manager.go_on(&line, &ended))?;
        Ok(Beats { _alive: beats })
    }

    /// Says that the server is about to end.
    ///
    /// # Errors
    ///
    /// Those of [`send`].
    pub fn stopping(&self) -> io::Result<()> {
        send(&self.socket, "STOPPING=1")
    }

    fn go_on(&self, line: &dyn Fn() -> String, ended: &Receiver<()>) {
        let beat = self.watchdog.map_or(BEAT, |most| (most / BEATS).clamp(BEAT_MIN, BEAT));
        let mut told = String::new();
        loop {
            // A message ends where its line does.
            let line = line().replace('\n', " ");
            let status = (line != told).then(|| format!("STATUS={line}\n"));
            let alive = self.watchdog.map(|_| "WATCHDOG=1\n".to_owned());
            let message: String = status.into_iter().chain(alive).collect();
            // What did not arrive is said again at the next beat.
            if message.is_empty() || send(&self.socket, &message).is_ok() {
                told = line;
            }
            if !matches!(ended.recv_timeout(beat), Err(RecvTimeoutError::Timeout)) {
                return;
            }
        }
    }
}

/// The manager is told as long as this is there.
#[derive(Debug)]
pub struct Beats {
    _alive: SyncSender<()>,
}

/// The interval of the watchdog, if it is that of process `own`.
fn watchdog_of(
    microseconds: Option<&OsStr>,
    pid: Option<&OsStr>,
    own: u32,
) -> io::Result<Option<Duration>> {
    let number = |name: &str, text: &OsStr| {
        let digits = text.to_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let wrong = || {
            let what = format!("{name}: {text:?} is not a number");
            io::Error::new(io::ErrorKind::InvalidInput, what)
        };
        digits.and_then(|digits| digits.parse::<u64>().ok()).ok_or_else(wrong)
    };
    let pid = pid.map(|pid| number(PID, pid)).transpose()?;
    let microseconds = microseconds.map(|text| number(MICROSECONDS, text)).transpose()?;
    let is_ours = pid.is_none_or(|pid| pid == u64::from(own));
    Ok(microseconds.filter(|&length| is_ours && length > 0).map(Duration::from_micros))
}

/// Sends `state` to the socket of this name.
///
/// # Errors
///
/// [`io::ErrorKind::Unsupported`] for a name that begins with neither `/` nor `@`, and the system's
/// error if the datagram cannot be sent, or finds no room for [`PATIENCE`].
pub fn send(name: &OsStr, state: &str) -> io::Result<()> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(name)?,
        _ => {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "NOTIFY_SOCKET: / or @ wanted"));
        }
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_is_that_of_one_process() {
        let of = |length: Option<&str>, pid: Option<&str>| {
            watchdog_of(length.map(OsStr::new), pid.map(OsStr::new), 7)
        };
        let second = Some(Duration::from_secs(1));
        assert_eq!(of(Some("1000000"), Some("7")).unwrap(), second);
        assert_eq!(of(Some("1000000"), None).unwrap(), second, "older managers name no process");
        for (length, pid) in [(Some("1000000"), Some("8")), (None, Some("7")), (Some("0"), None)] {
            assert_eq!(of(length, pid).unwrap(), None, "{length:?} {pid:?}");
        }
        for (length, pid) in [(Some("soon"), None), (Some("+1"), None), (Some("1"), Some(""))] {
            let error = of(length, pid).unwrap_err();
            assert!(error.to_string().contains("is not a number"), "{error}");
        }
    }
}
