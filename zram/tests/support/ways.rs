//! The ways to free discarded pages that a test goes through: four with the feature `study`,
//! otherwise one.

use ramfold_zram::ZramConfig;

/// A way to free discarded pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Way(#[cfg(feature = "study")] ramfold_zram::study::FreeDesign);

/// Every way.
#[cfg(feature = "study")]
pub(crate) fn all() -> Vec<Way> {
    ramfold_zram::study::FreeDesign::ALL.map(Way).to_vec()
}

/// Every way.
#[cfg(not(feature = "study"))]
pub(crate) fn all() -> Vec<Way> {
    vec![Way::default()]
}

impl Way {
    /// The configuration of a device that frees in this way.
    #[cfg(feature = "study")]
    pub(crate) fn of(self, config: ZramConfig) -> ZramConfig {
        ZramConfig { study: self.0.into(), ..config }
    }

    /// The configuration of a device that frees in this way.
    #[cfg(not(feature = "study"))]
    pub(crate) fn of(self, config: ZramConfig) -> ZramConfig {
        config
    }

    /// Whether pages that were discarded are in the counters until they are freed.
    #[cfg(feature = "study")]
    pub(crate) fn counts_pending(self) -> bool {
        self.0 == ramfold_zram::study::FreeDesign::Entries
    }

    /// Whether pages that were discarded are in the counters until they are freed.
    #[cfg(not(feature = "study"))]
    pub(crate) fn counts_pending(self) -> bool {
        false
    }
}
