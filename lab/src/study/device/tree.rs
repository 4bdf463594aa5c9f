//! The disk as a file of a mounted tree, with requests by `/dev/fuse` and by io_uring.
//!
//! ```text
//!   fio libaio, direct --> DIR/zram0/disk --/dev/fuse or io_uring--> ramfold serve --fuse
//! ```
//!
//! | pattern | requests | under way |
//! |---|---|---|
//! | `randread`, `randwrite` | 4 KiB | 16 |
//! | `write` | 1 MiB | 4 |
//!
//! Invariant: before each pattern the disk was filled with the corpus, and read back. All ways are
//! measured in each round, one after the other.

use super::bench::Bench;
use super::fio::{Fio, seconds};
use crate::apparatus::served::{self, RAMFOLD};
use crate::frame::{note, present};
use crate::ground::{Deferred, GuardedChild, LabError, PrivateDirectory};
use crate::kernel::{self, Requests};
use crate::rows::Row;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

const PATTERNS: [(&str, usize, u32); 3] =
    [("randread", 4096, 16), ("randwrite", 4096, 16), ("write", 1 << 20, 4)];

pub(super) fn run(
    bench: &Bench,
    runs: &mut Vec<Row>,
    notes: &mut Vec<String>,
) -> Result<(), LabError> {
    let mut trees = Vec::new();
    for requests in [Requests::Device, Requests::IoUring] {
        trees.extend(present(Tree::start(bench, requests), notes)?);
    }
    let rounds = if bench.lab.quick() { 1 } else { bench.lab.runs() };
    let bar = bench.lab.progress(rounds as usize * trees.len() * PATTERNS.len());
    for round in 0..rounds {
        for pattern in PATTERNS {
            for tree in &trees {
                let name = tree.requests.name();
                bar.set_message(format!("fio {}, {name}, round {round}", pattern.0));
                let mut row = tree.measure(bench, pattern)?;
                row.set("run", round);
                runs.push(row);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    compare(runs, notes);
    Ok(())
}

/// Says how the ways compare, by the medians of the ratios within each round.
fn compare(runs: &[Row], notes: &mut Vec<String>) {
    for (rw, ..) in PATTERNS {
        let of = |requests: Requests| {
            let rows = runs.iter().filter(|row| row.is("rw", rw));
            let rows = rows.filter(|row| row.is("client", client(requests)));
            rows.filter_map(|row| row.number("iops")).collect::<Vec<_>>()
        };
        let (device, ring) = (of(Requests::Device), of(Requests::IoUring));
        let ratios: Vec<f64> =
            ring.iter().zip(&device).map(|(ring, device)| ring / device).collect();
        if let Some(ratio) = crate::ground::stats::spread(&ratios) {
            note(notes, format!("tree, {rw}: io_uring / device = {:.2} (IOPS)", ratio.median));
        }
    }
}

fn client(requests: Requests) -> &'static str {
    match requests {
        Requests::Device => "fio-fuse",
        Requests::IoUring => "fio-io-uring",
    }
}

/// A mounted tree.
struct Tree {
    requests: Requests,
    algorithm: String,
    /// Before the directory: it must have ended.
    _child: GuardedChild,
    _unmounted: Deferred,
    directory: PrivateDirectory,
}

impl Tree {
    fn start(bench: &Bench, requests: Requests) -> Result<Tree, LabError> {
        kernel::needs_root().map_err(|why| LabError::missing("root", why))?;
        let cleanup = &bench.lab.cleanup;
        let _offer = requests.offer(cleanup)?;
        let directory = PrivateDirectory::new(cleanup)?;
        let mounted = directory.path().join("tree");
        let doomed = mounted.clone();
        let unmounted = cleanup.defer(move || {
            let _ = Command::new("umount").args(["--lazy", "--quiet"]).arg(doomed).output();
        });
        let algorithm = bench.options.algorithm[0].to_string();
        let mut command = Command::new(served::program(bench.options.ramfold.as_deref())?);
        command.env("XDG_RUNTIME_DIR", directory.path());
        command.args(["serve", "--algorithm", &algorithm, "--size"]);
        command.arg(bench.pages.len().to_string()).arg("--fuse").arg(&mounted);
        let way = if requests == Requests::IoUring { "auto" } else { "off" };
        command.args(["--fuse-io-uring", way]).stdin(Stdio::null());
        let child = cleanup.spawn(command.stdout(Stdio::piped()).stderr(Stdio::null()))?;
        let mut said = String::new();
        if let Some(output) = child.stdout() {
            BufReader::new(output).read_line(&mut said).map_err(LabError::io("the server"))?;
        }
        if !said.contains("mounted at") {
            return Err(LabError::missing("a FUSE mount", said.trim()));
        }
        let (_child, _unmounted) = (child, unmounted);
        let tree = Tree { requests, algorithm, _child, _unmounted, directory };
        tree.is_served_so(bench)?;
        Ok(tree)
    }

    /// Whether requests come as they should.
    fn is_served_so(&self, bench: &Bench) -> Result<(), LabError> {
        let mut stat = Command::new(served::program(bench.options.ramfold.as_deref())?);
        stat.env("XDG_RUNTIME_DIR", self.directory.path()).args(["stat", "zram0"]);
        let said = stat.output().map_err(LabError::io(RAMFOLD))?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let is_ring = said.contains("requests by io_uring");
        let line = said.lines().find(|line| line.contains("requests by")).unwrap_or_default();
        let missing = || LabError::missing("FUSE over io_uring", line.trim());
        (is_ring == (self.requests == Requests::IoUring)).then_some(()).ok_or_else(missing)
    }

    fn disk(&self) -> PathBuf {
        self.directory.path().join("tree/zram0/disk")
    }

    fn measure(
        &self,
        bench: &Bench,
        (rw, bs, depth): (&'static str, usize, u32),
    ) -> Result<Row, LabError> {
        self.fill(bench.pages)?;
        let seconds = seconds(bench);
        let fio = Fio { directory: self.directory.path(), seconds, rw, bs, depth };
        let file = format!("--filename={}", self.disk().display());
        let size = format!("--size={}", bench.pages.len());
        let engine = ["--ioengine=libaio".into(), "--direct=1".into(), file, size];
        let mut row = fio.run(&engine, &bench.lab.cleanup)?;
        row.set("device", "ramfold-tree")
            .set("client", client(self.requests))
            .set("algorithm", self.algorithm.as_str())
            .set("rw", rw)
            .set("bs", bs)
            .set("qd", depth);
        Ok(row)
    }

    fn fill(&self, pages: &[u8]) -> Result<(), LabError> {
        let failed = |error| LabError::io(self.disk().display())(error);
        let mut disk = OpenOptions::new().write(true).open(self.disk()).map_err(failed)?;
        disk.write_all(pages).map_err(failed)?;
        let mut held = Vec::with_capacity(pages.len());
        fs::File::open(self.disk()).and_then(|mut it| it.read_to_end(&mut held)).map_err(failed)?;
        let wrong = || LabError::Wrong("the tree's disk does not hold the corpus".into());
        (held == pages).then_some(()).ok_or_else(wrong)
    }
}
