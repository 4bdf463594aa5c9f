//! Bytes held for a connection or a request. All of them are counted.
//!
//! ```text
//!   Buffer   [ touched: counted, and resident | never touched, or given back: costs nothing ]
//!   Inbox    [ handled | received, not handled | free to receive into ]
//!                      start                   end
//!   Outbox   [ replies to send | free to reply into ]
//!                              filled
//! ```
//!
//! A buffer has its final size from the start, and takes memory only for the pages that are used.
//! It is a mapping of its own, so pages that it gives back go to the system. The heap of the C
//! library would keep them, uncounted.
//!
//! Invariants
//! - The meter is the number of touched bytes of all live buffers that share it, in whole pages,
//!   without those given back.
//! - `start <= end <= size`, and `filled <= size`.
//! - Addresses are reserved once, at the first use.
//!
//! Locks: none.

use crate::terms::limits::{INBOX_MAX, INBOX_MIN, OUTBOX_MAX, PAGE};
use host::Pages;
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

    /// Counts `new` bytes where `old` were counted.
    pub(crate) fn replace(&self, old: usize, new: usize) {
        // relaxed: an independent sum. Wrapping addition makes the order of updates immaterial.
        self.0.fetch_add(new.wrapping_sub(old), Ordering::Relaxed);
    }
}

/// There is no memory for a buffer. Only the connection that needs it is given up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoMemory;

/// A fixed number of bytes, zeros at first. Those that were touched are counted.
#[derive(Debug)]
pub(crate) struct Buffer {
    size: usize,
    pages: Option<Pages>,
    /// Bytes from the start that may be resident, in whole pages.
    touched: usize,
    meter: Arc<Meter>,
}

impl Buffer {
    /// A buffer of `size` bytes, which are whole pages. They are reserved at the first use.
    pub(crate) fn new(size: usize, meter: Arc<Meter>) -> Self {
        debug_assert!(size.is_multiple_of(PAGE), "a buffer is whole pages");
        Self { size, pages: None, touched: 0, meter }
    }

    /// Reserves the bytes if they are not reserved yet.
    pub(crate) fn reserve(&mut self) -> Result<(), NoMemory> {
        if self.pages.is_none() {
            self.pages = Some(Pages::new(self.size / PAGE).map_err(|_| NoMemory)?);
        }
        Ok(())
    }

