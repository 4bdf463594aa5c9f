//! A connection with its two buffers: requests come in, and replies go out.
//!
//! ```text
//!             want / skip                      append ... send
//!   socket ---------------> inbox     outbox ------------------> socket
//!                  '--- every wait for input sends the outbox first ---'
//! ```
//!
//! After STARTTLS a [`Session`] stands between the buffers and the socket.
//!
//! Invariants
//! - L1. Replies are sent before a thread waits for the client. So client and server never wait for
//!   each other.
//! - L2. Replies to requests that arrived together leave in one call, unless they exceed `SEND_AT`.
//! - L3. After `idle_after` without input, most of the buffers is given back, and the thread waits
//!   on without a limit. So a quiet connection costs no wake-ups.
//! - L4. If a client receives no answer, or sends no more of a request, for `stall_after`, the
//!   observer is told once, and once more when the client goes on. The thread waits as long as it
//!   takes.
//! - L5. Bytes that came before TLS are never taken for bytes that came through it.
//!
//! Locks: none.

use crate::doors::{Event, Inbox, Meter, NoMemory, Outbox, Peer, Progress, Stall, Ticket};
use crate::terms::limits::{INBOX_MAX, OUTBOX_MAX, SEND_AT};
use crate::tls::{Broken, Received, Session, Tls};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why a connection ends. None of these ends the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The client ended it as the protocol says.
    Done,
    /// The client closed without notice, or its machine is gone.
    Hangup,
    /// The handshake took too long.
    Timeout,
    /// The client does not speak NBD, or it breaks what was agreed.
    Nonsense(&'static str),
    /// A reply could not be completed after its beginning was sent.
    CutReply,
    /// There is no memory for this connection's buffers.
    NoMemory,
    /// The server stops.
    Stopping,
    /// The connection made way for another.
    Displaced,
}

impl End {
    /// The reason in a few words.
    pub(crate) fn words(&self) -> &'static str {
        match self {
            Self::Done => "it disconnected",
            Self::Hangup => "it hung up",
            Self::Timeout => "its handshake took too long",
            Self::Nonsense(what) => what,
            Self::CutReply => "an answer could not be completed",
            Self::NoMemory => "there is no memory for its buffers",
            Self::Stopping => "the server stops",
            Self::Displaced => "it made way for another",
        }
    }
}

impl From<Broken> for End {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Socket(error) => hangup(error),
            Broken::NoMemory => Self::NoMemory,
            Broken::Protocol(why) => Self::Nonsense(why),
        }
    }
}

impl From<NoMemory> for End {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

/// How long to wait for input.
#[derive(Clone, Copy, Debug)]
enum Patience {
    /// Until this time.
    Until(Instant),
    /// For `idle_after`, after which buffers are given back.
    Awake,
    /// For ever.
    Asleep,
}

/// How long a connection may do nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    /// The whole handshake may take so long. Then the connection ends.
    pub(crate) handshake: Duration,
    /// The time between two requests after which most of the buffers is given back.
    pub(crate) idle_after: Duration,
    /// The time in the middle of a request or an answer after which the observer is told.
    pub(crate) stall_after: Duration,
}

impl Waits {
    /// How long one wait for a client that should take its answers lasts. After each part that the
    /// client takes, the system begins the wait anew. So long waits would notice late that it takes
    /// no more.
    fn look(&self) -> Duration {
        self.idle_after.min(self.stall_after).max(MOMENT)
    }
}

/// A connection with its buffers.
pub(crate) struct Link<'a> {
    ticket: &'a Ticket,
    waits: Waits,
    meter: Arc<Meter>,
    inbox: Inbox,
    outbox: Outbox,
    /// The records between the buffers and the socket, once there is TLS.
    session: Option<Session>,
    patience: Patience,
    /// A request has begun and is not answered.
    midway: bool,
    silence: Silence,
}

/// For how long a client has kept the connection waiting in the middle of something.
#[derive(Default)]
struct Silence {
    since: Option<Instant>,
    told: bool,
}

/// The longest handshake, so that its end can be computed.
const LONGEST: Duration = Duration::from_secs(1 << 30); // 34 years

impl<'a> Link<'a> {
    /// A new connection. Its handshake must end within `waits.handshake`.
    pub(crate) fn new(ticket: &'a Ticket, meter: &Arc<Meter>, waits: Waits) -> Self {
        // If the limit cannot be set, a wait may be longer, but `stop` ends it too.
        let _ = ticket.socket().limit_send(Some(waits.handshake.max(MOMENT)));
        Self {
            ticket,
            waits,
            meter: Arc::clone(meter),
            inbox: Inbox::new(Arc::clone(meter)),
            outbox: Outbox::new(Arc::clone(meter)),
            session: None,
            patience: Patience::Until(Instant::now() + waits.handshake.min(LONGEST)),
            midway: false,
            silence: Silence::default(),
        }
    }

