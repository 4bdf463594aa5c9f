//! What a disk can say about a range without reading it.

/// A run of bytes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes in the run, counted from the offset that was asked about.
    pub len: u64,
    /// The kind of all bytes in the run.
    pub kind: ExtentKind,
}

/// The kind of a run of bytes. In NBD's `base:allocation` terms:
///
/// | kind | `NBD_STATE_HOLE` | `NBD_STATE_ZERO` |
/// |---|---|---|
/// | `Data` | - | - |
/// | `Zero` | - | set |
/// | `Hole` | set | set |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// Occupies space and may read as anything, zeros included.
    Data,
    /// Reads as zeros and is held by an entry of its own.
    Zero,
    /// Reads as zeros and occupies nothing: never written, or discarded.
    Hole,
}

impl ExtentKind {
    /// Whether every byte of the run is known to read as zero.
    pub const fn reads_as_zeros(self) -> bool {
        matches!(self, Self::Zero | Self::Hole)
    }
}

/// Whether zeroing a range may give up the space it occupies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// The range may become a hole.
    MayUnmap,
    /// The client wishes that later writes to the range do not fail because there is no space. A
    /// disk that compresses cannot reserve space for content that it has not seen.
    Keep,
}
