//! What every room of this crate uses: limits, errors, addresses, words for shells and managers.
//!
//! Invariant: nothing here holds a connection or a mount. Locks: none.

mod error;
pub mod limits;
pub mod notify;
pub mod shell;
pub(crate) mod uri;

pub use error::ServeError;
