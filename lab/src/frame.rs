//! The frame that studies stand on.
//!
//! ```text
//!   study    what a study is, and what it gives back
//!   lab      what it is given: common options, the kernel's stores, the loop over runs
//!   notes    sentences below its table
//! ```

mod lab;
mod notes;
mod study;

pub(crate) use lab::{Common, Lab, Setting, tell_if_long};
pub(crate) use notes::{note, present};
pub(crate) use study::{Inside, Report, Study};
