//! What a fault costs, and would not cost again for another page beside its own: the way to who
//! serves it and back, which no clock of his sees, and the call that puts pages in place.
//!
//! ```text
//!   a page is touched |--------------- all ---------------| it is there
//!                        served |-- spent --| woken                       way = all - spent
//!
//!   spent on one page and on 16: each takes (spent on 16 - spent on 1) / 15, and the call the rest
//! ```
//!
//! Measured once, for a pager's first region, on a few pages of its own that are filled with
//! zeros. The least of each is taken: a preemption only adds.

use crate::AROUND_PAGES;
use host::fault::{Served, Server, die, is_blocked, watch};
use host::{FaultMode, PAGE_SIZE, Span, Stop, Userfault};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Faults that are measured, on one page and on 16: 0.3 ms by signals, a millisecond by messages.
const ONES: usize = 32;
const MANY: usize = 8;
const PAGES: usize = ONES + MANY * AROUND_PAGES;

static ZEROS: [u8; AROUND_PAGES * PAGE_SIZE] = [0; AROUND_PAGES * PAGE_SIZE];

/// What a fault takes but for its page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Overhead {
    /// The way to who serves it and back.
    pub(crate) way: Duration,
    /// The call that puts its page in place, but for what it takes for each page.
    pub(crate) call: Duration,
}

/// Where it cannot be measured: that of the machine in docs/region.md.
const SIGNAL: Overhead =
    Overhead { way: Duration::from_nanos(3200), call: Duration::from_nanos(800) };
/// The call wakes who waits, and may lose the CPU to it.
const MESSAGE: Overhead =
    Overhead { way: Duration::from_nanos(1000), call: Duration::from_nanos(6000) };

/// The least so far, in nanoseconds.
#[derive(Debug)]
struct Least(AtomicU64);

impl Least {
    fn hear(&self, took: Duration) {
        // relaxed: one number that stands for itself. Who touched the page is awake already, and
        // may not see this one.
        self.0.fetch_min(took.as_nanos() as u64, Ordering::Relaxed);
    }

    fn ns(&self) -> u64 {
        // relaxed: as above.
        self.0.load(Ordering::Relaxed)
    }
}

/// Serves the faults that are measured.
struct Scratch {
    span: Arc<Span>,
    one: Least,
    many: Least,
}

impl Server for Scratch {
    fn serve(&self, address: usize) -> Served {
        let Some(page) = self.span.page_at(address) else { return Served::Foreign };
        let (count, spent) = if page < ONES { (1, &self.one) } else { (AROUND_PAGES, &self.many) };
        let started = Instant::now();
        let transfer = self.span.fill(page, &ZEROS[..count * PAGE_SIZE]);
        if let Some(Stop::Busy | Stop::Hole | Stop::Broken(_)) = transfer.stop {
            die("a page of zeros cannot be put in place", address);
        }
        if transfer.pages == 0 {
            // It is there, or there is no memory for it now: who touched it is to look again.
            return Served::Present;
        }
        if transfer.pages == count {
            spent.hear(started.elapsed());
        }
        Served::Filled
    }
}

/// The overhead of a fault, where `userfault`'s are served already.
pub(crate) fn of_fault(userfault: &Arc<Userfault>) -> Overhead {
    measure(userfault).unwrap_or(match userfault.mode() {
        FaultMode::Signal => SIGNAL,
        FaultMode::Thread => MESSAGE,
    })
}

/// Nothing where this thread may not fault, or where the system refuses, as it will the regions
/// that come.
fn measure(userfault: &Arc<Userfault>) -> Option<Overhead> {
    if userfault.mode() == FaultMode::Signal && is_blocked() {
        return None;
    }
    let (span, memory) = Span::reserve(userfault, PAGES).ok()?;
    span.register(0..PAGES).ok()?;
    let least = || Least(AtomicU64::new(u64::MAX));
    let scratch = Arc::new(Scratch { span: Arc::clone(&span), one: least(), many: least() });
    let _watched = watch(span.range(), Arc::<Scratch>::clone(&scratch)).ok()?;
    let bytes = memory.bytes(0..memory.len())?;
    let touch = |page: &[u8]| {
        let started = Instant::now();
        black_box(page[0]);
        started.elapsed()
    };
    let (ones, many) = bytes.split_at(ONES * PAGE_SIZE);
    let all = ones.chunks(PAGE_SIZE).map(touch).min()?;
    many.chunks(AROUND_PAGES * PAGE_SIZE).map(touch).for_each(|_| {});
    Some(overhead(all, scratch.one.ns(), scratch.many.ns()))
}

/// Of a fault that took so long, of which so much was spent on its page, where 16 take so much.
fn overhead(all: Duration, one: u64, many: u64) -> Overhead {
    let page = many.saturating_sub(one) / (AROUND_PAGES as u64 - 1);
    Overhead {
        way: all.saturating_sub(Duration::from_nanos(one)),
        call: Duration::from_nanos(one.saturating_sub(page)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::fault::FaultThread;

    #[test]
    fn a_fault_takes_its_way_a_call_and_its_page() {
        let ns = Duration::from_nanos;
        // A page takes 1000, and the call 500 beside.
        assert_eq!(overhead(ns(5000), 1500, 16_500), Overhead { way: ns(3500), call: ns(500) });
        // Sixteen that took less than one, and none that were measured.
        assert_eq!(overhead(ns(5000), 1500, 1000), Overhead { way: ns(3500), call: ns(1500) });
        assert_eq!(overhead(ns(5000), 1500, u64::MAX), Overhead { way: ns(3500), call: ns(0) });
        assert_eq!(overhead(ns(5000), u64::MAX, u64::MAX).way, ns(0));
    }

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
            let Overhead { way, call } = measure(&userfault).expect("a span and a watch");
            assert!(way > Duration::ZERO && way + call < Duration::from_secs(1), "{way:?}");
            drop(thread);
        }
    }
}
