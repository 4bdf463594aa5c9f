//! The child: fills a disk and gives it all up in one way, or not at all.
//!
//! ```text
//!   standard input: pages -> disk -> the way -> nanoseconds to standard output
//! ```
//!
//! Invariant: the ways differ in nothing else, but for what `--verify` adds. Nothing is dropped at
//! the end, and no thread works beside this one.

use super::Path;
use crate::corpus::PAGE_SIZE;
use crate::error::LabError;
use crate::study::ours;
use clap::{ArgMatches, Args, FromArgMatches};
use codec::{Algorithm, Codec};
use disk::Disk;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Instant;
use zram::Zram;
use zsmalloc::Rule;

/// Options of the child.
#[derive(Args, Debug)]
pub(super) struct Options {
    /// Pages on standard input
    #[arg(long)]
    pages: usize,
    /// What is timed; without it nothing is given up
    #[arg(long)]
    path: Option<Path>,
    /// See that the pages are there before, and gone after
    #[arg(long)]
    verify: bool,
}

/// The child's `main`.
pub(super) fn run(matches: &ArgMatches) -> Result<(), LabError> {
    let options = Options::from_arg_matches(matches).map_err(crate::usage)?;
    let slots = options.pages;
    let mut pages = vec![0; slots * PAGE_SIZE];
    io::stdin().read_exact(&mut pages).map_err(LabError::io("pages"))?;
    let shape = ours::Shape {
        algorithm: Codec::new(Algorithm::Lz4),
        chain_order: CHAIN_ORDER,
        rule: Rule::LeastWaste,
        slots,
        evacuation: true,
    };
    let disk = ours::disk_alone(&shape)?;
    let memory = Arc::clone(disk.memory());
    for (slot, page) in pages.chunks_exact(PAGE_SIZE).enumerate() {
        ours::write(&disk, slot, page)?;
    }
    if options.verify {
        verify(&disk, &pages)?;
    }
    let start = Instant::now();
    let kept = give_up(disk, slots, options.path)?;
    let elapsed = start.elapsed();
    let left = kept.as_ref().map_or(0, |disk| disk.stat().orig_data_size);
    if options.verify && left > 0 {
        return Err(LabError::Wrong(format!("{left} bytes are left")));
    }
    std::mem::forget((kept, memory, pages));
    let mut out = io::stdout().lock();
    writeln!(out, "{}", elapsed.as_nanos()).map_err(LabError::io("standard output"))
}

/// Reads every page back.
fn verify(disk: &Zram, pages: &[u8]) -> Result<(), LabError> {
    let mut found = vec![0; PAGE_SIZE];
    for (slot, page) in pages.chunks_exact(PAGE_SIZE).enumerate() {
        ours::read(disk, slot, &mut found)?;
        if found != page {
            return Err(LabError::Wrong(format!("slot {slot} came back different")));
        }
    }
    Ok(())
}

const CHAIN_ORDER: u32 = 3;

/// What is left of the disk.
fn give_up(disk: Zram, slots: usize, path: Option<Path>) -> Result<Option<Zram>, LabError> {
    let discard = |offset: usize, length: usize| {
        let done = disk.discard(offset as u64, length as u64);
        done.map_err(|error| LabError::store("discard")(error))
    };
    match path {
        None => {}
        Some(Path::Slots) => {
            (0..slots).try_for_each(|slot| discard(slot * PAGE_SIZE, PAGE_SIZE))?;
        }
        Some(Path::Range) => discard(0, slots * PAGE_SIZE)?,
        Some(Path::Drop) => return Ok(None),
    }
    Ok(Some(disk))
}
