//! What a fault costs besides what is done about it: the way to who serves it and back, which no
//! clock of his sees.
//!
//! ```text
//!   a page is touched |--------------- all ---------------| it is there
//!                        served |-- spent --| woken                       overhead = all - spent
//! ```
//!
//! Measured once, for a pager's first region, on a few pages of its own that are filled with
//! zeros. The least of each is taken: a preemption only adds.

use host::fault::{Asker, Served, Server, die, is_blocked, watch};
use host::{FaultMode, PAGE_SIZE, Span, Stop, Userfault};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Faults that are measured: 0.2 ms by signals, a millisecond by messages.
const FAULTS: usize = 32;
/// Where it cannot be measured: those of the machine in docs/region.md.
const SIGNAL: Duration = Duration::from_nanos(6900);
const MESSAGE: Duration = Duration::from_nanos(11500);

static ZEROS: [u8; PAGE_SIZE] = [0; PAGE_SIZE];

/// Serves the faults that are measured.
struct Scratch {
    span: Arc<Span>,
    /// The least so far.
    spent_ns: AtomicU64,
}

impl Server for Scratch {
    fn serve(&self, address: usize, _: Asker) -> Served {
        let Some(page) = self.span.page_at(address) else { return Served::Foreign };
        let started = Instant::now();
        let transfer = self.span.fill(page, &ZEROS);
        if let Some(Stop::Busy | Stop::Hole | Stop::Broken(_)) = transfer.stop {
            die("a page of zeros cannot be put in place", address);
        }
        if transfer.pages == 0 {
            // It is there, or there is no memory for it now: who touched it is to look again.
            return Served::Present;
        }
        // relaxed: one number that stands for itself. Who touched the page is awake already, and
        // may not see this one.
        self.spent_ns.fetch_min(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        Served::Filled
    }
}

/// The overhead of a fault, where `userfault`'s are served already.
pub(crate) fn of_fault(userfault: &Arc<Userfault>) -> Duration {
    measure(userfault).unwrap_or(match userfault.mode() {
        FaultMode::Signal => SIGNAL,
        FaultMode::Thread => MESSAGE,
    })
}

/// Nothing where this thread may not fault, or where the system refuses, as it will the regions
/// that come.
fn measure(userfault: &Arc<Userfault>) -> Option<Duration> {
    if userfault.mode() == FaultMode::Signal && is_blocked() {
        return None;
    }
    let (span, memory) = Span::reserve(userfault, FAULTS).ok()?;
    span.register(0..FAULTS).ok()?;
    let scratch = Arc::new(Scratch { span: Arc::clone(&span), spent_ns: AtomicU64::new(u64::MAX) });
    let _watched = watch(span.range(), Arc::<Scratch>::clone(&scratch)).ok()?;
    let bytes = memory.bytes(0..memory.len())?;
    let touch = |page: &[u8]| {
        let started = Instant::now();
        black_box(page[0]);
        started.elapsed()
    };
    let all = bytes.chunks(PAGE_SIZE).map(touch).min()?;
    // relaxed: as above.
    let spent = Duration::from_nanos(scratch.spent_ns.load(Ordering::Relaxed));
    Some(all.saturating_sub(spent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::fault::FaultThread;

    #[test]
    fn the_way_to_who_serves_takes_time_but_not_forever() {
        for mode in [FaultMode::Signal, FaultMode::Thread] {
            let userfault = match Userfault::open(mode) {
                Ok(userfault) => userfault,
                Err(error) => {
                    eprintln!("skipped: needs {error}");
                    continue;
                }
            };
            let thread = (mode == FaultMode::Thread)
                .then(|| FaultThread::start(Arc::clone(&userfault)).expect("a thread"));
            let overhead = measure(&userfault).expect("a span and a watch");
            assert!(overhead > Duration::ZERO && overhead < Duration::from_secs(1), "{overhead:?}");
            drop(thread);
        }
    }
}
