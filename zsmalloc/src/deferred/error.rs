//! What a queue can refuse, and what a recount of it can find.

use std::fmt;

/// The value was not queued, and is still the caller's: no buffer or no payload budget was left, or
/// other threads were at both shards that were tried.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NotQueued<T>(
    /// The value.
    pub T,
);

impl<T> fmt::Debug for NotQueued<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotQueued").finish_non_exhaustive()
    }
}

impl<T> fmt::Display for NotQueued<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue has no room for the value now")
    }
}

impl<T> std::error::Error for NotQueued<T> {}

/// A queue that contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueDefect(
    /// What was found.
    pub String,
);

impl fmt::Display for QueueDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for QueueDefect {}
