//! What writing to attributes does.
//!
//! Invariant: a value that is not understood changes nothing. Locks: the device's turn for what is
//! fixed with the size and for what takes long; else the state for a moment.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use disk::{Disk, FileDisk};
use zsmalloc::PAGE_SIZE;

use super::attribute::Attribute;
use super::errno::{AttributeError, Errno};
use super::initialise::{self, check_uninitialised};
use super::life::Device;
use super::number::{NumberError, decimal, size, truth};
use super::parameters::{Request, algorithm, recompression};
use super::post;
use super::settings::{Backing, PRIMARY};
use crate::device::Zram;

/// Bytes of a value, at most.
const VALUE_MAX: usize = PAGE_SIZE;

/// Writes an attribute.
pub(crate) fn store(
    device: &Device,
    attribute: Attribute,
    value: &[u8],
) -> Result<(), AttributeError> {
    use Attribute as A;
    let value = contents(value)?;
    if attribute == A::BackingDev {
        return backing_dev(device, value);
    }
    let not_text = |_| AttributeError::invalid("the value is not text");
    let text = std::str::from_utf8(value).map_err(not_text)?;
    match attribute {
        A::Disksize => initialise::disksize(device, text),
        A::Reset => reset(device, text),
        A::CompAlgorithm => comp_algorithm(device, text),
        A::RecompAlgorithm => recomp_algorithm(device, text),
        A::AlgorithmParams => algorithm_params(device, text),
        A::MemLimit => mem_limit(device, text),
        A::MemUsedMax => mem_used_max(device, text),
        A::Compact => compact(device),
        A::Idle => post::idle(device, text),
        A::Writeback => post::writeback(device, text),
        A::Recompress => post::recompress(device, text),
        A::WritebackLimit => writeback_limit(device, text),
        A::WritebackLimitEnable => writeback_limit_enable(device, text),
        A::WritebackBatchSize => writeback_batch_size(device, text),
        A::CompressedWriteback => compressed_writeback(device, text),
        A::BackingDev => Ok(()),
        A::Initstate | A::IoStat | A::MmStat | A::BdStat | A::DebugStat => read_only(),
    }
}

/// What writing to figures ends in.
pub(crate) fn read_only() -> Result<(), AttributeError> {
    Err(AttributeError::new(Errno::Access, "it can only be read"))
}

/// What was written, up to a zero byte.
fn contents(value: &[u8]) -> Result<&[u8], AttributeError> {
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    if end > VALUE_MAX {
        let message = format!("a value has at most {VALUE_MAX} bytes");
        return Err(AttributeError::new(Errno::TooLong, message));
    }
    Ok(&value[..end])
}

fn reset(device: &Device, text: &str) -> Result<(), AttributeError> {
    reset_number(text)?;
    initialise::reset(device)
}

/// Whether a number is one that resets.
pub(crate) fn reset_number(text: &str) -> Result<(), AttributeError> {
    let right = "a number from 1 to 65535";
    let number = decimal(text).map_err(|error| error.with(text, right))?;
    match number {
        0 => Err(AttributeError::invalid("0 resets nothing; write 1")),
        1..=0xffff => Ok(()),
        _ => Err(NumberError::TooLarge.with(text, right)),
    }
}

fn comp_algorithm(device: &Device, text: &str) -> Result<(), AttributeError> {
    let algorithm = algorithm(text)?;
    let _turn = device.turn()?;
    check_uninitialised(device)?;
    device.state_mut().settings.choose(PRIMARY, algorithm);
    Ok(())
}

fn recomp_algorithm(device: &Device, text: &str) -> Result<(), AttributeError> {
    let (priority, algorithm) = recompression(text)?;
    let _turn = device.turn()?;
    check_uninitialised(device)?;
    device.state_mut().settings.choose(priority, algorithm);
    Ok(())
}

fn algorithm_params(device: &Device, text: &str) -> Result<(), AttributeError> {
    let request = Request::parse(text)?;
    let _turn = device.turn()?;
    check_uninitialised(device)?;
    let priority = request.priority(&device.state().settings)?;
    // The set is replaced as a whole: also where the dictionary cannot be read, as in the kernel.
    device.state_mut().settings.set_parameters(priority, Default::default());
    request.dictionary().map_or(Ok(()), |path| device.shared().check_path(path))?;
    let parameters = request.into_parameters()?;
    device.state_mut().settings.set_parameters(priority, parameters);
    Ok(())
}

fn mem_limit(device: &Device, text: &str) -> Result<(), AttributeError> {
    let bytes = limit_of(text)?;
    if let Some(most) = device.memory().limit_max().filter(|&most| bytes == 0 || bytes > most) {
        let message = format!(
            "at most {most} bytes: the system refused addresses for more when the memory was \
             made; raise `ulimit -v` and start again"
        );
        return Err(AttributeError::new(Errno::NoMemory, message));
    }
    let mut state = device.state_mut();
    state.settings.mem_limit = bytes;
    state.disk.iter().for_each(|disk| disk.set_mem_limit(bytes));
    Ok(())
}

/// Bytes of a limit, whole pages. The kernel makes no limit of one that is too large.
pub(crate) fn limit_of(text: &str) -> Result<u64, AttributeError> {
    let refused = |what: &str| {
        let text = text.trim_end();
        AttributeError::invalid(format!("{text:?} is {what}; write 0 for no limit"))
    };
    let too_large = || refused("too large for a limit");
    let bytes = size(text).map_err(|error| match error {
        NumberError::NotANumber => refused("not a size"),
        NumberError::TooLarge => too_large(),
    })?;
    bytes.checked_next_multiple_of(PAGE_SIZE as u64).ok_or_else(too_large)
}

