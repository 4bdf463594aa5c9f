//! Bytes held for a connection, all of them counted.
//!
//! ```text
//!   Buffer   [ initialised bytes ............................ ]
//!   Inbox    [ handled | received, not handled | free to receive into ]
//!                      start                   end
//!   Outbox   [ replies to send | free to reply into ]
//!                              filled
//! ```
//!
//! Invariants: the meter is the sum of the sizes of all live buffers that share it;
//! `start <= end <= size` and `filled <= size`; nothing here allocates while sizes stay the same.

use crate::limits::{INBOX_MAX, INBOX_MIN, OUTBOX_MAX, OUTBOX_MIN};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the bytes of all buffers of a server.
#[derive(Debug, Default)]
pub(crate) struct Meter(AtomicUsize);

impl Meter {
    /// Bytes held right now.
    pub(crate) fn bytes(&self) -> usize {
        // relaxed: one independent number, for people and tests to look at.
        self.0.load(Ordering::Relaxed)
    }

    fn replace(&self, old: usize, new: usize) {
        // relaxed: an independent sum; wrapping addition makes the order of updates immaterial.
        self.0.fetch_add(new.wrapping_sub(old), Ordering::Relaxed);
    }
}

/// No memory for a buffer: the connection is given up, nothing else.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoMemory;

/// Initialised, counted bytes.
#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    meter: Arc<Meter>,
}

impl Buffer {
    fn new(meter: Arc<Meter>) -> Self {
        Self { bytes: Vec::new(), meter }
    }

    fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Changes the size, keeping the bytes of `keep` and moving them to the front.
    fn resize(&mut self, size: usize, keep: std::ops::Range<usize>) -> Result<(), NoMemory> {
        debug_assert!(keep.len() <= size, "bytes to keep would be lost");
        let mut fresh = Vec::new();
        fresh.try_reserve_exact(size).map_err(|_| NoMemory)?;
        fresh.extend_from_slice(&self.bytes[keep]);
        fresh.resize(size, 0);
        self.meter.replace(self.bytes.len(), size);
        self.bytes = fresh;
        Ok(())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.meter.replace(self.bytes.len(), 0);
    }
}

/// What a client has sent and the server has not handled yet.
#[derive(Debug)]
pub(crate) struct Inbox {
    buffer: Buffer,
    start: usize,
    end: usize,
}

impl Inbox {
    /// Empty, and of no size before the first `space`.
    pub(crate) fn new(meter: Arc<Meter>) -> Self {
        Self { buffer: Buffer::new(meter), start: 0, end: 0 }
    }

    /// Received and not handled.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer.bytes[self.start..self.end]
    }

    /// The first `n` of them are handled.
    pub(crate) fn consume(&mut self, n: usize) {
        assert!(n <= self.end - self.start, "more handled than received");
        self.start += n;
    }

    /// Somewhere to receive into, with room for `total` unhandled bytes at least.
    pub(crate) fn space(&mut self, total: usize) -> Result<&mut [u8], NoMemory> {
        self.compact();
        if self.buffer.size() < total.max(INBOX_MIN) {
            let size = if total <= INBOX_MIN { INBOX_MIN } else { INBOX_MAX };
            self.buffer.resize(size, 0..self.end)?;
        }
        Ok(&mut self.buffer.bytes[self.end..])
    }

    /// `n` bytes were received into `space`. A client that fills it sends much at a time, and
    /// gets a bigger one.
    pub(crate) fn received(&mut self, n: usize) -> Result<(), NoMemory> {
        self.end += n;
        assert!(self.end <= self.buffer.size(), "more received than there was space");
        if self.end == self.buffer.size() && self.end < INBOX_MAX {
            self.buffer.resize(INBOX_MAX, self.start..self.end)?;
            (self.start, self.end) = (0, self.end - self.start);
        }
        Ok(())
    }

    /// Gives back what a quiet client does not need.
    pub(crate) fn shrink(&mut self) -> Result<(), NoMemory> {
        self.compact();
        let size = self.end.max(INBOX_MIN);
        if self.buffer.size() > size { self.buffer.resize(size, 0..self.end) } else { Ok(()) }
    }

    /// Whether `shrink` could give something back.
    pub(crate) fn is_large(&self) -> bool {
        self.buffer.size() > INBOX_MIN
    }

    fn compact(&mut self) {
        if self.start > 0 {
            self.buffer.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
    }
}

/// Replies that are not sent yet.
#[derive(Debug)]
pub(crate) struct Outbox {
    buffer: Buffer,
    filled: usize,
}

impl Outbox {
    /// Empty, and of no size before the first reply.
    pub(crate) fn new(meter: Arc<Meter>) -> Self {
        Self { buffer: Buffer::new(meter), filled: 0 }
    }

