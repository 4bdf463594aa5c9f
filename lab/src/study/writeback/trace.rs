//! Sequences of accesses to pages, from a seed.
//!
//! ```text
//!   zipf    page of rank r with probability ~ 1/r; which page has which rank is random
//!   scan    hot hot hot | h s s s s h s s s s ... | hot hot | ...     s: the pages in order, once
//!           `- before --' `------- after: the same number of hot accesses -'
//!   shift   uniform among as many pages as the cache has; a quarter of them changes now and then
//!   mixed   half zipf, a quarter shift, a quarter a scan without end
//! ```
//!
//! A scan is over all pages, four times the cache; the hot ones are half as many as the cache has,
//! and get one access in five while it runs.
//!
//! What the caller has in use, the last so many pages it loaded, it neither loads nor stores: of
//! the accesses, [`loads`] leaves those that reach the cache.
//!
//! Invariant: the same seed, pages and length give the same accesses.

use crate::ground::Rng;
use std::collections::{HashSet, VecDeque};

/// The shape of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Trace {
    Zipf,
    Scan,
    Shift,
    Mixed,
}

/// Pages of a trace for each page of the cache.
pub(super) const PAGES_PER_CACHED: usize = 4;
/// Accesses of a scan for each one of the hot set.
const SCANNED_PER_HOT: usize = 4;
/// The working set shifts by one part of so many.
const SHIFTS: usize = 4;

/// What an access counts for beside the hit rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Window {
    /// Nothing.
    None,
    /// The hot set before a scan.
    Before,
    /// The hot set during a scan and just after it.
    After,
}

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) page: u32,
    pub(super) window: Window,
}

impl Trace {
    pub(super) fn name(self) -> &'static str {
        match self {
            Trace::Zipf => "zipf",
            Trace::Scan => "scan",
            Trace::Shift => "shift",
            Trace::Mixed => "mixed",
        }
    }

    /// About `count` accesses to four times `cached` pages.
    pub(super) fn accesses(self, cached: usize, count: usize, seed: u64) -> Vec<Access> {
        let pages = cached * PAGES_PER_CACHED;
        let mut rng = Rng::new(seed, self as u64);
        match self {
            Trace::Scan => scans(cached, count, &mut rng),
            Trace::Zipf => {
                let zipf = Zipf::new(pages, &mut rng);
                (0..count).map(|_| plain(zipf.page(&mut rng))).collect()
            }
            Trace::Shift => {
                let mut set = WorkingSet::new(pages, cached, &mut rng);
                (0..count).map(|_| plain(set.page(&mut rng))).collect()
            }
            Trace::Mixed => mixed(pages, cached, count, &mut rng),
        }
    }
}

/// The accesses to pages that are not in use: a page is from when it is loaded until `in_use`
/// others were.
pub(super) fn loads(accesses: Vec<Access>, in_use: usize) -> Vec<Access> {
    let (mut queue, mut used) = (VecDeque::new(), HashSet::new());
    let reaches = |access: &Access| {
        if in_use == 0 {
            return true;
        }
        if !used.insert(access.page) {
            return false;
        }
        queue.push_back(access.page);
        if queue.len() > in_use
            && let Some(oldest) = queue.pop_front()
        {
            used.remove(&oldest);
        }
        true
    };
    accesses.into_iter().filter(reaches).collect()
}

fn plain(page: u32) -> Access {
    Access { page, window: Window::None }
}

/// Zipf's law with exponent 1.
struct Zipf {
    /// Sums of 1/r over the ranks up to each.
    sums: Vec<f64>,
    by_rank: Vec<u32>,
}

impl Zipf {
    fn new(pages: usize, rng: &mut Rng) -> Zipf {
        let sums = (1..=pages).scan(0.0, |sum, rank| {
            *sum += 1.0 / rank as f64;
            Some(*sum)
        });
        Zipf { sums: sums.collect(), by_rank: rng.permutation(pages) }
    }

    fn page(&self, rng: &mut Rng) -> u32 {
        let total = self.sums[self.sums.len() - 1];
        // 53 bits: as many as a fraction has.
        let at = (rng.next() >> 11) as f64 / (1u64 << 53) as f64 * total;
        self.by_rank[self.sums.partition_point(|&sum| sum <= at).min(self.by_rank.len() - 1)]
    }
}

/// As many pages as the cache has, a quarter of which gives way to others now and then.
struct WorkingSet {
    order: Vec<u32>,
    first: usize,
    size: usize,
    left: usize,
}

