//! How many pages equal an earlier one, which a store that looked for them would keep once.
//!
//! Pages are compared by 128 bits of a hash whose keys are drawn by chance, so that no content can
//! aim at two pages that are told apart wrongly. A same-filled page is not counted, because a store
//! keeps a word of it anyway.
//!
//! ```text
//!   pages     A  B  A  0  0  A        0 is same-filled
//!   counted         x        x        2
//! ```
//!
//! Invariant: a digest takes 16 bytes, so all of a sample take 1/256 of its pages. Locks: none.

use std::hash::{BuildHasher, RandomState};

use super::device::Page;
use super::sample::Sample;
use super::source::Source;
use super::stopwatch::is_same_filled;
use crate::line::Failure;

/// Counts the pages of a sample that equal an earlier one.
pub(super) fn count(source: &Source, sample: Sample) -> Result<u64, Failure> {
    let keys = [RandomState::new(), RandomState::new()];
    let mut digests = Vec::new();
    let mut page: Page = [0; host::PAGE_SIZE];
    for place in sample.places() {
        source.read(place, &mut page)?;
        if !is_same_filled(&page) {
            digests.push(keys.each_ref().map(|keys| keys.hash_one(page)));
        }
    }
    digests.sort_unstable();
    let all = digests.len();
    digests.dedup();
    Ok((all - digests.len()) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::fs;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        /// Pages that differ in one byte, and a set of whole pages as the naive count.
        #[test]
        fn pages_are_counted_as_a_set_counts_them(kinds in prop::collection::vec(0..9_u8, 1..40)) {
            let page_of = |kind: u8| {
                let mut page = [3; host::PAGE_SIZE];
                page[4095] = 3 + kind;
                page
            };
            let bytes: Vec<u8> = kinds.iter().flat_map(|&kind| page_of(kind)).collect();
            let name = format!("ramfold-equal-{}-{}", std::process::id(), kinds.len());
            let file = std::env::temp_dir().join(name);
            fs::write(&file, bytes).unwrap();
            let source = Source::of_files(std::slice::from_ref(&file)).unwrap();
            let counted = count(&source, Sample::of(source.pages(), 1)).unwrap();
            fs::remove_file(&file).unwrap();
            let kept: Vec<u8> = kinds.into_iter().filter(|&kind| kind != 0).collect();
            let distinct: BTreeSet<u8> = kept.iter().copied().collect();
            prop_assert_eq!(counted, (kept.len() - distinct.len()) as u64);
        }
    }
}
