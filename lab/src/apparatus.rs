//! What several studies measure with.
//!
//! ```text
//!   ours, peer, store      stores under study: ours, the kernel's, and both driven alike
//!   served                 servers of NBD disks, ours and others
//!   objects, mix           objects of a pool, and threads that store and free them
//!   paging, swapping       memory that is paged out and in: its pages and regions of ours, and
//!                            memory that the kernel swaps
//!   scattered, reader      zones whose free blocks cannot merge, and who reads their counts
//!   gate, spoken,          threads that start together, children that say something, and children
//!     valgrind               whose instructions are counted
//! ```

pub(crate) mod gate;
pub(crate) mod mix;
pub(crate) mod objects;
pub(crate) mod ours;
pub(crate) mod paging;
pub(crate) mod peer;
pub(crate) mod reader;
pub(crate) mod scattered;
pub(crate) mod served;
pub(crate) mod spoken;
pub(crate) mod store;
pub(crate) mod swapping;
pub(crate) mod valgrind;
