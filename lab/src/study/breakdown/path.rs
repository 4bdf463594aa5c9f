//! The ways of giving pages up.

use crate::apparatus::ours::Backend;

/// A way of giving pages up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Path {
    Slots,
    Entries,
    Handles,
    Range,
    Drop,
}

impl Path {
    pub(super) fn name(self) -> &'static str {
        match self {
            Path::Slots => "slots",
            Path::Entries => "entries",
            Path::Handles => "handles",
            Path::Range => "range",
            Path::Drop => "drop",
        }
    }

    /// Those that a store has: the queue of entries is a client's of a zswap, not its own.
    pub(super) fn of(backend: Backend) -> &'static [Path] {
        match backend {
            Backend::Zram => &[Path::Slots, Path::Entries, Path::Handles, Path::Range, Path::Drop],
            Backend::Zswap => &[Path::Slots, Path::Handles, Path::Range, Path::Drop],
        }
    }

    /// Whether the rest is done by the memory's worker, later.
    pub(super) fn is_queued(self) -> bool {
        matches!(self, Path::Entries | Path::Handles)
    }
}
