//! The child: fills a store and gives it all up in one way, or not at all.
//!
//! ```text
//!   standard input: pages -> store -> the way -> nanoseconds to standard output
//! ```
//!
//! Invariant: the ways differ in nothing else, except in what `--verify` adds. Nothing is dropped
//! at the end, and no thread works beside this one until the way is gone.

use super::held::Held;
use super::path::Path;
use crate::apparatus::ours::Backend;
use crate::frame::Inside;
use crate::ground::LabError;
use crate::pages::PAGE_SIZE;
use clap::{ArgMatches, Args, FromArgMatches};
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::Instant;
use zsmalloc::Memory;

/// Options of the child.
#[derive(Args, Debug)]
struct Options {
    /// Pages on standard input
    #[arg(long)]
    pages: usize,
    /// What they are stored in
    #[arg(long)]
    backend: Backend,
    /// The way that the store is made for
    #[arg(long)]
    form: Path,
    /// What is timed; without it nothing is given up
    #[arg(long)]
    path: Option<Path>,
    /// See that the pages are there before, and gone after
    #[arg(long)]
    verify: bool,
}

/// What runs under valgrind, and without it.
pub(crate) const INSIDE: Inside =
    Inside { name: "breakdown-inside", options: Options::augment_args, run };

/// The child's `main`.
fn run(matches: &ArgMatches) -> Result<(), LabError> {
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?;
    let slots = options.pages;
    let mut pages = vec![0; slots * PAGE_SIZE];
    io::stdin().read_exact(&mut pages).map_err(LabError::io("pages"))?;
    let (held, memory) = Held::new(options.backend, options.form, slots)?;
    for (slot, page) in pages.chunks_exact(PAGE_SIZE).enumerate() {
        held.write(slot, page)?;
    }
    if options.verify {
        verify(&held, &pages)?;
    }
    let worker = options.form.is_queued().then(|| Kept::away(&memory));
    let start = Instant::now();
    let kept = match options.path {
        Some(path) => held.give_up(slots, path)?,
        None => Some(held),
    };
    let elapsed = start.elapsed();
    if options.verify {
        drop(worker);
        memory.flush_deferred();
    } else {
        std::mem::forget(worker);
    }
    let left = kept.as_ref().map_or(0, Held::stored_pages);
    if options.verify && left > 0 {
        return Err(LabError::Wrong(format!("{left} pages are left")));
    }
    std::mem::forget((kept, memory, pages));
    let mut out = io::stdout().lock();
    writeln!(out, "{}", elapsed.as_nanos()).map_err(LabError::io("standard output"))
}

/// A memory's worker that is kept from work, until this is dropped.
struct Kept(#[expect(dead_code, reason = "its end is the word to the worker")] Sender<()>);

impl Kept {
    fn away(memory: &Arc<Memory>) -> Kept {
        let (hold, held) = mpsc::channel::<()>();
        let (ready, there) = mpsc::channel();
        memory.defer(0, move || {
            // Nobody waits for it any more where the child has failed.
            let _ = ready.send(());
            // The other end is never used: it goes.
            let _ = held.recv();
        });
        // The worker ended without running the job: it is away, too.
        let _ = there.recv();
        Kept(hold)
    }
}

/// Reads every page back.
fn verify(held: &Held, pages: &[u8]) -> Result<(), LabError> {
    let mut found = vec![0; PAGE_SIZE];
    for (slot, page) in pages.chunks_exact(PAGE_SIZE).enumerate() {
        held.read(slot, &mut found)?;
        if found != page {
            return Err(LabError::Wrong(format!("slot {slot} came back different")));
        }
    }
    Ok(())
}
