//! A sample of the pages that a device holds, spread over all of it.
//!
//! ```text
//!   objects   0 . . . . k/2 . . . . . . . 3k/2 . . . . . . . 5k/2 . . .     k = objects / 640
//!                        |                  |                  |
//!                     training           training            held out ...  one in five is held out
//! ```
//!
//! The first pages of a memory are not like the rest: tables that are trained on them are worse
//! than the shipped ones. So the sample starts half a step in, and there are at least two steps'
//! worth of pages.
//!
//! Invariant: a page is in one of the two parts, and sampling is no use of it.
//!
//! Locks: a cell at a time to choose; a stream and a cell to decode.

use codec::Stream;
use host::PAGE_SIZE;
use zsmalloc::CellGuard;

use super::candidates::{Candidate, Kinds};
use crate::cells::{Stored, kind};
use crate::device::Zram;
use crate::terms::PostError;

/// Pages of a sample: 512 to train on, and 128 that are held out.
const SAMPLE_PAGES: u64 = 640;
/// One page in so many is held out.
const HELD_OUT_EVERY: usize = 5;
/// The fewest objects that are sampled: with fewer, the first ones would be in the sample.
pub(super) const OBJECTS_MIN: u64 = 2 * SAMPLE_PAGES; // 1280

/// Pages, one after the other.
#[derive(Default)]
pub(super) struct Sample {
    pub(super) training: Vec<u8>,
    pub(super) held_out: Vec<u8>,
}

impl Zram {
    /// Objects that a sample is taken from.
    pub(super) fn objects(&self) -> u64 {
        self.counters.tally().counts[kind::BLOB]
    }

    /// Takes a sample. `None` if there are too few pages.
    pub(super) fn sample(&self) -> Result<Option<Sample>, PostError> {
        let objects = self.objects();
        if objects < OBJECTS_MIN {
            return Ok(None);
        }
        let mut sample = Sample::default();
        for (index, page) in self.spread(objects)?.into_iter().enumerate() {
            let held_out = index % HELD_OUT_EVERY == HELD_OUT_EVERY - 1;
            let part = if held_out { &mut sample.held_out } else { &mut sample.training };
            part.try_reserve(PAGE_SIZE).map_err(|_| PostError::NoMemory)?;
            let mut data = [0; PAGE_SIZE];
            // A page that fails to decode is told by whoever reads it.
            if self.with_stream(|stream| self.look_at(page, stream, &mut data)) {
                part.extend_from_slice(&data);
            }
        }
        Ok(Some(sample))
    }

    /// Numbers of pages at equal steps among the objects.
    fn spread(&self, objects: u64) -> Result<Vec<u64>, PostError> {
        let step = objects / SAMPLE_PAGES;
        let (mut index, mut pages) = (0, Vec::new());
        pages.try_reserve(SAMPLE_PAGES as usize).map_err(|_| PostError::NoMemory)?;
        let all = self.all_pages();
        let each = |candidate: &Candidate, _: &mut CellGuard<'_>| {
            if index % step == step / 2 && pages.len() < SAMPLE_PAGES as usize {
                pages.push(candidate.page);
            }
            index += 1;
            Ok(())
        };
        self.each_of(Kinds::ObjectsAndUnits, &all, each)?;
        Ok(pages)
    }

    /// Decodes a page without using it. False if it is no object any more, or is damaged.
    fn look_at(&self, page: u64, stream: &mut Stream, data: &mut [u8]) -> bool {
        let Some(slot) = self.slots.lock(page) else { return false };
        matches!(Stored::in_cell(&slot), Stored::Blob { .. } | Stored::Unit { .. })
            && self.decode_object(page, &slot, stream, data).is_ok()
    }
}
