//! Memory for reads and writes past the page cache.

use crate::pages::PAGE_SIZE;

/// A buffer that may be read and written past the page cache, which wants aligned memory.
pub(crate) struct Aligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    pub(crate) fn new(length: usize) -> Aligned {
        let memory = vec![0; length + PAGE_SIZE];
        let start = memory.as_ptr().align_offset(PAGE_SIZE);
        Aligned { memory, start, length }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_memory_is_aligned() {
        let mut aligned = Aligned::new(3 * PAGE_SIZE);
        assert_eq!(aligned.bytes().len(), 3 * PAGE_SIZE);
        assert_eq!(aligned.bytes().as_ptr().align_offset(PAGE_SIZE), 0);
    }
}
