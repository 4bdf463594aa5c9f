//! Memories, dictionaries and pools, as C calls them.
//!
//! Invariants: those of the border, B1 to B3. Each SAFETY comment names what the header asks of the
//! program.

use super::pointers::{
    bytes, copy_out, element, expect, give, items, null, report, settings, taken, tell_done,
};
use super::structures::{MemoryFigures, MemorySettings, PoolFigures, PoolSettings};
use super::{Handle, free, guard, hand_over, lookup, text};
use crate::code::{Code, Failure};
use codec::Codec;
use std::ffi::c_int;
use std::sync::Arc;
use values::{Dictionary, Room, ValuePool};
use zsmalloc::Memory;

/// Bytes and their number, as a batch has them.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Bytes {
    start: *const u8,
    len: usize,
}

/// See `ramfold.h`.
///
/// # Safety
///
/// `config` is NULL or a structure; `memory` is NULL, or a handle may be written there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ramfold_memory_new(
    config: *const MemorySettings,
    memory: *mut Handle,
) -> c_int {
    guard(|| {
        // SAFETY: the header's contract for structures.
        let settings = unsafe { settings(config)? };
        // SAFETY: the header's contract for results.
        unsafe { hand_over(memory, || new_memory(&settings)) }
    })
}

fn new_memory(settings: &MemorySettings) -> Result<Arc<Memory>, Failure> {
    let memory = values::memory(Room {
        region_bytes: settings.region_bytes,
        values_max: settings.values_max,
        arena_bytes: settings.arena_bytes,
        expected_bytes: settings.expected_bytes,
        worker: settings.no_worker == 0,
    });
    Ok(memory?)
}

/// See `ramfold.h`.
///
/// # Safety
///
/// `stats` is NULL or a structure.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ramfold_memory_get_stats(
    memory: Handle,
    stats: *mut MemoryFigures,
) -> c_int {
    guard(|| {
        let memory = lookup::<Memory>(memory)?;
        let figures = MemoryFigures {
            mapped_bytes: memory.mapped_bytes(),
            free_bytes: memory.free_bytes_held(),
            metadata_bytes: memory.frame_table_bytes()
                + memory.cell_table_bytes()
                + memory.descriptor_bytes(),
            pending_bytes: memory.pending_bytes(),
            size: 0,
        };
        // SAFETY: the header's contract for structures.
        unsafe { report(stats, figures) }
    })
}

/// See `ramfold.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ramfold_memory_free(memory: Handle) -> c_int {
    guard(|| free::<Memory>(memory))
}

/// See `ramfold.h`.
///
/// # Safety
///
/// `samples` and `lengths` are NULL or as many samples; `dictionary` is NULL, or a handle may be
/// written there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ramfold_dictionary_train(
    samples: *const u8,
    lengths: *const usize,
    count: usize,
    size_max: usize,
    dictionary: *mut Handle,
) -> c_int {
    guard(|| {
        // SAFETY: the header's contract for arrays.
        let lens = unsafe { items(lengths, count)? };
        let total = lens.iter().try_fold(0_usize, |sum, &len| sum.checked_add(len));
        let total = total.ok_or_else(|| Code::Argument.because("the samples have no end"))?;
        // SAFETY: the header's contract: the lengths add up to the bytes of the samples.
        let samples = unsafe { bytes(samples, total)? };
        let train = || Ok(Arc::new(Dictionary::train(samples, lens, size_max)?));
        // SAFETY: the header's contract for results.
        unsafe { hand_over(dictionary, train) }
    })
}

/// See `ramfold.h`.
///
/// # Safety
///
/// `content` is NULL or as many bytes; `dictionary` is NULL, or a handle may be written there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ramfold_dictionary_new(
    content: *const u8,
    size: usize,
    dictionary: *mut Handle,
) -> c_int {
    guard(|| {
        // SAFETY: the header's contract for arrays.
        let content = unsafe { bytes(content, size)? };
        let make = || {
            if content.is_empty() {
                return Err(Code::Argument.because("a dictionary has at least one byte"));
            }
            let mut copy = Vec::new();
            copy.try_reserve_exact(size).map_err(|_| {
                Code::NoMemory.because("the system has no memory for a copy of the dictionary")
            })?;
            copy.extend_from_slice(content);
            Ok(Arc::new(Dictionary::new(copy)))
        };
        // SAFETY: the header's contract for results.
        unsafe { hand_over(dictionary, make) }
    })
}

/// See `ramfold.h`.
///
/// # Safety
///
/// `size` is NULL, or a number; `buffer` is NULL, or as many bytes may be written there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ramfold_dictionary_get(
    dictionary: Handle,
    buffer: *mut u8,
    size: *mut usize,
) -> c_int {
    guard(|| {
        let dictionary = lookup::<Dictionary>(dictionary)?;
        let content = dictionary.content();
        let read = |room: usize| {
            if content.len() <= room {
                // SAFETY: the header's contract: the buffer has as many bytes.
                unsafe { copy_out(buffer, content) };
            }
            Ok(content.len())
        };
        // SAFETY: the header's contract for a buffer and its size.
        unsafe { fill(buffer, size, read) }
    })
}

