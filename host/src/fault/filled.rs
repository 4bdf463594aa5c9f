//! Memory whose missing pages all have the same contents: what a fault costs without a store behind
//! it.
//!
//! ```text
//!   a page is touched |--------------- all ---------------| it is there
//!                        served |-- spent --| woken
//! ```
//!
//! Invariant: pages leave by [`Filled::put_out`] alone, and the client gives up all that it has
//! borrowed for that. A reader of the new contents has therefore not seen the old ones. Lock: none.

use super::regions::{Asker, Served, Server, Watch};
use super::signal::watch;
use crate::folding::{FaultError, FaultPath, Span, SpanMemory, Stop};
use crate::machine::{PAGE_SIZE, die_at, max_map_count};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Memory whose missing pages are filled with one byte when they are touched.
pub struct Filled {
    filler: Arc<Filler>,
    /// It is dropped before the addresses are given back.
    _watch: Watch<'static>,
    memory: SpanMemory,
}

struct Filler {
    span: Arc<Span>,
    page: Box<[u8]>,
    /// The shortest time of a fault so far; `u64::MAX` before the first.
    spent_ns: AtomicU64,
}

impl Filled {
    /// Maps `pages` pages, none of which is there yet. A page that is touched is filled with
    /// `byte`.
    ///
    /// # Errors
    ///
    /// If the system refuses, or the process has as many regions as it may have.
    pub fn map(path: &Arc<FaultPath>, pages: usize, byte: u8) -> Result<Filled, FaultError> {
        let (span, memory) = Span::reserve(path, pages)?;
        span.register(0..pages)?;
        let page = vec![byte; PAGE_SIZE].into_boxed_slice();
        let filler = Arc::new(Filler { span, page, spent_ns: AtomicU64::new(u64::MAX) });
        let server = Arc::<Filler>::clone(&filler);
        let watch = watch(filler.span.range(), path.mode(), server)?;
        Ok(Filled { filler, _watch: watch, memory })
    }

    /// The memory, to be read.
    pub fn memory(&self) -> &SpanMemory {
        &self.memory
    }

    /// Takes `pages` away, so that their next touch is a fault.
    ///
    /// # Errors
    ///
    /// If the system refuses to discard or to close them.
    pub fn put_out(&mut self, pages: Range<usize>) -> Result<(), FaultError> {
        self.memory.discard(pages.clone())?;
        if self.filler.span.close(pages) {
            return Ok(());
        }
        Err(FaultError::Mappings { max: max_map_count() })
    }

    /// The shortest time that serving a fault has taken so far, from the moment at which the page
    /// was known. It is the shortest because a preemption only adds time. `None` if no fault was
    /// served, or if the woken thread asks before the time is written.
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

// SAFETY: it looks at the clock twice, which is async-signal-safe. It makes a system call, and
// changes an atomic of its own. `fill` would panic for a page that is not the span's, and that is
// asked first.
unsafe impl Server for Filler {
    fn serve(&self, address: usize, asker: Asker) -> Served {
        let Some(page) = self.span.page_at(address) else { return Served::Foreign };
        if !asker.is_of(self.span.mode()) {
            return Served::Foreign;
        }
        let started = Instant::now();
        // SAFETY: by the invariant the client has not looked at the page since it left.
        let transfer = unsafe { self.span.fill(page, &self.page) };
        if let Some(Stop::Busy | Stop::Hole | Stop::Broken(_) | Stop::NoMapping) = transfer.stop {
            die_at("a page that is like all others cannot be put in place", address);
        }
        if transfer.pages == 0 {
            // It is there, or there is no memory for it now. The thread that touched it looks
            // again.
            return Served::Present;
        }
        // relaxed: one number that stands for itself. The thread that touched the page is awake
        // already, and may not see it.
        self.spent_ns.fetch_min(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        Served::Filled
    }
}
