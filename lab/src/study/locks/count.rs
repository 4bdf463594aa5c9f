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

use super::trial::{Mix, Worker};
use crate::error::LabError;
use crate::row::Row;
use crate::study::Lab;
use clap::{ArgMatches, Args, FromArgMatches};
use std::io::{self, Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use zsmalloc::{LockDesign, Pool, PoolConfig, Release};

const VALGRIND: &str = "valgrind";
/// Cachegrind without caches counts instructions; its report goes where the child writes nothing.
const TOOL: [&str; 4] =
    ["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", "--log-fd=1"];
const OBJECTS: usize = 20_000;
const QUICK_OBJECTS: usize = 1000;
const LENGTH_BYTES: usize = 2;

/// Options of the child.
#[derive(Args, Debug)]
pub(super) struct Options {
    #[arg(long)]
    design: LockDesign,
    #[arg(long)]
    release: Release,
    #[arg(long)]
    mix: Mix,
    #[arg(long)]
    operations: usize,
}

/// The child's `main`: the lengths of the objects come from standard input.
pub(super) fn run(matches: &ArgMatches) -> Result<(), LabError> {
    let options = Options::from_arg_matches(matches).map_err(crate::usage)?;
    let mut bytes = Vec::new();
    io::stdin().read_to_end(&mut bytes).map_err(LabError::io("lengths"))?;
    let pairs = bytes.chunks_exact(LENGTH_BYTES);
    let lengths: Vec<u16> = pairs.map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
    let memory = super::memory(lengths.len())?;
    let config =
        PoolConfig { design: options.design, release: options.release, ..PoolConfig::default() };
    let pool = Pool::new(Arc::clone(&memory), config).map_err(LabError::store("pool"))?;
    let mut worker = Worker::new(&pool, 0, &lengths, 0);
    worker.prepare(options.mix)?;
    worker.work(options.mix, options.operations)?;
    std::mem::forget((worker, Arc::clone(&pool), memory));
    Ok(())
}

/// Instructions of one operation of what `row` is about.
pub(super) fn per_operation(row: &Row, lengths: &[u16], lab: &Lab) -> Result<f64, LabError> {
    let version = Command::new(VALGRIND).arg("--version").stdout(Stdio::null()).status();
    version.map_err(|error| LabError::missing(VALGRIND, error))?;
    let objects = if lab.quick() { QUICK_OBJECTS } else { OBJECTS }.min(lengths.len());
    let lengths = &lengths[..objects];
    let (before, after) = (total(row, lengths, 0, lab)?, total(row, lengths, objects, lab)?);
    Ok((after as f64 - before as f64) / objects as f64)
}

fn total(row: &Row, lengths: &[u16], operations: usize, lab: &Lab) -> Result<u64, LabError> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let program = std::env::current_exe().map_err(LabError::io("this program"))?;
    let mut command = Command::new(VALGRIND);
    command.args(TOOL).arg(program).args([super::INSIDE.name, "--operations"]);
    command.arg(operations.to_string());
    for field in ["design", "release", "mix"] {
        command.arg(format!("--{field}")).arg(row.get(field).as_str().unwrap_or_default());
    }
    let child = lab.cleanup.spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
    if let Some(mut input) = child.stdin() {
        let bytes: Vec<u8> = lengths.iter().flat_map(|length| length.to_le_bytes()).collect();
        input.write_all(&bytes).map_err(LabError::io(VALGRIND))?;
    }
    let mut said = String::new();
    if let Some(mut output) = child.stdout() {
        output.read_to_string(&mut said).map_err(LabError::io(VALGRIND))?;
    }
    let failed = |why: String| LabError::Store { what: VALGRIND.to_owned(), why };
    match child.wait(PATIENCE)? {
        status if !status.success() => Err(failed(format!("ended with {status}: {said}"))),
        _ => instructions(&said).ok_or_else(|| failed(format!("not understood: {said}"))),
    }
}

/// The number in `==123== I   refs:      1,234,567`.
fn instructions(report: &str) -> Option<u64> {
    let count = |line: &str| {
        let (what, count) = line.split_once("refs:")?;
        let digits: String = count.chars().filter(char::is_ascii_digit).collect();
        what.trim_end().ends_with('I').then(|| digits.parse().ok())?
    };
    report.lines().find_map(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_those_of_the_report() {
        for line in ["==12== I   refs:      1,234,567", "==12== I refs:  1,234,567  "] {
            assert_eq!(instructions(&format!("==12== Cachegrind\n{line}\n")), Some(1_234_567));
        }
        assert_eq!(instructions("==12== D refs: 5\n"), None);
    }
}
