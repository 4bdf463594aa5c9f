//! Textbook caches, each access by access: what the real one is compared with.
//!
//! ```text
//!   access(page) --> hit: it was in the cache     miss: it comes in, and another one is written
//! ```
//!
//! In each of them a page is in the cache after its access: a load takes it out, and the caller
//! stores it again. What is in the cache is nowhere else, so a page that leaves it is written.
//!
//! The optimum is Belady's MIN: the page leaves whose next access is the farthest. That may be the
//! page just stored, which then goes to disk by way of the cache. No order of an exclusive cache
//! that takes every page has more hits; it does not write the fewest pages.
//!
//! S3-FIFO is the paper's Algorithm 1 (Yang et al., SOSP 2023), where pages stay when they are
//! hit: small queue a tenth, frequency up to 3, a ghost for each page of the main queue.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

/// A simulated order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Policy {
    Fifo,
    Lru,
    S3Fifo,
    KernelOrder,
    Optimum,
}

impl Policy {
    pub(super) fn name(self) -> &'static str {
        match self {
            Policy::Fifo => "fifo",
            Policy::Lru => "lru",
            Policy::S3Fifo => "s3-fifo",
            Policy::KernelOrder => "kernel-order",
            Policy::Optimum => "optimum",
        }
    }

    /// Which of `pages`, accessed one after the other, are hits in a cache of `capacity`.
    pub(super) fn hits(self, capacity: usize, pages: &[u32]) -> Vec<bool> {
        match self {
            Policy::Fifo => all(Fifo::default(), Fifo::access, capacity, pages),
            Policy::Lru => all(Lru::default(), Lru::access, capacity, pages),
            Policy::S3Fifo => all(S3Fifo::default(), S3Fifo::access, capacity, pages),
            Policy::KernelOrder => {
                all(SecondChance::default(), SecondChance::access, capacity, pages)
            }
            Policy::Optimum => optimum(capacity, pages),
        }
    }
}

fn all<C>(
    mut cache: C,
    access: fn(&mut C, usize, u32) -> bool,
    capacity: usize,
    pages: &[u32],
) -> Vec<bool> {
    pages.iter().map(|&page| access(&mut cache, capacity, page)).collect()
}

#[derive(Default)]
struct Fifo {
    queue: VecDeque<u32>,
    cached: HashSet<u32>,
}

impl Fifo {
    fn access(&mut self, capacity: usize, page: u32) -> bool {
        if !self.cached.insert(page) {
            return true;
        }
        self.queue.push_back(page);
        if self.queue.len() > capacity
            && let Some(oldest) = self.queue.pop_front()
        {
            self.cached.remove(&oldest);
        }
        false
    }
}

/// By the time of the last access.
#[derive(Default)]
struct Lru {
    now: u64,
    by_time: BTreeMap<u64, u32>,
    time_of: HashMap<u32, u64>,
}

impl Lru {
    fn access(&mut self, capacity: usize, page: u32) -> bool {
        self.now += 1;
        let before = self.time_of.insert(page, self.now);
        self.by_time.insert(self.now, page);
        if let Some(before) = before {
            self.by_time.remove(&before);
        } else if self.by_time.len() > capacity
            && let Some((_, oldest)) = self.by_time.pop_first()
        {
            self.time_of.remove(&oldest);
        }
        before.is_some()
    }
}

/// The kernel's zswap. A load takes the entry out. A new entry is referenced, at the young end. The
/// search for a victim clears that mark and sends the entry there once more.
#[derive(Default)]
struct SecondChance {
    queue: VecDeque<(u32, u64)>,
    /// The entry of each page: when it came, and whether it is referenced.
    cached: HashMap<u32, (u64, bool)>,
    now: u64,
}

impl SecondChance {
    fn access(&mut self, capacity: usize, page: u32) -> bool {
        self.now += 1;
        let hit = self.cached.insert(page, (self.now, true)).is_some();
        self.queue.push_back((page, self.now));
        while self.cached.len() > capacity {
            self.visit();
        }
        hit
    }

    fn visit(&mut self) {
        let Some((page, came)) = self.queue.pop_front() else { return };
        match self.cached.get_mut(&page) {
            Some((of, referenced)) if *of == came && *referenced => {
                *referenced = false;
                self.queue.push_back((page, came));
            }
            Some((of, _)) if *of == came => {
                self.cached.remove(&page);
            }
            _ => {}
        }
    }
}

#[derive(Default)]
struct S3Fifo {
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    ghosts: VecDeque<(u32, u64)>,
    ghost_of: HashMap<u32, u64>,
    frequency: HashMap<u32, u8>,
    now: u64,
}

/// S3-FIFO's numbers.
const FREQUENCY_MAX: u8 = 3;
const SMALL_PARTS: usize = 10;

impl S3Fifo {
    fn access(&mut self, capacity: usize, page: u32) -> bool {
        if let Some(frequency) = self.frequency.get_mut(&page) {
            *frequency = (*frequency + 1).min(FREQUENCY_MAX);
            return true;
        }
        while self.frequency.len() >= capacity {
            self.evict(capacity);
        }
        match self.ghost_of.remove(&page) {
            Some(_) => self.main.push_back(page),
            None => self.small.push_back(page),
        }
        self.frequency.insert(page, 0);
        false
    }

    fn evict(&mut self, capacity: usize) {
        if self.small.len() >= (capacity / SMALL_PARTS).max(1) || self.main.is_empty() {
            self.evict_small(capacity);
        } else {
            self.evict_main();
        }
    }

