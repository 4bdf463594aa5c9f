//! The client lab: random writes of the corpus's own pages, and what the disk holds afterwards.
//!
//! ```text
//!   a server              over NBD, 16 requests under way
//!   the kernel's device   one write after the other: it compresses before a write returns
//! ```
//!
//! Invariant: a row is given only if every page was read back as it was written last.

use super::bench::set_rate;
use super::client::{Client, Written};
use super::target::{DEPTH, Target};
use super::workload::Workload;
use crate::ground::{Cleanup, LabError, stats};
use crate::kernel::{Aligned, KernelZram};
use crate::pages::PAGE_SIZE;
use crate::rows::Row;
use std::time::{Duration, Instant};

/// The name of the client, and of the pattern, in rows.
const CLIENT: &str = "lab";
pub(super) const PATTERN: &str = "randwrite-pages";

/// Fills a target, writes for a while, and verifies what it holds.
pub(super) fn measure(
    target: &Target,
    (pages, round): (&[u8], u32),
    time: Duration,
    cleanup: &Cleanup,
) -> Result<Row, LabError> {
    target.fill(pages, cleanup)?;
    let workload = Workload::new(pages, round);
    let failed =
        |error: std::io::Error| LabError::store(format!("{}: write", target.name()))(error);
    let (depth, written) = match target {
        Target::Nbd(served) => {
            let mut client = Client::connect(served.socket()).map_err(failed)?;
            (DEPTH, client.work(&workload, DEPTH as usize, time).map_err(failed)?)
        }
        Target::Kernel { peer, .. } => (1, one_by_one(peer, &workload, time)?),
    };
    target.verify(&workload.after(written.writes), cleanup)?;
    let mut row = figures(written);
    row.set("device", target.name())
        .set("client", CLIENT)
        .set("algorithm", target.algorithm())
        .set("rw", PATTERN)
        .set("bs", PAGE_SIZE)
        .set("qd", depth);
    Ok(row)
}

fn one_by_one(
    peer: &KernelZram,
    workload: &Workload<'_>,
    time: Duration,
) -> Result<Written, LabError> {
    let (mut writes, mut latencies, mut aligned) = (0, Vec::new(), Aligned::new(PAGE_SIZE));
    let start = Instant::now();
    while start.elapsed() < time {
        let (slot, page) = workload.write(writes);
        aligned.bytes().copy_from_slice(page);
        let sent = Instant::now();
        peer.write(slot, &mut aligned)?;
        latencies.push(u32::try_from(sent.elapsed().as_nanos()).unwrap_or(u32::MAX));
        writes += 1;
    }
    let elapsed = start.elapsed();
    peer.close()?;
    Ok(Written { writes, elapsed, latencies })
}

fn figures(mut written: Written) -> Row {
    let mut row = Row::default();
    written.latencies.sort_unstable();
    let us = |percent| stats::percentile(&written.latencies, percent).map(|ns| f64::from(ns) / 1e3);
    set_rate(&mut row, written.writes as f64 / written.elapsed.as_secs_f64());
    row.set("lat_us_p50", us(50)).set("lat_us_p99", us(99));
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_all_writes() {
        let latencies = (1..=100).rev().map(|us| us * 1000).collect();
        let row = figures(Written { writes: 100, elapsed: Duration::from_millis(50), latencies });
        assert_eq!((row.number("iops"), row.number("lat_us_p50")), (Some(2000.0), Some(50.0)));
        assert_eq!(row.number("lat_us_p99"), Some(99.0));
    }
}
