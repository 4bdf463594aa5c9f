//! Our side: threads that give up what they hold at the same moment.
//!
//! ```text
//!   lab                             thread 0 .. thread N-1
//!    |                               prepare: fill, page out and in ...   <- each at its own pace
//!    |---- barrier: all is stored -------|
//!    |  looks at what it takes           |
//!    |---- barrier -------- gate --------|
//!    |                               give up                              <- all at that moment
//!    |  looks until nothing is left, and until the system has the memory back
//! ```
//!
//! All of them share one memory, as several clients of one machine do.

use super::case::{Case, GONE, NS_PER_MS, PAGING, PATIENCE, Shape};
use super::held::{Held, Left, Span, Store};
use crate::apparatus::gate::Gate;
use crate::apparatus::paging;
use crate::apparatus::paging::Source;
use crate::ground::{LabError, clock, stats};
use crate::rows::{Row, column};
use region::{Pager, PagerConfig};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};
use zsmalloc::{Memory, MemoryConfig};

/// What the memory's worker never bothers to give back.
const KEPT_BYTES: u64 = 1 << 20;

/// One case: adds what was measured to `row`.
pub(super) fn measure(
    shape: &Shape,
    case: Case,
    source: &Source,
    row: &mut Row,
) -> Result<(), LabError> {
    let memory = Memory::new(MemoryConfig::for_disk(case.bytes()));
    let memory = memory.map_err(LabError::store("memory"))?;
    let fault_mode = Some(shape.free.fault_mode());
    let config = PagerConfig { fault_mode, ..PagerConfig::default() };
    let pager = Pager::new(Arc::clone(&memory), &config);
    let pager = pager.map_err(paging::refused)?;
    let store = Store::new(shape, case, &pager)?;
    let empty = resident(&memory)?;
    let crew = Crew {
        shape,
        case,
        source,
        store,
        barrier: Barrier::new(case.threads as usize + 1),
        gate: Gate::new(case.threads),
    };
    let (full, ended) = crew.work(|| resident(&memory))?;
    let growth = full.saturating_sub(empty);
    let start_ns = ended.iter().map(|ended| ended.span.start_ns).min().unwrap_or(0);
    let ms = |ns: u64| ns.saturating_sub(start_ns) as f64 / NS_PER_MS;
    let returned = ended.iter().map(|ended| ended.span.end_ns).max().unwrap_or(0);
    let freed = wait_until(|| {
        let mut lefts = ended.iter().map(|ended| ended.left.is_nothing());
        let none = memory.pending_bytes() == 0 && crew.store.has_nothing_pending();
        Ok(none && lefts.try_fold(true, |all, one| Ok(all && one?))?)
    })?;
    ended.iter().try_for_each(|ended| ended.left.verify()).and(crew.store.is_empty())?;
    let kept = ((growth as f64 * (1.0 - GONE)) as u64).max(KEPT_BYTES);
    // By the memory's own count, which falls when the system has taken the frames. Asking the
    // system takes longer than that does, as all of this process's pages are counted; so it is
    // asked afterwards, whether it is true.
    let released = wait_until(|| Ok(memory.free_bytes_held() <= kept))?;
    wait_until(|| Ok(resident(&memory)? <= kept + empty))?;
    let paging: Vec<Row> = ended.into_iter().map(|ended| ended.paging).collect();
    for field in PAGING {
        let spread = stats::spread(&column(&paging, field));
        row.set(field, spread.map(|spread| spread.median));
    }
    row.set("teardown_ms", ms(returned))
        .set("freed_ms", ms(freed))
        .set("release_ms", ms(released))
        .set("drain_ms", ms(released))
        .set("growth_bytes", growth)
        .set("fallbacks", crew.store.fallbacks());
    Ok(())
}

/// What the threads share.
struct Crew<'a> {
    shape: &'a Shape,
    case: Case,
    source: &'a Source,
    store: Store,
    barrier: Barrier,
    gate: Gate,
}

/// What a thread found.
struct Ended {
    paging: Row,
    left: Left,
    span: Span,
}

impl Crew<'_> {
    /// All of it; `look` is called when everything is stored.
    fn work<R>(
        &self,
        look: impl FnOnce() -> Result<R, LabError>,
    ) -> Result<(R, Vec<Ended>), LabError> {
        thread::scope(|scope| {
            let threads: Vec<_> = (0..self.case.threads)
                .map(|thread| scope.spawn(move || self.one(thread)))
                .collect();
            self.barrier.wait();
            let found = look();
            self.barrier.wait();
            let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| panicked())?);
            let ended = joined.collect::<Result<Vec<Ended>, LabError>>();
            Ok((found?, ended?))
        })
    }

    /// One thread's part. It goes through barriers and gate whatever happens: others wait there.
    fn one(&self, thread: u32) -> Result<Ended, LabError> {
        let prepared = Held::prepare(self.shape, self.case, thread, &self.store, self.source);
        self.barrier.wait();
        self.barrier.wait();
        self.gate.pass();
        let (held, paging) = prepared?;
        let (left, span) = held.give_up()?;
        Ok(Ended { paging, left, span })
    }
}

/// Bytes of the memory that the system counts, frames and tables.
fn resident(memory: &Memory) -> Result<u64, LabError> {
    memory.resident_bytes(&[]).map_err(LabError::io("smaps"))
}

/// Looks until it is so, and leaves the CPUs to the threads that do it; gives when that was.
fn wait_until(mut done: impl FnMut() -> Result<bool, LabError>) -> Result<u64, LabError> {
    const PAUSE: Duration = Duration::from_micros(200);
    let start = Instant::now();
    while !done()? {
        if start.elapsed() > PATIENCE {
            return Err(LabError::Wrong("what was given up is still there".into()));
        }
        thread::sleep(PAUSE);
    }
    Ok(clock::now_ns())
}

fn panicked() -> LabError {
    LabError::Store { what: "region".into(), why: "a thread panicked".into() }
}
