//! The values of a pool: put in, compressed, looked up by number, taken out.
//!
//! ```text
//!   put    value --compress--> object --> pool            its number: a raw handle
//!          longer, or odd: pieces, each an object; their numbers are one more
//!   get    number --> object, copied out --decompress--> the caller
//! ```
//!
//! Invariants
//! - I1 a value's number names one object of the pool, which has the numbers of its pieces. Each
//!   number is refused once its object was freed, so no value is read half freed.
//! - I2 `count` and `bytes` are those of the values that were put and not deleted.
//!
//! Locks: a stream's, of rank `Stream`, while a value is compressed or decompressed. Then the
//! pool's own.

use crate::error::ValuesError;
use crate::form::{self, Head, Kind, NUMBER_BYTES, OBJECT_MAX, VALUE_MAX};
use crate::scratch::{self, Scratch};
use codec::{Codec, Streams};
use host::{HeldRank, Rank, cpu};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zsmalloc::{ChainSize, Memory, MemoryConfig, Pool, PoolConfig, RawHandle};

/// The bytes of all regions of a memory, unless its settings say otherwise.
const REGION_BYTES: u64 = 32 << 30; // 32 GiB
/// The values of all pools of a memory, unless its settings say otherwise.
const VALUES_MAX: u64 = 4 << 20; // 4 Mi
/// Entries of a memory that a value takes, its generation included.
const ENTRIES: u64 = 2;

/// How large a memory may become. Zeros stand for defaults.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Bytes of all regions that keep their pages in it.
    pub region_bytes: u64,
    /// Values of all pools.
    pub values_max: u64,
    /// Bytes of frames.
    pub arena_bytes: u64,
    /// Bytes that it is expected to hold.
    pub expected_bytes: u64,
    /// Whether a thread of it compacts, and gives frames back.
    pub worker: bool,
}

impl Default for Room {
    /// The defaults, with a worker.
    fn default() -> Room {
        let (region_bytes, values_max, arena_bytes, expected_bytes) = (0, 0, 0, 0);
        Room { region_bytes, values_max, arena_bytes, expected_bytes, worker: true }
    }
}

/// A memory with this room.
///
/// # Errors
///
/// [`ValuesError::ArenaTooLarge`], and [`ValuesError::Memory`].
pub fn memory(room: Room) -> Result<Arc<Memory>, ValuesError> {
    let or = |asked: u64, default| if asked > 0 { asked } else { default };
    let mut config = MemoryConfig::for_disk(or(room.region_bytes, REGION_BYTES));
    let entries = or(room.values_max, VALUES_MAX).saturating_mul(ENTRIES);
    config.entries_max = config.entries_max.saturating_add(entries);
    if room.arena_bytes > 0 {
        let frames = u32::try_from(room.arena_bytes / host::PAGE_SIZE as u64);
        config.arena_frames = frames.map_err(|_| ValuesError::ArenaTooLarge)?;
    }
    config.expected_bytes = or(room.expected_bytes, config.expected_bytes);
    config.worker = room.worker;
    Ok(Memory::new(config)?)
}

/// A pool of compressed values.
pub struct ValuePool {
    pool: Arc<Pool>,
    /// `None`: values are stored as they are.
    codec: Option<Codec>,
    streams: Streams,
    count: AtomicU64,
    bytes: AtomicU64,
}

/// What [`ValuePool::stats`] says, in bytes unless the name says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueStats {
    /// Values.
    pub values: u64,
    /// Bytes of them, before they were compressed.
    pub value_bytes: u64,
    /// Objects of the pool: of a value in pieces each piece is one.
    pub objects: u64,
    /// Bytes of the slots that they take.
    pub slot_bytes: u64,
    /// Bytes of frames with objects.
    pub resident_bytes: u64,
    /// Bytes of classes, streams and the dictionary.
    pub overhead_bytes: u64,
    /// Frames that compaction has freed.
    pub frames_compacted: u64,
}

