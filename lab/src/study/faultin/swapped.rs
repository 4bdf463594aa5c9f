//! Memory in the kernel's swap: its zram, or its zswap with a file behind it that nothing goes to.
//!
//! ```text
//!   new -> filled, in memory --put_out--> in the swap --touch--> in memory ... end -> swap off
//! ```
//!
//! Invariant: out means that no page is resident, all are in the swap, and none in the file.

use super::touching::Memory;
use crate::apparatus::paging::Source;
use crate::apparatus::peer::{Peer, Used};
use crate::apparatus::swapping;
use crate::ground::LabError;
use host::Swappable;

pub(super) struct Swapped<'a> {
    memory: Swappable,
    peer: &'a Peer,
    empty: Used,
    source: &'a Source,
}

impl<'a> Swapped<'a> {
    /// As many pages, filled, all of them in memory; `peer` is swapped on and empty.
    pub(super) fn new(
        peer: &'a Peer,
        pages: usize,
        source: &'a Source,
    ) -> Result<Swapped<'a>, LabError> {
        let mut memory = Swappable::new(pages).map_err(LabError::store("memory"))?;
        source.fill(memory.as_mut_slice())?;
        Ok(Swapped { memory, peer, empty: peer.used()?, source })
    }
}

impl Memory for Swapped<'_> {
    fn put_out(&mut self) -> Result<(), LabError> {
        swapping::page_out(&self.memory)?;
        self.peer.used()?.all_in_memory_since(self.empty)
    }

    fn bytes(&self) -> &[u8] {
        self.memory.as_slice()
    }

    fn verify(&self) -> Result<(), LabError> {
        self.source.verify(self.memory.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::Cleanup;
    use crate::kernel;
    use crate::pages::{Corpus, PAGE_SIZE};
    use host::smaps;

    /// Needs root and a zram nobody uses.
    #[test]
    fn it_is_out_again_whenever_it_is_put_out() {
        const PAGES: usize = 256;
        let cleanup = Cleanup::default();
        let peer = match kernel::patiently(|| kernel::claim_zram(&cleanup)) {
            Ok(peer) => Peer::Zram(peer),
            Err(error) => return println!("skipped: needs {error}"),
        };
        let bytes = (PAGES * PAGE_SIZE) as u64;
        peer.set_up("lzo-rle", bytes, &mut Vec::new()).unwrap();
        let source = Source::new(&Corpus::open(None, bytes).unwrap()).unwrap();
        let mut swapped = Swapped::new(&peer, PAGES, &source).unwrap();
        let swap = |swapped: &Swapped| smaps::swap_of(&[swapped.memory.addresses()]).unwrap();
        for _ in 0..2 {
            swapped.put_out().unwrap();
            assert_eq!(swap(&swapped), bytes);
            swapped.verify().unwrap();
            assert_eq!(swap(&swapped), 0, "every page was looked at");
        }
        swapped.memory.as_mut_slice()[5 * PAGE_SIZE] ^= 1;
        swapped.put_out().unwrap();
        let wrong = swapped.verify().unwrap_err().to_string();
        assert_eq!(wrong, "wrong answer: page 5 came back different");
    }
}
