//! Compressing pages again, with an algorithm that is slower and better.
//!
//! ```text
//!   chosen, largest first --> decoded under its slot's lock --> compressed, nothing locked
//!                                                                     |
//!      PP gone: unchanged <-- slot locked again <-- a smaller class? stored
//!      PP there: replaced                           no: unchanged; after the last algorithm
//!                                                   it is marked incompressible
//! ```
//!
//! Smaller means a smaller size class, because less would save nothing.
//!
//! Invariant: a page is replaced by its own content, in another form.
//!
//! Locks: `Settings::run`; a stream, and with it one cell at a time. The cell is not held while the
//! page is compressed. Source: the kernel's driver.

use std::borrow::Cow;

use codec::{Codec, Stream};
use disk::DiskError;
use host::PAGE_SIZE;

use super::candidates::{Candidate, Candidates};
use crate::cells::flags::{self, IDLE, INCOMPRESSIBLE, PP, priority};
use crate::cells::{Stored, stored};
use crate::device::Zram;
use crate::terms::{
    PRIORITIES, PostError, Recompress, RecompressKind, RecompressReport, disk_error, post_error,
};

/// The outcome for one page.
enum Outcome {
    Saved { bytes: usize },
    NoSmaller,
    Used,
}

impl Zram {
    /// Compresses pages again. Waits for a write-back or recompression that runs.
    ///
    /// # Errors
    ///
    /// [`PostError::Invalid`] for a priority without an algorithm, or a threshold that no
    /// compressed object reaches. The run ends early with [`PostError::NoMemory`] or
    /// [`PostError::Corrupt`]. Pages that were recompressed before stay so.
    pub fn recompress(&self, what: &Recompress) -> Result<RecompressReport, PostError> {
        // Tables come and go in this turn, so the codec is looked for in it.
        let _one = self.settings.run();
        let codec = self.codec_for(what)?;
        let wanted = |candidate: &Candidate| is_wanted(what, candidate);
        let mut candidates = Candidates::choose(self, &self.all_pages(), wanted)?;
        self.recompress_chosen(&mut candidates, what, &codec)
    }

    /// Recompresses some of the chosen pages, as many as are asked for, while nothing else is
    /// post-processed.
    pub(crate) fn recompress_chosen(
        &self,
        candidates: &mut Candidates<'_>,
        what: &Recompress,
        codec: &Codec,
    ) -> Result<RecompressReport, PostError> {
        let mut report = RecompressReport::default();
        for _ in 0..what.max_pages.unwrap_or(u64::MAX) {
            let Some(page) = candidates.pop() else { break };
            let outcome = self.recompress_page(page, what, codec).map_err(|error| {
                self.unmark_post(page);
                post_error(page, &error)
            })?;
            match outcome {
                Outcome::Saved { bytes } => {
                    report.pages += 1;
                    report.bytes_saved += bytes as u64;
                }
                Outcome::NoSmaller => report.no_smaller += 1,
                Outcome::Used => report.used += 1,
            }
        }
        Ok(report)
    }

    fn codec_for(&self, what: &Recompress) -> Result<Cow<'_, Codec>, PostError> {
        let priority = Some(what.priority).filter(|&priority| priority > 0);
        let codec = priority.and_then(|priority| self.codec(priority));
        let codec = codec.ok_or(PostError::Invalid("no algorithm has this priority"))?;
        if what.threshold > self.watermark {
            return Err(PostError::Invalid("no compressed page is as long as the threshold"));
        }
        Ok(codec)
    }

    fn recompress_page(
        &self,
        page: u64,
        what: &Recompress,
        codec: &Codec,
    ) -> Result<Outcome, DiskError> {
        self.with_stream(|stream| {
            let mut data = [0; PAGE_SIZE];
            let Some(len) = self.take_out(page, stream, &mut data)? else {
                return Ok(Outcome::Used);
            };
            stream.set_place(Zram::place_of(page));
            match codec.compress(stream, &data) {
                Ok(blob) if self.is_smaller(blob.len(), len, what.threshold) => {
                    self.put_smaller(page, blob, what.priority)
                }
                // The result is too long, or the codec failed. Neither is an error.
                _ => Ok(self.keep(page, what.priority)),
            }
        })
    }

    /// Decodes a chosen page, which is no longer idle. Returns the length of its object.
    fn take_out(
        &self,
        page: u64,
        stream: &mut Stream,
        data: &mut [u8],
    ) -> Result<Option<usize>, DiskError> {
        let Some((mut slot, len)) = self.lock_chosen(page) else { return Ok(None) };
        flags::clear(&mut slot, IDLE);
        self.decode_object(page, &slot, stream, data)?;
        Ok(Some(len))
    }

    pub(super) fn is_smaller(&self, new: usize, old: usize, threshold: usize) -> bool {
        let class = |len| self.slots.pool.geometry().class_of(len);
        new <= self.watermark && class(new) < class(old) && (threshold == 0 || new < threshold)
    }

    fn put_smaller(&self, page: u64, blob: &[u8], priority: u8) -> Result<Outcome, DiskError> {
        // A longer object is freed in return, so the limit does not apply to this one.
        let object = self.slots.pool.store_past_limit(blob).map_err(disk_error)?;
        let Some((mut slot, old_len)) = self.lock_chosen(page) else { return Ok(Outcome::Used) };
        let old = Stored::in_cell(&slot);
        stored::put_blob(&mut slot, priority, object);
        self.replaced(&slot, old);
        Ok(Outcome::Saved { bytes: old_len - blob.len() })
    }

    /// The page stays unchanged, and after the last algorithm for good.
    fn keep(&self, page: u64, priority: u8) -> Outcome {
        let Some((mut slot, _)) = self.lock_chosen(page) else { return Outcome::Used };
        flags::clear(&mut slot, PP);
        let is_last = (priority + 1..PRIORITIES as u8).all(|next| self.codec(next).is_none());
        if is_last {
            flags::set(&mut slot, INCOMPRESSIBLE);
        }
        Outcome::NoSmaller
    }
}

pub(crate) fn is_wanted(what: &Recompress, candidate: &Candidate) -> bool {
    let kind = match what.kind {
        RecompressKind::All => true,
        RecompressKind::Idle => candidate.is_idle(),
        RecompressKind::Huge => candidate.is_huge(),
        RecompressKind::HugeIdle => candidate.is_huge() && candidate.is_idle(),
    };
    kind && candidate.bits & INCOMPRESSIBLE == 0
        && priority(candidate.bits) < what.priority
        && candidate.len >= what.threshold
}
