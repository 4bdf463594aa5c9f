//! Memory in the system's swap, as the studies use it.
//!
//! ```text
//!   page_out   asked for here, then on each CPU, as long as something is resident -> all swapped?
//! ```
//!
//! Invariant: memory counts as out only if no byte of it is resident and all of it is in the swap.

use crate::ground::LabError;
use host::{Swappable, smaps};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::time::{Duration, Instant};

/// The time it took until nothing was left in memory. A CPU keeps a few new pages to itself before
/// they are on the system's lists. It finds them only if it is the one that is asked. So the rest
/// after the first time is asked for on each CPU in turn.
pub(crate) fn page_out(memory: &Swappable) -> Result<Duration, LabError> {
    const ROUNDS_MAX: usize = 10;
    let allowed = sched_getaffinity(None).map_err(|errno| LabError::io("CPUs")(errno.into()))?;
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    let (mut spent, mut left) = page_out_once(memory)?;
    for &cpu in cpus.iter().cycle().take(ROUNDS_MAX * cpus.len()) {
        if left == 0 {
            break;
        }
        let mut only = CpuSet::new();
        only.set(cpu);
        run_on(&only)?;
        let (more, still) = page_out_once(memory)?;
        (spent, left) = (spent + more, still);
    }
    run_on(&allowed)?;
    let stays = || LabError::Wrong(format!("{left} bytes cannot be swapped out"));
    (left == 0).then_some(()).ok_or_else(stays)?;
    all_swapped(memory).map(|()| spent)
}

/// How long it took, and the bytes that are still resident.
fn page_out_once(memory: &Swappable) -> Result<(Duration, u64), LabError> {
    let start = Instant::now();
    memory.page_out().map_err(LabError::store("memory"))?;
    let spent = start.elapsed();
    let left = smaps::rss_of(&[memory.addresses()]).map_err(LabError::io("smaps"))?;
    Ok((spent, left))
}

fn run_on(cpus: &CpuSet) -> Result<(), LabError> {
    sched_setaffinity(None, cpus).map_err(|errno| LabError::io("CPUs")(errno.into()))
}

/// What is not resident must be in the swap, or it was lost.
fn all_swapped(memory: &Swappable) -> Result<(), LabError> {
    let addresses = memory.addresses();
    let all = addresses.len() as u64;
    let out = smaps::swap_of(&[addresses]).map_err(LabError::io("smaps"))?;
    let lost = || LabError::Wrong(format!("{out} of {all} bytes are in the swap"));
    (out == all).then_some(()).ok_or_else(lost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::Cleanup;
    use crate::kernel;
    use crate::pages::PAGE_SIZE;

    /// Needs root and a zram nobody uses; as long as that is claimed, nothing else is swapped on.
    #[test]
    fn memory_is_out_when_it_is_in_the_swap() {
        const PAGES: usize = 64;
        let cleanup = Cleanup::default();
        let peer = match kernel::patiently(|| kernel::claim_zram(&cleanup)) {
            Ok(peer) => peer,
            Err(error) => return println!("skipped: needs {error}"),
        };
        let mut memory = Swappable::new(PAGES).unwrap();
        memory.as_mut_slice().fill(7);
        let allowed = sched_getaffinity(None).unwrap();
        let stays = page_out(&memory).unwrap_err().to_string();
        assert_eq!(sched_getaffinity(None).unwrap(), allowed, "it stays where it went last");
        let bytes = PAGES * PAGE_SIZE;
        assert_eq!(stays, format!("wrong answer: {bytes} bytes cannot be swapped out"));
        peer.set_up("lzo-rle", 16 << 20).unwrap();
        peer.swap_on().unwrap();
        page_out(&memory).unwrap();
        assert_eq!(smaps::swap_of(&[memory.addresses()]).unwrap(), bytes as u64);
        assert!(memory.as_slice().iter().all(|&byte| byte == 7));
    }

    /// Memory that nobody touched is neither resident nor in the swap.
    #[test]
    fn memory_that_is_nowhere_is_not_out() {
        let memory = Swappable::new(2).unwrap();
        let lost = page_out(&memory).unwrap_err().to_string();
        assert_eq!(lost, "wrong answer: 0 of 8192 bytes are in the swap");
    }
}
