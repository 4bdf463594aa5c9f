//! Bits, the most significant first, into bytes and out of them.
//!
//! ```text
//!   Writer    bits  | held, from the top |  0 ..        at most 7 are held between two flushes
//!   Reader    bits  | count valid | what follows them in the blob or zeros |
//! ```
//!
//! Behind its end a blob reads as zeros, so no read fails. At the end [`Reader::ends_well`] says
//! whether more bits were taken than there are.
//!
//! Invariant: `count` bits of a reader are valid, and the others are what follows, or zeros.
//! Locks: none.

/// Bits of a word.
const WORD: u32 = 64;
/// A reader has at least so many valid bits after a refill.
pub(super) const REFILLED: u32 = 56;

const _: () = assert!(REFILLED == WORD - 8, "all but one byte");

/// Writes bits into `out`; those that have no room there are lost.
pub(super) struct Writer<'a> {
    out: &'a mut [u8],
    /// Whole bytes that are written.
    at: usize,
    bits: u64,
    count: u32,
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut [u8]) -> Self {
        Self { out, at: 0, bits: 0, count: 0 }
    }

    /// Goes on from where another writer was.
    pub(super) fn resume(out: &'a mut [u8], held: Held) -> Self {
        Self { out, at: held.at, bits: held.bits, count: held.count }
    }

    pub(super) fn pause(self) -> Held {
        Held { at: self.at, bits: self.bits, count: self.count }
    }

    /// Adds the low `len` bits of `value`, which has no others. At most 56 fit between flushes.
    #[inline(always)]
    pub(super) fn put(&mut self, value: u64, len: u32) {
        debug_assert!(len > 0 && self.count + len <= WORD && value >> (len - 1) <= 1);
        self.bits |= value << ((WORD - self.count - len) & (WORD - 1));
        self.count += len;
    }

    /// Writes whole bytes away.
    #[inline(always)]
    pub(super) fn flush(&mut self) {
        if let Some(place) = self.out.get_mut(self.at..).and_then(<[u8]>::first_chunk_mut::<8>) {
            *place = self.bits.to_be_bytes();
        }
        let bytes = self.count / 8;
        self.at += bytes as usize;
        self.bits <<= (8 * bytes) & (WORD - 1);
        self.count %= 8;
    }

    /// The number of bytes, the last filled with zeros.
    pub(super) fn finish(mut self) -> usize {
        self.flush();
        self.at + usize::from(self.count > 0)
    }
}

/// What a writer holds between two uses of its bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct Held {
    at: usize,
    bits: u64,
    count: u32,
}

/// Eight bytes of `blob` from `at` on; zeros behind its end.
#[inline(always)]
pub(super) fn load(blob: &[u8], at: usize) -> u64 {
    match blob.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => load_end(blob, at),
    }
}

#[cold]
#[inline(never)]
fn load_end(blob: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    let rest = blob.get(at..).unwrap_or_default();
    bytes.iter_mut().zip(rest).for_each(|(byte, &there)| *byte = there);
    u64::from_be_bytes(bytes)
}

/// Reads the bits of a blob from a byte on.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    blob: &'a [u8],
    next: usize,
    bits: u64,
    count: u32,
}

impl<'a> Reader<'a> {
    /// A reader that is filled.
    #[inline(always)]
    pub(super) fn new(blob: &'a [u8], start: usize) -> Self {
        let mut reader = Self { blob, next: start, bits: 0, count: 0 };
        reader.refill();
        reader
    }

    /// The next bits, from the top.
    #[inline(always)]
    pub(super) fn bits(&self) -> u64 {
        self.bits
    }

    /// The next `len` bits, at least one of them.
    #[inline(always)]
    pub(super) fn peek(&self, len: u32) -> u64 {
        self.bits >> ((WORD - len) & (WORD - 1))
    }

    /// Goes on by `len` bits, at most as many as are valid.
    #[inline(always)]
    pub(super) fn skip(&mut self, len: u32) {
        self.bits <<= len & (WORD - 1);
        self.count = self.count.wrapping_sub(len);
    }

    /// Makes at least [`REFILLED`] bits valid. It has no branch on how many there are.
    #[inline(always)]
    pub(super) fn refill(&mut self) {
        self.bits |= load(self.blob, self.next) >> (self.count & (WORD - 1));
        self.next += ((WORD - 1 - self.count) / 8) as usize;
        self.count |= REFILLED;
    }

    /// Whether the bits that were taken end in the last byte of the blob.
    pub(super) fn ends_well(&self) -> bool {
        ends_in_byte(8 * self.next - self.count as usize, self.blob.len())
    }
}

/// Whether `bits` end in the last of `bytes` bytes.
pub(super) fn ends_in_byte(bits: usize, bytes: usize) -> bool {
    bits.div_ceil(8) == bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            values in proptest::collection::vec((any::<u64>(), 1..57_u32), 0..60),
        ) {
            let mut out = [0; 600];
            let mut writer = Writer::new(&mut out);
            let cut = |value: u64, len: u32| value & (u64::MAX >> (WORD - len));
            for &(value, len) in &values {
                writer.put(cut(value, len), len);
                writer.flush();
            }
            let bytes = writer.finish();
            let mut reader = Reader::new(&out[..bytes], 0);
            for &(value, len) in &values {
                prop_assert_eq!(reader.peek(len), cut(value, len));
                reader.skip(len);
                reader.refill();
            }
            prop_assert!(reader.ends_well());
            prop_assert!(bytes == 0 || !Reader::new(&out[..bytes], 0).ends_well());
        }
    }

    #[test]
    fn a_blob_ends_in_zeros() {
        assert_eq!(load(&[1, 2, 3], 1), 0x0203_0000_0000_0000);
        assert_eq!(load(&[1, 2, 3], 3), 0);
        assert_eq!(load(&[1, 2, 3], usize::MAX), 0);
    }
}
