//! Options whose values are words.
//!
//! Invariant: each word is one variant. Locks: none.

/// When pages go to the backing disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Writeback {
    /// When an attribute asks for it.
    Asked,
    /// By their age as well.
    Auto,
}

/// How densely pages are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Density {
    Fast,
    Dense,
}

/// Whether a mounted tree takes requests by io_uring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum IoUring {
    /// If the system allows it.
    #[default]
    Auto,
    /// Never.
    Off,
}
