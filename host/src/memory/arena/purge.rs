//! Giving the memory of runs back to the system.
//!
//! Invariant: a frame is resident by its bit exactly if it is in memory. This holds after a refusal
//! too, if the system tells which frames are in memory. The system refuses frames that a program
//! has locked, and with them everything that follows in the range.
//!
//! Lock: none; the caller has the tokens.

use super::{Arena, bits_of};
use crate::memory::bits::spans;
use crate::memory::error::HostError;
use crate::memory::faults::{Operation, guard};
use crate::memory::run::{RawRun, Run};
use crate::sync::atomic::Ordering;
use std::ops::Range;

/// The result of giving memory back.
#[derive(Debug)]
pub struct Purged {
    /// Frames that were resident and are not any more.
    pub frames: u32,
    /// The reason if the system refused some.
    pub refused: Option<HostError>,
}

impl Arena {
    /// Returns the memory of a run to the system, and gives the number of its frames that were
    /// resident. They read as zeros from now on.
    ///
    /// # Errors
    ///
    /// [`HostError::ForeignRun`] if the run is another arena's; [`HostError::Injected`];
    /// [`HostError::Advise`] if the system refuses. It may have taken back some frames then. They
    /// are not counted as resident any more, and the others stay resident.
    pub fn purge(&self, run: &mut Run) -> Result<u32, HostError> {
        self.purge_from(run, 0)
    }

    /// The same as [`Arena::purge`], for the frames of the run from its frame `first` on. If the
    /// run is not as long, nothing is returned.
    ///
    /// # Errors
    ///
    /// Those of [`Arena::purge`].
    pub fn purge_from(&self, run: &mut Run, first: u32) -> Result<u32, HostError> {
        if !run.is_of(self.id()) {
            return Err(HostError::ForeignRun);
        }
        guard(self.faults.as_deref(), Operation::Purge)?;
        let first = first.min(run.frames());
        let bits = bits_of(RawRun { pfn: run.pfn().plus(first), frames: run.frames() - first });
        let Some(touched) = self.resident_span(bits.clone()) else { return Ok(0) };
        // SAFETY: the token is borrowed exclusively, so by A1 there is no reference into its
        // frames. These pages are some of them.
        let discarded = unsafe { self.mapping.discard(touched.clone()) };
        if discarded.is_err() {
            self.clear_gone(&touched);
        }
        discarded.map(|()| self.clear_resident(bits))
    }

    /// The same as [`Arena::purge`], for many runs in one call to the system. If the system refuses
    /// some, for example because a program has locked them, the others go back all the same.
    pub fn purge_all(&self, runs: &mut [Run]) -> Purged {
        if let Err(refused) = self.may_purge(runs) {
            return Purged { frames: 0, refused: Some(refused) };
        }
        let bits = |run: &Run| bits_of(run.raw());
        let mut touched: Vec<_> =
            runs.iter().filter_map(|run| self.resident_span(bits(run))).collect();
        touched.sort_unstable_by_key(|span| span.start);
        touched.dedup_by(|next, span| {
            let adjacent = span.end == next.start;
            if adjacent {
                span.end = next.end;
            }
            adjacent
        });
        // SAFETY: the tokens are borrowed exclusively, so by A1 there is no reference into their
        // frames. These ranges are parts of them.
        let discarded = unsafe { self.mapping.discard_all(&touched) };
        let frames = match discarded {
            Ok(()) => runs.iter().map(|run| self.clear_resident(bits(run))).sum(),
            Err(_) => touched.iter().map(|span| self.clear_gone(span)).sum(),
        };
        Purged { frames, refused: discarded.err() }
    }

    fn may_purge(&self, runs: &[Run]) -> Result<(), HostError> {
        let ours = runs.iter().all(|run| run.is_of(self.id()));
        ours.then_some(()).ok_or(HostError::ForeignRun)?;
        guard(self.faults.as_deref(), Operation::Purge)
    }

    /// After a refusal: clears the resident bits of frames that are not in memory, because the
    /// system took back a part of them. If the system does not say which, all bits stay.
    fn clear_gone(&self, bits: &Range<usize>) -> u32 {
        let there = self.mapping.in_memory(bits.clone()).unwrap_or_default();
        let gone = bits.clone().zip(there).filter(|(_, there)| there & 1 == 0);
        gone.map(|(frame, _)| self.clear_resident(frame..frame + 1)).sum()
    }

    /// The range from the first resident frame of `bits` to the last.
    fn resident_span(&self, bits: Range<usize>) -> Option<Range<usize>> {
        let width = u64::BITS as usize;
        let set = |(word, mask)| {
            // relaxed: the caller holds the token, and with it these bits.
            let bits = self.resident[word].load(Ordering::Relaxed) & mask;
            (bits != 0).then_some((word * width, bits))
        };
        let (low, low_bits) = spans(bits.start, bits.end).find_map(set)?;
        let (high, high_bits) = spans(bits.start, bits.end).rev().find_map(set)?;
        let first = low + low_bits.trailing_zeros() as usize;
        let last = high + width - 1 - high_bits.leading_zeros() as usize;
        Some(first..last + 1)
    }

    fn clear_resident(&self, bits: Range<usize>) -> u32 {
        let clear = |(word, mask): (usize, u64)| {
            // relaxed: the caller holds the token, and with it these bits.
            let before = self.resident[word].fetch_and(!mask, Ordering::Relaxed);
            (before & mask).count_ones()
        };
        let cleared: u32 = spans(bits.start, bits.end).map(clear).sum();
        // relaxed: an independent sum of bits that changed (A3).
        self.resident_frames.fetch_sub(cleared.into(), Ordering::Relaxed);
        cleared
    }
}
