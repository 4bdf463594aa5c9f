//! The turn to write: one thread at a time has the buffers.
//!
//! ```text
//!   take: waits for the writer -> claims, marks, writes, completes -> dropped: the next one's turn
//! ```
//!
//! A turn is no lock: its holder calls the disk, so a thread that waits for the turn may wait for
//! the disk.
//!
//! Invariant: one thread at a time claims sectors and marks cells, each once in a turn. So a mark
//! that it finds again is its own, and belongs to the copy that it made.
//!
//! Lock: one, of rank `Leaf`, around the place of the writer. A thread that waits sleeps on it.

use host::sync::Condvar;
use host::{Rank, RankedMutex};

use super::buffers::Writer;

/// The place of the writer while no thread has the turn.
pub(crate) struct Turn {
    writer: RankedMutex<Option<Writer>>,
    back: Condvar,
}

/// The writer, for the length of one turn.
pub(crate) struct MyTurn<'t> {
    turn: &'t Turn,
    writer: Option<Writer>,
}

impl Turn {
    pub(crate) fn new() -> Turn {
        let writer = RankedMutex::new(Rank::Leaf, Some(Writer::default()));
        Turn { writer, back: Condvar::new() }
    }

    /// Waits for the turn.
    pub(crate) fn take(&self) -> MyTurn<'_> {
        let mut kept = self.writer.lock().sleep_while(&self.back, |kept| kept.is_none());
        MyTurn { turn: self, writer: kept.take() }
    }

    /// Bytes on the heap of a writer that is not in use. 0 while a thread has the turn.
    pub(crate) fn heap_bytes(&self) -> u64 {
        self.writer.lock().as_ref().map_or(0, Writer::heap_bytes)
    }
}

impl std::ops::Deref for MyTurn<'_> {
    type Target = Writer;

    fn deref(&self) -> &Writer {
        self.writer.as_ref().expect("there until dropped")
    }
}

impl std::ops::DerefMut for MyTurn<'_> {
    fn deref_mut(&mut self) -> &mut Writer {
        self.writer.as_mut().expect("there until dropped")
    }
}

impl Drop for MyTurn<'_> {
    /// This also happens when the holder panicked. The writer is emptied before its next use.
    fn drop(&mut self) {
        *self.turn.writer.lock() = self.writer.take();
        self.turn.back.notify_one();
    }
}
