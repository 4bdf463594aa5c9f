//! What the kernel is asked for and what it tells, and the end of a process that cannot go on.

#![cfg_attr(
    not(target_arch = "x86_64"),
    expect(unused_imports, reason = "the rooms that use them are for 64-bit Intel and AMD")
)]

mod end;
mod filled;
mod guards;
mod maps;
mod moves;
pub(crate) mod nameless;
mod resident;
mod uffd;

pub(crate) use end::lost;
pub(crate) use filled::Fills;
pub(crate) use guards::refuse as refuse_guards;
pub(crate) use maps::folding;
pub(crate) use moves::move_pages;
pub(crate) use resident::{Mapping, PAGEMAP_SCAN, Resident, Run, faults, scan_of};
#[cfg(inside_program)]
pub(crate) use uffd::is_allowed as may_have_faults;
pub(crate) use uffd::{Event, Fault, Progress, Uffd};
