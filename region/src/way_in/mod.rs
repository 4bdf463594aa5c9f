//! The way in: from the touch of a missing page until the page is there.
//!
//! ```text
//!   touch ---> promises   serve: a fault enters here, from the table of regions
//!                 |
//!              find       which page? is there room? how far does its walk go?
//!                 |
//!   pin,       decide     under the group's lock: where is the page, and what comes with it?
//!   prefetch -----^
//!                 |
//!              bring      its content: zeros, staging, or decoded from the store
//!                 |-- around    with its neighbours, to their places in one buffer
//!                 `-- disk      from a disk, without the lock
//!                 |
//!              promises   put: the system copies it in place
//!                 |
//!              account    group, counters, density and queue learn it
//! ```
//!
//! It stands on `state`, `resources`, `neighbours`, `places` and `terms`. All of it may run in a
//! signal handler, so nothing here allocates, panics or logs. No thread touches a region while it
//! holds one of the locks taken here.

mod account;
mod around;
mod arrival;
mod bring;
mod decide;
mod disk;
mod find;
#[expect(unsafe_code, reason = "the fence: faults and the pages put in place, see its invariants")]
mod promises;

pub(crate) use arrival::Why;
