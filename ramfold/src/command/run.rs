//! `ramfold run`: starts a program with the library inside, watches its processes, and reports.
//!
//! ```text
//!   limit --> board          what the processes of the tree share
//!   library --> a file       the loader puts it into each of them (LD_PRELOAD)
//!   program: started, sent the signals that come, awaited
//!   tree: those that fold have a slot; what the others take is taken off the limit
//!   moment --> tally, report     what they take at each look, added up and over time
//! ```
//!
//! Invariant: the program's exit is this command's exit: its status, or the signal that ended it.
//!
//! Locks: none. One thread watches the tree.

pub(super) mod about;
pub(super) mod found;
pub(super) mod moment;
mod place;
pub(super) mod process;
pub(super) mod program;
mod report;
mod tally;
pub(super) mod tree;
pub(super) mod unfolded;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use codec::Algorithm;
use host::limits;
use inside::board::{Board, Packing};
use inside::{Choice, Way};
use zram::Density;

use crate::line::Failure;
use crate::line::args;
use crate::line::output::complain;
use crate::line::size::human;

use moment::Moment;
use place::{Backing, Place};
use program::{End, Program};
use report::Report;
use tally::Tally;
use tree::Tree;

/// The limit without `--limit`, in percent of what is available.
const LIMIT_PERCENT: u64 = 80;
/// The smallest limit. A program with less would only page.
const LIMIT_MIN: u64 = 16 << 20; // 16 MiB
/// How often the tree is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// A look counts after this time, although processes come and end all the time.
const DOUBT_MAX: Duration = Duration::from_secs(1);

/// Runs the program, and ends as it ends.
pub(super) fn run(args: &args::Run) -> Result<(), Failure> {
    let limit = limit(args)?;
    let packing = packing(args);
    let choice =
        inside::can_fold().map_err(|error| Failure::Failed(unfolded::everywhere(&error)))?;
    let backing = args.backing.as_deref().map(Backing::of).transpose()?;
    let warning = backing.as_ref().and_then(Backing::warning).filter(|_| !args.quiet);
    warning.iter().for_each(|line| complain(line));
    let report = args.report.as_deref().map(|path| prepare_report(path, args, &packing, limit));
    let report = report.transpose()?;
    let place = Place::prepare(&args.program)?;
    let board = Board::create(place.board(), limit, &packing)
        .map_err(|error| Failure::about(place.board().display(), error))?;
    backing.iter().for_each(|backing| backing.tell(&board));
    if args.explain {
        explain(limit, &packing, &place, &choice);
        backing.iter().for_each(|backing| complain(&backing.explain()));
    }
    let program = Program::start(&args.program, |program| place.put_into(program))?;
    let tree = Tree::new(program.id(), place.library(), args.quiet);
    let watch = watch(Arc::new(board), tree, report)?;
    let end = program.wait()?;
    let seen = watch.end();
    drop(place);
    if !args.quiet {
        let refused = backing.and_then(|it| seen.tally.refused_by(&it));
        complain(&seen.tally.line(limit));
        let slow = seen.tally.slow(host::cpu::count());
        let more = [seen.tally.above(limit), slow, refused];
        more.iter().flatten().for_each(|why| complain(why));
    }
    finish(seen.report, &end);
    end.leave()
}

fn prepare_report(
    path: &Path,
    args: &args::Run,
    packing: &str,
    limit: u64,
) -> Result<Report, Failure> {
    let words = args.program.iter().map(|word| word.to_string_lossy().into_owned());
    Report::prepare(path, words.collect(), packing.to_owned(), limit)
}

fn finish(report: Option<Report>, end: &End) {
    let failed = report.and_then(|report| report.finish(end.to_string()).err());
    // The exit is the program's, also if its report is lost.
    failed.iter().for_each(|error| complain(&format!("the report is not written: {error}")));
}

/// Bytes of the limit that was asked for, or the default.
fn limit(args: &args::Run) -> Result<u64, Failure> {
    let limits = limits::memory_available();
    let available = limits.to_be_had();
    let percent = |percent: u64| -> Result<u64, Failure> {
        let why = "the system does not say how much memory there is; give --limit a size";
        let available = available.ok_or_else(|| Failure::Failed(why.to_owned()))?;
        Ok(available / 100 * percent)
    };
    let bytes = match args.limit {
        Some(args::Limit::Bytes(bytes)) => bytes,
        Some(args::Limit::Percent(part)) => percent(part)?,
        None => percent(LIMIT_PERCENT)?,
    };
    match judge(bytes, limits.mem_total, available)? {
        Some(warning) if !args.quiet => complain(&warning),
        _ => {}
    }
    Ok(bytes)
}

/// Refuses a limit with which nothing would go well, and warns of one that does not protect.
fn judge(
    bytes: u64,
    total: Option<u64>,
    available: Option<u64>,
) -> Result<Option<String>, Failure> {
    let given = human(bytes);
    if bytes < LIMIT_MIN {
        let least = human(LIMIT_MIN);
        return Err(Failure::Usage(format!("--limit: {given} is too little; at least {least}")));
    }
    if let Some(total) = total.filter(|&total| bytes > total) {
        let why = format!("--limit: {given} is more than the machine has, {}", human(total));
        return Err(Failure::Failed(why));
    }
    let tight = available.filter(|&available| bytes > available);
    Ok(tight.map(|available| {
        format!(
            "the limit of {given} is more than what is available, {}; the system may end the \
             program before it is reached",
            human(available)
        )
    }))
}

