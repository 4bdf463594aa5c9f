//! The attributes of a device: their names, and whether they can be read and written.
//!
//! Invariant: the names, their modes and their meanings are the kernel's, except two that no kernel
//! has: `pages_per_pool_page`, which is that of study S1, and `memory_target`. A mode holds for
//! every user, including the superuser.

use std::fmt;

const READ_WRITE: u16 = 0o644;
const READ_ONLY: u16 = 0o444;
const WRITE_ONLY: u16 = 0o200;

/// Makes the enumeration, and everything that depends on its members, from one table.
macro_rules! attributes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $mode:ident;)*) => {
        /// An attribute of a device. Its text is read by [`Device::show`] and written by
        /// [`Device::store`].
        ///
        /// [`Device::show`]: crate::Device::show
        /// [`Device::store`]: crate::Device::store
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Attribute {
            $($(#[$doc])* $variant,)*
        }

        impl Attribute {
            /// All of them.
            pub const ALL: [Attribute; [$($name),*].len()] = [$(Attribute::$variant),*];

            /// Its name, which is that of its file.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Attribute::$variant => $name,)*
                }
            }

            /// The permission bits of its file: 0644, 0444 or 0200.
            pub const fn mode(self) -> u16 {
                match self {
                    $(Attribute::$variant => $mode,)*
                }
            }
        }
    };
}

attributes! {
    /// Bytes of the disk. Writing it initialises the device.
    Disksize = "disksize", READ_WRITE;
    /// Whether the device is initialised.
    Initstate = "initstate", READ_ONLY;
    /// Resets the device to its state when it was added.
    Reset = "reset", WRITE_ONLY;
    /// The algorithm that pages are compressed with when they are written.
    CompAlgorithm = "comp_algorithm", READ_WRITE;
    /// Up to three algorithms that pages may be compressed with once more.
    RecompAlgorithm = "recomp_algorithm", READ_WRITE;
    /// Level, dictionary and window of an algorithm.
    AlgorithmParams = "algorithm_params", WRITE_ONLY;
    /// The most bytes that objects may take.
    MemLimit = "mem_limit", WRITE_ONLY;
    /// The bytes that objects are held at.
    MemoryTarget = "memory_target", READ_WRITE;
    /// Makes the present use the highest use.
    MemUsedMax = "mem_used_max", WRITE_ONLY;
    /// Moves objects together, and frees frames.
    Compact = "compact", WRITE_ONLY;
    /// Marks pages that were not used for some time.
    Idle = "idle", WRITE_ONLY;
    /// Moves pages to the backing device.
    Writeback = "writeback", WRITE_ONLY;
    /// The file or block device that pages are moved to.
    BackingDev = "backing_dev", READ_WRITE;
    /// Blocks of 4 KiB that may still be written back.
    WritebackLimit = "writeback_limit", READ_WRITE;
    /// Whether that limit is enabled.
    WritebackLimitEnable = "writeback_limit_enable", READ_WRITE;
    /// Blocks that may be in flight to the backing device.
    WritebackBatchSize = "writeback_batch_size", READ_WRITE;
    /// Whether pages go to the backing device in compressed form.
    CompressedWriteback = "compressed_writeback", READ_WRITE;
    /// Frames of a zspage at most.
    PagesPerPoolPage = "pages_per_pool_page", READ_WRITE;
    /// Compresses pages with another algorithm.
    Recompress = "recompress", WRITE_ONLY;
    /// Requests that failed, and pages discarded.
    IoStat = "io_stat", READ_ONLY;
    /// How much is stored, and the memory that it takes.
    MmStat = "mm_stat", READ_ONLY;
    /// How much is on the backing device.
    BdStat = "bd_stat", READ_ONLY;
    /// Figures for developers of the driver.
    DebugStat = "debug_stat", READ_ONLY;
}

impl Attribute {
    /// The attribute with this name.
    pub fn from_name(name: &str) -> Option<Attribute> {
        Attribute::ALL.into_iter().find(|attribute| attribute.name() == name)
    }

    /// Whether it can be read.
    pub const fn is_readable(self) -> bool {
        self.mode() & 0o444 != 0
    }

    /// Whether it can be written.
    pub const fn is_writable(self) -> bool {
        self.mode() & 0o200 != 0
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