    /// All bytes. There are none before `reserve`.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.pages.as_ref().map_or(&[], Pages::as_slice)
    }

    /// The same bytes, to be written. The writer must call `touch`.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.pages.as_mut().map_or(&mut [], Pages::as_mut_slice)
    }

    /// Counts the first `bytes`, which are written or about to be.
    pub(crate) fn touch(&mut self, bytes: usize) {
        if bytes > self.touched {
            self.count(bytes.next_multiple_of(PAGE));
        }
    }

    /// Bytes that may be resident.
    pub(crate) fn touched(&self) -> usize {
        self.touched
    }

    /// Gives back everything after the first `kept` bytes, if the system takes it.
    pub(crate) fn give_back(&mut self, kept: usize) {
        let kept = kept.next_multiple_of(PAGE);
        let touched = kept / PAGE..self.touched / PAGE;
        let Some(pages) = self.pages.as_mut().filter(|_| !touched.is_empty()) else { return };
        // The system refuses if the program locked its memory. Then the pages stay counted.
        if pages.give_back(touched).is_ok() {
            self.count(kept);
        }
    }

    fn count(&mut self, touched: usize) {
        self.meter.replace(self.touched, touched);
        self.touched = touched;
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.count(0);
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
    /// An empty inbox. It holds no memory until the first bytes are received.
    pub(crate) fn new(meter: Arc<Meter>) -> Self {
        Self { buffer: Buffer::new(INBOX_MAX, meter), start: 0, end: 0 }
    }

    /// Bytes that were received and are not handled yet.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer.bytes()[self.start..self.end]
    }

    /// Notes that the first `n` of them are handled.
    pub(crate) fn consume(&mut self, n: usize) {
        assert!(n <= self.end - self.start, "more handled than received");
        self.start += n;
    }

    /// Space to receive into. With it there is room for at least `total` unhandled bytes.
    pub(crate) fn space(&mut self, total: usize) -> Result<&mut [u8], NoMemory> {
        debug_assert!(total <= INBOX_MAX, "such input never fits");
        self.buffer.reserve()?;
        self.compact();
        Ok(&mut self.buffer.bytes_mut()[self.end..])
    }

    /// Notes that `n` bytes were received into `space`.
    pub(crate) fn received(&mut self, n: usize) {
        self.end += n;
        assert!(self.end <= INBOX_MAX, "more received than there was space");
        self.buffer.touch(self.end);
    }

    /// Gives back the memory that a quiet client does not need.
    pub(crate) fn shrink(&mut self) {
        self.compact();
        self.buffer.give_back(self.end.max(INBOX_MIN));
    }

    /// Whether `shrink` could give something back.
    pub(crate) fn is_large(&self) -> bool {
        self.buffer.touched() > INBOX_MIN
    }

    fn compact(&mut self) {
        if self.start > 0 {
            let (start, end) = (self.start, self.end);
            self.buffer.bytes_mut().copy_within(start..end, 0);
            (self.start, self.end) = (0, end - start);
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
    /// An empty outbox. It holds no memory until the first reply.
    pub(crate) fn new(meter: Arc<Meter>) -> Self {
        Self { buffer: Buffer::new(OUTBOX_MAX, meter), filled: 0 }
    }

    /// The replies that are to be sent.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer.bytes()[..self.filled]
    }

    /// Bytes of the replies: a mark for `rewind`.
    pub(crate) fn filled(&self) -> usize {
        self.filled
    }

    /// Takes back everything after the first `filled` bytes.
    pub(crate) fn rewind(&mut self, filled: usize) {
        assert!(filled <= self.filled, "cannot rewind forwards");
        self.filled = filled;
    }

    /// Whether `n` more bytes fit without sending first.
    pub(crate) fn can_hold(&self, n: usize) -> bool {
        self.filled + n <= OUTBOX_MAX
    }

    /// Adds `n` bytes, which the caller fills in. The caller has asked `can_hold`.
    pub(crate) fn append(&mut self, n: usize) -> Result<&mut [u8], NoMemory> {
        let (old, new) = (self.filled, self.filled + n);
        assert!(new <= OUTBOX_MAX, "replies beyond the limit");
        self.buffer.reserve()?;
        self.buffer.touch(new);
        self.filled = new;
        Ok(&mut self.buffer.bytes_mut()[old..new])
    }

    /// Gives all memory back. There must be nothing to send.
    pub(crate) fn shrink(&mut self) {
        debug_assert_eq!(self.filled, 0, "replies would be lost");
        self.buffer.give_back(0);
    }

    /// Whether `shrink` could give something back.
    pub(crate) fn is_large(&self) -> bool {
        self.buffer.touched() > 0
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
        assert_eq!(meter.bytes(), 0, "nor before it is there");
        inbox.received(1);
        outbox.append(OUTBOX_MAX).unwrap();
        assert_eq!(meter.bytes(), PAGE + OUTBOX_MAX);
        outbox.rewind(0);
        outbox.shrink();
        assert_eq!(meter.bytes(), INBOX_MIN);
        drop((inbox, outbox));
        assert_eq!(meter.bytes(), 0);
    }

    #[test]
    fn an_inbox_holds_more_for_a_busy_client_than_for_a_quiet_one() {
        let mut inbox = Inbox::new(Arc::default());
        inbox.space(1).unwrap().fill(0);
        inbox.received(INBOX_MIN);
        assert!(!inbox.is_large());
        inbox.space(1).unwrap();
        inbox.received(1);
        assert!(inbox.is_large());
        inbox.consume(INBOX_MIN - 2);
        inbox.shrink();
        assert!(!inbox.is_large());
        assert_eq!(inbox.bytes(), [0, 0, 0], "unhandled bytes survive shrinking");
    }

    /// Buffers used to be from the heap, which kept them: 41.8 MB were held, but only 7.5 counted.
    #[test]
    fn what_is_counted_is_what_the_system_counts() {
        let mut buffer = Buffer::new(64 * PAGE, Arc::default());
        buffer.reserve().unwrap();
        let resident = |buffer: &Buffer| {
            let addresses = buffer.pages.as_ref().unwrap().addresses();
            host::smaps::rss_of(&[addresses]).unwrap() as usize
        };
        assert_eq!((buffer.touched(), resident(&buffer)), (0, 0));
        buffer.touch(10 * PAGE + 1);
        buffer.bytes_mut()[..10 * PAGE + 1].fill(1);
        assert_eq!((buffer.touched(), resident(&buffer)), (11 * PAGE, 11 * PAGE));
        buffer.give_back(PAGE + 1);
        assert_eq!((buffer.touched(), resident(&buffer)), (2 * PAGE, 2 * PAGE));
        buffer.give_back(5 * PAGE);
        assert_eq!(buffer.touched(), 2 * PAGE, "nothing is taken by giving back");
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
                        inbox.received(n);
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
                    Action::Shrink => inbox.shrink(),
                }
                prop_assert_eq!(inbox.bytes(), &twin[..]);
                let touched = inbox.buffer.touched();
                prop_assert!(touched <= INBOX_MAX && touched >= inbox.end);
            }
        }
    }
}
