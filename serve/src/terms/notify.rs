//! The service manager, told how the server is, like `sd_notify(3)`.
//!
//! ```text
//!   NOTIFY_SOCKET=/run/systemd/notify   a path, or @NAME in the abstract name space
//!   WATCHDOG_USEC=30000000              a server that is silent for so long is ended
//!   WATCHDOG_PID=1234                   whose watchdog it is
//!
//!   READY=1  STATUS=1 device, ...  WATCHDOG=1  STOPPING=1      one datagram each
//! ```
//!
//! Invariants
//! - Nothing is sent if `NOTIFY_SOCKET` is not set or empty.
//! - No program that this process starts has the variables.
//! - A manager that reads nothing holds up a message for at most [`PATIENCE`].
//!
//! Locks: none.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

const SOCKET: &str = "NOTIFY_SOCKET";
const MICROSECONDS: &str = "WATCHDOG_USEC";
const PID: &str = "WATCHDOG_PID";

/// How long a message waits for room in the socket of a manager.
pub const PATIENCE: Duration = Duration::from_secs(1);

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

    /// How long the manager waits for a message with `WATCHDOG=1` before it ends this process.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Sends `state`: lines like `READY=1`.
    ///
    /// # Errors
    ///
    /// Those of [`send`].
    pub fn tell(&self, state: &str) -> io::Result<()> {
        send(&self.socket, state)
    }
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
