//! Checking a region against its invariants.
//!
//! Locks: one group's after the other.

use super::folded::Folded;
use crate::neighbours::is_watched;
use crate::places::Tally;
use crate::resources::Count;

impl Folded {
    /// The contradictions of the invariants, in words. Counters are compared if no thread works on
    /// the region. Each group is exact by itself.
    pub(crate) fn check(&self) -> Vec<String> {
        let mut defects = Vec::new();
        let mut sums = [0u64; 4];
        let mut trials = [Tally::default(); 2];
        for (index, group) in self.chunks.known() {
            defects.extend(group.defect().map(|defect| format!("group {index}: {defect}")));
            let there = self.span.resident(self.chunks.pages_of(index));
            if group.is_known() && there & !(group.resident() | group.gone()) != 0 {
                defects.push(format!("group {index}: a page is in memory that should be out"));
            }
            let told = group.trials().tally();
            if told != [Tally::default(); 2] && !is_watched(index) {
                defects.push(format!("group {index}: it has trials (G7)"));
            }
            for (sum, told) in trials.iter_mut().zip(told) {
                sum.beside += told.beside;
                sum.wanted += told.wanted;
            }
            let places = [group.resident(), group.staged(), group.stored(), group.dead_copies()];
            sums.iter_mut().zip(places).for_each(|(sum, place)| {
                *sum += u64::from(place.count_ones());
            });
        }
        let counts = [Count::Resident, Count::Staged, Count::Stored, Count::DeadCopies];
        for (count, found) in counts.into_iter().zip(sums) {
            let counted = self.counters.read(count);
            if counted != found {
                defects.push(format!("{count:?}: counted {counted}, found {found}"));
            }
        }
        let running = self.around.density.running();
        if running != trials {
            defects.push(format!("trials: counted {running:?}, found {trials:?} (D1)"));
        }
        if let Some(Err(defect)) = self.store.zram().map(zram::Zram::check) {
            defects.push(format!("its store: {defect}"));
        }
        defects
    }
}

#[cfg(test)]
mod damage;
