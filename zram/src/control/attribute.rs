//! The attributes of a device: names, and who may read and write them.
//!
//! Invariant: the names, their modes and what they mean are the kernel's; a mode holds for
//! everybody, the superuser too.

use std::fmt;

/// An attribute of a device; its text is read by [`Device::show`], written by [`Device::store`].
///
/// [`Device::show`]: crate::Device::show
/// [`Device::store`]: crate::Device::store
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Attribute {
    /// Bytes of the disk. Writing it initialises the device.
    Disksize,
    /// Whether the device is initialised.
    Initstate,
    /// Makes the device as it was when it was added.
    Reset,
    /// The algorithm that pages are compressed with when they are written.
    CompAlgorithm,
    /// Up to three algorithms that pages may be compressed with once more.
    RecompAlgorithm,
    /// Level, dictionary and window of an algorithm.
    AlgorithmParams,
    /// The most that objects may take.
    MemLimit,
    /// Starts the highest use anew.
    MemUsedMax,
    /// Moves objects together, and frees frames.
    Compact,
    /// Marks pages that nobody uses.
    Idle,
    /// Moves pages to the backing device.
    Writeback,
    /// The file or block device that pages are moved to.
    BackingDev,
    /// Blocks of 4 KiB that may be written back still.
    WritebackLimit,
    /// Whether that limit holds.
    WritebackLimitEnable,
    /// Blocks that may be in flight to the backing device.
    WritebackBatchSize,
    /// Whether pages go to the backing device as they are stored.
    CompressedWriteback,
    /// Compresses pages with another algorithm.
    Recompress,
    /// Requests that failed, and pages discarded.
    IoStat,
    /// What is stored, and what it takes.
    MmStat,
    /// What is on the backing device.
    BdStat,
    /// What only those who work on the driver want to know.
    DebugStat,
}

use Attribute::{
    AlgorithmParams, BackingDev, BdStat, CompAlgorithm, Compact, CompressedWriteback, DebugStat,
    Disksize, Idle, Initstate, IoStat, MemLimit, MemUsedMax, MmStat, RecompAlgorithm, Recompress,
    Reset, Writeback, WritebackBatchSize, WritebackLimit, WritebackLimitEnable,
};

const READ_WRITE: u16 = 0o644;
const READ_ONLY: u16 = 0o444;
const WRITE_ONLY: u16 = 0o200;

impl Attribute {
    /// All of them.
    pub const ALL: [Attribute; 21] = [
        Disksize,
        Initstate,
        Reset,
        CompAlgorithm,
        RecompAlgorithm,
        AlgorithmParams,
        MemLimit,
        MemUsedMax,
        Compact,
        Idle,
        Writeback,
        BackingDev,
        WritebackLimit,
        WritebackLimitEnable,
        WritebackBatchSize,
        CompressedWriteback,
        Recompress,
        IoStat,
        MmStat,
        BdStat,
        DebugStat,
    ];

    /// Its name, which is that of its file.
    pub const fn name(self) -> &'static str {
        match self {
            Disksize => "disksize",
            Initstate => "initstate",
            Reset => "reset",
            CompAlgorithm => "comp_algorithm",
            RecompAlgorithm => "recomp_algorithm",
            AlgorithmParams => "algorithm_params",
            MemLimit => "mem_limit",
            MemUsedMax => "mem_used_max",
            Compact => "compact",
            Idle => "idle",
            Writeback => "writeback",
            BackingDev => "backing_dev",
            WritebackLimit => "writeback_limit",
            WritebackLimitEnable => "writeback_limit_enable",
            WritebackBatchSize => "writeback_batch_size",
            CompressedWriteback => "compressed_writeback",
            Recompress => "recompress",
            IoStat => "io_stat",
            MmStat => "mm_stat",
            BdStat => "bd_stat",
            DebugStat => "debug_stat",
        }
    }

    /// The attribute of this name.
    pub fn from_name(name: &str) -> Option<Attribute> {
        Attribute::ALL.into_iter().find(|attribute| attribute.name() == name)
    }

    /// The permission bits of its file: 0644, 0444 or 0200.
    pub const fn mode(self) -> u16 {
        match self {
            Disksize | CompAlgorithm | RecompAlgorithm | BackingDev | WritebackLimit
            | WritebackLimitEnable | WritebackBatchSize | CompressedWriteback => READ_WRITE,
            Initstate | IoStat | MmStat | BdStat | DebugStat => READ_ONLY,
            Reset | AlgorithmParams | MemLimit | MemUsedMax | Compact | Idle | Writeback
            | Recompress => WRITE_ONLY,
        }
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