/// See `ramfold.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ramfold_dictionary_free(dictionary: Handle) -> c_int {
    guard(|| free::<Dictionary>(dictionary))
}

/// See `ramfold.h`.
///
/// # Safety
///
/// `config` is NULL or a structure; `pool` is NULL, or a handle may be written there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ramfold_pool_new(
    memory: Handle,
    config: *const PoolSettings,
    pool: *mut Handle,
) -> c_int {
    guard(|| {
        let memory = lookup::<Memory>(memory)?;
        // SAFETY: the header's contract for structures.
        let settings = unsafe { settings(config)? };
        // SAFETY: the header's contract for strings.
        let name = unsafe { text(settings.codec)? };
        // SAFETY: the header's contract for results.
        unsafe { hand_over(pool, || new_pool(memory, name, &settings)) }
    })
}

fn new_pool(
    memory: Arc<Memory>,
    name: Option<&str>,
    settings: &PoolSettings,
) -> Result<Arc<ValuePool>, Failure> {
    let mut codec = match name {
        Some("none") => None,
        name => Some(name.unwrap_or("lz4").parse::<Codec>()?),
    };
    if !settings.dictionary.is_null() {
        let dictionary = lookup::<Dictionary>(settings.dictionary)?;
        let unused = || Code::Unsupported.because("the codec \"none\" has no use for a dictionary");
        codec = Some(dictionary.codec(codec.as_ref().ok_or_else(unused)?)?);
    }
    let frames = Some(settings.chain_frames as usize).filter(|&frames| frames > 0);
    let values = ValuePool::new(memory, codec, frames)?;
    values.set_limit(settings.limit_bytes);
    Ok(Arc::new(values))
}

/// See `ramfold.h`.
///
/// # Safety
///
/// `bytes` is NULL or as many bytes; `value` is NULL, or a number may be written there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ramfold_pool_put(
    pool: Handle,
    start: *const u8,
    size: usize,
    value: *mut u64,
) -> c_int {
    guard(|| {
        let pool = lookup::<ValuePool>(pool)?;
        expect(value)?;
        // SAFETY: the header's contract for arrays.
        let bytes = unsafe { bytes(start, size)? };
        let number = pool.put(bytes)?;
        // SAFETY: the header's contract for results.
        unsafe { give(value, number) }
    })
}

/// See `ramfold.h`.
///
/// # Safety
///
/// `size` is NULL, or a number; `buffer` is NULL, or as many bytes may be written there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ramfold_pool_get(
    pool: Handle,
    value: u64,
    buffer: *mut u8,
    size: *mut usize,
) -> c_int {
    guard(|| {
        let pool = lookup::<ValuePool>(pool)?;
        let read = |room| {
            let mut copy = |at: usize, bytes: &[u8]| {
                // SAFETY: the header's contract: the buffer has room for a value that `get` shows.
                unsafe { copy_out(buffer.add(at), bytes) };
            };
            Ok(pool.get(value, room, &mut copy)?)
        };
        // SAFETY: the header's contract for a buffer and its size.
        unsafe { fill(buffer, size, read) }
    })
}

/// Fills a buffer of the program, and tells how long the contents are. `read` is told the room, and
/// writes nothing that has none.
///
/// # Safety
///
/// `size` is NULL, or a number.
unsafe fn fill(
    buffer: *mut u8,
    size: *mut usize,
    read: impl FnOnce(usize) -> Result<usize, Failure>,
) -> Result<(), Failure> {
    // SAFETY: the caller's contract.
    let room = unsafe { taken(size)? };
    if buffer.is_null() && room > 0 {
        return Err(null());
    }
    let len = read(room)?;
    // SAFETY: the caller's contract.
    unsafe { give(size, len)? };
    if len <= room {
        return Ok(());
    }
    Err(Code::ShortBuffer.because(format_args!("{len} bytes do not fit in a buffer of {room}")))
}

/// See `ramfold.h`.
///
/// # Safety
///
/// `size` is NULL, or a number may be written there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ramfold_pool_size(
    pool: Handle,
    value: u64,
    size: *mut usize,
) -> c_int {
    guard(|| {
        let len = lookup::<ValuePool>(pool)?.len(value)?;
        // SAFETY: the header's contract for results.
        unsafe { give(size, len) }
    })
}

/// See `ramfold.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ramfold_pool_delete(pool: Handle, value: u64) -> c_int {
    guard(|| Ok(lookup::<ValuePool>(pool)?.delete(value)?))
}

/// See `ramfold.h`.
///
/// # Safety
///
/// `batch` is NULL or as many pairs; `values` is NULL or has room for as many numbers; `done` is
/// NULL, or a number may be written there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ramfold_pool_put_many(
    pool: Handle,
    batch: *const Bytes,
    count: usize,
    values: *mut u64,
    done: *mut usize,
) -> c_int {
    guard(|| {
        // SAFETY: the header's contract for results.
        unsafe { tell_done(done, 0)? };
        let pool = lookup::<ValuePool>(pool)?;
        // SAFETY: the header's contract for arrays.
        let batch = unsafe { items(batch, count)? };
        let each = |at: usize| {
            // SAFETY: the header's contract for arrays, of each pair.
            let number = pool.put(unsafe { bytes(batch[at].start, batch[at].len)? })?;
            // SAFETY: the header's contract: there is room for a number of each pair.
            unsafe { give(element(values, at), number) }
        };
        // SAFETY: the header's contract for results.
        unsafe { one_by_one(count, values.is_null(), done, each) }
    })
}

