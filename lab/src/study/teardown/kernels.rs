//! The kernel's side: processes whose memory is in the kernel's zram or zswap, unmapped together.
//!
//! ```text
//!   lab                         child 0 .. child N-1
//!    |  set up, swap on
//!    |-- start them ------------> fill, page out and in, page out     <- each at its own pace
//!    |<- a row from each --------
//!    |-- the moment to start ---> munmap                              <- all at that moment
//!    |<- start and end ----------
//!    |  looks at the store until the growth is gone
//! ```
//!
//! Invariants
//! - At the start every page of every child is in the swap. Those of zeros are a bit there (Linux
//!   6.12); the rest is on the device, or in zswap and none of it in the file behind.
//! - From then on nobody else's memory goes there. A kernel may page out what is cold by itself
//!   (DAMON), as soon as there is a swap: then the case is measured again.

use super::case::{Case, GONE, NS_PER_MS, PAGING, PATIENCE};
use super::child::INSIDE;
use crate::apparatus::paging::Source;
use crate::apparatus::peer::Peer;
use crate::frame::Lab;
use crate::ground::{GuardedChild, LabError, clock, stats};
use crate::kernel::pages_swapped_out;
use crate::rows::{Row, column};
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// From the telling of the moment to the moment: all children are asleep by then.
const NOTICE: Duration = Duration::from_millis(20);

/// How often a case is measured before it is given up.
const TRIES: usize = 5;

/// One case: adds what was measured to `row`.
pub(super) fn measure(
    peer: &Peer,
    case: Case,
    source: &Source,
    lab: &Lab,
    row: &mut Row,
) -> Result<(), LabError> {
    for _ in 0..TRIES {
        if try_measure(peer, case, source, lab, row)? {
            return Ok(());
        }
    }
    let why = "what was unmapped is still stored, or other memory was swapped out meanwhile";
    Err(LabError::Wrong(format!("{why}, {TRIES} times in a row")))
}

/// The same once; false where other memory was swapped out meanwhile, or may have been.
fn try_measure(
    peer: &Peer,
    case: Case,
    source: &Source,
    lab: &Lab,
    row: &mut Row,
) -> Result<bool, LabError> {
    let empty = peer.used()?;
    let starts = (0..case.threads).map(|_| Child::start(case, source, lab));
    let mut children = starts.collect::<Result<Vec<_>, _>>()?;
    let answers = children.iter_mut().map(Child::answer);
    let paging = answers.collect::<Result<Vec<Row>, _>>()?;
    let (swapped, full) = (pages_swapped_out()?, peer.used()?);
    let is_disturbed = || Ok(pages_swapped_out()? != swapped);
    full.all_in_memory_since(empty)?;
    let ends = unmap(&mut children)?;
    let growth = full.bytes.saturating_sub(empty.bytes);
    let stored = full.stored_bytes.saturating_sub(empty.stored_bytes);
    let left = (stored as f64 * (1.0 - GONE)) as u64 + empty.stored_bytes;
    let drained = wait_until(|| Ok(peer.used()?.stored_bytes <= left || is_disturbed()?))?;
    let disturbed = is_disturbed()?;
    children.into_iter().try_for_each(Child::end)?;
    // Where the growth stays, others' memory may have been counted as part of it.
    let Some(drained) = drained.filter(|_| !disturbed) else { return Ok(false) };
    for field in PAGING {
        let spread = stats::spread(&column(&paging, field));
        row.set(field, spread.map(|spread| spread.median));
    }
    // What is freed is in the page allocator at once: nothing is released later.
    let drain_ms = drained.saturating_sub(ends.start_ns) as f64 / NS_PER_MS;
    row.set("teardown_ms", ends.ms())
        .set("freed_ms", ends.ms())
        .set("release_ms", drain_ms)
        .set("drain_ms", drain_ms)
        .set("growth_bytes", growth);
    Ok(true)
}

/// From the first start to the last end.
struct Ends {
    start_ns: u64,
    end_ns: u64,
}

impl Ends {
    fn ms(&self) -> f64 {
        self.end_ns.saturating_sub(self.start_ns) as f64 / NS_PER_MS
    }
}

/// All at the same moment.
fn unmap(children: &mut [Child]) -> Result<Ends, LabError> {
    let moment = clock::now_ns() + NOTICE.as_nanos() as u64;
    children.iter_mut().try_for_each(|child| child.tell(moment))?;
    let mut all = Ends { start_ns: u64::MAX, end_ns: 0 };
    for child in children {
        let row = child.answer()?;
        let ns = |field| row.get(field).as_u64().ok_or_else(|| not_understood(&row));
        all.start_ns = all.start_ns.min(ns("start_ns")?);
        all.end_ns = all.end_ns.max(ns("end_ns")?);
    }
    Ok(all)
}

/// Looks until it is so; when that was, or nothing where it took too long.
fn wait_until(mut done: impl FnMut() -> Result<bool, LabError>) -> Result<Option<u64>, LabError> {
    let start = Instant::now();
    while !done()? {
        if start.elapsed() > PATIENCE {
            return Ok(None);
        }
        std::thread::yield_now();
    }
    Ok(Some(clock::now_ns()))
}

/// A process whose memory is swapped out.
struct Child {
    process: GuardedChild,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Child {
    fn start(case: Case, source: &Source, lab: &Lab) -> Result<Child, LabError> {
        let program = std::env::current_exe().map_err(LabError::io("this program"))?;
        let mut command = Command::new(program);
        command.arg(INSIDE.name).arg("--corpus").arg(source.path());
        command.args(["--pages", &case.pages().to_string(), "--run", &case.run.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let process = lab.cleanup.spawn(&mut command)?;
        let pipes = process.stdin().zip(process.stdout());
        let gone = || LabError::Store { what: "child".into(), why: "it has no pipes".into() };
        let (input, output) = pipes.ok_or_else(gone)?;
        Ok(Child { process, input, output: BufReader::new(output) })
    }

    fn tell(&mut self, moment_ns: u64) -> Result<(), LabError> {
        writeln!(self.input, "{moment_ns}").map_err(LabError::io("child"))
    }

    fn answer(&mut self) -> Result<Row, LabError> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(LabError::io("child"))?;
        let row = Row::parse(&line).unwrap_or_default();
        match row.get("error").as_str() {
            Some(why) => Err(LabError::Store { what: "child".into(), why: why.to_owned() }),
            None if line.is_empty() => Err(not_understood(&row)),
            None => Ok(row),
        }
    }

    fn end(self) -> Result<(), LabError> {
        let status = self.process.wait(PATIENCE)?;
        let failed = || LabError::Store { what: "child".into(), why: format!("ended: {status}") };
        status.success().then_some(()).ok_or_else(failed)
    }
}

fn not_understood(row: &Row) -> LabError {
    LabError::Store { what: "child".into(), why: format!("said {:?}", row) }
}
