//! What can be said against a value before there is a device to write it to.
//!
//! Invariant: a value that is refused here is refused by every device; one that passes may still
//! be too late, or name what the device does not have.

use super::attribute::Attribute;
use super::errno::AttributeError;
use super::parameters::{Request, algorithm, recompression};
use super::{initialise, post, store};

impl Attribute {
    /// Whether some device could take this text.
    ///
    /// # Errors
    ///
    /// Those of [`Device::store`] that are the text's alone.
    ///
    /// [`Device::store`]: crate::Device::store
    pub fn judge(self, text: &str) -> Result<(), AttributeError> {
        use Attribute as A;
        let judged = match self {
            A::Disksize => initialise::size_of(text).map(drop),
            A::Reset => store::reset_number(text),
            A::CompAlgorithm => algorithm(text).map(drop),
            A::RecompAlgorithm => recompression(text).map(drop),
            A::AlgorithmParams => Request::parse(text).map(drop),
            A::MemLimit => store::limit_of(text).map(drop),
            A::MemUsedMax => store::zero(text),
            A::Idle => post::idleness(text, true).map(drop),
            A::Writeback => post::written_back(text, None).map(drop),
            A::Recompress => post::recompression_asked(text).map(drop),
            A::WritebackLimit => store::blocks(text).map(drop),
            A::WritebackLimitEnable => store::enabled(text).map(drop),
            A::WritebackBatchSize => store::batch(text).map(drop),
            A::CompressedWriteback => store::yes_or_no(text).map(drop),
            // Anything compacts, as in the kernel; a path is judged by opening it.
            A::Compact | A::BackingDev => Ok(()),
            A::Initstate | A::IoStat | A::MmStat | A::BdStat | A::DebugStat => store::read_only(),
        };
        judged.map_err(|error| error.of(self))
    }
}