impl std::fmt::Debug for ValuePool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ValuePool").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl ValuePool {
    /// An empty pool in `memory`, whose zspages have at most `chain_frames` frames.
    ///
    /// # Errors
    ///
    /// [`ValuesError::BadChain`], and [`ValuesError::Alloc`] if the memory has no room for a pool.
    pub fn new(
        memory: Arc<Memory>,
        codec: Option<Codec>,
        chain_frames: Option<usize>,
    ) -> Result<ValuePool, ValuesError> {
        let mut config = PoolConfig::default();
        if let Some(frames) = chain_frames {
            config.chain = ChainSize::new(frames).ok_or(ValuesError::BadChain)?;
        }
        Ok(ValuePool {
            pool: Pool::new(memory, config)?,
            codec,
            streams: Streams::for_cpus(cpu::count()),
            count: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        })
    }

    /// Stores a value. Returns its number.
    ///
    /// # Errors
    ///
    /// [`ValuesError::TooLong`], and [`ValuesError::Alloc`] if the pool is at its limit or the
    /// memory is used up.
    pub fn put(&self, value: &[u8]) -> Result<u64, ValuesError> {
        if value.len() > VALUE_MAX {
            return Err(ValuesError::TooLong { len: value.len() });
        }
        let number = match self.put_whole(value)? {
            Some(object) => object,
            None => self.put_in_pieces(value)?,
        };
        // relaxed: totals.
        self.count.fetch_add(1, Ordering::Relaxed);
        // relaxed: as above.
        self.bytes.fetch_add(value.len() as u64, Ordering::Relaxed);
        Ok(number.get())
    }

    /// Stores a value as one object; `None` if it does not fit.
    fn put_whole(&self, value: &[u8]) -> Result<Option<RawHandle>, ValuesError> {
        scratch::with_draft(|draft| {
            let raw = Head { kind: Kind::Raw, len: value.len() };
            let fits = value.len() <= OBJECT_MAX
                && (self.compress(value, draft)? || raw.object(value, draft));
            Ok(if fits { Some(self.pool.alloc_raw(draft)?) } else { None })
        })
    }

    /// Makes an object of a compressed value. False if that is no shorter.
    fn compress(&self, value: &[u8], object: &mut Vec<u8>) -> Result<bool, ValuesError> {
        let Some(codec) = self.codec.as_ref().filter(|_| !value.is_empty()) else {
            return Ok(false);
        };
        let _held = HeldRank::enter(Rank::Stream);
        self.streams.with(cpu::current_hint(), |stream| {
            let blob = codec.compress(stream, value)?;
            let head = Head { kind: Kind::Compressed, len: value.len() };
            Ok(blob.len() < value.len() && head.object(blob, object))
        })
    }

    fn put_in_pieces(&self, value: &[u8]) -> Result<RawHandle, ValuesError> {
        let mut numbers = Vec::new();
        let stored = form::pieces(value).try_for_each(|piece| {
            let object = self.put_whole(piece)?;
            let object =
                object.ok_or_else(|| ValuesError::Damaged("a piece is no object".into()))?;
            numbers.extend_from_slice(&object.get().to_le_bytes());
            Ok(())
        });
        let stored = stored.and_then(|()| {
            let mut object = Vec::new();
            Head { kind: Kind::Pieces, len: value.len() }.object(&numbers, &mut object);
            Ok(self.pool.alloc_raw(&object)?)
        });
        if stored.is_err() {
            self.free_pieces(&numbers);
        }
        stored
    }

    /// The length of a value.
    ///
    /// # Errors
    ///
    /// [`ValuesError::NoValue`].
    pub fn len(&self, number: u64) -> Result<usize, ValuesError> {
        self.get(number, 0, &mut |_, _| ())
    }

    /// Shows a value to `give`, piece by piece with its place, unless it is longer than `room`.
    /// Returns its length.
    ///
    /// # Errors
    ///
    /// [`ValuesError::NoValue`].
    pub fn get(
        &self,
        number: u64,
        room: usize,
        give: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<usize, ValuesError> {
        scratch::with(|scratch| self.get_by(scratch, number, room, give))
    }

    fn get_by(
        &self,
        scratch: &mut Scratch,
        number: u64,
        room: usize,
        give: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<usize, ValuesError> {
        let Scratch { object, page, .. } = scratch;
        let (head, body) = self.object(number, object)?;
        if head.len > room {
            return Ok(head.len);
        }
        if head.kind != Kind::Pieces {
            give(0, self.whole(head, body, page)?);
            return Ok(head.len);
        }
        let pieces: Vec<u64> = numbers(body).collect();
        let mut at = 0;
        for number in pieces {
            let (piece, body) = self.object(number, object)?;
            if piece.kind == Kind::Pieces || piece.len > head.len - at {
                return Err(damaged());
            }
            give(at, self.whole(piece, body, page)?);
            at += piece.len;
        }
        if at == head.len { Ok(at) } else { Err(damaged()) }
    }

    /// Copies an object out, and tells its head from its body.
    fn object<'b>(
        &self,
        number: u64,
        object: &'b mut [u8; OBJECT_MAX],
    ) -> Result<(Head, &'b [u8]), ValuesError> {
        let len = self.pool.read_raw(RawHandle::new(number), object)?;
        object.get(..len).and_then(Head::of).ok_or_else(damaged)
    }

    /// The value of an object that is no list of pieces.
    fn whole<'b>(
        &self,
        head: Head,
        body: &'b [u8],
        page: &'b mut [u8; OBJECT_MAX],
    ) -> Result<&'b [u8], ValuesError> {
        let codec = match head.kind {
            Kind::Raw => return Ok(body),
            Kind::Compressed => self.codec.as_ref(),
            Kind::Pieces => None,
        };
        let codec = codec.ok_or_else(damaged)?;
        let value = page.get_mut(..head.len).ok_or_else(damaged)?;
        self.decompress(codec, body, value)?;
        Ok(value)
    }

    fn decompress(&self, codec: &Codec, blob: &[u8], value: &mut [u8]) -> Result<(), ValuesError> {
        if !codec.needs_stream_to_decompress() {
            return Ok(codec.decompress_stateless(blob, value)?);
        }
        let _held = HeldRank::enter(Rank::Stream);
        let hint = cpu::current_hint();
        Ok(self.streams.with(hint, |stream| codec.decompress(stream, blob, value))?)
    }

    /// Deletes a value. Of several threads that delete one value, one succeeds.
    ///
    /// # Errors
    ///
    /// [`ValuesError::NoValue`].
    pub fn delete(&self, number: u64) -> Result<(), ValuesError> {
        let mut object = [0; OBJECT_MAX];
        let (head, body) = self.object(number, &mut object)?;
        self.pool.free_raw(RawHandle::new(number))?;
        if head.kind == Kind::Pieces {
            self.free_pieces(body);
        }
        // relaxed: totals.
        self.count.fetch_sub(1, Ordering::Relaxed);
        // relaxed: as above.
        self.bytes.fetch_sub(head.len as u64, Ordering::Relaxed);
        Ok(())
    }

    fn free_pieces(&self, body: &[u8]) {
        for number in numbers(body) {
            let freed = self.pool.free_raw(RawHandle::new(number));
            debug_assert!(freed.is_ok(), "a piece is freed with its value, and not before");
        }
    }

    /// Moves objects together. Returns the bytes of the frames that this freed.
    pub fn compact(&self) -> u64 {
        self.pool.compact() * host::PAGE_SIZE as u64
    }

    /// Sets the most bytes of frames with objects; 0 means no limit.
    pub fn set_limit(&self, bytes: u64) {
        self.pool.set_limit(bytes);
    }

    /// Recounts the pool.
    ///
    /// # Errors
    ///
    /// [`ValuesError::Damaged`], with the first contradiction.
    pub fn check(&self) -> Result<(), ValuesError> {
        self.pool.check().map(drop).map_err(|defect| ValuesError::Damaged(defect.to_string()))
    }

    /// What there is.
    pub fn stats(&self) -> ValueStats {
        let stats = self.pool.stats();
        let dictionary = self.codec.as_ref().map_or(0, Codec::dictionary_bytes);
        ValueStats {
            // relaxed: totals.
            values: self.count.load(Ordering::Relaxed),
            // relaxed: as above.
            value_bytes: self.bytes.load(Ordering::Relaxed),
            objects: stats.objects,
            slot_bytes: stats.slot_bytes,
            resident_bytes: stats.object_bytes_resident,
            overhead_bytes: stats.class_bytes + (self.streams.heap_bytes() + dictionary) as u64,
            frames_compacted: stats.pages_compacted,
        }
    }
}

