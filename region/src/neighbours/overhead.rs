//! The cost of a fault besides its page: the way to the thread that serves it, and back. A clock in
//! that thread does not see it.
//!
//! ```text
//!   a page is touched |--------------- all ---------------| it is there
//!                        served |-- spent --| woken                       overhead = all - spent
//! ```
//!
//! It is measured once, for a pager's first region, on a few pages of its own that are filled with
//! zeros. The shortest time of each kind is taken, because a preemption can only add.

use host::fault::Filled;
use host::{FaultMode, FaultPath, PAGE_SIZE};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Faults that are measured. They take 0.2 ms by signals, and a millisecond by messages.
const FAULTS: usize = 32;
/// The values if it cannot be measured: those of the machine in docs/region.md.
const SIGNAL: Duration = Duration::from_nanos(6900);
const MESSAGE: Duration = Duration::from_nanos(11500);

/// The overhead of a fault. A thread already serves the faults of `path`.
pub(crate) fn of_fault(path: &Arc<FaultPath>) -> Duration {
    measure(path).unwrap_or(match path.mode() {
        FaultMode::Thread => MESSAGE,
        FaultMode::Signal | FaultMode::Protection | FaultMode::Guards => SIGNAL,
    })
}

/// `None` if the system refuses. It will then refuse later regions, too. This thread can take
/// faults, because otherwise it would have been refused a region.
fn measure(path: &Arc<FaultPath>) -> Option<Duration> {
    let scratch = Filled::map(path, FAULTS, 0).ok()?;
    let bytes = scratch.memory().bytes(0..FAULTS * PAGE_SIZE)?;
    let touch = |page: &[u8]| {
        let started = Instant::now();
        black_box(page[0]);
        started.elapsed()
    };
    let all = bytes.chunks(PAGE_SIZE).map(touch).min()?;
    Some(all.saturating_sub(scratch.least_spent()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::fault::FaultThread;

    #[test]
    fn the_way_to_who_serves_takes_time_but_not_forever() {
        for mode in [FaultMode::Signal, FaultMode::Thread] {
            let path = match FaultPath::open(mode) {
                Ok(path) => path,
                Err(error) => {
                    eprintln!("skipped: needs {error}");
                    continue;
                }
            };
            let thread = (mode == FaultMode::Thread)
                .then(|| FaultThread::start(Arc::clone(&path)).expect("a thread"));
            let overhead = measure(&path).expect("a span and a watch");
            assert!(overhead > Duration::ZERO && overhead < Duration::from_secs(1), "{overhead:?}");
            drop(thread);
        }
    }
}
