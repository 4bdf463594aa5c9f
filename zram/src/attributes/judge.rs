//! The objections to a value that can be raised before there is a device to write it to.
//!
//! Invariant: every device refuses a value that is refused here. A value that passes may still be
//! too late, or name something that the device does not have.

use super::algorithms::{Request, algorithm, recompression};
use super::attribute::Attribute;
use super::errno::AttributeError;
use super::{values, work};

impl Attribute {
    /// Whether some device could take this text.
    ///
    /// # Errors
    ///
    /// Those errors of [`Device::store`] that depend only on the text.
    ///
    /// [`Device::store`]: crate::Device::store
    pub fn judge(self, text: &str) -> Result<(), AttributeError> {
        use Attribute as A;
        let judged = match self {
            A::Disksize => values::size_of(text).map(drop),
            A::Reset => values::reset_number(text),
            A::CompAlgorithm => algorithm(text).map(drop),
            A::RecompAlgorithm => recompression(text).map(drop),
            A::AlgorithmParams => Request::parse(text).map(drop),
            A::MemLimit => values::limit_of(text).map(drop),
            A::MemoryTarget => values::target_of(text).map(drop),
            A::MemUsedMax => values::zero(text),
            A::Idle => work::idleness(text, true).map(drop),
            A::Writeback => work::written_back(text, None).map(drop),
            A::Recompress => work::recompression_asked(text).map(drop),
            A::WritebackLimit => values::blocks(text).map(drop),
            A::WritebackLimitEnable => values::enabled(text).map(drop),
            A::WritebackBatchSize => values::batch(text).map(drop),
            A::CompressedWriteback => values::yes_or_no(text).map(drop),
            A::PagesPerPoolPage => values::chain_order(text).map(drop),
            // Any text compacts, as in the kernel. A path is judged by opening it.
            A::Compact | A::BackingDev => Ok(()),
            A::Initstate | A::IoStat | A::MmStat | A::BdStat | A::DebugStat => values::read_only(),
        };
        judged.map_err(|error| error.of(self))
    }
}