    /// The client at the other end.
    pub(crate) fn peer(&self) -> Peer {
        self.ticket.peer()
    }

    /// Tells the observer of the server.
    pub(crate) fn tell(&self, event: Event) {
        self.ticket.tell(event);
    }

    /// Whether the client's bytes come through TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.session.is_some()
    }

    /// Sends the replies, the last of which agrees to TLS, and begins TLS. It must be ready within
    /// the time of the handshake.
    pub(crate) fn secure(&mut self, tls: &Tls) -> Result<(), End> {
        // An attacker in between could have put them there, to have them read as the client's (L5).
        // Any that arrive from now on are no records, and end the session.
        if !self.inbox.bytes().is_empty() {
            return Err(End::Nonsense("it did not wait for the answer to STARTTLS"));
        }
        self.send()?;
        let mut session = Session::new(tls, &self.meter)?;
        while session.is_agreeing() {
            if self.ticket.is_stopping() {
                return Err(End::Stopping);
            }
            self.apply_patience()?;
            if !session.agree(self.ticket.socket())? {
                return Err(self.closed());
            }
        }
        self.session = Some(session);
        Ok(())
    }

    /// Ends the handshake. From now on the client may take its time, and it keeps its place.
    pub(crate) fn engage(&mut self, export: &str) -> Result<(), End> {
        if !self.ticket.engage(export) {
            return Err(End::Displaced);
        }
        self.patience = Patience::Awake;
        self.ticket.socket().limit_send(Some(self.waits.look())).map_err(hangup)?;
        self.apply_patience()
    }

    /// Begins a request. Until it is complete, the client owes input.
    pub(crate) fn begin(&mut self) {
        self.midway = true;
    }

    /// Bytes that were received and are not handled yet.
    pub(crate) fn input(&self) -> &[u8] {
        self.inbox.bytes()
    }

    /// Notes that the first `n` bytes of the input are handled.
    pub(crate) fn consume(&mut self, n: usize) {
        self.inbox.consume(n);
    }

    /// Waits until at least `n` bytes of input are there.
    pub(crate) fn want(&mut self, n: usize) -> Result<(), End> {
        debug_assert!(n <= INBOX_MAX, "such input never fits");
        while self.inbox.bytes().len() < n {
            self.receive(n)?;
        }
        Ok(())
    }

    /// Takes exactly `N` bytes of input.
    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N], End> {
        self.want(N)?;
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.inbox.bytes()[..N]);
        self.inbox.consume(N);
        Ok(bytes)
    }

    /// Throws away `len` bytes of input.
    pub(crate) fn skip(&mut self, mut len: u64) -> Result<(), End> {
        while len > 0 {
            self.want(1)?;
            let n = self.inbox.bytes().len().min(usize::try_from(len).unwrap_or(usize::MAX));
            self.inbox.consume(n);
            len -= n as u64;
        }
        Ok(())
    }

    /// Makes room for a reply of `n` bytes, and sends earlier replies if that is needed. Gives a
    /// mark for `rewind`. Appending up to `n` bytes sends nothing, so they can be taken back.
    pub(crate) fn make_room(&mut self, n: usize) -> Result<usize, End> {
        debug_assert!(n <= OUTBOX_MAX, "such a reply never fits");
        if !self.outbox.can_hold(n) {
            self.send()?;
        }
        Ok(self.outbox.filled())
    }

    /// Adds `n` bytes to the replies. The caller fills them in.
    pub(crate) fn append(&mut self, n: usize) -> Result<&mut [u8], End> {
        self.make_room(n)?;
        Ok(self.outbox.append(n)?)
    }

    /// Adds bytes to the replies.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), End> {
        self.append(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    /// Takes back replies down to a mark that `make_room` returned.
    pub(crate) fn rewind(&mut self, mark: usize) {
        self.outbox.rewind(mark);
    }

    /// Completes a reply, and sends the replies if they are long enough. If the server stops, the
    /// connection ends here, because the requests that a client sent ahead may be minutes of work.
    pub(crate) fn complete(&mut self) -> Result<(), End> {
        self.midway = false;
        if self.ticket.is_stopping() {
            self.send()?;
            return Err(End::Stopping);
        }
        if self.outbox.filled() >= SEND_AT { self.send() } else { Ok(()) }
    }

    /// Sends all gathered replies.
    pub(crate) fn send(&mut self) -> Result<(), End> {
        if self.outbox.filled() == 0 {
            return Ok(());
        }
        let (ticket, silence, waits) = (self.ticket, &mut self.silence, &self.waits);
        let is_patient = !matches!(self.patience, Patience::Until(_));
        let patience = |progress| {
            match progress {
                Progress::Made => silence.ends(ticket),
                Progress::Missed if is_patient => {
                    silence.goes_on(waits.look(), waits, Stall::Answers, ticket);
                }
                Progress::Missed => {}
            }
            is_patient
        };
        let (socket, bytes) = (ticket.socket(), self.outbox.bytes());
        let sent = match &mut self.session {
            Some(session) => session.send_while(socket, bytes, patience).map_err(End::from),
            None => socket.send_while(bytes, patience).map_err(hangup),
        };
        self.outbox.rewind(0);
        sent
    }

    /// Waits for input once, after it has sent the replies (L1).
    fn receive(&mut self, total: usize) -> Result<(), End> {
        self.send()?;
        if self.ticket.is_stopping() {
            return Err(End::Stopping);
        }
        self.wake_up()?;
        let (socket, space) = (self.ticket.socket(), self.inbox.space(total)?);
        let received = match &mut self.session {
            Some(session) => session.receive(socket, space),
            None => socket.receive(space).map_err(Broken::Socket).map(|n| match n {
                0 => Received::End,
                n => Received::Bytes(n),
            }),
        };
        match received {
            Ok(Received::End) => Err(self.closed()),
            Ok(Received::Nothing) => Ok(()),
            Ok(Received::Bytes(n)) => {
                self.silence.ends(self.ticket);
                self.inbox.received(n);
                Ok(())
            }
            Err(Broken::Socket(Errno::AGAIN)) => self.fall_asleep(),
            Err(error) => Err(error.into()),
        }
    }

    /// Why the client's bytes are at an end.
    fn closed(&self) -> End {
        if self.ticket.is_displaced() { End::Displaced } else { End::Hangup }
    }

    /// Whether the client owes the rest of a request.
    fn is_owed(&self) -> bool {
        self.midway || !self.inbox.bytes().is_empty()
    }

    /// Sets the limit of the next wait. A handshake has less time left. A connection that uses much
    /// of its buffers again must give it back again.
    fn wake_up(&mut self) -> Result<(), End> {
        let is_large = self.inbox.is_large()
            || self.outbox.is_large()
            || self.session.as_ref().is_some_and(Session::is_large);
        match self.patience {
            Patience::Until(_) => self.apply_patience(),
            Patience::Asleep if is_large || self.is_owed() => {
                self.patience = Patience::Awake;
                self.apply_patience()
            }
            _ => Ok(()),
        }
    }

    /// Acts on a wait whose time is up. A handshake ends, and a served connection comes to rest.
    fn fall_asleep(&mut self) -> Result<(), End> {
        let Patience::Awake = self.patience else { return Err(End::Timeout) };
        self.inbox.shrink();
        self.outbox.shrink();
        self.session.iter_mut().for_each(Session::shrink);
        if self.is_owed() {
            self.silence.goes_on(self.waits.idle_after, &self.waits, Stall::Request, self.ticket);
            return Ok(());
        }
        self.patience = Patience::Asleep;
        self.apply_patience()
    }

    fn apply_patience(&self) -> Result<(), End> {
        let limit = match self.patience {
            Patience::Until(end) => {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(End::Timeout);
                }
                Some(left.max(MOMENT))
            }
            Patience::Awake => Some(self.waits.idle_after.max(MOMENT)),
            Patience::Asleep => None,
        };
        self.ticket.socket().limit_receive(limit).map_err(hangup)
    }
}

