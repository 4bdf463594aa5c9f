//! Objects as a store of compressed pages gets them: the pages of a corpus, lz4.
//!
//! ```text
//!   bytes   | object 0 | object 1 | object 2 ...        starts   0, end of 0, end of 1, ...
//!   stream  count, lengths (2 bytes each), bytes        to a process that has no corpus
//! ```
//!
//! Invariant: an object is 1 to 4096 bytes long. A page that lz4 does not make shorter is an object
//! uncompressed. A page that repeats one word is none, because no store keeps it.

use crate::ground::LabError;
use crate::pages::{Corpus, PAGE_SIZE, is_same_filled};
use codec::{Algorithm, Codec, Stream};
use std::io::{self, BufRead, Write};

/// Bytes of a number in a stream: the count, a length.
const COUNT_BYTES: usize = 4;
const LENGTH_BYTES: usize = 2;
const _: () = assert!(PAGE_SIZE < 1 << (8 * LENGTH_BYTES), "a length fits its field");

/// See the module documentation.
#[derive(Debug, PartialEq)]
pub(crate) struct Objects {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl Objects {
    /// The objects of the first `pages` of `corpus`, in its order.
    pub(crate) fn of(corpus: &Corpus, pages: usize) -> Result<Objects, LabError> {
        let (codec, mut stream) = (Codec::new(Algorithm::Lz4), Stream::new());
        let mut objects = Objects { bytes: Vec::new(), starts: vec![0] };
        let stored =
            (0..pages).map(|index| corpus.page(index)).filter(|page| !is_same_filled(page));
        for page in stored {
            match codec.compress(&mut stream, page) {
                Ok(blob) if blob.len() < PAGE_SIZE => objects.push(blob),
                _ => objects.push(page),
            }
        }
        if objects.count() == 0 {
            return Err(LabError::Usage(format!("every page of {} is same-filled", corpus.name)));
        }
        Ok(objects)
    }

    fn push(&mut self, object: &[u8]) {
        self.bytes.extend_from_slice(object);
        self.starts.push(self.bytes.len());
    }

    pub(crate) fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Object `index`, which must be below `count()`.
    pub(crate) fn get(&self, index: u32) -> &[u8] {
        &self.bytes[self.starts[index as usize]..self.starts[index as usize + 1]]
    }

    fn lengths(&self) -> impl Iterator<Item = usize> {
        self.starts.windows(2).map(|pair| pair[1] - pair[0])
    }

    /// The lengths of so many objects: those of these, repeated.
    pub(crate) fn lengths_of(&self, count: usize) -> Vec<u16> {
        let lengths: Vec<u16> = self.lengths().map(|length| length as u16).collect();
        lengths.into_iter().cycle().take(count).collect()
    }

    /// Writes what `read` reads.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&(self.count() as u32).to_le_bytes())?;
        let lengths: Vec<u8> =
            self.lengths().flat_map(|length| (length as u16).to_le_bytes()).collect();
        out.write_all(&lengths)?;
        out.write_all(&self.bytes)
    }

    /// Reads what `write` wrote. Nothing is allocated but what is kept: where memory is measured,
    /// what was freed before would be there to be used again.
    pub(crate) fn read(input: &mut impl BufRead) -> io::Result<Objects> {
        let mut count = [0; COUNT_BYTES];
        input.read_exact(&mut count)?;
        let count = u32::from_le_bytes(count) as usize;
        let mut starts = Vec::with_capacity(count + 1);
        starts.push(0);
        let mut length = [0; LENGTH_BYTES];
        for last in 0..count {
            input.read_exact(&mut length)?;
            starts.push(starts[last] + usize::from(u16::from_le_bytes(length)));
        }
        let mut bytes = vec![0; starts[count]];
        input.read_exact(&mut bytes)?;
        Ok(Objects { bytes, starts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_become_objects_and_same_filled_ones_do_not() {
        let corpus = Corpus::open(None, 200 * PAGE_SIZE as u64).unwrap();
        let objects = Objects::of(&corpus, 200).unwrap();
        let kept = (0..200).filter(|&index| !is_same_filled(corpus.page(index))).count();
        assert_eq!(objects.count(), kept);
        assert!(objects.lengths().all(|length| (1..=PAGE_SIZE).contains(&length)));
        assert!(objects.lengths().any(|length| length == PAGE_SIZE), "random pages stay whole");
        assert!(objects.lengths().any(|length| length < PAGE_SIZE / 2), "text is compressed");
    }

    #[test]
    fn what_is_written_is_read_back() {
        let corpus = Corpus::open(None, 50 * PAGE_SIZE as u64).unwrap();
        let objects = Objects::of(&corpus, 50).unwrap();
        let mut stream = Vec::new();
        objects.write(&mut stream).unwrap();
        assert_eq!(Objects::read(&mut stream.as_slice()).unwrap(), objects);
        stream.pop();
        assert!(Objects::read(&mut stream.as_slice()).is_err(), "a byte is missing");
    }
}
