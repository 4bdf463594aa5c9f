//! The pages of each tier, for the operator.
//!
//! Invariant: the pages of all tiers are the objects of the device, if nothing changes meanwhile.
//! Every cell is looked at, so this takes some milliseconds for each gigabyte that is stored.
//!
//! Lock: one cell at a time.

use crate::cells::kind;
use crate::device::Zram;
use crate::post::Uses;
use crate::terms::{Density, PRIORITIES, Tier, TierStat};

impl Zram {
    /// How dense tiers are to make the pages. [`Density::Fast`] if the device never had tiers.
    pub fn density(&self) -> Density {
        self.settings.tiering.density()
    }

    /// What the tiers hold, and what was done for them. `None` if the device never had tiers.
    pub fn tier_stat(&self) -> Option<TierStat> {
        let stat = self.settings.tiering.stat();
        if stat.density == Density::Fast {
            return None;
        }
        let (uses, tally) = (Uses::of(self), self.counters.tally());
        Some(TierStat {
            tiers: self.tiers(&uses),
            same_pages: tally.counts[kind::SAME],
            written_back_pages: tally.counts[kind::DISK],
            ..stat
        })
    }

    /// Why tiers were turned off, if they were. Unlike [`Zram::tier_stat`], this looks at no page.
    pub fn tiers_off(&self) -> Option<String> {
        self.settings.tiering.stat().off
    }

    /// Each algorithm that has pages: the first one, the generations of tables in their order, and
    /// what is configured besides.
    fn tiers(&self, uses: &Uses) -> Vec<Tier> {
        let generations = self.generations.all();
        let mut tiers: Vec<(Option<u32>, u8, String)> = (0..PRIORITIES as u8)
            .filter_map(|priority| {
                let number = generations.iter().find(|it| it.priority == priority);
                let codec = self.codec(priority)?;
                Some((number.map(|it| it.number), priority, codec.algorithm().to_string()))
            })
            .collect();
        tiers.sort_by_key(|&(number, priority, _)| (priority > 0, number.is_none(), number));
        let tier = |(generation, priority, algorithm): (Option<u32>, u8, String)| {
            let at = usize::from(priority);
            Tier { algorithm, generation, pages: uses.pages[at], bytes: uses.bytes[at] }
        };
        tiers.into_iter().map(tier).chain(self.units_tier(uses)).collect()
    }

    /// Pages in units, if there may be some.
    fn units_tier(&self, uses: &Uses) -> Option<Tier> {
        let (_, codec) = self.config.configured_densest()?;
        let bytes = self.values.units.as_ref()?.stat().bytes;
        let algorithm = format!("{} units", codec.algorithm());
        Some(Tier { algorithm, generation: None, pages: uses.in_units, bytes })
    }
}
