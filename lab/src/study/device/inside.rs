//! The client in the process: read and write calls on a zram beside the codec alone.
//!
//! ```text
//!   every round:  fresh      write the stored pages to a new disk     codec: compress them
//!                 randread   read them in random order                codec: decompress the blobs
//!                 overwrite  write each slot with another page        codec: compress those
//! ```
//!
//! Codec and zram take turns within a round and go over the same pages in the same order; every
//! page is verified after the clock has stopped.

use super::bench::{Bench, ns_per_page, set_rate};
use super::passes::Pages;
use crate::apparatus::ours;
use crate::ground::LabError;
use crate::pages::PAGE_SIZE;
use crate::rows::Row;
use codec::{Codec, Stream};
use std::hint::black_box;
use std::time::Instant;
use zram::Zram;
use zsmalloc::study::LockDesign;
use zsmalloc::{ChainSize, Geometry, Rule};

/// The name in rows.
pub(super) const CLIENT: &str = "in-process";

pub(super) fn run(bench: &Bench, algorithm: &Codec) -> Result<Vec<Row>, LabError> {
    let options = bench.options;
    let shape = ours::Shape {
        algorithm: algorithm.clone(),
        chain_order: options.chain_order,
        rule: Rule::LeastWaste,
        slots: bench.pages.len() / PAGE_SIZE,
        evacuation: true,
        design: LockDesign::default(),
    };
    let chain = ChainSize::from_order(shape.chain_order)
        .ok_or_else(|| LabError::Usage(format!("--chain-order {}", shape.chain_order)))?;
    let watermark = Geometry::new(shape.rule, chain).huge_watermark();
    let mut stream = Stream::new();
    let pages = Pages::new(bench.pages, algorithm.clone(), watermark, &mut stream);
    bench.lab.interleaved(&[CLIENT], ToString::to_string, |_, round| {
        let mut client = Client { disk: ours::disk(&shape)?, pages: &pages, stream: &mut stream };
        let mut rows = client.round(round)?;
        for row in &mut rows {
            row.set("algorithm", algorithm.to_string());
        }
        Ok(rows.into())
    })
}

struct Client<'a> {
    disk: Zram,
    pages: &'a Pages<'a>,
    stream: &'a mut Stream,
}

impl Client<'_> {
    fn round(&mut self, round: u32) -> Result<[Row; 3], LabError> {
        let pages = self.pages;
        for &slot in &pages.others {
            ours::write(&self.disk, slot as usize, pages.page(slot))?;
        }
        let own = pages.assignment(0);
        let fresh = (self.time_write(&own)?, pages.time_compress(&own, self.stream)?);
        self.verify(&own)?;
        self.check_sorting()?;
        let fresh = self.row("fresh", round, fresh);

        let order = pages.shuffled(round);
        let slots: Vec<u32> = order.iter().map(|&at| pages.stored[at as usize]).collect();
        let read = (self.time_read(&slots)?, pages.time_decompress(&order, self.stream)?);
        let read = self.row("randread", round, read);

        let other = pages.assignment(round as usize + 1);
        let overwrite = (self.time_write(&other)?, pages.time_compress(&other, self.stream)?);
        self.verify(&other)?;
        Ok([read, self.row("overwrite", round, overwrite), fresh])
    }

    fn time_write(&self, assignment: &[(u32, u32)]) -> Result<f64, LabError> {
        let start = Instant::now();
        for &(slot, page) in assignment {
            ours::write(&self.disk, slot as usize, self.pages.page(page))?;
        }
        Ok(ns_per_page(start.elapsed(), assignment.len()))
    }

    fn time_read(&self, slots: &[u32]) -> Result<f64, LabError> {
        let mut page = [0; PAGE_SIZE];
        let start = Instant::now();
        for &slot in slots {
            ours::read(&self.disk, slot as usize, black_box(&mut page))?;
        }
        Ok(ns_per_page(start.elapsed(), slots.len()))
    }

    /// Every page of the disk, those never timed included.
    fn verify(&self, assignment: &[(u32, u32)]) -> Result<(), LabError> {
        let mut page = [0; PAGE_SIZE];
        let others = self.pages.others.iter().map(|&slot| (slot, slot));
        for (slot, expected) in assignment.iter().copied().chain(others) {
            ours::read(&self.disk, slot as usize, &mut page)?;
            if page != self.pages.page(expected) {
                let what = format!("slot {slot} does not hold page {expected}");
                return Err(LabError::Wrong(what));
            }
        }
        Ok(())
    }

    /// What is timed must be what the disk stores compressed: both sort pages by the same rule.
    fn check_sorting(&self) -> Result<(), LabError> {
        let (stat, pages) = (self.disk.stat(), self.pages);
        let ours = (pages.huge as u64, (pages.others.len() - pages.huge) as u64);
        let disks = (stat.huge_pages, stat.same_pages);
        let wrong =
            || format!("(huge, same-filled) pages are {ours:?} here, {disks:?} on the disk");
        (ours == disks).then_some(()).ok_or_else(|| LabError::Wrong(wrong()))
    }

    fn row(&self, rw: &str, round: u32, (ns, codec_ns): (f64, f64)) -> Row {
        const NS_PER_S: f64 = 1e9;
        let mut row = Row::default();
        row.set("device", ours::NAME)
            .set("client", CLIENT)
            .set("rw", rw)
            .set("bs", PAGE_SIZE)
            .set("qd", 1)
            .set("run", round)
            .set("ns_per_page", ns)
            .set("codec_ns_per_page", codec_ns)
            .set("ratio", ns / codec_ns)
            .set("stored_pages", self.pages.stored.len())
            .set("huge_pages", self.pages.huge)
            .set("stored_bytes", self.disk.stat().accounted_bytes());
        set_rate(&mut row, NS_PER_S / ns);
        row
    }
}
