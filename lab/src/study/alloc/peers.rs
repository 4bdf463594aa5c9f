//! Starting the child with one allocator or another, and taking its answer.
//!
//! Invariant: a child sees no setting of an allocator but those written here, whatever the
//! environment of this process holds.

use super::child::INSIDE;
use super::plan::{Plan, ZSMALLOC};
use crate::apparatus::objects::Objects;
use crate::ground::{Cleanup, GuardedChild, LabError};
use crate::rows::Row;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What the note below the table says about the others.
pub(super) const CONDITIONS: &str = "Others: compact is 2 s of rest, 256 allocations and frees \
     by each thread, and malloc_trim, mi_collect or arena.purge; jemalloc runs with \
     background_thread:true,dirty_decay_ms:500,muzzy_decay_ms:0, the rest with their defaults. \
     Page tables are in a column of their own, not in resident MiB.";
const JEMALLOC_SETTINGS: &str = "background_thread:true,dirty_decay_ms:500,muzzy_decay_ms:0";
/// How the names of settings begin that would make a measurement this machine's own.
const FOREIGN_SETTINGS: [&str; 4] = ["LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_", "MIMALLOC_"];

/// How long others are left alone to give memory back; long enough for jemalloc's decay.
pub(super) fn rest(quick: bool) -> Duration {
    Duration::from_millis(if quick { 40 } else { 1600 })
}

/// An allocator beside ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Peer {
    /// glibc's, or whatever libc this is
    Malloc,
    Mimalloc,
    Jemalloc,
}

impl Peer {
    pub(super) fn name(self) -> &'static str {
        match self {
            Peer::Malloc => "malloc",
            Peer::Mimalloc => "mimalloc",
            Peer::Jemalloc => "jemalloc",
        }
    }

    /// As the loader finds it, without a path.
    fn library(self) -> Option<&'static str> {
        match self {
            Peer::Malloc => None,
            Peer::Mimalloc => Some("libmimalloc.so.2"),
            Peer::Jemalloc => Some("libjemalloc.so.2"),
        }
    }
}

/// What every child of a run gets.
pub(super) struct Starter<'a> {
    pub(super) plan: Plan,
    pub(super) objects: &'a Objects,
    pub(super) cleanup: &'a Cleanup,
}

impl Starter<'_> {
    /// A row per phase of a pool of ours.
    pub(super) fn pool(&self) -> Result<Vec<Row>, LabError> {
        self.answer(ZSMALLOC, self.child()?.arg("--pool"))
    }

    /// A row per phase of the peer.
    ///
    /// # Errors
    ///
    /// `Missing` if its library is not there.
    pub(super) fn peer(&self, peer: Peer) -> Result<Vec<Row>, LabError> {
        let mut command = self.child()?;
        if let Some(library) = peer.library() {
            command.env("LD_PRELOAD", library).args(["--library", library]);
        }
        if peer == Peer::Jemalloc {
            command.env("MALLOC_CONF", JEMALLOC_SETTINGS);
        }
        self.answer(peer.name(), &mut command)
    }

    fn child(&self) -> Result<Command, LabError> {
        let program = std::env::current_exe().map_err(LabError::io("this program"))?;
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if FOREIGN_SETTINGS.iter().any(|start| name.as_bytes().starts_with(start.as_bytes())) {
                command.env_remove(name);
            }
        }
        let Plan { threads, run, chain_order, rule, rest } = self.plan;
        command.args([INSIDE.name, "--rest-ms", &rest.as_millis().to_string()]);
        command.args(["--threads", &threads.to_string(), "--run", &run.to_string()]);
        command.args(["--chain-order", &chain_order.to_string(), "--rule", rule.name()]);
        Ok(command)
    }

    fn answer(&self, allocator: &'static str, command: &mut Command) -> Result<Vec<Row>, LabError> {
        const PATIENCE: Duration = Duration::from_secs(10);
        let failed = |why: String| LabError::Store { what: allocator.to_owned(), why };
        let child = self.cleanup.spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let said = converse(&child, self.objects).map_err(|error| failed(error.to_string()))?;
        let status = child.wait(PATIENCE)?;
        if !status.success() {
            return Err(failed(format!("the child ended with {status}")));
        }
        said.lines().map(|line| understand(allocator, line)).collect()
    }
}

/// One line of an answer.
fn understand(allocator: &'static str, line: &str) -> Result<Row, LabError> {
    let failed = |why: String| LabError::Store { what: allocator.to_owned(), why };
    let mut row = Row::parse(line).ok_or_else(|| failed(format!("the child said {line}")))?;
    if let Some(why) = row.get("missing").as_str() {
        return Err(LabError::missing(allocator, why));
    }
    if let Some(why) = row.get("error").as_str() {
        return Err(failed(why.to_owned()));
    }
    row.set("allocator", allocator);
    Ok(row)
}

/// Gives the child its objects and returns what it says.
fn converse(child: &GuardedChild, objects: &Objects) -> std::io::Result<String> {
    if let Some(mut input) = child.stdin() {
        // A child that has nothing to measure with says so and goes; its answer is what counts.
        let _ = objects.write(&mut input);
    }
    let mut said = String::new();
    child.stdout().map_or(Ok(0), |mut output| output.read_to_string(&mut said))?;
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_note_says_is_what_is_set() {
        assert!(CONDITIONS.contains(JEMALLOC_SETTINGS));
        let rest = rest(false) + rest(false) / 4;
        assert!(CONDITIONS.contains(&format!("{} s of rest", rest.as_secs_f64())));
    }
}
