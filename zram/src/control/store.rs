//! The effect of writing to attributes.
//!
//! Invariant: a value that is not understood changes nothing. Locks: the device's turn for settings
//! that are fixed with the size and for work that takes long; otherwise the state, for a moment.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use disk::{Disk, FileDisk, NbdDisk};
use host::PAGE_SIZE;

use super::device::Device;
use super::settings::{Backing, PRIMARY};
use super::{initialise, work};
use crate::attributes::algorithms::{Request, algorithm, recompression};
use crate::attributes::values::{
    batch, blocks, chain_order, contents, enabled, limit_of, read_only, reset_number, yes_or_no,
    zero,
};
use crate::attributes::{Attribute, AttributeError, Errno};
use crate::device::Zram;

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
        A::MemoryTarget => initialise::memory_target(device, text),
        A::MemUsedMax => mem_used_max(device, text),
        A::Compact => compact(device),
        A::Idle => work::idle(device, text),
        A::Writeback => work::writeback(device, text),
        A::Recompress => work::recompress(device, text),
        A::WritebackLimit => writeback_limit(device, text),
        A::WritebackLimitEnable => writeback_limit_enable(device, text),
        A::WritebackBatchSize => writeback_batch_size(device, text),
        A::CompressedWriteback => compressed_writeback(device, text),
        A::PagesPerPoolPage => pages_per_pool_page(device, text),
        A::BackingDev => Ok(()),
        A::Initstate | A::IoStat | A::MmStat | A::BdStat | A::DebugStat => read_only(),
    }
}

fn reset(device: &Device, text: &str) -> Result<(), AttributeError> {
    reset_number(text)?;
    initialise::reset(device)
}

fn comp_algorithm(device: &Device, text: &str) -> Result<(), AttributeError> {
    let algorithm = algorithm(text)?;
    let _turn = device.turn()?;
    device.check_uninitialised()?;
    device.state_mut().settings.choose(PRIMARY, algorithm);
    Ok(())
}

fn recomp_algorithm(device: &Device, text: &str) -> Result<(), AttributeError> {
    let (priority, algorithm) = recompression(text)?;
    let _turn = device.turn()?;
    device.check_uninitialised()?;
    device.state_mut().settings.choose(priority, algorithm);
    Ok(())
}

fn algorithm_params(device: &Device, text: &str) -> Result<(), AttributeError> {
    let request = Request::parse(text)?;
    // The guard is foreign, so it is called before the turn.
    let judged = request.dictionary().map_or(Ok(()), |path| device.shared().check_path(path));
    let _turn = device.turn()?;
    device.check_uninitialised()?;
    let priority = device.state().settings.priority_asked(&request)?;
    // The set is replaced as a whole, even if the dictionary cannot be read, as in the kernel.
    device.state_mut().settings.set_parameters(priority, Default::default());
    judged?;
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

fn mem_used_max(device: &Device, text: &str) -> Result<(), AttributeError> {
    zero(text)?;
    device.state().disk.iter().for_each(|disk| disk.reset_mem_used_max());
    Ok(())
}

fn compact(device: &Device) -> Result<(), AttributeError> {
    let _turn = device.turn()?;
    device.initialised()?.compact();
    Ok(())
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

fn writeback_batch_size(device: &Device, text: &str) -> Result<(), AttributeError> {
    let blocks = batch(text)?;
    let mut state = device.state_mut();
    state.settings.writeback_batch_size = Some(blocks);
    let set = |disk: &Arc<Zram>| disk.set_writeback_batch_size(blocks);
    // It refuses only 0.
    state
        .disk
        .as_ref()
        .map_or(Ok(()), set)
        .map_err(|error| AttributeError::invalid(error.to_string()))
}

fn compressed_writeback(device: &Device, text: &str) -> Result<(), AttributeError> {
    let compressed = yes_or_no(text)?;
    let _turn = device.turn()?;
    device.check_uninitialised()?;
    device.state_mut().settings.compressed_writeback = compressed;
    Ok(())
}

/// Too late is EINVAL here, as in study S1; the kernel's attributes have EBUSY for that.
fn pages_per_pool_page(device: &Device, text: &str) -> Result<(), AttributeError> {
    let chain_order = chain_order(text)?;
    let _turn = device.turn()?;
    let late = |error: AttributeError| AttributeError::invalid(error.to_string());
    device.check_uninitialised().map_err(late)?;
    device.state_mut().settings.chain_order = chain_order;
    Ok(())
}

fn backing_dev(device: &Device, value: &[u8]) -> Result<(), AttributeError> {
    let path = Path::new(OsStr::from_bytes(value.strip_suffix(b"\n").unwrap_or(value)));
    // The guard is foreign, so it is called before the turn.
    let judged = device.shared().check_path(path);
    let _turn = device.turn()?;
    device.check_uninitialised()?;
    judged?;
    check_other(device, path)?;
    let (disk, remote) = open_backing(path)?;
    let backing = Backing { path: path.into(), disk, remote };
    // This is dropped outside of the lock, because closing a device may wait for it.
    let _before = device.state_mut().settings.backing.replace(backing);
    Ok(())
}

/// Refuses the present path, as in the kernel, because a device can be opened by one user only.
fn check_other(device: &Device, path: &Path) -> Result<(), AttributeError> {
    match &device.state().settings.backing {
        Some(backing) if backing.path == path => {
            let why = "is the backing device already; to have it opened anew write reset first";
            Err(AttributeError::busy(format!("{} {why}", path.display())))
        }
        _ => Ok(()),
    }
}

/// The disk at a path, or that of an NBD server.
fn open_backing(path: &Path) -> Result<(Arc<dyn Disk>, Option<NbdDisk>), AttributeError> {
    let address = path.to_str().filter(|text| NbdDisk::is_address(text));
    let Some(address) = address else { return Ok((Arc::new(open_file(path)?), None)) };
    let failed = |error: std::io::Error| AttributeError::from_io(address, &error);
    let disk = NbdDisk::open(address).map_err(failed)?;
    let refused = |why: &str| AttributeError::invalid(format!("{address} {why}"));
    if disk.read_only() {
        return Err(refused("cannot be written to"));
    }
    if disk.size_bytes() < PAGE_SIZE as u64 {
        return Err(refused("is smaller than a page"));
    }
    Ok((Arc::new(disk.clone()), Some(disk)))
}

fn open_file(path: &Path) -> Result<FileDisk, AttributeError> {
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
