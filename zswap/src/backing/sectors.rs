//! Which sectors are in use: a bit each, a window to a word.
//!
//! ```text
//!   word 3   1111111100000011110...      a blob of three sectors gets the first three zeros in a
//!            `-- in use                  row behind the end of the last blob, in any window
//! ```
//!
//! Sectors are taken by next fit. Pages that leave memory together then lie together. While the
//! disk has room behind the last blob, a batch is one run. Sectors are *tainted* if a write may
//! still change them although nobody waits for it. When their use ends they are *quarantined*
//! instead of given back: their bits stay set.
//!
//! Invariants
//! - I1 while no bit changes, `used` and `quarantined` together are the number of bits set, without
//!   the header's.
//! - I2 sectors are tainted while they are in use, and stay so.
//! - I3 a search that found nothing is noted with a value of `freed`. It saw all bits that were
//!   cleared before `freed` had that value.
//!
//! Locks: none. One thread at a time claims sectors; many threads give them back.

use host::Table;
use host::sync::atomic::{AtomicU64, Ordering};

use super::place::WINDOW_SECTORS;

/// Where the search for the next blob's sectors begins. The thread that claims owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    word: usize,
    bit: u32,
}

impl Default for Next {
    fn default() -> Next {
        Next { word: 1, bit: 0 }
    }
}

/// The bitmap. Word 0 is the header's.
pub(super) struct Sectors {
    words: Table<AtomicU64>,
    tainted: Table<AtomicU64>,
    used: AtomicU64,
    quarantined: AtomicU64,
    /// Times that sectors were given back. `vain` has, for each length of a blob, the value of this
    /// count at the last search that found nothing. While the count is unchanged, a new search
    /// would find nothing either.
    freed: AtomicU64,
    vain: [AtomicU64; 9],
}

impl Sectors {
    /// A bit for each sector that is in use, and for each that is tainted.
    pub(super) fn new(words: Table<AtomicU64>, tainted: Table<AtomicU64>) -> Sectors {
        let vain = std::array::from_fn(|_| AtomicU64::new(u64::MAX));
        let (used, quarantined) = (AtomicU64::new(0), AtomicU64::new(0));
        Sectors { words, tainted, used, quarantined, freed: AtomicU64::new(0), vain }
    }

    /// Claims `count` free sectors in a row, of one window: 1 to 8.
    pub(super) fn claim(&self, next: &mut Next, count: u32) -> Option<u32> {
        // Acquire pairs with the addition in `free`, so that no free sector is missed. If an
        // addition is seen here, so are the bits that its thread cleared. If it comes later, it
        // makes `freed` differ from `vain`.
        let freed = self.freed.load(Ordering::Acquire);
        // relaxed: only the thread that claims changes it.
        if self.vain[count as usize].load(Ordering::Relaxed) == freed {
            return None;
        }
        let words = self.words.len();
        for _ in 0..words {
            if let Some(bit) = self.claim_in(next.word, next.bit, count) {
                let sector = next.word as u32 * WINDOW_SECTORS + bit;
                next.bit = bit + count;
                return Some(sector);
            }
            let word = if next.word + 1 < words { next.word + 1 } else { 1 };
            *next = Next { word, bit: 0 };
        }
        // relaxed: for the same reason as the load.
        self.vain[count as usize].store(freed, Ordering::Relaxed);
        None
    }

    /// As `claim`, in one word, from a bit on.
    fn claim_in(&self, index: usize, from: u32, count: u32) -> Option<u32> {
        // relaxed: a thread that cleared a bit no longer uses its sectors. Threads that read the
        // old content notice by the window's version.
        let word = self.words[index].load(Ordering::Relaxed);
        let free = !word & u64::MAX.checked_shl(from).unwrap_or(0);
        let starts = (1..count).fold(free, |starts, by| starts & free >> by);
        if starts == 0 {
            return None;
        }
        let bit = starts.trailing_zeros();
        self.words.touch(index..index + 1);
        // relaxed: as above. Bits that are zero stay zero, because no other thread sets any.
        self.words[index].fetch_or(mask(bit, count), Ordering::Relaxed);
        // relaxed: a total.
        self.used.fetch_add(u64::from(count), Ordering::Relaxed);
        Some(bit)
    }

