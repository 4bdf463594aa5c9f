//! The way out: pages leave memory for the store, or for good.
//!
//! ```text
//!   the pager --> keep      is the region over its limit?
//!                   |
//!                  age      which group is the oldest?     it has its second chance in staging
//!                   |
//!   a control --> page_out  a range, a group at a time
//!                   |
//!                 stage     one MOVE to staging
//!                   |
//!                 compress  from there to the store, page by page
//!                   |-- sweep      the store is full, or dead copies are many: they go first
//!                   `-- put_back   it stays full: the pages come back
//!
//!   a discard --> forget    the content is gone from memory, staging and store
//! ```
//!
//! It stands on `way_in`, by whose fence pages are put back, and on `state`, `resources`, `places`
//! and `terms`.

mod age;
mod compress;
mod forget;
mod keep;
mod page_out;
mod put_back;
mod stage;
mod sweep;
