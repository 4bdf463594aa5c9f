//! The lock designs that a test goes through: three with the feature `study`, otherwise one.

use ramfold_zsmalloc::PoolConfig;

/// The default configuration, in each design.
pub(crate) fn all() -> Vec<PoolConfig> {
    #[cfg(feature = "study")]
    let studies = ramfold_zsmalloc::study::LockDesign::ALL.map(Into::into);
    #[cfg(feature = "study")]
    let configs = studies.map(|study| PoolConfig { study, ..PoolConfig::default() }).to_vec();
    #[cfg(not(feature = "study"))]
    let configs = vec![PoolConfig::default()];
    configs
}
