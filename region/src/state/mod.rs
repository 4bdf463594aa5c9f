//! What is known of one region, and how its groups are locked.
//!
//! ```text
//!   Folded    span, staging: what moves pages      chunks: where each page is
//!             store: compressed pages              counters, around: what was counted and learnt
//!   lock      a group by its number; it knows its pages then
//!   limit     how many pages may be in memory      dirty: groups with dead copies in the store
//!   check     contradictions of the invariants
//! ```
//!
//! It stands on `resources`, `neighbours`, `places` and `terms`. The rooms above move the pages.
//! One brings them in and one takes them out, and both do it by methods of [`Folded`].

mod check;
mod dirty;
mod folded;
mod limit;
mod lock;
#[cfg(test)]
mod probe;

pub(crate) use folded::Folded;
