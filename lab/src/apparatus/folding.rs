//! Regions of this project, as the studies use them.

use crate::ground::LabError;
use region::{Region, RegionError};
use std::time::{Duration, Instant};

/// The time it took until every page was in the store.
pub(crate) fn page_out(region: &Region) -> Result<Duration, LabError> {
    let (control, all) = (region.control(), 0..region.len());
    let start = Instant::now();
    control.page_out(all).map_err(refused)?;
    let spent = start.elapsed();
    let stats = region.stats();
    let left = || LabError::Wrong(format!("not every page is in the store: {stats:?}"));
    (stats.stored_pages == stats.pages).then_some(spent).ok_or_else(left)
}

/// A system without what folded memory needs is a missing peer, and no failure.
pub(crate) fn refused(error: RegionError) -> LabError {
    match error {
        RegionError::Fault(why) => LabError::missing("region", why),
        error => LabError::store("region")(error),
    }
}