/// See `ramfold.h`.
///
/// # Safety
///
/// `values` is NULL or as many numbers; `sizes` is NULL or has room for as many; `buffer` is NULL,
/// or `room` bytes may be written there; `done` is NULL, or a number may be written there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ramfold_pool_get_many(
    pool: Handle,
    values: *const u64,
    count: usize,
    buffer: *mut u8,
    room: usize,
    sizes: *mut usize,
    done: *mut usize,
) -> c_int {
    guard(|| {
        // SAFETY: the header's contract for results.
        unsafe { tell_done(done, 0)? };
        let pool = lookup::<ValuePool>(pool)?;
        // SAFETY: the header's contract for arrays.
        let numbers = unsafe { items(values, count)? };
        let mut used = 0;
        let each = |at: usize| {
            let start = buffer.wrapping_add(used);
            let mut len = room - used;
            let read = |room| {
                let mut copy = |at: usize, bytes: &[u8]| {
                    // SAFETY: the header's contract: so many bytes are left of the buffer.
                    unsafe { copy_out(start.add(at), bytes) };
                };
                Ok(pool.get(numbers[at], room, &mut copy)?)
            };
            // SAFETY: `len` is a number.
            let filled = unsafe { fill(start, &raw mut len, read) };
            // SAFETY: the header's contract: there is room for a size of each value.
            unsafe { give(element(sizes, at), len)? };
            used += if filled.is_ok() { len } else { 0 };
            filled
        };
        // SAFETY: the header's contract for results.
        unsafe { one_by_one(count, sizes.is_null(), done, each) }
    })
}

/// See `ramfold.h`.
///
/// # Safety
///
/// `values` is NULL or as many numbers; `done` is NULL, or a number may be written there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ramfold_pool_delete_many(
    pool: Handle,
    values: *const u64,
    count: usize,
    done: *mut usize,
) -> c_int {
    guard(|| {
        // SAFETY: the header's contract for results.
        unsafe { tell_done(done, 0)? };
        let pool = lookup::<ValuePool>(pool)?;
        // SAFETY: the header's contract for arrays.
        let numbers = unsafe { items(values, count)? };
        // SAFETY: the header's contract for results.
        unsafe { one_by_one(count, false, done, |at| Ok(pool.delete(numbers[at])?)) }
    })
}

/// Does something for each item of a batch until it fails. Writes for how many it was done, if the
/// program wants to know.
///
/// # Safety
///
/// `done` is NULL, or a number may be written there.
unsafe fn one_by_one(
    count: usize,
    lacks_results: bool,
    done: *mut usize,
    mut each: impl FnMut(usize) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if lacks_results && count > 0 {
        return Err(null());
    }
    (0..count).try_for_each(|at| {
        each(at)?;
        // SAFETY: the caller's contract.
        unsafe { tell_done(done, at + 1) }
    })
}

/// See `ramfold.h`.
///
/// # Safety
///
/// `freed_bytes` is NULL, or a number may be written there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ramfold_pool_compact(pool: Handle, freed_bytes: *mut u64) -> c_int {
    guard(|| {
        let freed = lookup::<ValuePool>(pool)?.compact();
        if freed_bytes.is_null() {
            return Ok(());
        }
        // SAFETY: the header's contract for results.
        unsafe { give(freed_bytes, freed) }
    })
}

/// See `ramfold.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ramfold_pool_set_limit(pool: Handle, bytes: u64) -> c_int {
    guard(|| {
        lookup::<ValuePool>(pool)?.set_limit(bytes);
        Ok(())
    })
}

/// See `ramfold.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ramfold_pool_check(pool: Handle) -> c_int {
    guard(|| Ok(lookup::<ValuePool>(pool)?.check()?))
}

/// See `ramfold.h`.
///
/// # Safety
///
/// `stats` is NULL or a structure.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ramfold_pool_get_stats(
    pool: Handle,
    stats: *mut PoolFigures,
) -> c_int {
    guard(|| {
        let found = lookup::<ValuePool>(pool)?.stats();
        let figures = PoolFigures {
            values: found.values,
            value_bytes: found.value_bytes,
            objects: found.objects,
            object_bytes: found.slot_bytes,
            resident_bytes: found.resident_bytes,
            overhead_bytes: found.overhead_bytes,
            pages_compacted: found.frames_compacted,
            size: 0,
        };
        // SAFETY: the header's contract for structures.
        unsafe { report(stats, figures) }
    })
}

/// See `ramfold.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ramfold_pool_free(pool: Handle) -> c_int {
    guard(|| free::<ValuePool>(pool))
}
