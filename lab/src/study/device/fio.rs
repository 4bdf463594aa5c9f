//! The client fio: random 4 KiB reads and writes, 16 at a time, over NBD.
//!
//! Invariant: every measurement of a round begins with the disk filled with the corpus. fio's
//! writes leave its own pages behind, and reads of those would say nothing about the corpus.

use super::bench::{Bench, Peer, set_rate};
use super::pages;
use super::target::{DEPTH, Target};
use crate::apparatus::served::{self, RAMFOLD, Served};
use crate::frame::{note, present};
use crate::ground::{Cleanup, LabError, PrivateDirectory};
use crate::kernel;
use crate::pages::PAGE_SIZE;
use crate::rows::Row;
use codec::Codec;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const PATTERNS: [&str; 2] = ["randread", "randwrite"];

pub(super) fn run(
    bench: &Bench,
    runs: &mut Vec<Row>,
    notes: &mut Vec<String>,
) -> Result<(), LabError> {
    let cleanup = &bench.lab.cleanup;
    if let Err(error) = Command::new("fio").arg("--version").stdout(Stdio::null()).status() {
        note(notes, LabError::missing("fio", error).to_string());
        return Ok(());
    }
    let directory = PrivateDirectory::new(cleanup)?;
    let targets = targets(bench, directory.path(), notes)?;
    // Not the lab's loop over its runs: with `--quick` one round is enough, since it takes a second
    // for each pattern of each target.
    let rounds = if bench.lab.quick() { 1 } else { bench.lab.runs() };
    let bar = bench.lab.progress(rounds as usize * targets.len() * (PATTERNS.len() + 1));
    for round in 0..rounds {
        for Filled { target, stored_bytes, page_table_bytes } in &targets {
            let mut add = |mut row: Row| {
                row.set("run", round)
                    .set("stored_bytes", *stored_bytes)
                    .set("page_table_bytes", *page_table_bytes);
                runs.push(row);
                bar.inc(1);
            };
            for rw in PATTERNS {
                bar.set_message(format!("fio {rw}, {}, round {round}", target.name()));
                let fio = Fio {
                    directory: directory.path(),
                    seconds: seconds(bench),
                    rw,
                    bs: PAGE_SIZE,
                    depth: DEPTH,
                };
                target.fill(bench.pages, cleanup)?;
                add(measure(target, &fio, cleanup)?);
            }
            bar.set_message(format!("{}, {}, round {round}", pages::PATTERN, target.name()));
            let time = Duration::from_secs(seconds(bench).into());
            add(pages::measure(target, (bench.pages, round), time, cleanup)?);
        }
    }
    bar.finish_and_clear();
    if !targets.is_empty() {
        let stored = "stored MiB is the server's anonymous memory after the first fill, without \
             page tables; nothing was freed before it, so there was nothing to trim";
        note(notes, format!("fio: {stored}"));
    }
    Ok(())
}

pub(super) fn seconds(bench: &Bench) -> u32 {
    if bench.lab.quick() { 1 } else { 4 }
}

/// Every device that is available, filled and verified; a note for each that is not.
fn targets(
    bench: &Bench,
    directory: &Path,
    notes: &mut Vec<String>,
) -> Result<Vec<Filled>, LabError> {
    let ours = bench.options.algorithm.iter().enumerate();
    let mut found: Vec<_> = ours.map(|numbered| ramfold(bench, directory, numbered)).collect();
    if bench.options.peers.contains(&Peer::Nbdkit) {
        found.extend(["malloc", "zstd"].map(|allocator| nbdkit(bench, directory, allocator)));
    }
    if bench.kernel {
        found.push(kernel_zram(bench));
    }
    let mut filled = Vec::new();
    for target in found {
        if let Some(target) = present(target, notes)? {
            filled.push(Filled::new(target, bench)?);
        }
    }
    Ok(filled)
}

/// One of our servers; its number is in its name, by which its control socket is found.
fn ramfold(
    bench: &Bench,
    directory: &Path,
    (number, algorithm): (usize, &Codec),
) -> Result<Target, LabError> {
    let program = served::program(bench.options.ramfold.as_deref())?;
    let (name, algorithm) = (format!("lab{number}"), algorithm.to_string());
    let socket = directory.join(format!("{name}.sock"));
    let mut command = Command::new(program);
    command.args([
        "serve",
        "--name",
        &name,
        "--size",
        &bench.pages.len().to_string(),
        "--algorithm",
        &algorithm,
    ]);
    command.args(["--chain-order", &bench.options.chain_order.to_string()]);
    if let Some(bytes) = bench.options.memory_limit {
        command.args(["--memory-limit", &bytes.to_string()]);
    }
    command.arg("--unix").arg(&socket);
    Served::start(RAMFOLD, algorithm, socket, command, &bench.lab.cleanup).map(Target::Nbd)
}

fn nbdkit(bench: &Bench, directory: &Path, allocator: &str) -> Result<Target, LabError> {
    let socket = directory.join(format!("{allocator}.sock"));
    let mut command = Command::new("nbdkit");
    command.args(["--foreground", "--exit-with-parent", "--unix"]).arg(&socket);
    command.args(["memory", &bench.pages.len().to_string(), &format!("allocator={allocator}")]);
    let cleanup = &bench.lab.cleanup;
    Served::start("nbdkit", allocator.into(), socket, command, cleanup).map(Target::Nbd)
}

