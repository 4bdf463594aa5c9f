//! How the objects are dealt out to the threads.
//!
//! ```text
//!   contiguous   | thread 0 ...... | thread 1 ...... |     as processes that page out: all classes
//!   by class     a class goes, largest first, to the thread with the fewest objects
//! ```

use std::collections::BTreeMap;
use zsmalloc::{ClassIndex, Geometry};

/// Lengths by thread, as equal in number as can be.
pub(super) fn contiguous(lengths: &[u16], threads: u32) -> Vec<Vec<u16>> {
    let (count, threads) = (lengths.len(), threads as usize);
    let share = |thread| lengths[count * thread / threads..count * (thread + 1) / threads].to_vec();
    (0..threads).map(share).collect()
}

/// Lengths by thread, no class with two of them; in the order they had.
pub(super) fn by_class(lengths: &[u16], threads: u32, geometry: &Geometry) -> Vec<Vec<u16>> {
    let mut classes: Vec<(ClassIndex, usize)> = counts(lengths, geometry).into_iter().collect();
    classes.sort_by_key(|&(class, count)| (std::cmp::Reverse(count), class));
    let mut shares = vec![Vec::new(); threads as usize];
    let mut owner = BTreeMap::new();
    let mut load = vec![0; threads as usize];
    for (class, count) in classes {
        let least = (0..load.len()).min_by_key(|&thread| load[thread]).unwrap_or(0);
        load[least] += count;
        owner.insert(class, least);
    }
    for &length in lengths {
        let class = geometry.class_of(usize::from(length));
        if let Some(&thread) = class.and_then(|class| owner.get(&class)) {
            shares[thread].push(length);
        }
    }
    shares
}

fn counts(lengths: &[u16], geometry: &Geometry) -> BTreeMap<ClassIndex, usize> {
    let mut counts = BTreeMap::new();
    let classes = lengths.iter().filter_map(|&length| geometry.class_of(usize::from(length)));
    classes.for_each(|class| *counts.entry(class).or_default() += 1);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::Rng;

    fn lengths(count: usize) -> Vec<u16> {
        let mut rng = Rng::new(3, 0);
        (0..count).map(|_| 1 + rng.below(4096) as u16).collect()
    }

    fn sorted(mut lengths: Vec<u16>) -> Vec<u16> {
        lengths.sort_unstable();
        lengths
    }

    #[test]
    fn every_object_is_dealt_out_once() {
        let (lengths, geometry) = (lengths(1001), super::super::geometry());
        for threads in [1, 2, 3, 8] {
            for shares in [contiguous(&lengths, threads), by_class(&lengths, threads, &geometry)] {
                assert_eq!(shares.len(), threads as usize);
                assert_eq!(sorted(shares.concat()), sorted(lengths.clone()));
                let (least, most) =
                    (shares.iter().map(Vec::len).min(), shares.iter().map(Vec::len).max());
                assert!(most.unwrap() - least.unwrap() <= 40, "{least:?} to {most:?} objects");
            }
        }
    }

    #[test]
    fn no_class_has_two_threads() {
        let (lengths, geometry) = (lengths(1000), super::super::geometry());
        let mut owner = BTreeMap::new();
        for (thread, share) in by_class(&lengths, 4, &geometry).iter().enumerate() {
            for &length in share {
                let class = geometry.class_of(usize::from(length)).unwrap();
                assert_eq!(*owner.entry(class).or_insert(thread), thread, "{class:?}");
            }
        }
        assert_eq!(counts(&lengths, &geometry).len(), owner.len());
    }
}
