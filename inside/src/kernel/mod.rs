//! What the kernel is asked for and what it tells, and the end of a process that cannot go on.

mod end;
mod maps;
mod resident;
mod uffd;

pub(crate) use end::lost;
pub(crate) use maps::folding;
pub(crate) use resident::Resident;
pub(crate) use uffd::{Event, Progress, Uffd};