    fn evict_small(&mut self, capacity: usize) {
        let Some(page) = self.small.pop_front() else { return };
        if self.frequency.get(&page).is_some_and(|&frequency| frequency > 1) {
            self.frequency.insert(page, 0);
            self.main.push_back(page);
        } else {
            self.frequency.remove(&page);
            self.remember(page, capacity - capacity / SMALL_PARTS);
        }
    }

    fn evict_main(&mut self) {
        let Some(page) = self.main.pop_front() else { return };
        match self.frequency.get_mut(&page) {
            Some(frequency @ 1..) => {
                *frequency -= 1;
                self.main.push_back(page);
            }
            _ => {
                self.frequency.remove(&page);
            }
        }
    }

    fn remember(&mut self, page: u32, ghosts: usize) {
        self.now += 1;
        self.ghosts.push_back((page, self.now));
        self.ghost_of.insert(page, self.now);
        while self.ghosts.len() > ghosts {
            let Some((oldest, when)) = self.ghosts.pop_front() else { return };
            if self.ghost_of.get(&oldest) == Some(&when) {
                self.ghost_of.remove(&oldest);
            }
        }
    }
}

/// Belady's MIN; see the module documentation.
fn optimum(capacity: usize, pages: &[u32]) -> Vec<bool> {
    let next = next_accesses(pages);
    let mut by_next = BTreeSet::new();
    let mut next_of = HashMap::new();
    let access = |(&page, &next): (&u32, &usize)| {
        let before = next_of.insert(page, next);
        before.map(|before| by_next.remove(&(before, page)));
        by_next.insert((next, page));
        if by_next.len() > capacity
            && let Some((_, farthest)) = by_next.pop_last()
        {
            next_of.remove(&farthest);
        }
        before.is_some()
    };
    pages.iter().zip(&next).map(access).collect()
}

/// When each page accessed is accessed next; the length of the trace for never.
fn next_accesses(pages: &[u32]) -> Vec<usize> {
    let mut seen = HashMap::new();
    let mut next = vec![pages.len(); pages.len()];
    for (at, &page) in pages.iter().enumerate().rev() {
        next[at] = seen.insert(page, at).unwrap_or(pages.len());
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;
    use proptest::prelude::*;

    fn count(policy: Policy, capacity: usize, pages: &[u32]) -> usize {
        policy.hits(capacity, pages).into_iter().filter(|&hit| hit).count()
    }

    /// The least misses by trying every victim, page just stored included.
    fn exhaustive(capacity: usize, cached: &[u32], pages: &[u32]) -> usize {
        let Some((&page, rest)) = pages.split_first() else { return 0 };
        let hit = usize::from(cached.contains(&page));
        let mut cached = cached.to_vec();
        if hit == 0 {
            cached.push(page);
        }
        if cached.len() <= capacity {
            return hit + exhaustive(capacity, &cached, rest);
        }
        let without = |victim: usize| {
            let mut left = cached.clone();
            left.remove(victim);
            exhaustive(capacity, &left, rest)
        };
        hit + (0..cached.len()).map(without).max().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn the_optimum_is_what_no_choice_beats(
            pages in prop::collection::vec(0u32..5, 1..9),
            capacity in 1usize..4,
        ) {
            prop_assert_eq!(
                count(Policy::Optimum, capacity, &pages), exhaustive(capacity, &[], &pages)
            );
        }

        #[test]
        fn nothing_beats_the_optimum_and_all_hit_when_everything_fits(
            pages in prop::collection::vec(0u32..40, 1..400),
            capacity in 1usize..20,
        ) {
            let best = count(Policy::Optimum, capacity, &pages);
            let distinct = pages.iter().collect::<HashSet<_>>().len();
            for &policy in Policy::value_variants() {
                prop_assert!(count(policy, capacity, &pages) <= best, "{policy:?}");
                prop_assert_eq!(count(policy, 40, &pages), pages.len() - distinct, "{:?}", policy);
            }
        }

        /// Stack distance: LRU hits when fewer than `capacity` others came since.
        #[test]
        fn lru_hits_by_stack_distance(
            pages in prop::collection::vec(0u32..12, 1..100),
            capacity in 1usize..10,
        ) {
            let naive = |at: usize| {
                let last = pages[..at].iter().rposition(|&page| page == pages[at]);
                last.is_some_and(|last| {
                    pages[last..at].iter().collect::<HashSet<_>>().len() <= capacity
                })
            };
            let expected: Vec<bool> = (0..pages.len()).map(naive).collect();
            prop_assert_eq!(Policy::Lru.hits(capacity, &pages), expected);
        }
    }

    #[test]
    fn a_scan_empties_lru_and_not_s3_fifo() {
        let hot: Vec<u32> = (0..10).collect();
        let scan: Vec<u32> = (100..200).collect();
        let pages = [&hot, &hot, &hot, &scan, &hot].map(|part| part.as_slice()).concat();
        let kept = |policy: Policy| {
            let hits = policy.hits(20, &pages);
            hits[pages.len() - hot.len()..].iter().filter(|&&hit| hit).count()
        };
        assert_eq!((kept(Policy::Lru), kept(Policy::Fifo)), (0, 0));
        assert_eq!((kept(Policy::S3Fifo), kept(Policy::Optimum)), (10, 10));
    }

    #[test]
    fn second_chance_writes_the_first_that_was_visited_twice() {
        // Full of referenced entries: every bit is cleared, then the oldest leaves.
        let hits = Policy::KernelOrder.hits(3, &[1, 2, 3, 4, 1, 2, 3, 4]);
        assert_eq!(hits, [false, false, false, false, false, false, false, false]);
        let hits = Policy::KernelOrder.hits(3, &[1, 2, 3, 4, 2]);
        assert_eq!(hits, [false, false, false, false, true], "2 has had its first visit only");
    }
}
