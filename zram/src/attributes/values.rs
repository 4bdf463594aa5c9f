//! Values of attributes: the rules for a text that is written to one.
//!
//! Invariant: a function here judges only the text, so its answer is the same before there is a
//! device.

use host::PAGE_SIZE;

use super::errno::{AttributeError, Errno};
use super::number::{NumberError, decimal, size, truth};

/// The most bytes of a value.
const VALUE_MAX: usize = PAGE_SIZE;

/// Frames of the longest zspage.
const FRAMES_MAX: u64 = 16;

/// The error for writing to an attribute that shows figures.
pub(crate) fn read_only() -> Result<(), AttributeError> {
    Err(AttributeError::new(Errno::Access, "it can only be read"))
}

/// The written text, up to a zero byte.
pub(crate) fn contents(value: &[u8]) -> Result<&[u8], AttributeError> {
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    if end > VALUE_MAX {
        let message = format!("a value has at most {VALUE_MAX} bytes");
        return Err(AttributeError::new(Errno::TooLong, message));
    }
    Ok(&value[..end])
}

/// Bytes of a disk, in whole pages.
pub(crate) fn size_of(text: &str) -> Result<u64, AttributeError> {
    let right = "a size: a whole number with K, M, G or T, as in 512M";
    // In the kernel a number that does not fit wraps to 0, or is refused as 0.
    let bytes = size(text).ok().filter(|&bytes| bytes > 0);
    let wrong = || AttributeError::invalid(format!("{:?} is not {right}", text.trim_end()));
    let bytes = bytes.and_then(|bytes| bytes.checked_next_multiple_of(PAGE_SIZE as u64));
    bytes.ok_or_else(wrong)
}

/// Whether a number is one that resets the device.
pub(crate) fn reset_number(text: &str) -> Result<(), AttributeError> {
    let right = "a number from 1 to 65535";
    let number = decimal(text).map_err(|error| error.with(text, right))?;
    match number {
        0 => Err(AttributeError::invalid("0 resets nothing; write 1")),
        1..=0xffff => Ok(()),
        _ => Err(NumberError::TooLarge.with(text, right)),
    }
}

/// Bytes of a limit, in whole pages. In the kernel a limit that is too large becomes no limit.
pub(crate) fn limit_of(text: &str) -> Result<u64, AttributeError> {
    pages_for("limit", text)
}

/// Bytes of a target, in whole pages; 0 means none.
pub(crate) fn target_of(text: &str) -> Result<u64, AttributeError> {
    pages_for("target", text)
}

/// Bytes for something that 0 means none of, in whole pages.
fn pages_for(what: &str, text: &str) -> Result<u64, AttributeError> {
    let refused = |why: &str| {
        let text = text.trim_end();
        AttributeError::invalid(format!("{text:?} is {why}; write 0 for no {what}"))
    };
    let too_large = || refused(&format!("too large for a {what}"));
    let bytes = size(text).map_err(|error| match error {
        NumberError::NotANumber => refused("not a size"),
        NumberError::TooLarge => too_large(),
    })?;
    bytes.checked_next_multiple_of(PAGE_SIZE as u64).ok_or_else(too_large)
}

/// Whether a number is 0, the only one that `mem_used_max` takes.
pub(crate) fn zero(text: &str) -> Result<(), AttributeError> {
    if decimal(text) != Ok(0) {
        let message =
            format!("it can only be set to 0, which starts it anew, not {:?}", text.trim_end());
        return Err(AttributeError::invalid(message));
    }
    Ok(())
}

/// A number of blocks that may be written back.
pub(crate) fn blocks(text: &str) -> Result<u64, AttributeError> {
    decimal(text).map_err(|error| error.invalid(text, "a number of 4 KiB blocks"))
}

/// A number, where any but 0 means yes.
pub(crate) fn enabled(text: &str) -> Result<bool, AttributeError> {
    decimal(text).map(|number| number != 0).map_err(|_| refused(text, "a number, 0 for no"))
}

/// Blocks in flight at a time.
pub(crate) fn batch(text: &str) -> Result<u32, AttributeError> {
    let blocks = decimal(text).ok().and_then(|blocks| u32::try_from(blocks).ok());
    let blocks = blocks.filter(|&blocks| blocks > 0);
    blocks.ok_or_else(|| refused(text, "a number of blocks from 1 to 4294967295"))
}

/// The chain order of zspages with at most so many frames.
pub(crate) fn chain_order(text: &str) -> Result<u32, AttributeError> {
    let frames = decimal(text).ok().filter(|&frames| frames <= FRAMES_MAX);
    let order = frames.and_then(u64::checked_ilog2).filter(|&order| Some(1 << order) == frames);
    order.ok_or_else(|| refused(text, "a number of frames: 1, 2, 4, 8 or 16"))
}

/// The error for a value. `right` says what would be valid.
fn refused(text: &str, right: &str) -> AttributeError {
    AttributeError::invalid(format!("{:?} is not {right}", text.trim_end()))
}

/// Yes or no, in one of the kernel's spellings.
pub(crate) fn yes_or_no(text: &str) -> Result<bool, AttributeError> {
    truth(text).ok_or_else(|| refused(text, "0 or 1"))
}
