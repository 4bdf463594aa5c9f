//! `ramfold run`: starts a program with the library inside, watches its processes, and reports.
//!
//! ```text
//!   limit --> board          what the processes of the tree share
//!   library --> a file       the loader puts it into each of them (LD_PRELOAD)
//!   program: started, sent the signals that come, awaited
//!   tree: those that fold have a slot; what the others take is taken off the limit
//! ```
//!
//! Invariant: the program's exit is this command's exit: its status, or the signal that ended it.
//!
//! Locks: none. One thread watches the tree.

mod place;
mod program;
mod tally;
mod tree;

use std::sync::Arc;
use std::time::{Duration, Instant};

use codec::{Algorithm, Codec};
use host::limits;
use inside::board::Board;

use crate::line::Failure;
use crate::line::args;
use crate::line::output::complain;
use crate::line::size::human;

use place::Place;
use program::Program;
use tally::Tally;
use tree::Tree;

/// The limit without `--limit`, in percent of what is available.
const LIMIT_PERCENT: u64 = 80;
/// The smallest limit. A program with less would only page.
const LIMIT_MIN: u64 = 16 << 20; // 16 MiB
/// How often the tree is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Runs the program, and ends as it ends.
pub(super) fn run(args: &args::Run) -> Result<(), Failure> {
    let limit = limit(args.limit)?;
    let codec = codec(args);
    inside::can_fold().map_err(|error| Failure::Failed(refusal(&error)))?;
    let place = Place::prepare()?;
    let board = Board::create(place.board(), limit, &codec.to_string())
        .map_err(|error| Failure::about(place.board().display(), error))?;
    if args.explain {
        explain(limit, &codec, &place);
    }
    let program = Program::start(&args.program, &place)?;
    let board = Arc::new(board);
    let watch = watch(Arc::clone(&board), program.id(), args.quiet)?;
    let end = program.wait()?;
    let tally = watch.end();
    drop(place);
    if !args.quiet {
        complain(&tally.line(limit));
    }
    end.leave()
}

/// Bytes of the limit that was asked for, or the default.
fn limit(asked: Option<args::Limit>) -> Result<u64, Failure> {
    let limits = limits::memory_available();
    let percent = |percent: u64| -> Result<u64, Failure> {
        let why = "the system does not say how much memory there is; give --limit a size";
        let available = limits.to_be_had().ok_or_else(|| Failure::Failed(why.to_owned()))?;
        Ok(available / 100 * percent)
    };
    let bytes = match asked {
        Some(args::Limit::Bytes(bytes)) => bytes,
        Some(args::Limit::Percent(part)) => percent(part)?,
        None => percent(LIMIT_PERCENT)?,
    };
    if bytes < LIMIT_MIN {
        let (least, given) = (human(LIMIT_MIN), human(bytes));
        return Err(Failure::Usage(format!("--limit: {given} is too little; at least {least}")));
    }
    Ok(bytes)
}

fn codec(args: &args::Run) -> Codec {
    let dense = || Codec::new(args.density.unwrap_or(args::Density::Fast).algorithm());
    args.algorithm.clone().unwrap_or_else(dense)
}

impl args::Density {
    fn algorithm(self) -> Algorithm {
        match self {
            args::Density::Fast => Algorithm::Lz4,
            args::Density::Dense => Algorithm::Zstd,
        }
    }
}

/// Why programs cannot fold here, and what would let them.
fn refusal(error: &inside::CannotFold) -> String {
    format!(
        "programs cannot fold here, because {error}; run as root, give the command the capability \
         CAP_SYS_PTRACE, or, if the kernel is older than 6.8, use a newer one"
    )
}

fn explain(limit: u64, codec: &Codec, place: &Place) {
    complain(&format!(
        "the limit is {}, for the program and all processes it starts",
        human(limit)
    ));
    complain("faults are served by userfaultfd, those of system calls too");
    complain(&format!("cold pages are compressed with {codec}"));
    complain(&format!("the library is {}", place.library().display()));
}

/// The thread that watches the tree.
struct Watch {
    stop: std::sync::mpsc::Sender<()>,
    thread: std::thread::JoinHandle<Tally>,
}

fn watch(board: Arc<Board>, root: u32, quiet: bool) -> Result<Watch, Failure> {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let started = Instant::now();
    let work = move || {
        let (mut tally, mut tree) = (Tally::new(started), Tree::new(root, quiet));
        loop {
            let over =
                stopped.recv_timeout(LOOK) != Err(std::sync::mpsc::RecvTimeoutError::Timeout);
            tree.look(&board);
            tally.add(&board, tree.outside());
            if over {
                return tally;
            }
        }
    };
    let thread = host::thread::spawn("ramfold-watch", work)
        .map_err(|error| Failure::about("a thread to watch the program", error))?;
    Ok(Watch { stop, thread })
}

impl Watch {
    fn end(self) -> Tally {
        drop(self.stop);
        self.thread.join().unwrap_or_else(|_| Tally::new(Instant::now()))
    }
}
