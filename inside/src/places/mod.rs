//! Where each page of a process is.

mod book;
mod terms;

pub(crate) use book::Book;
pub(crate) use terms::{GROUP, GROUP_PAGES, MAPPING_MIN, PAGE, Place, Word};