/// The numbers in the body of a value in pieces.
fn numbers(body: &[u8]) -> impl Iterator<Item = u64> {
    let words = body.chunks_exact(NUMBER_BYTES);
    words.map(|word| word.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

const _: () = assert!(NUMBER_BYTES * 8 == u64::BITS as usize, "a number's bytes");

fn damaged() -> ValuesError {
    ValuesError::Damaged("the value is damaged".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use zsmalloc::AllocError;

    fn values(codec: &str) -> ValuePool {
        let memory = Memory::new(MemoryConfig::for_disk(64 << 20)).expect("a memory");
        let codec = (codec != "none").then(|| codec.parse().expect("a codec"));
        ValuePool::new(memory, codec, None).expect("a pool")
    }

    fn read(values: &ValuePool, number: u64) -> Result<Vec<u8>, ValuesError> {
        let mut bytes = Vec::new();
        let len = values.get(number, usize::MAX, &mut |at, piece| {
            assert_eq!(at, bytes.len(), "one after the other");
            bytes.extend_from_slice(piece);
        });
        len.map(|len| assert_eq!(len, bytes.len()))?;
        Ok(bytes)
    }

    fn is_gone<T>(result: Result<T, ValuesError>) -> bool {
        matches!(result, Err(ValuesError::NoValue))
    }

    /// Bytes that compress, or do not.
    fn bytes(len: usize, compressible: bool) -> Vec<u8> {
        let mut word = 1_u64;
        let mut next = || {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(len as u64 | 1);
            (word >> 40) as u8
        };
        (0..len).map(|at| if compressible { (at / 99) as u8 } else { next() }).collect()
    }

    #[test]
    fn values_of_every_length_come_back() {
        let lens = (0..40).chain(4085..4100).chain([8188, 8190, 8191, 8192, 12_000, VALUE_MAX]);
        for codec in ["none", "lz4", "lzo", "zstd:1", "deflate"] {
            let values = values(codec);
            let content: Vec<_> =
                lens.clone().flat_map(|len| [bytes(len, true), bytes(len, false)]).collect();
            let numbers: Vec<u64> =
                content.iter().map(|value| values.put(value).expect("room")).collect();
            let total: usize = content.iter().map(Vec::len).sum();
            let stats = values.stats();
            assert_eq!((stats.values, stats.value_bytes), (content.len() as u64, total as u64));
            values.compact();
            for (value, &number) in content.iter().zip(&numbers) {
                assert_eq!(values.len(number).expect("there"), value.len());
                let back = read(&values, number).expect("there");
                assert_eq!(&back, value, "{codec}, {}", value.len());
            }
            values.check().expect("no defect");
            for &number in &numbers {
                values.delete(number).expect("there");
                assert!(is_gone(read(&values, number)) && is_gone(values.delete(number)));
            }
            let stats = values.stats();
            assert_eq!((stats.values, stats.value_bytes, stats.objects), (0, 0, 0), "{codec}");
        }
    }

    #[test]
    fn what_compresses_takes_less_and_a_page_that_does_not_takes_a_page() {
        let values = values("lz4");
        values.put(&bytes(4096, true)).expect("room");
        assert!(values.stats().slot_bytes < 512);
        values.put(&bytes(4096, false)).expect("room");
        let stats = values.stats();
        assert_eq!((stats.objects, stats.slot_bytes >> 12), (2, 1));
    }

    #[test]
    fn a_value_that_is_too_long_or_has_no_room_leaves_nothing() {
        let values = values("none");
        let long = values.put(&vec![1; VALUE_MAX + 1]);
        assert!(matches!(long, Err(ValuesError::TooLong { len }) if len == VALUE_MAX + 1));
        values.set_limit(64 << 10);
        let full = values.put(&bytes(VALUE_MAX, false));
        assert!(matches!(full, Err(ValuesError::Alloc(AllocError::OverLimit { .. }))));
        assert_eq!(values.stats().objects, 0);
    }

    #[test]
    fn a_value_that_is_longer_than_the_room_is_not_given() {
        let values = values("lz4");
        let number = values.put(&bytes(9000, true)).expect("room");
        let given = values.get(number, 8999, &mut |_, _| panic!("there is no room"));
        assert_eq!(given.expect("there"), 9000);
    }

    /// A number of a piece names an object, and the values around it stay what they are.
    #[test]
    fn made_up_numbers_are_refused() {
        let values = values("lz4");
        let number = values.put(b"mine").expect("room");
        for made_up in [0, 1, number ^ 1 << 40, number + 2, u64::MAX] {
            assert!(is_gone(read(&values, made_up)) && is_gone(values.delete(made_up)));
        }
        assert_eq!(read(&values, number).expect("there"), b"mine");
    }

    #[test]
    fn threads_put_get_and_delete_at_once() {
        let values = values("zstd:1");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let values = &values;
                scope.spawn(move || {
                    for round in 0..200 {
                        let value = bytes(thread * 1700 + round, round % 2 == 0);
                        let number = values.put(&value).expect("room");
                        assert_eq!(read(values, number).expect("there"), value);
                        values.delete(number).expect("it is this thread's");
                    }
                });
            }
        });
        values.check().expect("no defect");
        assert_eq!(values.stats().values, 0);
    }
}
