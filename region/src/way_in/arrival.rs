//! Why pages are brought in, and the result.

/// Why pages are brought in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// A thread waits for them.
    Fault,
    /// They must be in memory, including those that no thread has touched.
    Pin,
    /// They may be wanted soon.
    Ahead,
    /// They may be wanted soon, because a waiting thread walks towards them. Only stored and staged
    /// pages come, and only if they need no disk.
    Along,
    /// They are beside a page that came, and a mapping would be split between them. They come if
    /// they need no disk.
    Beside,
}

impl Why {
    /// Whether they may stay out instead.
    pub(super) fn is_optional(self) -> bool {
        matches!(self, Why::Ahead | Why::Along | Why::Beside)
    }
}

/// The result of bringing pages in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrived {
    /// This many pages came, from the wanted one on.
    Pages(usize),
    /// The page was in memory.
    Present,
    /// The page no longer belongs to the region, or is just being discarded.
    Gone,
    /// The system had no memory, or another thread fetches the page.
    Later,
    /// The store cannot give the page. The words say why.
    Failed(&'static str),
}
