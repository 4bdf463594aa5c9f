//! `ramfold estimate`: stores pages to see how much memory they would take.
//!
//! ```text
//!   files ------------------------.
//!                                  >-- source -> sample -> trial per algorithm and chain order
//!   process -> snapshot device ---'                |  |             |
//!                                     thinner <----'  v             v
//!                                  does not fit     equal pages   row: figures of a real device
//! ```
//!
//! Invariants
//! - E1 Stored memory is bounded. A trial's device has a memory limit, only one exists at a time,
//!   and pages are read one by one from their source.
//! - E2 Every row is about the same pages, and each of them was read back and compared.
//!
//! Locks: none.

mod device;
mod equal;
mod files;
mod process;
mod progress;
mod report;
mod sample;
mod source;
mod stopwatch;
mod trial;

use codec::{Algorithm, Codec};
use host::{PAGE_SIZE, limits};

use crate::line::Failure;
use crate::line::args;
use crate::line::output::{print, print_json};
use device::{Setting, Stop};
use progress::Progress;
use report::Estimate;
use sample::Sample;
use trial::Row;

pub(super) use device::Page;
pub(super) use source::Source;

/// The limit if the system does not say how much memory there is.
const FALLBACK_LIMIT: u64 = 1 << 30; // 1 GiB

/// Stores the pages in every way, and prints how much memory each way took.
pub(super) fn run(args: &args::Estimate) -> Result<(), Failure> {
    let memory = limits::memory_available().default_limit.unwrap_or(FALLBACK_LIMIT);
    let limit = memory.max(PAGE_SIZE as u64);
    let (source, limit) = match args.pid {
        Some(pid) => (Source::of_process(pid, limit / 2)?, limit / 2),
        None => (Source::of_files(&args.files)?, limit),
    };
    let estimate = estimate(&source, limit)?;
    if args.json {
        return print_json(&report::document(&estimate), false);
    }
    print(&report::table(&estimate))
}

/// All rows over the densest sample that fits the limit.
fn estimate(source: &Source, limit: u64) -> Result<Estimate, Failure> {
    let mut sample = Sample::of(source.pages(), source.stride());
    loop {
        match rows(source, sample, limit) {
            Ok((rows, same_pages)) => {
                let equal_pages = equal::count(source, sample)?;
                let unread = source.unread();
                return Ok(Estimate { sample, same_pages, equal_pages, unread, rows });
            }
            Err(Stop::Full { stored }) => sample = sample.thinned(stored)?,
            Err(Stop::Failed(failure)) => return Err(failure),
        }
    }
}

fn rows(source: &Source, sample: Sample, limit: u64) -> Result<(Vec<Row>, u64), Stop> {
    let settings = settings();
    let mut progress = Progress::new(settings.len() as u64 * sample.pages() * 2);
    let mut rows = Vec::with_capacity(settings.len());
    let mut same_pages = 0;
    for setting in settings {
        progress.name(&format!("{}, chain order {}", setting.codec, setting.chain_order));
        let (row, same) = trial::run(source, sample, setting, limit, &mut progress)?;
        rows.push(row);
        same_pages = same;
    }
    Ok((rows, same_pages))
}

/// The chain orders of the published study: 4 frames, the kernel's 8, and the longest chains of 16.
const CHAIN_ORDERS: [u32; 3] = [2, 3, 4];

/// Every algorithm at its default level, with each of these chain orders.
fn settings() -> Vec<Setting> {
    let codecs = Algorithm::ALL.iter().map(|&algorithm| Codec::new(algorithm));
    codecs
        .flat_map(|codec| {
            CHAIN_ORDERS.map(|chain_order| Setting { codec: codec.clone(), chain_order })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn estimate_of(name: &str, bytes: &[u8], limit: u64) -> Result<Estimate, Failure> {
        let file = std::env::temp_dir().join(format!("ramfold-{name}-{}", std::process::id()));
        fs::write(&file, bytes).unwrap();
        let estimate = estimate(&Source::of_files(std::slice::from_ref(&file)).unwrap(), limit);
        fs::remove_file(&file).unwrap();
        estimate
    }

    /// Bytes of which each page compresses to about a third. No two pages are equal.
    fn texture(pages: usize) -> Vec<u8> {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..pages * PAGE_SIZE).map(|at| if at % 64 < 44 { 0 } else { next() }).collect()
    }

    #[test]
    fn every_way_of_storing_has_a_row() {
        let estimate = estimate_of("rows", &texture(64), 1 << 30).unwrap();
        assert_eq!(estimate.rows.len(), Algorithm::ALL.len() * CHAIN_ORDERS.len());
        for row in &estimate.rows {
            let stored = 64 * PAGE_SIZE as u64;
            assert!(row.compr_data_size > 0 && row.compr_data_size < stored, "{row:?}");
            assert!(row.object_bytes_resident >= row.compr_data_size, "{row:?}");
            assert!(row.compress_ns.is_some() && row.decompress_ns.is_some(), "{row:?}");
        }
        assert!(!estimate.sample.is_partial());
    }

    #[test]
    fn what_does_not_fit_is_sampled() {
        let limit = 64 * PAGE_SIZE as u64;
        let estimate = estimate_of("sampled", &texture(1000), limit).unwrap();
        let pages = estimate.sample.pages();
        assert!(
            estimate.sample.is_partial() && pages < 260,
            "{pages} pages at less than a quarter"
        );
        assert!(pages > 30, "{pages} pages leave most of the room empty");
        assert_eq!(
            estimate.rows.len(),
            Algorithm::ALL.len() * CHAIN_ORDERS.len(),
            "in every way all the same"
        );
    }

    #[test]
    fn pages_that_take_nothing_are_counted() {
        let mut bytes = vec![7; 10 * PAGE_SIZE];
        bytes.extend(texture(3));
        bytes.extend([1, 2, 3]);
        let estimate = estimate_of("same", &bytes, 1 << 30).unwrap();
        assert_eq!((estimate.sample.pages(), estimate.same_pages), (14, 10));
        assert_eq!(estimate.equal_pages, 0);
    }

    #[test]
    fn no_room_at_all_is_an_error() {
        let refused = estimate_of("no-room", &texture(4), 1).err().expect("nothing fits a byte");
        assert!(refused.to_string().contains("memory"), "{refused}");
    }
}
