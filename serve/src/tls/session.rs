//! A connection over TLS: plain bytes on this side, records on the socket.
//!
//! ```text
//!            receive                     send_while
//!   plain <---------- rustls <-- raw <-- socket
//!   plain ----------> rustls ----------> socket
//!                     at most QUEUED
//! ```
//!
//! Invariants
//! - T1. One call receives from the socket at most once. So its owner can look at the time left,
//!   however slowly a client sends the parts of a record.
//! - T2. `raw` and the queue of records are bounded, whatever a client sends or does not take.
//! - T3. What was received before TLS never gets here.
//!
//! Locks: none.

use super::credentials::Tls;
use crate::doors::{Inbox, Meter, NoMemory, Progress, Socket};
use crate::terms::limits::TLS_QUEUED_MAX;
use rustix::io::Errno;
use rustls::server::ServerConnection;
use rustls::{CertificateError, Error};
use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;

/// What a call has received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// So many bytes.
    Bytes(usize),
    /// A part of a record, or one without bytes for us.
    Nothing,
    /// The client has closed.
    End,
}

/// Why a session is over.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The socket failed, or its time is up.
    Socket(Errno),
    /// There is no memory for what is received.
    NoMemory,
    /// The client broke the rules of TLS, or refused us, or has no right to be here.
    Protocol(&'static str),
}

impl From<NoMemory> for Broken {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

/// One connection over TLS.
#[derive(Debug)]
pub(crate) struct Session {
    rustls: ServerConnection,
    /// Records as they were received.
    raw: Inbox,
}

impl Session {
    /// Begins a session. The client has to speak first.
    pub(crate) fn new(tls: &Tls, meter: &Arc<Meter>) -> Result<Self, Broken> {
        let mut rustls =
            ServerConnection::new(Arc::clone(&tls.settings)).map_err(|why| broken(&why))?;
        rustls.set_buffer_limit(Some(TLS_QUEUED_MAX));
        Ok(Self { rustls, raw: Inbox::new(Arc::clone(meter)) })
    }

    /// Whether the handshake is still under way. In TLS 1.2 the server has the last word.
    pub(crate) fn is_agreeing(&self) -> bool {
        self.rustls.is_handshaking() || self.rustls.wants_write()
    }

    /// Goes one step further in the handshake. False if the client has closed.
    pub(crate) fn agree(&mut self, socket: &Socket) -> Result<bool, Broken> {
        if self.rustls.wants_write() {
            return self.flush(socket, |_| false).map(|()| true);
        }
        if !self.fill(socket)? {
            return Ok(false);
        }
        while self.rustls.is_handshaking() && !self.raw.bytes().is_empty() {
            self.feed(socket)?;
        }
        Ok(true)
    }

    /// Waits for plain bytes (T1).
    pub(crate) fn receive(&mut self, socket: &Socket, into: &mut [u8]) -> Result<Received, Broken> {
        let (mut filled, mut filled_raw) = (0, false);
        while filled < into.len() {
            match self.rustls.reader().read(&mut into[filled..]) {
                Ok(0) => {
                    return Ok(if filled > 0 { Received::Bytes(filled) } else { Received::End });
                }
                Ok(n) => filled += n,
                // There is nothing left to read, so more has to be fed.
                Err(_) if !self.raw.bytes().is_empty() => self.feed(socket)?,
                Err(_) if filled > 0 => break,
                Err(_) if filled_raw => return Ok(Received::Nothing),
                Err(_) if !self.fill(socket)? => return Ok(Received::End),
                Err(_) => filled_raw = true,
            }
        }
        Ok(Received::Bytes(filled))
    }

    /// Sends all of `bytes`, as `Socket::send_while` does.
    pub(crate) fn send_while(
        &mut self,
        socket: &Socket,
        mut bytes: &[u8],
        mut is_patient: impl FnMut(Progress) -> bool,
    ) -> Result<(), Broken> {
        while !bytes.is_empty() {
            let taken = self.rustls.writer().write(bytes).map_err(|why| socket_error(&why))?;
            bytes = &bytes[taken..];
            self.flush(socket, &mut is_patient)?;
        }
        Ok(())
    }

    /// Tells the client that the session ends here, if that takes no time.
    pub(crate) fn farewell(&mut self, socket: &Socket) {
        self.rustls.send_close_notify();
        // If the client does not take it, or is gone, it sees the end of the connection.
        let _ = self.rustls.write_tls(&mut AtOnce(socket));
    }

    /// Whether `shrink` could give something back.
    pub(crate) fn is_large(&self) -> bool {
        self.raw.is_large()
    }

    /// Gives back the memory that a quiet client does not need.
    pub(crate) fn shrink(&mut self) {
        self.raw.shrink();
    }

    /// Receives once. False if the client has closed.
    fn fill(&mut self, socket: &Socket) -> Result<bool, Broken> {
        let n = socket.receive(self.raw.space(1)?).map_err(Broken::Socket)?;
        self.raw.received(n);
        Ok(n > 0)
    }

    /// Hands received bytes to rustls, which takes a part of them.
    fn feed(&mut self, socket: &Socket) -> Result<(), Broken> {
        let taken = self.rustls.read_tls(&mut self.raw.bytes()).map_err(|_| NONSENSE)?;
        self.raw.consume(taken);
        let outcome = self.rustls.process_new_packets().map(|_| ());
        outcome.map_err(|why| {
            // The client learns why, if that takes no time.
            let _ = self.rustls.write_tls(&mut AtOnce(socket));
            broken(&why)
        })
    }

    fn flush(
        &mut self,
        socket: &Socket,
        mut is_patient: impl FnMut(Progress) -> bool,
    ) -> Result<(), Broken> {
        while self.rustls.wants_write() {
            let mut outlet = Outlet { socket, is_patient: &mut is_patient };
            self.rustls.write_tls(&mut outlet).map_err(|why| socket_error(&why))?;
        }
        Ok(())
    }
}

/// Where records leave.
struct Outlet<'a, F> {
    socket: &'a Socket,
    is_patient: &'a mut F,
}

impl<F: FnMut(Progress) -> bool> Write for Outlet<'_, F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, records: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(self.socket.send_some(records, &mut *self.is_patient)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where records leave if that takes no time.
struct AtOnce<'a>(&'a Socket);

impl Write for AtOnce<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.0.send_at_once(bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const NONSENSE: Broken = Broken::Protocol("it does not speak TLS");

fn socket_error(why: &io::Error) -> Broken {
    Broken::Socket(Errno::from_io_error(why).unwrap_or(Errno::IO))
}

/// The reason in a few words, for the operator.
fn broken(why: &Error) -> Broken {
    Broken::Protocol(match why {
        Error::NoCertificatesPresented => "it has no client certificate",
        Error::InvalidCertificate(CertificateError::Revoked) => {
            "its client certificate was revoked"
        }
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "its client certificate has expired",
        Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => "its client certificate is of an authority that is not in ca-cert.pem",
        Error::InvalidCertificate(_) => "its client certificate is not accepted",
        Error::AlertReceived(_) => "it refused the server's certificate, or its TLS",
        Error::PeerIncompatible(_) => {
            "it has no version or cipher of TLS in common with the server"
        }
        Error::DecryptError => "a record was damaged or forged",
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => return NONSENSE,
        _ => "its TLS failed",
    })
}