/// The word for how pages are packed ([`Packing`]).
fn packing(args: &args::Run) -> String {
    let density = match args.density.unwrap_or(Density::Balanced) {
        Density::Fast => Algorithm::Lz4.name(),
        Density::Balanced => Density::Balanced.name(),
        Density::Dense => Algorithm::Zstd.name(),
    };
    args.algorithm.as_ref().map_or(density.to_owned(), ToString::to_string)
}

const CLOSED: &str = "pages that are out are closed, and touches are signals";

fn explain(limit: u64, packing: &str, place: &Place, choice: &Choice) {
    complain(&format!(
        "the limit is {}, for the program and all processes it starts",
        human(limit)
    ));
    complain(&match (choice.way, &choice.refused) {
        (Way::Faults, _) => {
            "faults are served by userfaultfd, those of system calls too".to_owned()
        }
        (Way::Closed, None) => format!("{CLOSED}: {} asks for it", inside::WISH),
        (Way::Closed, Some(why)) => format!("{CLOSED}, because {why}"),
    });
    let later = ", and with pagelz or a longer search once they were out for ten seconds";
    complain(&match Packing::named(packing) {
        Some(Packing { codec, tiers: Some(_) }) => {
            format!("cold pages are compressed with {codec}{later}")
        }
        _ => format!("cold pages are compressed with {packing}"),
    });
    complain(&format!("the library is {}", place.library().display()));
}

/// The thread that watches the tree.
struct Watch {
    stop: std::sync::mpsc::Sender<()>,
    thread: std::thread::JoinHandle<Seen>,
}

/// What was seen of a run.
#[derive(Default)]
struct Seen {
    tally: Tally,
    report: Option<Report>,
    /// When a look was counted last, and the least that was in memory at looks since then.
    counted: Duration,
    doubtful: Option<Moment>,
}

fn watch(board: Arc<Board>, mut tree: Tree, report: Option<Report>) -> Result<Watch, Failure> {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let started = Instant::now();
    let work = move || {
        let mut seen = Seen { report, ..Seen::default() };
        loop {
            let over =
                stopped.recv_timeout(LOOK) != Err(std::sync::mpsc::RecvTimeoutError::Timeout);
            tree.look(&board);
            seen.look(&board, started.elapsed(), over);
            if over {
                return seen;
            }
        }
    };
    let thread = host::thread::spawn("ramfold-watch", work)
        .map_err(|error| Failure::about("a thread to watch the program", error))?;
    Ok(Watch { stop, thread })
}

impl Seen {
    /// Counts what the board says. Just after a fork it may say that memory is there twice, so a
    /// look does not count until it is settled who has what, or until `DOUBT_MAX` is over.
    fn look(&mut self, board: &Board, at: Duration, is_last: bool) {
        let is_settled = board.is_settled();
        let now = Moment::of(board);
        let least = match self.doubtful.take() {
            Some(before) if !is_settled && before.resident < now.resident => {
                Moment { counts: now.counts, ..before }
            }
            _ => now,
        };
        if !is_settled && !is_last && at.saturating_sub(self.counted) < DOUBT_MAX {
            self.doubtful = Some(least);
            return;
        }
        self.counted = at;
        self.tally.add(board, &least, at);
        if let Some(report) = &mut self.report {
            report.add(at, least, &self.tally);
        }
    }
}

impl Watch {
    fn end(self) -> Seen {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_fits_the_machine() {
        let (total, free) = (Some(8 << 30), Some(4 << 30));
        let judged = |bytes| judge(bytes, total, free);
        for sensible in [16 << 20, 1 << 30, 4 << 30] {
            assert!(matches!(judged(sensible), Ok(None)), "{sensible}");
        }
        let warning = judged((4 << 30) + 1).expect("it is less than all").expect("more than free");
        assert!(warning.contains("what is available, 4.0 GiB"), "{warning}");
        assert!(matches!(judged(8 << 30), Ok(Some(_))));
        let Err(Failure::Failed(line)) = judged((8 << 30) + 1) else { panic!("more than all") };
        assert!(line.contains("more than the machine has, 8.0 GiB"), "{line}");
        let Err(Failure::Usage(line)) = judged((16 << 20) - 1) else { panic!("too little") };
        assert!(line.contains("at least 16.0 MiB"), "{line}");
        assert!(matches!(judge(1 << 40, None, None), Ok(None)), "nothing is known");
    }

    #[test]
    fn what_may_be_counted_twice_is_no_peak() {
        let path = std::env::temp_dir().join(format!("ramfold-doubt-{}", std::process::id()));
        // The file of an earlier run with this number.
        let _ = std::fs::remove_file(&path);
        let board = Board::create(&path, 9000, "lz4").expect("a board");
        std::fs::remove_file(&path).expect("it is there");
        let mut seen = Seen::default();
        let mut peak = |millis, is_last| {
            seen.look(&board, Duration::from_millis(millis), is_last);
            seen.tally.peak
        };
        let parent = board.claim(10).expect("free");
        let says = |slot: &inside::board::Slot, bytes, members| {
            slot.shares(0, 0, members);
            slot.publish(bytes, 0, 0, bytes);
        };
        says(parent, 500, board.members());
        assert_eq!(peak(100, false), 500);
        let alone = board.members();
        let child = board.claim(11).expect("free");
        says(child, 250, board.members());
        assert_eq!(peak(200, false), 500, "the parent has not asked");
        says(parent, 260, board.members());
        assert_eq!(peak(300, false), 510);
        says(parent, 450, alone);
        says(child, 300, alone);
        assert_eq!(peak(400, false), 510);
        says(child, 200, alone);
        assert_eq!([peak(500, false), peak(1200, false)], [510, 510]);
        says(child, 350, alone);
        assert_eq!(peak(1300, false), 650, "the least in a second");
        assert_eq!([peak(1400, false), peak(1500, true)], [650, 800]);
    }
}