fn kernel_zram(bench: &Bench) -> Result<Target, LabError> {
    let peer = kernel::claim_zram(&bench.lab.cleanup)?;
    // It is one device, so it has the first of our algorithms.
    let algorithm = bench.options.algorithm[0].algorithm().name();
    let set_up = peer.set_up(algorithm, bench.pages.len() as u64);
    set_up.map_err(|error| LabError::missing(kernel::NAME, error))?;
    Ok(Target::Kernel { peer, algorithm })
}

/// A disk that holds the corpus, and what that took.
struct Filled {
    target: Target,
    stored_bytes: u64,
    /// `None` where they are the kernel's own.
    page_table_bytes: Option<u64>,
}

impl Filled {
    fn new(target: Target, bench: &Bench) -> Result<Filled, LabError> {
        let cleanup = &bench.lab.cleanup;
        target.fill(bench.pages, cleanup)?;
        let (stored_bytes, page_table_bytes) = (target.stored_bytes()?, target.page_table_bytes());
        target.verify(bench.pages, cleanup)?;
        Ok(Filled { target, stored_bytes, page_table_bytes })
    }
}

/// One pattern of fio on a target.
fn measure(target: &Target, fio: &Fio, cleanup: &Cleanup) -> Result<Row, LabError> {
    let (engine, client) = match target {
        Target::Nbd(served) => {
            (vec!["--ioengine=nbd".into(), format!("--uri={}", served.uri())], "fio")
        }
        Target::Kernel { peer, .. } => {
            let file = format!("--filename={}", peer.device().display());
            (vec!["--ioengine=libaio".into(), "--direct=1".into(), file], "fio-libaio")
        }
    };
    let mut row = fio.run(&engine, cleanup)?;
    row.set("device", target.name())
        .set("client", client)
        .set("algorithm", target.algorithm())
        .set("rw", fio.rw)
        .set("bs", PAGE_SIZE)
        .set("qd", DEPTH);
    Ok(row)
}

/// One call of fio.
pub(super) struct Fio<'a> {
    pub(super) directory: &'a Path,
    pub(super) seconds: u32,
    pub(super) rw: &'static str,
    /// Bytes of a request.
    pub(super) bs: usize,
    /// Requests under way.
    pub(super) depth: u32,
}

impl Fio<'_> {
    pub(super) fn run(&self, engine: &[String], cleanup: &Cleanup) -> Result<Row, LabError> {
        let output = self.directory.join("fio.json");
        let mut command = Command::new("fio");
        command.args(engine).args(self.arguments(&output)).current_dir(self.directory);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let limit = Duration::from_secs(u64::from(self.seconds) + 60);
        let status = cleanup.spawn(&mut command)?.wait(limit)?;
        let text = fs::read_to_string(&output).map_err(LabError::io(output.display()))?;
        let what = format!("fio {}", engine.join(" "));
        if !status.success() {
            return Err(LabError::Store { what, why: format!("ended with {status}") });
        }
        let direction = self.rw.trim_start_matches("rand");
        let not_understood = || LabError::Store { what, why: "output not understood".into() };
        let mut row = parse(&text, direction).ok_or_else(not_understood)?;
        let iops = row.number("iops").unwrap_or(0.0);
        row.set("mib_per_s", iops * self.bs as f64 / f64::from(1 << 20));
        Ok(row)
    }

    /// One process, so that killing it ends everything; otherwise as the contract says.
    fn arguments(&self, output: &Path) -> Vec<String> {
        let own = [
            format!("--rw={}", self.rw),
            format!("--iodepth={}", self.depth),
            format!("--bs={}", self.bs),
            format!("--runtime={}", self.seconds),
            format!("--output={}", PathBuf::from(output).display()),
        ];
        let fixed = [
            "--name=lab",
            "--thread",
            "--refill_buffers=1",
            "--buffer_compress_percentage=68",
            "--buffer_compress_chunk=4096",
            "--time_based",
            "--output-format=json",
        ];
        fixed.iter().map(|&argument| argument.to_owned()).chain(own).collect()
    }
}

/// Rate and latency of fio's first job; `None` when it reported none or an error.
fn parse(text: &str, direction: &str) -> Option<Row> {
    // Warnings may stand before the document.
    let document: Value = serde_json::from_str(&text[text.find('{')?..]).ok()?;
    let job = document.get("jobs")?.get(0)?;
    if job.get("error")?.as_i64()? != 0 {
        return None;
    }
    let side = job.get(direction)?;
    let percentiles = side.get("clat_ns")?.get("percentile")?;
    let us = |name: &str| Some(percentiles.get(name)?.as_f64()? / 1000.0);
    let mut row = Row::default();
    set_rate(&mut row, side.get("iops")?.as_f64()?);
    row.set("lat_us_p50", us("50.000000")?).set("lat_us_p99", us("99.000000")?);
    Some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = r#"note: something
        {"jobs": [{"error": 0, "read": {"iops": 25600.0, "clat_ns": {"percentile":
        {"50.000000": 12000, "99.000000": 40500}}}}]}"#;

    #[test]
    fn fio_output_is_understood() {
        let row = parse(OUTPUT, "read").unwrap();
        assert_eq!(row.number("iops"), Some(25600.0));
        assert_eq!(row.number("mib_per_s"), Some(100.0));
        assert_eq!(row.number("lat_us_p50"), Some(12.0));
        assert_eq!(row.number("lat_us_p99"), Some(40.5));
    }

    #[test]
    fn an_error_or_another_direction_is_no_measurement() {
        assert!(parse(OUTPUT, "write").is_none());
        assert!(parse(&OUTPUT.replace("\"error\": 0", "\"error\": 5"), "read").is_none());
        assert!(parse("fio: failed", "read").is_none());
    }
}
