//! Work on stored pages that is asked for by a text: `idle`, `writeback`, `recompress`.
//!
//! ```text
//!   idle         all | SECONDS
//!   writeback    idle | huge | huge_idle | incompressible, bare or as type=..
//!                page_index=N page_indexes=LOW-HIGH ..          any number of them, then a type
//!   recompress   type=idle|huge|huge_idle priority=1..3 | algo=NAME threshold=BYTES max_pages=N
//! ```
//!
//! There is one difference: an unknown type of recompression is refused, and the kernel then takes
//! every page.
//!
//! Invariant: these functions only read the text, and change no device. A page number that they
//! return exists on the device if its size was given, and a range has at least one page.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::errno::{AttributeError, Errno};
use super::number::{automatic, decimal};
use super::pairs::{Pair, pairs};
use crate::terms::{Idle, Recompress, RecompressKind, Selection};

const MODES: &str = "idle, huge, huge_idle or incompressible";
/// The highest age, in seconds, because the kernel reads 32 bits.
const AGE_MAX: u64 = u32::MAX as u64; // 136 years

/// The pages that the text names. An age is allowed only if the device notes ages.
pub(crate) fn idleness(text: &str, track_ages: bool) -> Result<Idle, AttributeError> {
    let word = text.strip_suffix('\n').unwrap_or(text);
    match automatic(text) {
        _ if word == "all" => Ok(Idle::All),
        Ok(seconds) if track_ages && seconds <= AGE_MAX => {
            Ok(Idle::OlderThan(Duration::from_secs(seconds)))
        }
        Ok(_) if track_ages => {
            let message = format!("{word} is more than the {AGE_MAX} seconds an age can have");
            Err(AttributeError::invalid(message))
        }
        Ok(_) => Err(AttributeError::invalid("when pages are used is not noted; write all")),
        Err(error) => Err(error.invalid(word, "all or a number of seconds")),
    }
}

/// Pages, by number.
pub(crate) type Ranges = Vec<RangeInclusive<u64>>;

/// The pages and the kind of pages that a text names, for a device of so many pages. If no device
/// is known yet, any number is allowed.
pub(crate) fn written_back(
    text: &str,
    pages: Option<u64>,
) -> Result<(Ranges, Option<Selection>), AttributeError> {
    let mut ranges = Vec::new();
    for pair in pairs(text) {
        match (pair.key, pair.value) {
            // The old form is a kind by itself.
            (kind, None) | ("type", Some(kind)) => return Ok((ranges, Some(selection(kind)?))),
            ("page_index", Some(index)) => {
                let index = page(index, pages)?;
                ranges.push(index..=index);
            }
            ("page_indexes", Some(range)) => ranges.push(page_range(range, pages)?),
            _ => {}
        }
    }
    Ok((ranges, None))
}

fn selection(kind: &str) -> Result<Selection, AttributeError> {
    match kind {
        "idle" => Ok(Selection::Idle),
        "huge" => Ok(Selection::Huge),
        "huge_idle" => Ok(Selection::HugeIdle),
        "incompressible" => Ok(Selection::Incompressible),
        _ => Err(AttributeError::invalid(format!("{kind:?} is no kind of pages; it is {MODES}"))),
    }
}

fn page(text: &str, pages: Option<u64>) -> Result<u64, AttributeError> {
    let page = decimal(text).map_err(|error| error.with(text, "the number of a page"))?;
    if let Some(pages) = pages.filter(|&pages| page >= pages) {
        let message = format!("there is no page {page}: the device has {pages}");
        return Err(AttributeError::new(Errno::Range, message));
    }
    Ok(page)
}

fn page_range(text: &str, pages: Option<u64>) -> Result<RangeInclusive<u64>, AttributeError> {
    let wrong = || AttributeError::invalid(format!("{text:?} is not LOW-HIGH"));
    let (low, high) = text.split_once('-').ok_or_else(wrong)?;
    let (low, high) = (page(low, pages)?, page(high, pages)?);
    if low > high {
        let message = format!("{text} ends before it starts");
        return Err(AttributeError::new(Errno::Range, message));
    }
    Ok(low..=high)
}

/// The recompression that a text asks for, then the priority and the algorithm that it names.
pub(crate) fn recompression_asked(
    text: &str,
) -> Result<(Recompress, Option<u64>, Option<&str>), AttributeError> {
    let (mut name, mut priority) = (None, None);
    let mut what = Recompress::with(1);
    for pair in pairs(text) {
        let value = pair.required()?;
        match pair.key {
            "type" => what.kind = recompress_kind(value)?,
            "priority" => priority = Some(number(pair)?),
            "algo" => name = Some(value),
            "threshold" => what.threshold = threshold(pair)?,
            "max_pages" => what.max_pages = Some(number(pair)?),
            _ => {}
        }
    }
    Ok((what, priority, name))
}

fn recompress_kind(kind: &str) -> Result<RecompressKind, AttributeError> {
    match kind {
        "idle" => Ok(RecompressKind::Idle),
        "huge" => Ok(RecompressKind::Huge),
        "huge_idle" => Ok(RecompressKind::HugeIdle),
        _ => {
            let message = format!("{kind:?} is no kind of pages; it is idle, huge or huge_idle");
            Err(AttributeError::invalid(message))
        }
    }
}

fn number(pair: Pair<'_>) -> Result<u64, AttributeError> {
    let value = pair.required()?;
    let right = || format!("a whole number for {}", pair.key);
    decimal(value).map_err(|error| error.with(value, &right()))
}

fn threshold(pair: Pair<'_>) -> Result<usize, AttributeError> {
    let too_large = |_| AttributeError::new(Errno::Range, "the threshold is far above any page");
    u32::try_from(number(pair)?).map(|bytes| bytes as usize).map_err(too_large)
}
