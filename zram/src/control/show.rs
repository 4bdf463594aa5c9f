//! The text that attributes print, to the byte.
//!
//! Invariant: a device without a size prints what the kernel's does: zeros, its settings, and its
//! limit. Lock: the state, to clone what is needed.

use super::device::Device;
use super::settings::{PRIMARY, Settings};
use crate::attributes::algorithms::list;
use crate::attributes::{Attribute, AttributeError, Errno};
use crate::backing::BdStat;
use crate::report::{IoStat, MmStat};

/// The version of the form of `debug_stat`.
const DEBUG_VERSION: u32 = 1;

/// The text of an attribute.
pub(crate) fn show(device: &Device, attribute: Attribute) -> Result<String, AttributeError> {
    use Attribute as A;
    let state = device.state();
    let (settings, disk) = (&state.settings, &state.disk);
    Ok(match attribute {
        A::Disksize => line(disk.as_ref().map_or(0, |disk| disk.config().disksize)),
        A::Initstate => line(u64::from(disk.is_some())),
        A::CompAlgorithm => primary(settings),
        A::RecompAlgorithm => recompression_list(settings),
        A::BackingDev => backing(settings),
        A::MemoryTarget => line(settings.memory_target),
        A::WritebackLimit => line(state.writeback_limit()),
        A::WritebackLimitEnable => line(u64::from(settings.writeback_limit_enable)),
        A::WritebackBatchSize => line(u64::from(settings.batch_size())),
        A::CompressedWriteback => line(u64::from(settings.compressed_writeback)),
        A::PagesPerPoolPage => line(1 << settings.chain_order),
        A::IoStat => disk.as_ref().map_or(NO_REQUESTS, |disk| disk.io_stat()).to_string(),
        A::MmStat => match disk {
            Some(disk) => disk.mm_stat().to_string(),
            None => MmStat([0, 0, 0, settings.mem_limit, 0, 0, 0, 0, 0]).to_string(),
        },
        A::BdStat => disk.as_ref().map_or(BdStat::default(), |disk| disk.bd_stat()).to_string(),
        A::DebugStat => format!("version: {DEBUG_VERSION}\n0 {:>8}\n", 0),
        A::Reset
        | A::AlgorithmParams
        | A::MemLimit
        | A::MemUsedMax
        | A::Compact
        | A::Idle
        | A::Writeback
        | A::Recompress => {
            let message = format!("{attribute} can only be written");
            return Err(AttributeError::new(Errno::Access, message));
        }
    })
}

const NO_REQUESTS: IoStat = IoStat { failed_reads: 0, failed_writes: 0, notify_free: 0 };

fn line(value: u64) -> String {
    format!("{value}\n")
}

fn primary(settings: &Settings) -> String {
    settings.algorithms[PRIMARY].map_or_else(String::new, list)
}

fn backing(settings: &Settings) -> String {
    match &settings.backing {
        Some(backing) => format!("{}\n", backing.path.display()),
        None => "none\n".to_owned(),
    }
}

/// The text of `recomp_algorithm`: a line for each priority that has an algorithm.
fn recompression_list(settings: &Settings) -> String {
    let rows = settings.algorithms.iter().enumerate().skip(1);
    let chosen = rows.filter_map(|(priority, algorithm)| Some((priority, (*algorithm)?)));
    chosen.map(|(priority, algorithm)| format!("#{priority}: {}", list(algorithm))).collect()
}
