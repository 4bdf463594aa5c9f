//! Disks: a plain one in memory, one that fails on purpose, and a wrapper that refuses changes. And
//! what stores need beside a disk: writes under way, and checksums of what others can write to.

mod faulty;
mod flights;
mod ram;
mod read_only;
mod seal;

pub use faulty::{Fault, FaultPlan, FaultyDisk, Span, Verbs};
pub use flights::{Flights, Landed};
pub use ram::RamDisk;
pub use read_only::ReadOnly;
pub use seal::Seal;