    /// Replies to send.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer.bytes[..self.filled]
    }

    /// Bytes of replies, to be given to `rewind`.
    pub(crate) fn filled(&self) -> usize {
        self.filled
    }

    /// Takes back everything after the first `filled` bytes.
    pub(crate) fn rewind(&mut self, filled: usize) {
        assert!(filled <= self.filled, "cannot rewind forwards");
        self.filled = filled;
    }

    /// Whether `n` more bytes fit at all without sending first.
    pub(crate) fn can_hold(&self, n: usize) -> bool {
        self.filled + n <= OUTBOX_MAX
    }

    /// Adds `n` bytes, to be filled in by the caller. The caller has asked `can_hold`.
    pub(crate) fn append(&mut self, n: usize) -> Result<&mut [u8], NoMemory> {
        let (old, new) = (self.filled, self.filled + n);
        assert!(new <= OUTBOX_MAX, "replies beyond the limit");
        if self.buffer.size() < new {
            let size = new.next_power_of_two().clamp(OUTBOX_MIN, OUTBOX_MAX);
            self.buffer.resize(size, 0..old)?;
        }
        self.filled = new;
        Ok(&mut self.buffer.bytes[old..new])
    }

    /// Gives everything back; only when there is nothing to send.
    pub(crate) fn shrink(&mut self) -> Result<(), NoMemory> {
        debug_assert_eq!(self.filled, 0, "replies would be lost");
        if self.buffer.size() > 0 { self.buffer.resize(0, 0..0) } else { Ok(()) }
    }

    /// Whether `shrink` could give something back.
    pub(crate) fn is_large(&self) -> bool {
        self.buffer.size() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_meter_counts_every_buffer_and_forgets_dropped_ones() {
        let meter = Arc::new(Meter::default());
        let mut inbox = Inbox::new(Arc::clone(&meter));
        let mut outbox = Outbox::new(Arc::clone(&meter));
        assert_eq!(meter.bytes(), 0, "nothing is held before the first byte");
        inbox.space(1).unwrap();
        outbox.append(OUTBOX_MAX).unwrap();
        assert_eq!(meter.bytes(), INBOX_MIN + OUTBOX_MAX);
        outbox.rewind(0);
        outbox.shrink().unwrap();
        assert_eq!(meter.bytes(), INBOX_MIN);
        drop((inbox, outbox));
        assert_eq!(meter.bytes(), 0);
    }

    #[test]
    fn an_inbox_grows_for_a_busy_client_and_shrinks_for_a_quiet_one() {
        let mut inbox = Inbox::new(Arc::default());
        assert_eq!(inbox.space(1).unwrap().len(), INBOX_MIN);
        inbox.received(INBOX_MIN).unwrap();
        assert!(inbox.is_large(), "a filled inbox must grow");
        inbox.consume(INBOX_MIN - 3);
        inbox.shrink().unwrap();
        assert!(!inbox.is_large());
        assert_eq!(inbox.bytes(), [0, 0, 0], "unhandled bytes survive shrinking");
    }

    #[derive(Clone, Debug)]
    enum Action {
        Receive(Vec<u8>),
        Consume(usize),
        Space(usize),
        Shrink,
    }

    fn action() -> impl Strategy<Value = Action> {
        prop_oneof![
            4 => prop::collection::vec(any::<u8>(), 0..6000).prop_map(Action::Receive),
            4 => (0..9000_usize).prop_map(Action::Consume),
            1 => (0..INBOX_MAX).prop_map(Action::Space),
            1 => Just(Action::Shrink),
        ]
    }

    proptest! {
        /// The twin is a vector from whose front bytes are drained.
        #[test]
        fn an_inbox_is_a_queue_of_bytes(actions in prop::collection::vec(action(), 1..60)) {
            let mut inbox = Inbox::new(Arc::default());
            let mut twin: Vec<u8> = Vec::new();
            for action in actions {
                match action {
                    Action::Receive(bytes) => {
                        let space = inbox.space(1).unwrap();
                        let n = bytes.len().min(space.len());
                        space[..n].copy_from_slice(&bytes[..n]);
                        inbox.received(n).unwrap();
                        twin.extend_from_slice(&bytes[..n]);
                    }
                    Action::Consume(n) => {
                        let n = n.min(twin.len());
                        inbox.consume(n);
                        twin.drain(..n);
                    }
                    Action::Space(total) => {
                        let space = inbox.space(total).unwrap().len();
                        prop_assert!(space + twin.len() >= total, "less space than asked for");
                    }
                    Action::Shrink => inbox.shrink().unwrap(),
                }
                prop_assert_eq!(inbox.bytes(), &twin[..]);
                prop_assert!(inbox.buffer.size() <= INBOX_MAX);
            }
        }
    }
}
