//! Memory whose missing pages are all alike: what a fault is with no store behind it.
//!
//! ```text
//!   a page is touched |--------------- all ---------------| it is there
//!                        served |-- spent --| woken
//! ```
//!
//! Invariant: pages leave by [`SpanMemory::discard`] alone, for which the client gives up all it
//! has borrowed. So whoever sees what came instead has not seen what was there.

use super::regions::{Asker, Served, Server};
use super::signal::{Watch, watch};
use crate::machine::{PAGE_SIZE, die_at};
use crate::userfault::{Span, SpanMemory, Stop, Userfault, UserfaultError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Such memory.
pub struct Filled {
    filler: Arc<Filler>,
    /// Before the addresses are given back.
    _watch: Watch,
    memory: SpanMemory,
}

struct Filler {
    span: Arc<Span>,
    page: Box<[u8]>,
    /// The least so far.
    spent_ns: AtomicU64,
}

impl Filled {
    /// `pages` pages, none of them there yet, of this byte.
    ///
    /// # Errors
    ///
    /// When the system refuses, or there are regions enough.
    pub fn map(
        userfault: &Arc<Userfault>,
        pages: usize,
        byte: u8,
    ) -> Result<Filled, UserfaultError> {
        let (span, memory) = Span::reserve(userfault, pages)?;
        span.register(0..pages)?;
        let page = vec![byte; PAGE_SIZE].into_boxed_slice();
        let filler = Arc::new(Filler { span, page, spent_ns: AtomicU64::new(u64::MAX) });
        let server = Arc::<Filler>::clone(&filler);
        let watch = watch(filler.span.range(), server)?;
        Ok(Filled { filler, _watch: watch, memory })
    }

    /// The bytes.
    pub fn memory(&self) -> &SpanMemory {
        &self.memory
    }

    /// The bytes, to be written to or discarded.
    pub fn memory_mut(&mut self) -> &mut SpanMemory {
        &mut self.memory
    }

    /// What it took to serve a fault, once it was known where: the least so far, since a preemption
    /// only adds. Nothing where none was served, or the thread that was woken is ahead of this.
    pub fn least_spent(&self) -> Option<Duration> {
        // relaxed: one number that stands for itself.
        let spent = self.filler.spent_ns.load(Ordering::Relaxed);
        (spent != u64::MAX).then(|| Duration::from_nanos(spent))
    }
}

impl std::fmt::Debug for Filled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filled").field("pages", &self.filler.span.pages()).finish_non_exhaustive()
    }
}

// SAFETY: it looks at the clock twice, which is async-signal-safe, makes a system call, and changes
// an atomic of its own. `fill` panics where the page is not the span's, which is asked first.
unsafe impl Server for Filler {
    fn serve(&self, address: usize, _: Asker) -> Served {
        let Some(page) = self.span.page_at(address) else { return Served::Foreign };
        let started = Instant::now();
        // SAFETY: by the invariant the client has not looked at the page since it left.
        let transfer = unsafe { self.span.fill(page, &self.page) };
        if let Some(Stop::Busy | Stop::Hole | Stop::Broken(_)) = transfer.stop {
            die_at("a page that is like all others cannot be put in place", address);
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
