//! The kernel's side: a job in a group whose swap is on the kernel's zram.
//!
//! ```text
//!   zram set up, swap on -> the job in a group with a limit -> the most zram took -> swap off
//! ```
//!
//! The swap is read page by page, and zswap is off. Whatever happens, the claim of the device gives
//! all of it back as it was found.
//!
//! Invariant: nothing is in the swap when a run begins, so the most that the store took is of the
//! run.

use super::balance::{self, Probe};
use super::bench::{Base, Bench};
use super::trial::Trial;
use crate::frame::{note, tell_if_long};
use crate::ground::LabError;
use crate::kernel::{KernelZram, NAME, SPARE_BYTES};
use crate::rows::Row;
use std::time::Instant;

/// What every kernel's zram can do.
const FALLBACK: &str = "lz4";
/// Of a job's peak, the swap that it may take.
const SWAP_TIMES: u64 = 2;

/// The kernel's store with an algorithm.
#[derive(Clone, Copy)]
pub(super) struct Kernel<'a> {
    peer: &'a KernelZram,
    pub(super) algorithm: &'static str,
}

impl<'a> Kernel<'a> {
    /// With the algorithm that is wanted, or another one and a note.
    pub(super) fn with(
        peer: &'a KernelZram,
        wanted: &'static str,
        notes: &mut Vec<String>,
    ) -> Result<Kernel<'a>, LabError> {
        let has = |algorithm| peer.set_up(algorithm, SPARE_BYTES);
        if has(wanted).is_ok() {
            return Ok(Kernel { peer, algorithm: wanted });
        }
        has(FALLBACK).map_err(|error| LabError::missing(NAME, error))?;
        note(
            notes,
            format!("{NAME}: {FALLBACK} beside {wanted}, which this kernel's does not have"),
        );
        Ok(Kernel { peer, algorithm: FALLBACK })
    }

    /// The group whose memory and store have the limit together, and a row for each run it took.
    pub(super) fn probe(
        self,
        bench: &Bench<'_>,
        base: &Base,
        percent: u32,
    ) -> Result<(Probe, Vec<Row>), LabError> {
        let (limit, mut rows) = (base.limit(percent), Vec::new());
        let found = balance::nearest(base.peak_bytes, limit, |group_bytes| {
            let begun = Instant::now();
            let (trial, probe) = self.run(bench, base, group_bytes)?;
            let job = base.job.name;
            let step = format!("{job} at {percent} %, for the kernel's group");
            tell_if_long(&step, begun.elapsed());
            let mut row = self.row("kernel-probe", base, percent, 0, &trial, probe);
            // In a group that is too small a job may lose a part of itself and say another line.
            let same = row.number("same").filter(|&same| same > 0.0);
            row.set("probe", rows.len() + 1).set("same", same);
            rows.push(row);
            Ok::<u64, LabError>(probe.store_bytes)
        })?;
        Ok((found, rows))
    }

    /// One run in a group of this size.
    pub(super) fn measure(
        self,
        bench: &Bench<'_>,
        base: &Base,
        percent: u32,
        group_bytes: u64,
        run: u32,
    ) -> Result<Row, LabError> {
        let (trial, probe) = self.run(bench, base, group_bytes)?;
        Ok(self.row(NAME, base, percent, run, &trial, probe))
    }

    fn run(
        self,
        bench: &Bench<'_>,
        base: &Base,
        group_bytes: u64,
    ) -> Result<(Trial, Probe), LabError> {
        self.peer.set_up(self.algorithm, base.peak_bytes * SWAP_TIMES + SPARE_BYTES)?;
        self.peer.swap_on()?;
        let trial = bench.run(base, &[], Some(group_bytes))?;
        let store_bytes = self.peer.mm_stat()?.mem_used_max;
        self.peer.swap_off()?;
        Ok((trial, Probe { group_bytes, store_bytes }))
    }

    fn row(
        self,
        form: &str,
        base: &Base,
        percent: u32,
        run: u32,
        trial: &Trial,
        probe: Probe,
    ) -> Row {
        let mut row = base.row(form, Some(percent), run);
        base.fill(&mut row, trial);
        let limit = base.limit(percent);
        row.set("algorithm", self.algorithm)
            .set("limit_bytes", limit)
            .set("group_limit_bytes", probe.group_bytes)
            .set("store_bytes", probe.store_bytes)
            .set("peak_bytes", probe.held())
            .set("peak_of_limit", probe.held() as f64 / limit as f64);
        row
    }
}
