//! A chart as a drawing, on the page of all charts and in a file of its own.
//!
//! ```text
//!   curves --chart--> drawing --page--> a section, with key, note and table
//!                             '-alone-> a file for a document
//! ```

pub(crate) mod alone;
pub(crate) mod chart;
pub(crate) mod page;
