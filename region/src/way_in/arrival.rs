//! Why pages are brought in, and what that came to.

/// Why pages are brought in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// A thread waits for them.
    Fault,
    /// They are to be there, including those that no thread has touched.
    Pin,
    /// They may be wanted soon.
    Ahead,
    /// The same, but a thread that waits walks towards them: only those that are stored or staged,
    /// and that need no disk.
    Along,
}

impl Why {
    /// Whether they may as well stay out.
    pub(super) fn is_optional(self) -> bool {
        matches!(self, Why::Ahead | Why::Along)
    }
}

/// What bringing pages in came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrived {
    /// So many pages, from the one asked for on.
    Pages(usize),
    /// It was there, or is no more the region's.
    Present,
    /// The system had no memory, or another thread fetches it.
    Later,
    /// The store cannot give it, in words.
    Failed(&'static str),
}
