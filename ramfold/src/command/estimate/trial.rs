//! A trial of one way of storing: a device is made, filled, read back, asked and dropped.
//!
//! Invariant: a row exists only if every page of the sample came back unchanged. Locks: none.

use disk::{Disk, DiskError};
use host::PAGE_SIZE;
use zram::Zram;

use super::device::{Setting, Stop, device};
use super::progress::Progress;
use super::sample::Sample;
use super::source::Source;
use super::stopwatch::Stopwatch;
use crate::line::Failure;

/// How much memory the pages took.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) setting: Setting,
    pub(super) compr_data_size: u64,
    pub(super) object_bytes_resident: u64,
    pub(super) metadata_bytes: u64,
    pub(super) huge_pages: u64,
    pub(super) compress_ns: Option<u64>,
    pub(super) decompress_ns: Option<u64>,
}

impl Row {
    /// All bytes: those of the objects and of the metadata.
    pub(super) fn takes(&self) -> u64 {
        self.object_bytes_resident + self.metadata_bytes
    }
}

/// Tries one way. It gives the row and the number of same-filled pages, which is the same for all
/// ways.
pub(super) fn run(
    source: &Source,
    sample: Sample,
    setting: Setting,
    limit: u64,
    progress: &mut Progress,
) -> Result<(Row, u64), Stop> {
    let device = device(sample.pages(), &setting, limit)?;
    let mut stopwatch = Stopwatch::new(setting.codec.clone());
    fill(source, sample, &device, &mut stopwatch, progress)?;
    compare(source, sample, &device, progress)?;
    let stat = device.stat();
    let row = Row {
        setting,
        compr_data_size: stat.compr_data_size,
        object_bytes_resident: stat.object_bytes_resident,
        metadata_bytes: stat.metadata_bytes(),
        huge_pages: stat.huge_pages,
        compress_ns: stopwatch.compress_ns(),
        decompress_ns: stopwatch.decompress_ns(),
    };
    Ok((row, stat.same_pages))
}

fn fill(
    source: &Source,
    sample: Sample,
    device: &Zram,
    stopwatch: &mut Stopwatch,
    progress: &mut Progress,
) -> Result<(), Stop> {
    let mut page = [0; PAGE_SIZE];
    for (index, place) in (0..).zip(sample.places()) {
        source.read(place, &mut page)?;
        stopwatch.see(&page);
        match device.write(index * PAGE_SIZE as u64, &page) {
            Ok(()) => progress.step(),
            Err(DiskError::NoSpace | DiskError::NoMemory) => {
                return Err(Stop::Full { stored: index });
            }
            Err(error) => return Err(Failure::about(format!("page {place}"), error).into()),
        }
    }
    Ok(())
}

fn compare(
    source: &Source,
    sample: Sample,
    device: &Zram,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let (mut page, mut back) = ([0; PAGE_SIZE], [0; PAGE_SIZE]);
    for (index, place) in (0..).zip(sample.places()) {
        source.read(place, &mut page)?;
        device
            .read(index * PAGE_SIZE as u64, &mut back)
            .map_err(|error| Failure::about(format!("page {place} cannot be read back"), error))?;
        if page != back {
            let defect = || format!("page {place} came back different: a defect of ramfold");
            return Err(Failure::Failed(source.suspect(place).unwrap_or_else(defect)));
        }
        progress.step();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::{Algorithm, Codec};
    use std::fs::{self, File};
    use std::time::{Duration, SystemTime};

    #[test]
    fn a_page_that_comes_back_different_gives_no_row() {
        let path = std::env::temp_dir().join(format!("ramfold-trial-{}", std::process::id()));
        fs::write(&path, [1; 2 * PAGE_SIZE]).unwrap();
        let source = Source::of_files(std::slice::from_ref(&path)).unwrap();
        let sample = Sample::of(source.pages(), 1);
        let setting = Setting { codec: Codec::new(Algorithm::Lz4), chain_order: 3 };
        let device = device(sample.pages(), &setting, 0).unwrap();
        let (mut stopwatch, mut progress) =
            (Stopwatch::new(setting.codec.clone()), Progress::new(4));
        fill(&source, sample, &device, &mut stopwatch, &mut progress).unwrap();
        compare(&source, sample, &device, &mut progress).unwrap();

        device.write(PAGE_SIZE as u64, &[2; PAGE_SIZE]).unwrap();
        let lost = compare(&source, sample, &device, &mut progress).unwrap_err().to_string();
        assert!(lost.contains("page 1 came back different"), "{lost}");
        let later = SystemTime::now() + Duration::from_secs(10);
        File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        let changed = compare(&source, sample, &device, &mut progress).unwrap_err().to_string();
        assert!(changed.contains("written to meanwhile"), "{changed}");
        fs::remove_file(&path).unwrap();
    }
}
