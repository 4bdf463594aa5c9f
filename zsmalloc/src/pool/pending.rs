//! The objects of a pool that are freed later: what is queued, and the queue.
//!
//! Invariant: the queue is built once, or it was found that there is no memory for it.

use host::sync::unmodelled::OnceLock;

use crate::deferred::{Queue, QueueConfig};
use crate::numbers::{CellNumber, Place, Word};

/// An object that was given up: the place of one, or the entry of a handle.
#[derive(Clone, Copy)]
pub(crate) struct Freed(Word);

const _: () = assert!(size_of::<Freed>() == 8, "512 to a buffer, as in study S3");

impl Freed {
    pub(crate) fn entry(entry: CellNumber) -> Freed {
        Freed(Word::default().with_value(0, entry.get().into()))
    }

    pub(crate) fn object(place: Place) -> Freed {
        Freed(Word::default().with_place(place))
    }

    /// The place, or else the entry.
    pub(crate) fn place(self) -> Result<Place, CellNumber> {
        self.0.place().ok_or(CellNumber::new(self.0.value().1 as u32))
    }
}

/// The queue, which the first object that is deferred builds.
pub(crate) struct Pending {
    config: QueueConfig,
    /// `None` inside if there was no memory for it.
    queue: OnceLock<Option<Queue<Freed>>>,
}

impl Pending {
    pub(crate) fn new(config: QueueConfig) -> Pending {
        Pending { config, queue: OnceLock::new() }
    }

    /// The queue, if there is one.
    pub(crate) fn get(&self) -> Option<&Queue<Freed>> {
        self.queue.get()?.as_ref()
    }

    /// The queue. If it is not there yet, `build` makes it of its configuration.
    pub(crate) fn get_or_build(
        &self,
        build: impl FnOnce(QueueConfig) -> Option<Queue<Freed>>,
    ) -> Option<&Queue<Freed>> {
        self.queue.get_or_init(|| build(self.config)).as_ref()
    }

    /// Takes the queue out, for a pool that is being dropped.
    pub(crate) fn take(&mut self) -> Option<Queue<Freed>> {
        self.queue.take().flatten()
    }
}