    /// Taints sectors that are in use, of any windows.
    pub(super) fn taint(&self, sector: u32, count: u32) {
        for sector in sector..sector + count {
            let index = (sector / WINDOW_SECTORS) as usize;
            self.tainted.touch(index..index + 1);
            // relaxed: their user gives them back later, or unlocks the cell that will name them.
            self.tainted[index].fetch_or(mask(sector % WINDOW_SECTORS, 1), Ordering::Relaxed);
        }
    }

    /// Ends the use of sectors.
    pub(super) fn free(&self, sector: u32, count: u32) {
        let bits = mask(sector % WINDOW_SECTORS, count);
        let index = (sector / WINDOW_SECTORS) as usize;
        // relaxed: this thread has set them, or the lock of the cell that named the sectors shows
        // them.
        if self.tainted[index].load(Ordering::Relaxed) & bits != 0 {
            return self.quarantine(count);
        }
        // relaxed: as in `claim_in`.
        let before = self.words[index].fetch_and(!bits, Ordering::Relaxed);
        debug_assert!(before & bits == bits, "sectors {sector}+{count} were in use");
        // relaxed: a total.
        self.used.fetch_sub(u64::from(count), Ordering::Relaxed);
        // Release pairs with the load in `claim`, so that a thread that sees the count sees the
        // bits.
        self.freed.fetch_add(1, Ordering::Release);
    }

    /// Ends the use of sectors that are not taken again.
    pub(super) fn quarantine(&self, count: u32) {
        // relaxed: a total.
        self.used.fetch_sub(u64::from(count), Ordering::Relaxed);
        // relaxed: as above.
        self.quarantined.fetch_add(u64::from(count), Ordering::Relaxed);
    }

    /// Sectors that are not taken again.
    pub(super) fn quarantined(&self) -> u64 {
        // relaxed: a total.
        self.quarantined.load(Ordering::Relaxed)
    }

    /// Claims exactly these sectors, of one window. False if one of them is in use.
    pub(super) fn claim_these(&self, sector: u32, count: u32) -> bool {
        let bits = mask(sector % WINDOW_SECTORS, count);
        let word = &self.words[(sector / WINDOW_SECTORS) as usize];
        // relaxed: as in `claim_in`.
        let free = word.load(Ordering::Relaxed) & bits == 0;
        if free {
            // relaxed: as in `claim_in`.
            word.fetch_or(bits, Ordering::Relaxed);
            // relaxed: a total.
            self.used.fetch_add(u64::from(count), Ordering::Relaxed);
        }
        free
    }

    pub(super) fn is_claimed(&self, sector: u32, count: u32) -> bool {
        let bits = mask(sector % WINDOW_SECTORS, count);
        let word = self.words.get((sector / WINDOW_SECTORS) as usize);
        // relaxed: the cell that names the sectors is locked.
        word.is_some_and(|word| word.load(Ordering::Relaxed) & bits == bits)
    }

    /// Sectors in use, and all sectors, both without the header's.
    pub(super) fn used(&self) -> (u64, u64) {
        let all = (self.words.len() as u64 - 1) * u64::from(WINDOW_SECTORS);
        // relaxed: a total.
        (self.used.load(Ordering::Relaxed), all)
    }

    /// Counts the bits.
    pub(super) fn recount(&self) -> u64 {
        // relaxed: the count is exact when no thread changes a bit.
        let bits = |(_, word): (usize, &AtomicU64)| word.load(Ordering::Relaxed).count_ones();
        self.words.held().map(bits).map(u64::from).sum()
    }

