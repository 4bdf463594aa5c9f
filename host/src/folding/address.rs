//! The client's half of a span for clients that are not written in Rust. It lends no byte, and only
//! tells where the bytes are.
//!
//! Invariant: this library makes no reference to a byte of such a span, so that pages may be
//! discarded by any thread. What that means for the client's own accesses is the client's affair.
//!
//! Lock: none. The caller sees to it that one thread at a time moves a page.

use super::error::FaultError;
use super::fault_path::FaultPath;
use super::span::Span;
use crate::memory::HostError;
use std::ops::Range;
use std::sync::Arc;

/// Where the bytes of a span are, and the right to discard them. There is one for each span that
/// [`SpanAddress::reserve`] made, and no [`SpanMemory`](crate::SpanMemory).
#[derive(Debug)]
pub struct SpanAddress {
    span: Arc<Span>,
}

impl SpanAddress {
    /// As [`Span::reserve`], for a client that gets no reference to a byte, only their address.
    ///
    /// # Errors
    ///
    /// Those of [`Span::reserve`].
    pub fn reserve(
        path: &Arc<FaultPath>,
        pages: usize,
    ) -> Result<(Arc<Span>, SpanAddress), FaultError> {
        // The half that could lend the bytes is dropped here.
        let (span, _) = Span::reserve(path, pages)?;
        Ok((Arc::clone(&span), SpanAddress { span }))
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.span.mapping.base().as_ptr()
    }

    /// Bytes of address space.
    #[expect(clippy::len_without_is_empty, reason = "a span has at least one page")]
    pub fn len(&self) -> usize {
        self.span.mapping.range().len()
    }

    /// Drops the resident pages of `pages`. If nothing else has their contents, they read as zeros
    /// then.
    ///
    /// # Errors
    ///
    /// If the system refuses. Nothing has changed then.
    pub fn discard(&self, pages: Range<usize>) -> Result<(), HostError> {
        // SAFETY: there is no reference to the bytes, because nothing here or in `Span` makes one,
        // and the half that does was dropped before `self` was made.
        unsafe { self.span.discard(pages) }
    }
}
