//! NBD servers under measurement: started on a socket of their own, filled and verified.
//!
//! ```text
//!   temporary directory (0700)/ramfold.sock   <- ramfold serve
//!                             /malloc.sock    <- nbdkit memory allocator=malloc
//!                             /zstd.sock      <- nbdkit memory allocator=zstd
//! ```
//!
//! Invariant: server and directory go when the value is dropped, or on a signal.

use crate::ground::{Cleanup, GuardedChild, LabError};
use crate::pages::PAGE_SIZE;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time a server may take to listen, and a copy to end.
const START_MAX: Duration = Duration::from_secs(10);
const COPY_MAX: Duration = Duration::from_secs(600);

/// The name of ours.
pub(crate) const RAMFOLD: &str = "ramfold";

/// The program of ours that is measured: the one that is given, or the one beside this program.
pub(crate) fn program(given: Option<&Path>) -> Result<PathBuf, LabError> {
    let beside = || Some(std::env::current_exe().ok()?.with_file_name(RAMFOLD));
    let program = given.map(Path::to_owned).or_else(beside).unwrap_or(RAMFOLD.into());
    let build = "cargo build --release -p ramfold-cli";
    let why = || format!("no {}; {build}, or --ramfold PATH", program.display());
    program.exists().then_some(()).ok_or_else(|| LabError::missing(RAMFOLD, why()))?;
    Ok(program)
}

/// A server that listens.
pub(crate) struct Served {
    pub(crate) device: &'static str,
    pub(crate) algorithm: String,
    socket: PathBuf,
    child: GuardedChild,
}

impl Served {
    /// Starts `command`, which is to listen on `socket`.
    pub(crate) fn start(
        device: &'static str,
        algorithm: String,
        socket: PathBuf,
        mut command: Command,
        cleanup: &Cleanup,
    ) -> Result<Served, LabError> {
        let log = socket.with_extension("log");
        let output = fs::File::create(&log).map_err(LabError::io(log.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        let child =
            cleanup.spawn(&mut command).map_err(|error| LabError::missing(device, error))?;
        let served = Served { device, algorithm, socket, child };
        served.listen(&log)?;
        Ok(served)
    }

    fn listen(&self, log: &Path) -> Result<(), LabError> {
        let start = Instant::now();
        while UnixStream::connect(&self.socket).is_err() {
            if self.child.exited().is_some() || start.elapsed() > START_MAX {
                let said = fs::read_to_string(log).unwrap_or_default();
                let why = format!("does not serve: {}", said.trim());
                return Err(LabError::missing(self.device, why));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    pub(crate) fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// Anonymous memory of the whole server: what it stores and what it works with, not its
    /// program text. Growth since it was empty would miss what a server sets aside beforehand.
    pub(crate) fn anonymous_bytes(&self) -> u64 {
        self.told("smaps_rollup", "Anonymous:")
    }

    /// Its page tables, which are not in that.
    pub(crate) fn page_table_bytes(&self) -> u64 {
        self.told("status", "VmPTE:")
    }

    /// Bytes that the system tells of the server: the line `name   123 kB` of a file.
    fn told(&self, file: &str, name: &str) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/{file}", self.child.pid()));
        let text = text.unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or(0) * 1024
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Writes `bytes` to the whole disk.
    pub(crate) fn fill(&self, bytes: &[u8], cleanup: &Cleanup) -> Result<(), LabError> {
        let child = copier(cleanup, ["-", &self.uri()])?;
        let written = child.stdin().map_or(Ok(()), |mut pipe| pipe.write_all(bytes));
        self.copied(&child)?;
        written.map_err(LabError::io(format!("filling {}", self.device)))
    }

    /// Reads the whole disk back and compares.
    pub(crate) fn verify(&self, bytes: &[u8], cleanup: &Cleanup) -> Result<(), LabError> {
        let child = copier(cleanup, [&self.uri(), "-"])?;
        let mut held = Vec::with_capacity(bytes.len());
        let read = child.stdout().map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut held));
        read.map_err(LabError::io(format!("reading {}", self.device)))?;
        self.copied(&child)?;
        if held != bytes {
            let pages = held.chunks(PAGE_SIZE).zip(bytes.chunks(PAGE_SIZE));
            let wrong: Vec<usize> = pages
                .enumerate()
                .filter_map(|(index, (held, page))| (held != page).then_some(index))
                .collect();
            let at = wrong.first().map_or(String::new(), |first| format!(", the first is {first}"));
            let disk = format!("{} {}", self.device, self.algorithm);
            let lengths = format!("{} of {} bytes", held.len(), bytes.len());
            let what = format!("{disk}: {lengths}, {} pages differ{at}", wrong.len());
            return Err(LabError::Wrong(what));
        }
        Ok(())
    }

    fn copied(&self, child: &GuardedChild) -> Result<(), LabError> {
        let status = child.wait(COPY_MAX)?;
        let why = || format!("nbdcopy ended with {status}");
        let what = format!("{} {}", self.device, self.algorithm);
        status.success().then_some(()).ok_or_else(|| LabError::Store { what, why: why() })
    }
}

fn copier(cleanup: &Cleanup, arguments: [&str; 2]) -> Result<GuardedChild, LabError> {
    let mut command = Command::new("nbdcopy");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let missing = |error| LabError::missing("nbdcopy", format!("{error}; Debian: libnbd-bin"));
    cleanup.spawn(&mut command).map_err(missing)
}
