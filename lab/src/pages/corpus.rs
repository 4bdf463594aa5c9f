//! The pages a study works on: any file cut into 4 KiB pages, or the synthetic mix.
//!
//! Invariant: `bytes` is a whole number of pages; the last page of a file is filled with zeros.

use super::{PAGE_SIZE, synthetic};
use crate::ground::{LabError, size};
use std::path::Path;

/// Pages, and what a record says about them.
pub(crate) struct Corpus {
    pub(crate) name: String,
    bytes: Vec<u8>,
    /// Length before the last page was filled.
    pub(crate) length: u64,
    /// Of the unpadded bytes; `cksum FILE` prints the same number.
    pub(crate) checksum: u32,
}

impl Corpus {
    /// Reads `file`, or makes `synthetic_bytes` of the synthetic mix.
    pub(crate) fn open(file: Option<&Path>, synthetic_bytes: u64) -> Result<Corpus, LabError> {
        let Some(path) = file else {
            let available = host::limits::memory_available().to_be_had();
            if available.is_some_and(|available| synthetic_bytes > available / 2) {
                let wanted = size::mib(synthetic_bytes);
                let what =
                    format!("a corpus of {wanted:.0} MiB takes more than half of the memory");
                return Err(LabError::Usage(what));
            }
            return Ok(Corpus::from_bytes("synthetic", synthetic::bytes(synthetic_bytes as usize)));
        };
        let bytes = std::fs::read(path).map_err(LabError::io(path.display()))?;
        if bytes.is_empty() {
            return Err(LabError::Usage(format!("{} is empty", path.display())));
        }
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        Ok(Corpus::from_bytes(&name, bytes))
    }

    fn from_bytes(name: &str, mut bytes: Vec<u8>) -> Corpus {
        let (length, checksum) = (bytes.len() as u64, cksum(&bytes));
        bytes.resize(bytes.len().next_multiple_of(PAGE_SIZE), 0);
        Corpus { name: name.to_owned(), bytes, length, checksum }
    }

    pub(crate) fn pages(&self) -> usize {
        self.bytes.len() / PAGE_SIZE
    }

    /// Page `index`, which must be below `pages()`.
    pub(crate) fn page(&self, index: usize) -> &[u8] {
        &self.bytes[index * PAGE_SIZE..][..PAGE_SIZE]
    }

    /// All pages, one after another.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many pages the first `mib` MiB are. Repeating a corpus would make it look more alike
    /// than it is, so a corpus that is too small is an error.
    pub(crate) fn pages_in(&self, mib: u64) -> Result<usize, LabError> {
        let pages = (mib << 20) / PAGE_SIZE as u64;
        if pages == 0 || pages > self.pages() as u64 {
            let held = size::mib(self.bytes.len() as u64);
            let what = format!("--mib {mib}: corpus {} holds {held:.1} MiB", self.name);
            return Err(LabError::Usage(what));
        }
        Ok(pages as usize)
    }
}

/// POSIX `cksum`: CRC-32, most significant bit first, the length appended.
fn cksum(bytes: &[u8]) -> u32 {
    let table: [u32; 256] = std::array::from_fn(|i| {
        (0..8).fold((i as u32) << 24, |crc, _| {
            (crc << 1) ^ (POLYNOMIAL & 0u32.wrapping_sub(crc >> 31))
        })
    });
    let step = |crc: u32, byte: u8| (crc << 8) ^ table[((crc >> 24) as u8 ^ byte) as usize];
    let length = (bytes.len() as u64).to_le_bytes();
    let used = length.iter().rposition(|&b| b != 0).map_or(0, |i| i + 1);
    !bytes.iter().chain(&length[..used]).fold(0, |crc, &byte| step(crc, byte))
}

const POLYNOMIAL: u32 = 0x04C1_1DB7;
const _: () = assert!(POLYNOMIAL.count_ones() == 14, "the CRC-32 of ISO/IEC 8802-3");

#[cfg(test)]
mod tests {
    use super::*;

    /// What `printf 123456789 | cksum` and `cksum /dev/null` print.
    #[test]
    fn checksum_is_cksums() {
        assert_eq!(cksum(b"123456789"), 930_766_865);
        assert_eq!(cksum(b""), 4_294_967_295);
    }

    #[test]
    fn the_last_page_is_filled_with_zeros() {
        let corpus = Corpus::from_bytes("x", vec![7; PAGE_SIZE + 1]);
        assert_eq!((corpus.pages(), corpus.length), (2, 4097));
        assert_eq!(corpus.page(1)[0], 7);
        assert!(corpus.page(1)[1..].iter().all(|&b| b == 0));
    }

    #[test]
    fn a_corpus_is_never_repeated() {
        let corpus = Corpus::from_bytes("small", vec![1; 3 << 20]);
        assert_eq!(corpus.pages_in(2).unwrap(), 512);
        let error = corpus.pages_in(4).unwrap_err().to_string();
        assert_eq!(error, "--mib 4: corpus small holds 3.0 MiB");
        assert!(corpus.pages_in(0).is_err());
    }
}