impl WorkingSet {
    fn new(pages: usize, size: usize, rng: &mut Rng) -> WorkingSet {
        WorkingSet { order: rng.permutation(pages), first: 0, size, left: size * SHIFTS }
    }

    fn page(&mut self, rng: &mut Rng) -> u32 {
        if self.left == 0 {
            self.first += self.size / SHIFTS;
            self.left = self.size * SHIFTS;
        }
        self.left -= 1;
        self.order[(self.first + rng.below(self.size)) % self.order.len()]
    }
}

/// Scans of all pages over a hot set, and as many accesses to the hot set alone between them.
fn scans(cached: usize, count: usize, rng: &mut Rng) -> Vec<Access> {
    let pages = cached * PAGES_PER_CACHED;
    let hot = rng.permutation(pages)[..cached / 2].to_vec();
    // As many as a scan has, and as many after it.
    let window = 2 * pages / SCANNED_PER_HOT;
    let mut accesses = Vec::with_capacity(count + 3 * pages);
    let add_hot = |accesses: &mut Vec<Access>, rng: &mut Rng, window: Window, count: usize| {
        accesses.extend((0..count).map(|_| Access { page: hot[rng.below(hot.len())], window }));
    };
    while accesses.len() < count {
        add_hot(&mut accesses, rng, Window::None, 2 * pages);
        add_hot(&mut accesses, rng, Window::Before, window);
        for page in 0..pages as u32 {
            if (page as usize).is_multiple_of(SCANNED_PER_HOT) {
                add_hot(&mut accesses, rng, Window::After, 1);
            }
            accesses.push(plain(page));
        }
        add_hot(&mut accesses, rng, Window::After, window - pages / SCANNED_PER_HOT);
    }
    accesses
}

fn mixed(pages: usize, cached: usize, count: usize, rng: &mut Rng) -> Vec<Access> {
    let zipf = Zipf::new(pages, rng);
    let mut set = WorkingSet::new(pages, cached, rng);
    let mut scanned = 0;
    let access = |_| match rng.below(4) {
        0 | 1 => zipf.page(rng),
        2 => set.page(rng),
        _ => {
            scanned = (scanned + 1) % pages;
            scanned as u32
        }
    };
    (0..count).map(access).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    const CACHED: usize = 256;

    #[test]
    fn a_seed_gives_the_same_accesses_to_pages_there_are() {
        for trace in Trace::value_variants() {
            let accesses = trace.accesses(CACHED, 20_000, 7);
            assert!(accesses.len() >= 20_000, "{trace:?}");
            assert_eq!(accesses, trace.accesses(CACHED, 20_000, 7), "{trace:?}");
            assert_ne!(accesses, trace.accesses(CACHED, 20_000, 8), "{trace:?}");
            let last = (CACHED * PAGES_PER_CACHED) as u32;
            assert!(accesses.iter().all(|access| access.page < last), "{trace:?}");
        }
    }

    #[test]
    fn pages_in_use_reach_the_cache_when_others_have_taken_their_place() {
        let through = |in_use: usize| {
            let accesses = [1, 1, 2, 1, 3, 1, 2].map(plain).to_vec();
            loads(accesses, in_use).iter().map(|access| access.page).collect::<Vec<u32>>()
        };
        assert_eq!(through(0), [1, 1, 2, 1, 3, 1, 2]);
        assert_eq!(through(1), [1, 2, 1, 3, 1, 2]);
        assert_eq!(through(2), [1, 2, 3, 1, 2]);
        assert_eq!(through(3), [1, 2, 3]);
    }

    #[test]
    fn zipf_gives_the_second_rank_half_of_the_firsts() {
        let mut counts = vec![0; CACHED * PAGES_PER_CACHED];
        for access in Trace::Zipf.accesses(CACHED, 400_000, 1) {
            counts[access.page as usize] += 1;
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let ratio = f64::from(counts[0]) / f64::from(counts[1]);
        assert!((1.9..2.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn windows_of_a_scan_are_equally_long_and_a_scan_has_every_page() {
        let accesses = Trace::Scan.accesses(CACHED, 1, 3);
        let count = |window| accesses.iter().filter(|access| access.window == window).count();
        assert_eq!(count(Window::Before), count(Window::After));
        let first = accesses.iter().position(|access| access.window == Window::After);
        let scan = &accesses[first.expect("one scan")..];
        let scanned = scan.iter().filter(|access| access.window == Window::None);
        let pages: Vec<u32> = scanned.map(|access| access.page).collect();
        assert_eq!(pages, (0..(CACHED * PAGES_PER_CACHED) as u32).collect::<Vec<_>>());
    }
}
