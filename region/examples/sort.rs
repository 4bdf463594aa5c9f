//! Sorts a log four times as large as what of it may be in memory, and says what that saved.
//!
//! ```text
//! cargo run --release -p ramfold-region --example sort           64 MiB of records
//! cargo run --release -p ramfold-region --example sort -- 512    MiB of records
//! ```

#![forbid(unsafe_code)]

use ramfold_region::{Memory, MemoryConfig, Pager, PagerConfig, RegionConfig, RegionVec};
use std::error::Error;
use std::time::Instant;

/// A line of a log: when, which host, what. Sorted by host, then by time: by its first 16 bytes.
type Line = [u8; 64];

const MIB: usize = 1 << 20;

fn line(number: u64) -> Line {
    let random = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    let (host, status) = (random % 40, [200, 200, 200, 304, 404][random as usize % 5]);
    let mut line = [b' '; 64];
    line[..8].copy_from_slice(&host.to_be_bytes());
    line[8..16].copy_from_slice(&number.to_be_bytes());
    let text = format!("GET /articles/{:03}/index.html {status}", random / 7 % 200);
    line[16..16 + text.len()].copy_from_slice(text.as_bytes());
    line
}

/// A sum that does not depend on the order.
fn sum(lines: &[Line]) -> u64 {
    let mix = |sum: u64, &byte: &u8| sum.wrapping_mul(31).wrapping_add(byte.into());
    lines.iter().map(|line| line.iter().fold(7, mix)).fold(0, u64::wrapping_add)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mib = std::env::args().nth(1).map_or(Ok(64), |text| text.parse::<usize>())?.max(4);
    let count = mib * MIB / size_of::<Line>();
    let memory = Memory::new(MemoryConfig {
        arena_frames: u32::try_from(mib * 2 * MIB / 4096)?,
        entries_max: (mib * MIB / 4096 + (1 << 16)) as u64,
        expected_bytes: (mib * MIB) as u64,
        worker: true,
    })?;
    let pager = Pager::new(memory, &PagerConfig::default())?;
    let limit = mib * MIB / 4;
    let config = RegionConfig { resident_limit: Some(limit), ..RegionConfig::default() };
    let mut lines = RegionVec::<Line>::with_room(&pager, count, &config)?;

    let started = Instant::now();
    let mut expected = 0u64;
    for number in 0..count as u64 {
        let line = line(number);
        expected = expected.wrapping_add(sum(&[line]));
        lines.push(line)?;
    }
    let filled = started.elapsed();
    lines.sort_unstable_by(|a, b| a[..16].cmp(&b[..16]));
    let sorted = started.elapsed() - filled;

    if !lines.is_sorted_by(|a, b| a[..16] < b[..16]) || sum(&lines) != expected {
        return Err("the lines are not those that were written, in order".into());
    }
    let stats = lines.stats();
    let held = (stats.resident_pages + stats.staged_pages) as usize * 4096;
    println!("{count} lines, {mib} MiB, verified: filled in {filled:.1?}, sorted in {sorted:.1?}");
    println!(
        "in memory {:.1} MiB (limit {:.1}), compressed {:.1} MiB: {:.1} MiB in place of {mib}",
        held as f64 / MIB as f64,
        limit as f64 / MIB as f64,
        stats.compr_data_size as f64 / MIB as f64,
        (held as u64 + stats.compr_data_size) as f64 / MIB as f64,
    );
    println!("{} faults, {:.2} s spent in them", stats.faults, stats.stall_ns as f64 / 1e9);
    Ok(())
}
