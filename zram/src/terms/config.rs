//! The configuration of a device.
//!
//! Names and defaults are those of the kernel's driver where it has one.
//!
//! Invariant: a configuration only says what is wanted. `Zram::new` judges it.

use std::sync::Arc;

use codec::Codec;
use disk::Disk;
use zsmalloc::Rule;

use super::tiers::Density;

/// Priorities of algorithms: 0 is the device's own, 1 to 3 are for recompression.
pub(crate) const PRIORITIES: usize = 4;
/// Algorithms in addition to the device's own.
const SECONDARY: usize = PRIORITIES - 1; // 3

/// The configuration of a device.
#[derive(Clone)]
pub struct ZramConfig {
    /// The device's name, as `stat` shows it.
    pub name: String,
    /// Bytes of the disk, rounded up to a page. This is how much a client may store, not how much
    /// memory the disk may take.
    pub disksize: u64,
    /// Algorithm and level of pages that are written: priority 0.
    pub algorithm: Codec,
    /// The algorithms that pages may be recompressed with: priorities 1 to 3.
    pub recompression: [Option<Codec>; SECONDARY],
    /// The disk that pages are written back to. It belongs to the device alone. The first 2 TiB are
    /// used.
    pub backing: Option<Arc<dyn Disk>>,
    /// Whether pages are written back in compressed form, and decompressed when they are read.
    /// Otherwise they are written back as the client wrote them.
    pub compressed_writeback: bool,
    /// Whether to note when each page was last accessed. That takes 4 bytes for each page, where
    /// pages are stored.
    pub track_ages: bool,
    /// Whether pages that are equal are stored once, see docs/zram.md. The hints that find them
    /// take up to 8 bytes for each page of the disk, and 128 MiB at most.
    pub share_equal_pages: bool,
    /// Chain order N: at most 2^N frames per zspage, 0 to 4.
    pub chain_order: u32,
    /// How size classes are chosen.
    pub rule: Rule,
    /// The most bytes that objects may take; 0 means no limit.
    pub mem_limit: u64,
    /// Whether to refuse writes.
    pub read_only: bool,
    /// What a study compares.
    #[cfg(feature = "study")]
    pub study: super::study::Study,
}

impl ZramConfig {
    /// The kernel driver's defaults where it has one, for a disk of `disksize` bytes.
    pub fn new(name: &str, disksize: u64) -> ZramConfig {
        ZramConfig {
            name: name.into(),
            disksize,
            algorithm: Codec::new(codec::Algorithm::Lz4),
            recompression: [const { None }; SECONDARY],
            backing: None,
            compressed_writeback: false,
            track_ages: false,
            share_equal_pages: false,
            chain_order: 3,
            rule: Rule::LeastWaste,
            mem_limit: 0,
            read_only: false,
            #[cfg(feature = "study")]
            study: super::study::Study::default(),
        }
    }
}

impl ZramConfig {
    /// With what tiers of a density need: ages, and an algorithm that learns from the device's
    /// pages, at the highest priority. [`Density::Fast`] needs nothing.
    #[must_use]
    pub fn with_tiers(mut self, density: Density) -> ZramConfig {
        if density != Density::Fast {
            self.track_ages = true;
            self.recompression[SECONDARY - 1] = density.learning_codec();
        }
        self
    }

    /// The algorithm of the highest priority that is configured, besides the device's own.
    pub(crate) fn configured_densest(&self) -> Option<(u8, &Codec)> {
        let priorities = (1..PRIORITIES as u8).rev();
        priorities
            .zip(self.recompression.iter().rev())
            .find_map(|(priority, codec)| Some((priority, codec.as_ref()?)))
    }

    /// Whether pages may be stored in units. Tiers of the density `dense` make them.
    pub(crate) fn has_units(&self) -> bool {
        self.track_ages && self.configured_densest().is_some_and(|(_, codec)| codec.packs_units())
    }

    /// Whether an algorithm is configured for a priority.
    pub(crate) fn has_priority(&self, priority: u8) -> bool {
        match usize::from(priority).checked_sub(1) {
            None => true,
            Some(other) => self.recompression.get(other).is_some_and(Option::is_some),
        }
    }
}

impl std::fmt::Debug for ZramConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut config = f.debug_struct("ZramConfig");
        config
            .field("name", &self.name)
            .field("disksize", &self.disksize)
            .field("algorithm", &self.algorithm)
            .field("recompression", &self.recompression)
            .field("backing_bytes", &self.backing.as_ref().map(|disk| disk.size_bytes()))
            .field("compressed_writeback", &self.compressed_writeback)
            .field("track_ages", &self.track_ages)
            .field("share_equal_pages", &self.share_equal_pages)
            .field("chain_order", &self.chain_order)
            .field("rule", &self.rule)
            .field("mem_limit", &self.mem_limit)
            .field("read_only", &self.read_only);
        #[cfg(feature = "study")]
        config.field("study", &self.study);
        config.finish()
    }
}
