//! The child: stores the objects it is given and says, phase by phase, what that took.
//!
//! ```text
//!   per phase    gate   every thread works     gate   thread 0 looks at    gate   every thread
//!                       on its share                  resident memory             verifies
//! ```
//!
//! Answers are JSON lines: a row per phase, or one object with `missing` or `error`.
//!
//! Invariants
//! - C1 the tables of slots and the objects are touched before the baseline, the holder is made
//!   after it.
//! - C2 a row is given only if every object was read back equal after its phase.
//!
//! Lock: one mutex around the sums of the phase, held to add to them. Thread 0 is the process's
//! first: with one thread, malloc serves it as it serves most programs.

use super::holder::{Heap, Holder, Pooled};
use super::parts::Parts;
use super::phase::{Live, Phase, Share, Times};
use super::plan::Plan;
use crate::apparatus::objects::Objects;
use crate::frame::Inside;
use crate::ground::LabError;
use crate::rows::Row;
use clap::{ArgMatches, Args, FromArgMatches};
use serde_json::Value;
use std::fs;
use std::io::{self, Write};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Duration;
use zsmalloc::Rule;

/// Options of the child.
#[derive(Args, Debug)]
struct Options {
    /// Store in a pool instead of on the heap
    #[arg(long)]
    pool: bool,
    /// The library that malloc is to be in
    #[arg(long)]
    library: Option<String>,
    #[arg(long)]
    threads: u32,
    #[arg(long)]
    run: u32,
    #[arg(long)]
    chain_order: u32,
    #[arg(long)]
    rule: Rule,
    #[arg(long)]
    rest_ms: u64,
}

/// What runs in the child.
pub(crate) const INSIDE: Inside =
    Inside { name: "alloc-inside", options: Options::augment_args, run };

/// The child's `main`. What goes wrong is part of the answer.
fn run(matches: &ArgMatches) -> Result<(), LabError> {
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?;
    let rows = measure(&options).unwrap_or_else(|error| {
        let mut answer = Row::default();
        match error {
            LabError::Missing { why, .. } => answer.set("missing", why),
            error => answer.set("error", error.to_string()),
        };
        vec![answer]
    });
    let text: String = rows.into_iter().map(|row| format!("{}\n", Value::from(row))).collect();
    io::stdout().write_all(text.as_bytes()).map_err(LabError::io("standard output"))
}

fn measure(options: &Options) -> Result<Vec<Row>, LabError> {
    let library = loaded(options.library.as_deref())?;
    let objects = Objects::read(&mut io::stdin().lock()).map_err(LabError::io("objects"))?;
    let plan = Plan {
        threads: options.threads,
        run: options.run,
        chain_order: options.chain_order,
        rule: options.rule,
        rest: Duration::from_millis(options.rest_ms),
    };
    let rows = match options.pool {
        true => phases(|| Pooled::new(objects.count(), &plan), &objects, &plan),
        false => phases(|| Ok(Heap), &objects, &plan),
    };
    let mut rows = rows?;
    let call = if options.pool { None } else { host::give_back_heap() };
    for row in &mut rows {
        row.set("library", library.as_str()).set("give_back", call);
    }
    Ok(rows)
}

/// Where the library is loaded from, when one is expected.
fn loaded(expected: Option<&str>) -> Result<String, LabError> {
    let Some(name) = expected else { return Ok(String::new()) };
    let maps = read("/proc/self/maps")?;
    let path = |line: &str| line.find('/').map(|at| line[at..].to_owned());
    let found = maps.lines().filter_map(path).find(|path| path.contains(name));
    found.ok_or_else(|| LabError::missing("library", format!("no {name} here to preload")))
}

/// All phases on one holder, made once the tables are there.
fn phases<A: Holder>(
    make: impl FnOnce() -> Result<A, LabError>,
    objects: &Objects,
    plan: &Plan,
) -> Result<Vec<Row>, LabError> {
    let mut shares = shares(objects.count() as u32, plan);
    let baseline = Seen::now()?;
    let holder = make()?;
    let gate = Barrier::new(shares.len());
    let crew = Crew { holder: &holder, objects, plan, baseline, gate, sums: Mutex::default() };
    std::thread::scope(|scope| {
        let (first, others) = shares.split_at_mut(1);
        for (index, share) in others.iter_mut().enumerate() {
            let crew = &crew;
            scope.spawn(move || Phase::ALL.map(|phase| crew.step(phase, index + 1, share)));
        }
        // Every phase is gone through whatever happens: the others wait at the gates.
        Phase::ALL.map(|phase| crew.step(phase, 0, &mut first[0])).into_iter().collect()
    })
}

