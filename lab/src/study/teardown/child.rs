//! The child: memory filled with the corpus, swapped out, and unmapped when told.
//!
//! ```text
//!   fill -> out (timed) -> in, at random and in sequence (timed) -> all verified -> out
//!     -> a row -> a line from standard input: the moment to start -> munmap -> a row
//! ```
//!
//! Invariants
//! - The first row is given only if every page was read back equal, and all of them are in the
//!   swap then.
//! - Between start and end there is one system call, `munmap`.

use crate::apparatus::paging::{self, Source};
use crate::apparatus::swapping;
use crate::frame::Inside;
use crate::ground::{LabError, clock};
use crate::rows::Row;
use clap::{ArgMatches, Args, FromArgMatches};
use host::Swappable;
use serde_json::Value;
use std::io::{self, Write};
use std::path::PathBuf;

/// Options of the child.
#[derive(Args, Debug)]
struct Options {
    /// Pages of its memory
    #[arg(long)]
    pages: usize,
    /// A file of whole pages
    #[arg(long)]
    corpus: PathBuf,
    #[arg(long)]
    run: u32,
}

/// What runs in a process of its own, its memory in the kernel's swap.
pub(crate) const INSIDE: Inside =
    Inside { name: "teardown-inside", options: Options::augment_args, run };

/// The child's `main`. What goes wrong is part of the answer.
fn run(matches: &ArgMatches) -> Result<(), LabError> {
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?;
    converse(&options).or_else(|error| {
        let mut answer = Row::default();
        answer.set("error", error.to_string());
        say(answer)
    })
}

fn converse(options: &Options) -> Result<(), LabError> {
    let source = Source::open(&options.corpus)?;
    let reserved = Swappable::new(options.pages);
    let mut memory = reserved.map_err(LabError::store("memory"))?;
    source.fill(memory.as_mut_slice())?;
    say(page(&memory, &source, options)?)?;
    let Some(moment) = told()? else { return Ok(()) };
    clock::sleep_until(moment);
    let start = clock::now_ns();
    drop(memory);
    let end = clock::now_ns();
    let mut row = Row::default();
    row.set("start_ns", start).set("end_ns", end);
    say(row)
}

/// Out, in and out again.
fn page(memory: &Swappable, source: &Source, options: &Options) -> Result<Row, LabError> {
    let out = swapping::page_out(memory)?;
    let plan = paging::Plan::new(options.pages, options.run);
    let random = paging::touch(memory.as_slice(), plan.random());
    let sequential = paging::touch(memory.as_slice(), plan.sequential());
    source.verify(memory.as_slice())?;
    swapping::page_out(memory)?;
    let mut row = Row::default();
    row.set("pageout_ns_per_page", out.as_nanos() as f64 / options.pages as f64)
        .set("faultin_ns_per_page", random)
        .set("faultin_sequential_ns_per_page", sequential);
    Ok(row)
}

fn say(row: Row) -> Result<(), LabError> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", Value::from(row)).map_err(LabError::io("standard output"))
}

/// The moment to start; nothing when there is nobody any more to tell it.
fn told() -> Result<Option<u64>, LabError> {
    let mut line = String::new();
    io::stdin().read_line(&mut line).map_err(LabError::io("standard input"))?;
    Ok(line.trim().parse().ok())
}