    /// Counts a sector too many, for a test of a recount.
    #[cfg(all(test, not(loom)))]
    pub(super) fn miscount(&self) {
        // relaxed: one thread.
        self.used.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn held_bytes(&self) -> u64 {
        [&self.words, &self.tainted].map(|it| it.held_bytes() + it.heap_bytes()).iter().sum()
    }
}

fn mask(bit: u32, count: u32) -> u64 {
    ((1 << count) - 1) << bit
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zsmalloc::{Memory, MemoryConfig, Pool, PoolConfig};

    fn sectors(windows: usize) -> Sectors {
        let config = MemoryConfig {
            arena_frames: 512,
            entries_max: 512,
            expected_bytes: 1 << 20,
            worker: false,
        };
        let memory = Memory::new(config).expect("address space");
        let pool = Pool::new(memory, PoolConfig::default()).expect("a pool");
        let table = || pool.table(windows).expect("address space");
        Sectors::new(table(), table())
    }

    #[test]
    fn blobs_lie_side_by_side_and_within_a_window() {
        let (sectors, mut next) = (sectors(4), Next::default());
        let places: Vec<_> = (0..10).map(|_| sectors.claim(&mut next, 7)).collect();
        let expected = (0..9).map(|blob| 64 + blob * 7).chain([128]);
        assert_eq!(places, expected.map(Some).collect::<Vec<_>>(), "63 of 64, then the next");
    }

    #[test]
    fn a_full_disk_says_so_until_something_is_freed() {
        let (sectors, mut next) = (sectors(2), Next::default());
        while sectors.claim(&mut next, 8).is_some() {}
        assert_eq!((sectors.used(), sectors.recount()), ((64, 64), 64));
        assert_eq!(sectors.claim(&mut next, 1), None);
        sectors.free(64 + 24, 8);
        assert_eq!(sectors.claim(&mut next, 3), Some(64 + 24));
        assert_eq!(sectors.claim(&mut next, 6), None, "five are left");
        assert_eq!(sectors.claim(&mut next, 5), Some(64 + 27));
    }

    proptest! {
        /// Against a twin with a bool per sector: claimed sectors were free and lie within a
        /// window. A claim is refused only if there is no such place. Some sectors are tainted, and
        /// stay taken when their use ends.
        #[test]
        fn claims_are_free_sectors(
            steps in prop::collection::vec((0..12u32, any::<u32>()), 0..300),
        ) {
            let (windows, mut next) = (4usize, Next::default());
            let (sectors, mut twin) = (sectors(windows), vec![false; windows * 64]);
            twin[..64].fill(true);
            let (mut held, mut quarantined) = (Vec::<(u32, u32)>::new(), 0);
            for (kind, pick) in steps {
                if kind < 8 {
                    let count = kind + 1;
                    let fits = |run: &[bool]| run.iter().all(|used| !used);
                    let in_window = |window: &[bool]| window.windows(count as usize).any(fits);
                    let room = twin.chunks(64).any(in_window);
                    let claimed = sectors.claim(&mut next, count);
                    prop_assert_eq!(claimed.is_some(), room);
                    let Some(first) = claimed else { continue };
                    prop_assert_eq!(first / 64, (first + count - 1) / 64);
                    for used in &mut twin[first as usize..(first + count) as usize] {
                        prop_assert!(!std::mem::replace(used, true));
                    }
                    held.push((first, count));
                } else if !held.is_empty() {
                    let (first, count) = held.swap_remove(pick as usize % held.len());
                    prop_assert!(sectors.is_claimed(first, count));
                    if kind == 11 {
                        // One of them is enough.
                        sectors.taint(first + pick % count, 1);
                        quarantined += u64::from(count);
                    }
                    sectors.free(first, count);
                    if kind != 11 {
                        twin[first as usize..(first + count) as usize].fill(false);
                    }
                }
                let taken = twin[64..].iter().filter(|&&used| used).count() as u64;
                prop_assert_eq!(sectors.quarantined(), quarantined);
                let used = taken - quarantined;
                prop_assert_eq!((sectors.used().0, sectors.recount()), (used, taken));
            }
        }
    }
}

/// Under every interleaving that two preemptions allow: `--lib model` with `--cfg loom`.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::thread;
    use std::sync::Arc;

    /// Claim (I3): sectors that were given back during a search that found nothing are found by the
    /// next.
    #[test]
    fn sectors_are_given_back_while_some_are_looked_for_in_vain() {
        loom::model(|| {
            let [words, tainted] = [(); 2].map(|()| Table::reserve(2).expect("address space"));
            let (sectors, mut next) = (Arc::new(Sectors::new(words, tainted)), Next::default());
            while sectors.claim(&mut next, 8).is_some() {}
            let other = Arc::clone(&sectors);
            let user = thread::spawn(move || other.free(WINDOW_SECTORS + 8, 8));
            let first = sectors.claim(&mut next, 8);
            user.join().expect("no panic");
            let claimed = first.or_else(|| sectors.claim(&mut next, 8));
            assert_eq!(claimed, Some(WINDOW_SECTORS + 8), "the disk is not full");
            assert_eq!(sectors.used().0, sectors.recount());
        });
    }
}