/// Every thread's slots, as equal as can be.
fn shares<H>(objects: u32, plan: &Plan) -> Vec<Share<H>> {
    let bound =
        |thread: u32| (u64::from(objects) * u64::from(thread) / u64::from(plan.threads)) as u32;
    let share = |thread| Share::new(thread as usize, bound(thread)..bound(thread + 1), plan.run);
    (0..plan.threads).map(share).collect()
}

struct Crew<'a, A> {
    holder: &'a A,
    objects: &'a Objects,
    plan: &'a Plan,
    baseline: Seen,
    gate: Barrier,
    sums: Mutex<Sums>,
}

/// Of one phase, over all threads.
#[derive(Default)]
struct Sums {
    times: Times,
    live: Live,
    seen: Seen,
    accounted: Option<Parts>,
    error: Option<LabError>,
}

impl<A: Holder> Crew<'_, A> {
    /// One phase of one thread; thread 0 gets the row.
    fn step(
        &self,
        phase: Phase,
        thread: usize,
        share: &mut Share<A::Held>,
    ) -> Result<Row, LabError> {
        self.gate.wait();
        let times = share.run(phase, self.holder, self.objects, self.plan);
        self.sum(times, |sums, times| sums.times.add(&times));
        self.gate.wait();
        if thread == 0 {
            self.sum(Seen::now(), |sums, seen| sums.seen = seen);
            self.sum(Ok(self.holder.accounted()), |sums, parts| sums.accounted = parts);
        }
        self.gate.wait();
        self.sum(share.verify(self.holder, self.objects), |sums, live| {
            sums.live.objects += live.objects;
            sums.live.bytes += live.bytes;
        });
        self.gate.wait();
        if thread != 0 {
            return Ok(Row::default());
        }
        let sums = std::mem::take(&mut *self.sums.lock().unwrap_or_else(PoisonError::into_inner));
        self.row(phase, sums)
    }

    fn sum<T>(&self, result: Result<T, LabError>, add: impl FnOnce(&mut Sums, T)) {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(value) => add(&mut sums, value),
            Err(error) => sums.error = sums.error.take().or(Some(error)),
        }
    }

    fn row(&self, phase: Phase, sums: Sums) -> Result<Row, LabError> {
        if let Some(error) = sums.error {
            return Err(error);
        }
        self.holder.check(sums.live.objects)?;
        let times = sums.times;
        let resident = sums.seen.anonymous.saturating_sub(self.baseline.anonymous);
        let (alloc, free) = (each(times.alloc, times.allocs), each(times.free, times.frees));
        let mut row = Row::default();
        row.set("phase", phase.name())
            .set("threads", self.plan.threads)
            .set("run", self.plan.run)
            .set("objects", self.objects.count())
            .set("alloc_ns", alloc)
            .set("free_ns", free)
            .set("replace_ns", alloc.zip(free).map(|(alloc, free)| alloc + free))
            .set("compact_ms", times.compact.map(|time| time.as_secs_f64() * 1e3))
            .set("resident_bytes", resident)
            .set("payload_bytes", sums.live.bytes)
            .set("overhead_all_in", resident as f64 / sums.live.bytes as f64 - 1.0)
            .set("accounted_bytes", sums.accounted.map(|parts| parts.accounted()))
            .set("page_table_bytes", sums.seen.tables.saturating_sub(self.baseline.tables));
        sums.accounted.iter().for_each(|parts| parts.set(&mut row));
        Ok(row)
    }
}

fn each(time: Duration, operations: u64) -> Option<f64> {
    (operations > 0).then(|| time.as_nanos() as f64 / operations as f64)
}

/// What the system says this process holds.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    anonymous: u64,
    tables: u64,
}

impl Seen {
    fn now() -> Result<Seen, LabError> {
        Ok(Seen {
            anonymous: field("/proc/self/smaps_rollup", "Anonymous:")?,
            tables: field("/proc/self/status", "VmPTE:")?,
        })
    }
}

/// Bytes of a line `name   123 kB`.
fn field(path: &str, name: &str) -> Result<u64, LabError> {
    const KIB: u64 = 1024;
    let text = read(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map(|kib| kib * KIB)
        .ok_or_else(|| LabError::missing("count", format!("no {name} in {path}")))
}

fn read(path: &str) -> Result<String, LabError> {
    fs::read_to_string(path).map_err(LabError::io(path))
}
