//! One case over the judged pages of one corpus.
//!
//! ```text
//!   blobs   | blob 0 | blob 1 | a page as it is | blob 3 | ..    one after the other, at any byte
//! ```
//!
//! Blobs are read in random order, so that no page's branches are learned by heart.
//!
//! Invariant: figures are set only after every page came back equal. Locks: none.

use super::cases::{Case, Kind};
use super::cost::Cost;
use super::packers::Packer;
use super::sample::Sample;
use crate::ground::{LabError, Rng};
use crate::pages::PAGE_SIZE;
use crate::rows::Row;
use std::hint::black_box;
use std::ops::Range;
use std::time::Instant;

/// Of the order in which blobs are read.
const SEED: u64 = 33;

/// Passes over all units. Other work of the machine slows some stretches of each, and of every
/// stretch the quickest pass counts.
const PASSES: usize = 5;
/// Units of a stretch.
const STRETCH: usize = 64;

/// The quickest pass of every stretch, in nanoseconds.
#[derive(Default)]
struct Quickest(Vec<u64>);

impl Quickest {
    fn pass<T>(
        &mut self,
        stretches: impl Iterator<Item = T>,
        mut work: impl FnMut(T) -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        for (at, stretch) in stretches.enumerate() {
            let start = Instant::now();
            work(stretch)?;
            let ns = start.elapsed().as_nanos() as u64;
            match self.0.get_mut(at) {
                Some(quickest) => *quickest = ns.min(*quickest),
                None => self.0.push(ns),
            }
        }
        Ok(())
    }

    fn us(&self) -> f64 {
        self.0.iter().sum::<u64>() as f64 / 1e3
    }
}

/// Sets the figures of a case.
pub(super) fn measure(
    case: &Case,
    kind: &Kind,
    sample: &Sample,
    row: &mut Row,
) -> Result<(), LabError> {
    let (unit, cost) = (case.unit * PAGE_SIZE, Cost::new());
    let mut packer = kind.packer(unit)?;
    let units = sample.judged.len() / unit;
    let judged = &sample.judged[..units * unit];
    let mut bytes = vec![1; judged.len() + unit];
    let (mut packed, mut places) = (Quickest::default(), Vec::new());
    let mut read_back = Quickest::default();
    let order = Rng::new(SEED, 0).permutation(units);
    let mut back = vec![0; unit];
    for _ in 0..PASSES {
        bytes.clear();
        places.clear();
        packed.pass(judged.chunks(unit * STRETCH), |some| {
            pack(&mut *packer, some, unit, cost.longest(), &mut bytes, &mut places)
        })?;
        read_back.pass(order.chunks(STRETCH), |some| {
            some.iter().try_for_each(|&at| {
                read(&mut *packer, &bytes[places[at as usize].clone()], &mut back)?;
                black_box(&back);
                Ok(())
            })
        })?;
    }
    let (compress_us, decompress_us) = (packed.us(), read_back.us());
    verify(&mut *packer, &bytes, &places, judged, &mut back)?;
    let pages = (units * case.unit) as f64;
    let costs: f64 = places.iter().map(|place| cost.of(place.len())).sum();
    let raw = places.iter().filter(|place| place.len() == unit).count();
    row.set("bytes_per_page", bytes.len() as f64 / pages)
        .set("class_cost", costs / pages)
        .set("raw_share", raw as f64 / units as f64)
        .set("compress_us", compress_us / pages)
        .set("decompress_us", decompress_us / pages);
    Ok(())
}

/// Adds the blobs of all units to `bytes`. Those that a store would not keep are left as they were.
fn pack(
    packer: &mut dyn Packer,
    judged: &[u8],
    unit: usize,
    longest: usize,
    bytes: &mut Vec<u8>,
    places: &mut Vec<Range<usize>>,
) -> Result<(), LabError> {
    let longest = unit - PAGE_SIZE + longest;
    for page in judged.chunks_exact(unit) {
        let blob = packer.pack(page)?;
        let start = bytes.len();
        bytes.extend_from_slice(if blob.len() <= longest { blob } else { page });
        places.push(start..bytes.len());
    }
    Ok(())
}

/// A unit from its blob, or from itself.
fn read(packer: &mut dyn Packer, blob: &[u8], unit: &mut [u8]) -> Result<(), LabError> {
    if blob.len() == unit.len() {
        unit.copy_from_slice(blob);
        return Ok(());
    }
    packer.unpack(blob, unit)
}

fn verify(
    packer: &mut dyn Packer,
    bytes: &[u8],
    places: &[Range<usize>],
    judged: &[u8],
    back: &mut [u8],
) -> Result<(), LabError> {
    for (at, (place, page)) in places.iter().zip(judged.chunks_exact(back.len())).enumerate() {
        back.fill(0xA5);
        read(packer, &bytes[place.clone()], back)?;
        if back != page {
            return Err(LabError::Wrong(format!("unit {at} came back changed")));
        }
    }
    Ok(())
}
