//! The buffers of one request, as the guest chained them.
//!
//! ```text
//!   ring -> descriptor -> descriptor -> indirect table -> ...     in memory that the guest changes
//!                |
//!                '--> Chain { readable: [span, span], writable: [span] }       ours, read once
//! ```
//!
//! Invariants
//! - C1. Each descriptor is read once. What the guest changes afterwards has no effect.
//! - C2. A chain has at most as many descriptors as its queue, and ends by itself: no loop, no
//!   table in a table, nothing readable after what is writable.
//! - C3. An address is checked each time it is used. A span may lie in several regions.
//!
//! Locks: none.

use super::memory::Memory;
use virtio_queue::DescriptorChain;
use vm_memory::{Address, Bytes, GuestAddress, GuestMemoryMmap};

/// Bytes of the guest that follow each other.
#[derive(Clone, Copy, Debug)]
struct Span {
    at: GuestAddress,
    len: u32,
}

/// Bytes of the guest in several places, taken from the front.
#[derive(Debug, Default)]
pub(super) struct Spans {
    list: Vec<Span>,
    /// The first that is not used up.
    next: usize,
}

/// The buffers of one request.
#[derive(Debug, Default)]
pub(super) struct Chain {
    pub(super) readable: Spans,
    pub(super) writable: Spans,
}

/// The chain breaks a rule of C2, or is cut off where it cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// There are too few bytes, or they are not in the guest's memory, or that is lost.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreachable;

impl Chain {
    /// Takes the descriptors of a chain in place of those before, at most `most` of them.
    pub(super) fn fill(
        &mut self,
        chain: DescriptorChain<&GuestMemoryMmap>,
        most: u16,
    ) -> Result<(), Malformed> {
        self.readable.clear();
        self.writable.clear();
        let (mut count, mut goes_on) = (0, true);
        // One more than may be there, so that one too many is seen.
        for descriptor in chain.take(usize::from(most) + 1) {
            count += 1;
            goes_on = descriptor.has_next();
            let span = Span { at: descriptor.addr(), len: descriptor.len() };
            match descriptor.is_write_only() {
                true => self.writable.list.push(span),
                false if self.writable.list.is_empty() => self.readable.list.push(span),
                false => return Err(Malformed),
            }
        }
        if goes_on || count > most { Err(Malformed) } else { Ok(()) }
    }
}

impl Spans {
    fn clear(&mut self) {
        self.list.clear();
        self.next = 0;
    }

    /// Bytes that are left.
    pub(super) fn len(&self) -> u64 {
        self.list[self.next..].iter().map(|span| u64::from(span.len)).sum()
    }

    /// Copies the next bytes out of the guest's memory. Zeros in place of bytes that were taken
    /// away do not count.
    pub(super) fn read(&mut self, memory: &Memory, mut into: &mut [u8]) -> Result<(), Unreachable> {
        while !into.is_empty() {
            let (at, len) = self.take(into.len()).ok_or(Unreachable)?;
            let (now, later) = into.split_at_mut(len);
            memory.map.read_slice(now, at).map_err(|_| Unreachable)?;
            into = later;
        }
        if memory.is_lost() { Err(Unreachable) } else { Ok(()) }
    }

    /// Copies bytes into the guest's memory.
    pub(super) fn write(&mut self, memory: &Memory, mut from: &[u8]) -> Result<(), Unreachable> {
        while !from.is_empty() {
            let (at, len) = self.take(from.len()).ok_or(Unreachable)?;
            memory.map.write_slice(&from[..len], at).map_err(|_| Unreachable)?;
            from = &from[len..];
        }
        Ok(())
    }

    /// The place of the last byte, which is no longer part of what is left.
    pub(super) fn take_last(&mut self) -> Option<GuestAddress> {
        let last = self.list.iter_mut().rfind(|span| span.len > 0)?;
        last.len -= 1;
        last.at.checked_add(last.len.into())
    }

    /// Up to `most` bytes from the front that follow each other.
    fn take(&mut self, most: usize) -> Option<(GuestAddress, usize)> {
        while self.list.get(self.next)?.len == 0 {
            self.next += 1;
        }
        let span = self.list.get_mut(self.next)?;
        let (at, len) = (span.at, most.min(span.len as usize));
        // If the end overflows, so does the access, which is refused. The rest is not used then.
        span.at = at.checked_add(len as u64).unwrap_or(GuestAddress(u64::MAX));
        span.len -= len as u32;
        Some((at, len))
    }
}
