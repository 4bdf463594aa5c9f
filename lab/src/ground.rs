//! What everything here stands on: errors, what is cleaned up, time, chance, sizes and statistics.

mod cleanup;
pub(crate) mod clock;
mod error;
mod rng;
mod scratch;
pub(crate) mod size;
mod spent;
pub(crate) mod stats;

pub(crate) use cleanup::{Cleanup, Deferred, GuardedChild};
pub(crate) use error::LabError;
pub(crate) use rng::Rng;
pub(crate) use scratch::PrivateDirectory;
pub(crate) use spent::Spent;
