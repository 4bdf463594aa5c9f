//! `ramfold` from the outside: the built binary, and the clients its users have.
//!
//! ```text
//!   clients     nbdinfo, nbdcopy, qemu-img, qemu-io, fio
//!   filesystem  nbdfuse, a loop device, ext4
//!   lifecycle   starting, stopping, dying clients, full memory
//!   listing     how stat, set and check find a server
//!   notices     what an operator is told, and with what remedy
//!   tree        the mounted tree, file by file
//!   mounting    the mount: its beginning, its end, and what waits for what
//!   backing     a backing file that turns bad
//!   stack       file systems, and others' tests, on the tree
//!   figures     what stat, set, check and estimate print
//!   frames      what stat --pagetypeinfo prints
//!   usage       what is refused, and in which words
//!   rig         servers, scratch directories, tools, a bare NBD client
//! ```
//!
//! Claims are the names of the tests. A test that needs a tool which is not installed says so and
//! passes, but fails where CI=true. No claim is about speed; deadlines only catch hangs.

#![forbid(unsafe_code)]

mod anonymous;
mod attributes;
mod backing;
mod clients;
mod figures;
mod filesystem;
mod frames;
mod lifecycle;
mod listing;
mod mounting;
mod notices;
mod rig;
mod stack;
mod tree;
mod usage;
