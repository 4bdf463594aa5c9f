//! Instructions per operation: the same program under valgrind twice, and the difference.
//!
//! ```text
//!   store, read back, get ready                       | n instructions
//!   store, read back, get ready, N operations         | m             (m - n) / N
//! ```
//!
//! Invariant: the two differ in the operations alone. Nothing is dropped at the end, because a pool
//! that holds something has more to drop than one that does not. The loop around an operation is
//! counted with it.

use super::{Mix, Worker, memory_config};
use crate::apparatus::ours::{Layout, Shards};
use crate::apparatus::valgrind;
use crate::frame::{Inside, Lab};
use crate::ground::LabError;
use crate::rows::Row;
use clap::{ArgMatches, Args, FromArgMatches};
use std::io::{self, Read};
use std::sync::Arc;
use zsmalloc::study::{LockDesign, Release};
use zsmalloc::{Memory, Pool};

const OBJECTS: usize = 20_000;
const QUICK_OBJECTS: usize = 1000;
const LENGTH_BYTES: usize = 2;

/// Options of the child.
#[derive(Args, Debug)]
struct Options {
    #[arg(long)]
    design: LockDesign,
    #[arg(long)]
    shards: Shards,
    #[arg(long)]
    release: Release,
    #[arg(long)]
    mix: Mix,
    #[arg(long)]
    operations: usize,
    /// Whether the memory has per-CPU lists
    #[arg(long, default_value = "with")]
    lists: String,
}

/// What runs under valgrind.
pub(crate) const INSIDE: Inside =
    Inside { name: "locks-inside", options: Options::augment_args, run };

/// The child's `main`: the lengths of the objects come from standard input.
fn run(matches: &ArgMatches) -> Result<(), LabError> {
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?;
    let mut bytes = Vec::new();
    io::stdin().read_to_end(&mut bytes).map_err(LabError::io("lengths"))?;
    let pairs = bytes.chunks_exact(LENGTH_BYTES);
    let lengths: Vec<u16> = pairs.map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
    let memory = match options.lists.as_str() {
        "without" => Memory::without_cpu_lists(memory_config(lengths.len())),
        _ => Memory::new(memory_config(lengths.len())),
    };
    let memory = memory.map_err(LabError::store("memory"))?;
    let layout = Layout { design: options.design, shards: options.shards };
    let config = options.mix.config(layout, options.release);
    let pool = Pool::new(Arc::clone(&memory), config).map_err(LabError::store("pool"))?;
    let mut worker = Worker::new(&pool, 0, &lengths, 0);
    worker.prepare(options.mix)?;
    worker.work(options.mix, options.operations)?;
    std::mem::forget((worker, Arc::clone(&pool), memory));
    Ok(())
}

/// Instructions of one operation of what `row` is about.
pub(crate) fn per_operation(row: &Row, lengths: &[u16], lab: &Lab) -> Result<f64, LabError> {
    let objects = if lab.quick() { QUICK_OBJECTS } else { OBJECTS }.min(lengths.len());
    let lengths = &lengths[..objects];
    let (before, after) = (total(row, lengths, 0, lab)?, total(row, lengths, objects, lab)?);
    Ok((after as f64 - before as f64) / objects as f64)
}

fn total(row: &Row, lengths: &[u16], operations: usize, lab: &Lab) -> Result<u64, LabError> {
    let mut arguments = vec!["--operations".to_owned(), operations.to_string()];
    for field in ["design", "shards", "release", "mix", "lists"] {
        if let Some(value) = row.get(field).as_str() {
            arguments.extend([format!("--{field}"), value.to_owned()]);
        }
    }
    let input: Vec<u8> = lengths.iter().flat_map(|length| length.to_le_bytes()).collect();
    valgrind::instructions(INSIDE.name, &arguments, &input, lab)
}