fn mem_used_max(device: &Device, text: &str) -> Result<(), AttributeError> {
    zero(text)?;
    device.state().disk.iter().for_each(|disk| disk.reset_mem_used_max());
    Ok(())
}

/// Whether a number is the only one that `mem_used_max` takes.
pub(crate) fn zero(text: &str) -> Result<(), AttributeError> {
    if decimal(text) != Ok(0) {
        let message =
            format!("it can only be set to 0, which starts it anew, not {:?}", text.trim_end());
        return Err(AttributeError::invalid(message));
    }
    Ok(())
}

fn compact(device: &Device) -> Result<(), AttributeError> {
    let _turn = device.turn()?;
    initialised(device)?.compact();
    Ok(())
}

/// The disk of a device that has a size.
pub(crate) fn initialised(device: &Device) -> Result<Arc<Zram>, AttributeError> {
    let missing = || AttributeError::invalid("the device is not initialised; write disksize first");
    device.disk().ok_or_else(missing)
}

/// A number of blocks that may be written back.
pub(crate) fn blocks(text: &str) -> Result<u64, AttributeError> {
    decimal(text).map_err(|error| error.invalid(text, "a number of 4 KiB blocks"))
}

fn writeback_limit(device: &Device, text: &str) -> Result<(), AttributeError> {
    let blocks = blocks(text)?;
    let mut state = device.state_mut();
    state.settings.writeback_limit = blocks;
    state.disk.iter().for_each(|disk| disk.set_writeback_limit(blocks));
    Ok(())
}

fn writeback_limit_enable(device: &Device, text: &str) -> Result<(), AttributeError> {
    let enable = enabled(text)?;
    let mut state = device.state_mut();
    state.settings.writeback_limit_enable = enable;
    state.disk.iter().for_each(|disk| disk.enable_writeback_limit(enable));
    Ok(())
}

/// A number; any but 0 is yes.
pub(crate) fn enabled(text: &str) -> Result<bool, AttributeError> {
    decimal(text).map(|number| number != 0).map_err(|_| refused(text, "a number, 0 for no"))
}

fn writeback_batch_size(device: &Device, text: &str) -> Result<(), AttributeError> {
    let blocks = batch(text)?;
    let mut state = device.state_mut();
    state.settings.writeback_batch_size = blocks;
    let set = |disk: &Arc<Zram>| disk.set_writeback_batch_size(blocks);
    // Refused for 0 only.
    state
        .disk
        .as_ref()
        .map_or(Ok(()), set)
        .map_err(|error| AttributeError::invalid(error.to_string()))
}

/// Blocks in flight at a time.
pub(crate) fn batch(text: &str) -> Result<u32, AttributeError> {
    let blocks = decimal(text).ok().and_then(|blocks| u32::try_from(blocks).ok());
    let blocks = blocks.filter(|&blocks| blocks > 0);
    blocks.ok_or_else(|| refused(text, "a number of blocks from 1 to 4294967295"))
}

/// A value that is not what is right here.
fn refused(text: &str, right: &str) -> AttributeError {
    AttributeError::invalid(format!("{:?} is not {right}", text.trim_end()))
}

fn compressed_writeback(device: &Device, text: &str) -> Result<(), AttributeError> {
    let compressed = yes_or_no(text)?;
    let _turn = device.turn()?;
    check_uninitialised(device)?;
    device.state_mut().settings.compressed_writeback = compressed;
    Ok(())
}

/// Yes or no, in one of the kernel's spellings.
pub(crate) fn yes_or_no(text: &str) -> Result<bool, AttributeError> {
    truth(text).ok_or_else(|| refused(text, "0 or 1"))
}

fn backing_dev(device: &Device, value: &[u8]) -> Result<(), AttributeError> {
    let path = Path::new(OsStr::from_bytes(value.strip_suffix(b"\n").unwrap_or(value)));
    let _turn = device.turn()?;
    check_uninitialised(device)?;
    device.shared().check_path(path)?;
    check_other(device, path)?;
    let disk = Arc::new(open_backing(path)?);
    // Out of the lock: closing a device may wait for it.
    let _before = device.state_mut().settings.backing.replace(Backing { path: path.into(), disk });
    Ok(())
}

/// The same path once more is refused, as in the kernel: it can be opened by one only.
fn check_other(device: &Device, path: &Path) -> Result<(), AttributeError> {
    match &device.state().settings.backing {
        Some(backing) if backing.path == path => {
            let why = "is the backing device already; to have it opened anew write reset first";
            Err(AttributeError::busy(format!("{} {why}", path.display())))
        }
        _ => Ok(()),
    }
}

fn open_backing(path: &Path) -> Result<FileDisk, AttributeError> {
    let shown = path.display();
    let failed = |error: std::io::Error| AttributeError::from_io(&shown, &error);
    let kind = std::fs::metadata(path).map_err(failed)?.file_type();
    if kind.is_dir() {
        return Err(AttributeError::new(Errno::IsDirectory, format!("{shown} is a directory")));
    }
    if !kind.is_file() && !kind.is_block_device() {
        let message = format!("{shown} is neither a block device nor a file");
        return Err(AttributeError::new(Errno::NotBlock, message));
    }
    let disk = FileDisk::open(path, false).map_err(failed)?;
    if disk.size_bytes() < PAGE_SIZE as u64 {
        return Err(AttributeError::invalid(format!("{shown} is smaller than a page")));
    }
    Ok(disk)
}
