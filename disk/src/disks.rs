//! Disks: one in memory, one that fails on purpose, and a wrapper that refuses changes. There are
//! also two tools for stores on a disk: writes that are under way at once, and checksums for a disk
//! that other processes can write to.

mod faulty;
mod flights;
mod ram;
mod read_only;
mod seal;

pub use faulty::{Fault, FaultPlan, FaultSpan, FaultyDisk, Verbs};
pub use flights::{Flights, Landed};
pub use ram::RamDisk;
pub use read_only::ReadOnly;
pub use seal::Seal;
