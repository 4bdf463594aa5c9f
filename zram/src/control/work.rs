//! Work on stored pages, as attributes ask for it: `idle`, `writeback`, `recompress`. The text of
//! `block_state` is here too.
//!
//! Invariant: all of a text is understood before anything is done. Lock: the device's turn, so that
//! one of them runs at a time, and no reset meanwhile.

use super::device::Device;
use super::settings::Settings;
use crate::attributes::work::{idleness, recompression_asked, written_back};
use crate::attributes::{Attribute, AttributeError, Errno};
use crate::device::Zram;
use crate::terms::{PRIORITIES, PostError, Recompress, Selection};

/// Bytes of a line of `block_state`.
const LINE_LEN: usize = 41;

/// Marks pages idle.
pub(crate) fn idle(device: &Device, text: &str) -> Result<(), AttributeError> {
    let notes_ages = || device.disk().is_some_and(|disk| disk.ages().is_some());
    let which = idleness(text, device.shared().defaults().notes_ages() || notes_ages())?;
    let _turn = device.turn()?;
    device.turn_tiers_off(Attribute::Idle);
    device.initialised()?.mark_idle(which).map_err(refusal)?;
    Ok(())
}

/// Writes pages back.
pub(crate) fn writeback(device: &Device, text: &str) -> Result<(), AttributeError> {
    let _turn = device.turn()?;
    let disk = device.initialised()?;
    if disk.config().backing.is_none() {
        return Err(refusal(PostError::NoBacking));
    }
    let (ranges, kind) = written_back(text, Some(disk.pages()))?;
    device.turn_tiers_off(Attribute::Writeback);
    let pages = (!ranges.is_empty()).then_some(Selection::Pages(ranges));
    let mut failed = None;
    for selection in pages.into_iter().chain(kind) {
        // The last failure is reported. A failure does not keep other pages from being tried.
        failed = disk.write_back(&selection.into()).err().or(failed);
    }
    failed.map_or(Ok(()), |error| Err(refusal(error)))
}

/// Compresses pages again.
pub(crate) fn recompress(device: &Device, text: &str) -> Result<(), AttributeError> {
    let _turn = device.turn()?;
    let disk = device.initialised()?;
    recompression_asked(text)?;
    device.turn_tiers_off(Attribute::Recompress);
    let what = recompression(text, &device.state().settings)?;
    disk.recompress(&what).map_err(refusal)?;
    Ok(())
}

fn recompression(text: &str, settings: &Settings) -> Result<Recompress, AttributeError> {
    let (what, priority, name) = recompression_asked(text)?;
    Ok(Recompress { priority: recompress_priority(priority, name, settings)?, ..what })
}

/// The priority named, or that of the algorithm named. By default it is the first of the secondary
/// ones.
fn recompress_priority(
    named: Option<u64>,
    algorithm: Option<&str>,
    settings: &Settings,
) -> Result<u8, AttributeError> {
    let secondary = 1..PRIORITIES;
    let has = |priority: usize| settings.algorithms[priority].is_some();
    let is = |priority: usize, name: &str| {
        settings.algorithms[priority].is_some_and(|algorithm| algorithm.name() == name)
    };
    let found = match (named, algorithm) {
        (None, Some(name)) => secondary.clone().find(|&priority| is(priority, name)),
        (named, name) => usize::try_from(named.unwrap_or(1))
            .ok()
            .filter(|priority| secondary.contains(priority) && has(*priority))
            .filter(|&priority| name.is_none_or(|name| is(priority, name))),
    };
    let none =
        || AttributeError::invalid("no such priority, or no algorithm there; see recomp_algorithm");
    found.map(|priority| priority as u8).ok_or_else(none)
}

fn refusal(error: PostError) -> AttributeError {
    let errno = match &error {
        PostError::NoBacking => Errno::NoDevice,
        PostError::OutOfRange { .. } => Errno::Range,
        PostError::NoMemory => Errno::NoMemory,
        PostError::NoSpace => Errno::NoSpace,
        PostError::LimitReached => Errno::Io,
        PostError::Invalid(_) => Errno::Invalid,
        other => Errno::Os(other.errno()),
    };
    let right = match &error {
        PostError::NoBacking => "; write its path to backing_dev before disksize".into(),
        PostError::LimitReached => "; write more blocks to writeback_limit".into(),
        PostError::Backing(why) => format!(" ({why}), other pages were tried"),
        _ => String::new(),
    };
    AttributeError::new(errno, format!("{error}{right}"))
}

/// A part of the text of `block_state`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockStates {
    /// Whole lines.
    pub text: String,
    /// The page from which to go on. `None` at the end.
    pub next: Option<u64>,
}

/// Lines of `block_state` from a page on.
pub(crate) fn block_states(
    device: &Device,
    page: u64,
    bytes_max: usize,
) -> Result<BlockStates, AttributeError> {
    let disk = device.initialised()?;
    Ok(lines(&disk, page, (bytes_max / LINE_LEN).max(1)))
}

fn lines(disk: &Zram, page: u64, lines_max: usize) -> BlockStates {
    let mut states = disk.block_states(page..disk.pages());
    let text = states.by_ref().take(lines_max).map(|state| state.to_string()).collect();
    BlockStates { text, next: states.next().map(|state| state.page) }
}
