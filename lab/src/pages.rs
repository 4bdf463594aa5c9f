//! Pages that studies store: those of a file, a mix that is made up, or a process's own.

mod corpus;
pub(crate) mod dump;
mod page;
pub(crate) mod shipped;
pub(crate) mod synthetic;

pub(crate) use corpus::Corpus;
pub(crate) use page::{PAGE_SIZE, is_same_filled};
