//! `lab swapped`: one program in a memory group, with swap on the kernel's zram if it has a limit.
//!
//! ```text
//!   without --group   the program, counted
//!   with --group      zram set up, swap on -> the program in a group of that size -> swap off
//! ```
//!
//! This is for what measures in another language. The program keeps its streams. What the group
//! took is written to a file, as one row of JSON.

use super::program::in_group;
use super::trial;
use crate::ground::{Cleanup, LabError, size};
use crate::kernel::{self, Group, SPARE_BYTES};
use crate::rows::Row;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Options of `lab swapped`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// The most that the program's group may be charged, as in 64M [default: no limit, and no swap]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    group: Option<u64>,
    /// Bytes of swap
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size::parse)]
    swap: u64,
    /// The algorithm of the kernel's zram
    #[arg(long, value_name = "NAME", default_value = "lz4")]
    algorithm: String,
    /// Seconds after which the program is killed
    #[arg(long, value_name = "N", default_value_t = 600)]
    patience: u64,
    /// Where the row is written
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The program and its arguments
    #[arg(required = true, last = true)]
    words: Vec<OsString>,
}

/// Runs the program once. An error if it fails, is killed or takes too long.
pub(crate) fn run(options: &Options, cleanup: &Cleanup) -> Result<(), LabError> {
    let peer = options.group.map(|_| kernel::claim_zram(cleanup)).transpose()?;
    if let Some(peer) = &peer {
        peer.set_up(&options.algorithm, options.swap.saturating_add(SPARE_BYTES))?;
        peer.swap_on()?;
    }
    let mut row = measure(options, cleanup)?;
    if let Some(peer) = &peer {
        row.set("store_bytes", peer.mm_stat()?.mem_used_max);
        peer.swap_off()?;
    }
    let text = serde_json::Value::from(row).to_string();
    std::fs::write(&options.out, text).map_err(LabError::io(options.out.display()))
}

fn measure(options: &Options, cleanup: &Cleanup) -> Result<Row, LabError> {
    let group = Group::new(cleanup)?;
    if let Some(bytes) = options.group {
        group.set_limit(bytes)?;
    }
    let child = cleanup.spawn(&mut in_group(&group.program(), &options.words))?;
    let seen = trial::watched(&child, &group, Duration::from_secs(options.patience))?;
    let ended = child.exited().filter(|status| status.success() && !seen.late);
    let mut row = Row::default();
    row.set("peak_bytes", seen.peak.bytes).set("kernel_bytes", seen.peak.kernel_bytes);
    row.set("looks", seen.looks).set("killed", group.killed()?);
    let failed = || LabError::Store { what: "the program".into(), why: "did not end well".into() };
    ended.map(|_| row).ok_or_else(failed)
}
