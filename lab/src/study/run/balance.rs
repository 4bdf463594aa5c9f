//! How much memory a group may have so that the group and the store behind its swap together have
//! as much as our limit.
//!
//! ```text
//!   held(group) = group + store(group)         grows with the group, because pages compress
//!
//!   low ---- guess ---------- high             a probe moves one end; the next guess follows the
//!            | held too much: high             ratio that the probe showed, or halves the rest
//!            | held too little: low
//! ```
//!
//! Invariant: every probe is kept, and the one that is nearest is the answer.

/// Together they are as much as the limit, within this part of it.
pub(super) const TOLERANCE: f64 = 0.03;
/// Runs of a job until the nearest is taken.
const PROBES_MAX: usize = 5;
/// How well pages compress, before anything is known.
const RATIO: f64 = 3.0;
/// No program runs in less.
const GROUP_MIN: u64 = 4 << 20; // 4 MiB

const _: () = assert!(PROBES_MAX > 1, "the first is a guess");

/// One run of a job in a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Probe {
    pub(super) group_bytes: u64,
    /// The most that the store took.
    pub(super) store_bytes: u64,
}

impl Probe {
    pub(super) fn held(self) -> u64 {
        self.group_bytes + self.store_bytes
    }

    /// How far that is from what is wanted, as a part of that.
    pub(super) fn is_off(self, wanted: u64) -> f64 {
        self.held().abs_diff(wanted) as f64 / wanted as f64
    }
}

/// The probe whose group and store are nearest to `wanted` bytes, for a program that takes `peak`.
pub(super) fn nearest<E>(
    peak: u64,
    wanted: u64,
    mut store_of: impl FnMut(u64) -> Result<u64, E>,
) -> Result<Probe, E> {
    let mut ends = (GROUP_MIN.min(wanted), wanted);
    let mut next = guess(peak, wanted, RATIO, ends);
    let mut best = Probe { group_bytes: next, store_bytes: store_of(next)? };
    let mut last = best;
    for _ in 1..PROBES_MAX {
        if best.is_off(wanted) <= TOLERANCE {
            break;
        }
        let moved = if last.held() > wanted { &mut ends.1 } else { &mut ends.0 };
        *moved = last.group_bytes;
        let out = peak.saturating_sub(last.group_bytes) as f64;
        next = guess(peak, wanted, out / last.store_bytes.max(1) as f64, ends);
        last = Probe { group_bytes: next, store_bytes: store_of(next)? };
        if last.is_off(wanted) < best.is_off(wanted) {
            best = last;
        }
    }
    Ok(best)
}

/// The group's bytes if what is out is compressed by `ratio`; the middle if these are not between
/// the ends.
fn guess(peak: u64, wanted: u64, ratio: f64, (low, high): (u64, u64)) -> u64 {
    let stored = 1.0 / ratio;
    let guess = (wanted as f64 - peak as f64 * stored) / (1.0 - stored);
    let is_between = guess > low as f64 && guess < high as f64;
    if is_between { guess as u64 } else { u64::midpoint(low, high) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const MIB: u64 = 1 << 20;

    /// The probes of a program that takes 200 MiB, whose store takes what `store` says.
    fn probes(wanted: u64, store: impl Fn(u64) -> u64) -> (Probe, Vec<u64>) {
        let groups = RefCell::new(Vec::new());
        let found = nearest(200 * MIB, wanted, |group| {
            groups.borrow_mut().push(group);
            Ok::<u64, ()>(store(group))
        });
        (found.unwrap(), groups.into_inner())
    }

    #[test]
    fn a_program_that_compresses_as_expected_is_probed_once() {
        let (found, groups) = probes(140 * MIB, |group| (200 * MIB - group) / 3);
        assert_eq!(groups.len(), 1);
        assert!(found.is_off(140 * MIB) < 0.001, "{found:?}");
        assert_eq!(found.group_bytes / MIB, 110, "(140 - 200 / 3) / (1 - 1 / 3)");
    }

    #[test]
    fn another_ratio_is_found_by_the_second_probe() {
        for ratio in [1.5, 2.0, 6.0] {
            let store = |group: u64| ((200 * MIB - group) as f64 / ratio) as u64;
            let (found, groups) = probes(140 * MIB, store);
            assert!(
                groups.len() == 2 && found.is_off(140 * MIB) <= TOLERANCE,
                "{ratio}: {groups:?}"
            );
        }
    }

    /// Pages that came back have their place in the store still: what it holds grows in steps.
    #[test]
    fn a_store_that_follows_no_ratio_is_halved_to_and_the_nearest_is_taken() {
        let step = |group: u64| if group > 100 * MIB { 80 * MIB } else { 5 * MIB };
        let (found, groups) = probes(140 * MIB, step);
        assert_eq!(groups.len(), PROBES_MAX);
        let least =
            groups.iter().map(|&group| Probe { group_bytes: group, store_bytes: step(group) });
        let least = least.map(|probe| probe.is_off(140 * MIB)).fold(f64::INFINITY, f64::min);
        assert_eq!(found.is_off(140 * MIB), least);
    }

    #[test]
    fn what_cannot_be_held_is_tried_and_ends() {
        let (found, groups) = probes(20 * MIB, |_| 300 * MIB);
        assert!(groups.len() == PROBES_MAX && found.held() > 300 * MIB);
        assert_eq!(nearest(200 * MIB, 20 * MIB, |_| Err(7)), Err(7));
    }
}
