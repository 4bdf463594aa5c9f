//! Reading over and over, and what the reads took.
//!
//! Invariants
//!
//! * T1: no figure counts unless, before and after, what is published is what a walk finds, and the
//!   last text read meanwhile is one.
//! * T2: a read is timed alone, from before the counts are taken to the end of the text.

use super::writer;
use crate::apparatus::reader::{self, Mode, Reader};
use crate::apparatus::scattered;
use crate::ground::{LabError, stats};
use crate::rows::Row;
use buddy::{PageTypeInfo, SharedZone, TextForm};
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read, Seek};
use std::time::{Duration, Instant};

/// The kernel's own.
const KERNEL: &str = "/proc/pagetypeinfo";
/// Its name in rows.
pub(super) const KERNEL_MODE: &str = "kernel";

/// A zone of ours, and the threads that are busy there.
pub(super) struct Ours {
    zone: SharedZone,
    free_blocks: u32,
    run: u32,
    /// What the writer does in a second with nobody reading.
    alone_per_s: f64,
}

impl Ours {
    pub(super) fn new(free_blocks: u32, run: u32, time: Duration) -> Result<Ours, LabError> {
        let zone = scattered::shared(free_blocks, writer::ROOM)?;
        let ((), alone_per_s) = writer::beside(&zone, run, || std::thread::sleep(time))?;
        Ok(Ours { zone, free_blocks, run, alone_per_s })
    }

    /// Reads for so long beside the writer.
    pub(super) fn measure(&self, mode: Mode, time: Duration) -> Result<Row, LabError> {
        self.verify()?;
        let mut reader = Reader::new(&self.zone, mode);
        let reading = || {
            over_and_over(time, || {
                black_box(reader.read());
                Ok(())
            })
        };
        let (samples, writer_per_s) = writer::beside(&self.zone, self.run, reading)?;
        reader.is_readable()?;
        self.verify()?;
        let mut row = Row::default();
        row.set("mode", mode.name()).set("free_blocks", self.free_blocks).set("run", self.run);
        summary(&mut row, samples?);
        let counts = self.zone.published().read();
        row.set("free_pageblock_frames", counts.free_pageblock_frames())
            .set("writer_ops_per_s", writer_per_s)
            .set("writer_vs_alone", writer_per_s / self.alone_per_s);
        Ok(row)
    }

    fn verify(&self) -> Result<(), LabError> {
        scattered::is_scattered(&self.zone, self.free_blocks)?;
        reader::agree(&self.zone)
    }
}

/// The kernel's file, read for so long; its free blocks as the last text says.
pub(super) fn kernel(run: u32, time: Duration) -> Result<Row, LabError> {
    const TEXT_BYTES: usize = 1 << 16;
    let missing = |error: io::Error| LabError::missing(KERNEL, error);
    let mut file = File::open(KERNEL).map_err(missing)?;
    let mut text = String::with_capacity(TEXT_BYTES);
    let read = || {
        text.clear();
        file.rewind().and_then(|()| file.read_to_string(&mut text)).map(drop).map_err(missing)
    };
    let samples = over_and_over(time, read)?;
    let parsed = PageTypeInfo::parse(&text);
    let parsed = parsed.map_err(|error| LabError::missing(KERNEL, error))?;
    let mut again = String::new();
    parsed.render(TextForm::Kernel, &mut again);
    if again != text {
        return Err(LabError::Wrong(format!("{KERNEL} is not what it says when written again")));
    }
    let zones = || parsed.nodes.iter().flat_map(|node| &node.zones);
    let blocks: u64 = zones().flat_map(|zone| zone.counts.blocks_by_order()).sum();
    let whole: u64 = zones().map(|zone| zone.counts.free_pageblock_frames()).sum();
    let mut row = Row::default();
    row.set("mode", KERNEL_MODE).set("free_blocks", blocks).set("run", run);
    row.set("free_pageblock_frames", whole);
    summary(&mut row, samples);
    Ok(row)
}

/// Nanoseconds of each of the reads there is time for, two at least.
fn over_and_over(
    time: Duration,
    mut read: impl FnMut() -> Result<(), LabError>,
) -> Result<Vec<u32>, LabError> {
    let (begin, mut samples) = (Instant::now(), Vec::new());
    while samples.len() < 2 || begin.elapsed() < time {
        let start = Instant::now();
        read()?;
        samples.push(u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX));
    }
    Ok(samples)
}

fn summary(row: &mut Row, mut ns: Vec<u32>) {
    ns.sort_unstable();
    let us = |percent| stats::percentile(&ns, percent).map(|ns| f64::from(ns) / 1e3);
    row.set("reads", ns.len())
        .set("read_us_mean", stats::mean_and_sd(&ns).map(|(mean, _)| mean / 1e3))
        .set("read_us_p50", us(50))
        .set("read_us_p99", us(99))
        .set("read_us_max", us(100));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_is_measured_and_leaves_the_zone_as_it_was() {
        let time = Duration::from_millis(2);
        let ours = Ours::new(500, 0, time).unwrap();
        for mode in Mode::ALL {
            let row = ours.measure(mode, time).unwrap();
            assert!(row.number("reads").unwrap() >= 2.0, "{row:?}");
            assert!(row.number("read_us_mean") <= row.number("read_us_max"), "{row:?}");
        }
        assert!(ours.zone.alloc(buddy::Order::ZERO, buddy::Migratetype::Movable).is_ok());
        assert!(ours.measure(Mode::Counts, time).is_err(), "a block too few went unseen");
    }

    #[test]
    fn figures_are_of_the_reads() {
        let mut row = Row::default();
        summary(&mut row, vec![4000, 1000, 1000]);
        let fields = ["reads", "read_us_mean", "read_us_p50", "read_us_max"];
        assert_eq!(fields.map(|field| row.number(field).unwrap()), [3.0, 2.0, 1.0, 4.0]);
    }
}
