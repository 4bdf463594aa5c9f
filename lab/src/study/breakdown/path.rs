//! The ways of giving pages up.

/// A way of giving pages up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Path {
    Slots,
    Range,
    Drop,
}

impl Path {
    pub(super) fn name(self) -> &'static str {
        match self {
            Path::Slots => "slots",
            Path::Range => "range",
            Path::Drop => "drop",
        }
    }
}
