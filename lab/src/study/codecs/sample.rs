//! The pages of a corpus that are judged, and those that dictionaries are made from.
//!
//! Neighbouring pages are alike, so that runs of them are judged and sampled in turn.
//!
//! Invariant: no page is both. Same-filled pages are neither: no codec sees them. Locks: none.

use crate::ground::LabError;
use crate::pages::{Corpus, PAGE_SIZE, is_same_filled};
use std::path::Path;

/// Pages of a run.
const RUN: usize = 64;
/// The most pages that tables are trained on.
const TRAINED: usize = 512;
/// The most pages that zstd's trainer is given.
const TRAINED_CONTENT: usize = 2048;

/// Pages of one corpus.
pub(super) struct Sample {
    pub(super) name: String,
    pub(super) judged: Vec<u8>,
    /// Pages for zstd's trainer, spread over the corpus.
    pub(super) sampled: Vec<u8>,
}

impl Sample {
    /// Those of every `corpus-NAME.bin` in a directory, by name.
    pub(super) fn of_directory(directory: &Path, pages: usize) -> Result<Vec<Sample>, LabError> {
        let entries = std::fs::read_dir(directory).map_err(LabError::io(directory.display()))?;
        let mut samples = Vec::new();
        for entry in entries {
            let path = entry.map_err(LabError::io(directory.display()))?.path();
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let name = file.strip_prefix("corpus-").and_then(|rest| rest.strip_suffix(".bin"));
            if let Some(name) = name {
                samples.push(Sample::of(name, &Corpus::open(Some(&path), 0)?, pages)?);
            }
        }
        samples.sort_by(|one, other| one.name.cmp(&other.name));
        let none = || LabError::Usage(format!("{}: no corpus-NAME.bin", directory.display()));
        (!samples.is_empty()).then_some(samples).ok_or_else(none)
    }

    /// Those of one file, or of the synthetic mix.
    pub(super) fn of_one(file: Option<&Path>, pages: usize) -> Result<Sample, LabError> {
        let corpus = Corpus::open(file, (4 * pages * PAGE_SIZE) as u64)?;
        Sample::of(&corpus.name, &corpus, pages)
    }

    fn of(name: &str, corpus: &Corpus, pages: usize) -> Result<Sample, LabError> {
        let kept: Vec<usize> =
            (0..corpus.pages()).filter(|&page| !is_same_filled(corpus.page(page))).collect();
        let runs: Vec<&[usize]> = kept.chunks_exact(RUN).collect();
        let of_runs = |odd: usize| -> Vec<usize> {
            runs.iter().skip(odd).step_by(2).flat_map(|run| run.iter().copied()).collect()
        };
        let (judged, others) = (of_runs(0), of_runs(1));
        if others.is_empty() {
            let why = format!("corpus {name} has fewer than {} pages to compress", 2 * RUN);
            return Err(LabError::Usage(why));
        }
        let judged_runs = spread(&judged.chunks(RUN).collect::<Vec<_>>(), pages / RUN).concat();
        let bytes = |pages: &[usize]| -> Vec<u8> {
            pages.iter().flat_map(|&page| corpus.page(page)).copied().collect()
        };
        let sampled = bytes(&spread(&others, TRAINED_CONTENT));
        Ok(Sample { name: name.to_owned(), judged: bytes(&judged_runs), sampled })
    }

    /// Pages for tables, spread over those that are sampled.
    pub(super) fn for_tables(&self) -> Vec<u8> {
        let pages: Vec<&[u8]> = self.sampled.chunks_exact(PAGE_SIZE).collect();
        spread(&pages, TRAINED).concat()
    }
}

/// At most `count` of them, evenly spread.
fn spread<T: Clone>(all: &[T], count: usize) -> Vec<T> {
    let count = count.clamp(1, all.len());
    (0..count).map(|at| all[at * all.len() / count].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_page_is_judged_and_sampled() {
        let sample = Sample::of_one(None, 256).unwrap();
        assert_eq!(sample.judged.len(), 256 * PAGE_SIZE);
        let pages = |bytes: &[u8]| -> Vec<Vec<u8>> {
            bytes.chunks(PAGE_SIZE).map(<[u8]>::to_vec).collect()
        };
        let judged = pages(&sample.judged);
        assert!(pages(&sample.sampled).iter().all(|page| !judged.contains(page)));
        assert!(judged.iter().all(|page| !is_same_filled(page)));
    }

    #[test]
    fn what_is_spread_reaches_both_ends() {
        assert_eq!(spread(&[0, 1, 2, 3, 4, 5, 6, 7], 4), [0, 2, 4, 6]);
        assert_eq!(spread(&[0, 1], 4), [0, 1]);
    }
}