impl Drop for Link<'_> {
    fn drop(&mut self) {
        self.session.iter_mut().for_each(|session| session.farewell(self.ticket.socket()));
        self.silence.ends(self.ticket);
    }
}

impl Silence {
    /// Notes that the client has done nothing for `waited` more.
    fn goes_on(&mut self, waited: Duration, waits: &Waits, stall: Stall, ticket: &Ticket) {
        let now = Instant::now();
        let begun = self.since.unwrap_or_else(|| now.checked_sub(waited).unwrap_or(now));
        self.since = Some(begun);
        let silent = now.saturating_duration_since(begun);
        if silent >= waits.stall_after && !self.told {
            self.told = true;
            ticket.tell(Event::Stalled { peer: ticket.peer(), stall, silent });
        }
    }

    /// Notes that the client has done something, or is gone.
    fn ends(&mut self, ticket: &Ticket) {
        self.since = None;
        if std::mem::take(&mut self.told) {
            ticket.tell(Event::Recovered { peer: ticket.peer() });
        }
    }
}

/// The shortest limit that a socket can have. Zero would mean no limit.
const MOMENT: Duration = Duration::from_millis(1);

fn hangup(error: Errno) -> End {
    if error == Errno::AGAIN { End::Timeout } else { End::Hangup }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_short_beside_what_is_told_of() {
        let [idle_after, stall_after] = [1, 5].map(Duration::from_secs);
        let waits = Waits { handshake: idle_after, idle_after, stall_after };
        assert_eq!(waits.look(), idle_after);
        let waits = Waits { idle_after: stall_after, stall_after: Duration::ZERO, ..waits };
        assert_eq!(waits.look(), MOMENT, "no wait is endless");
    }
}
