//! The arena: one reservation of frames, claimed by number, touched lazily, returned in runs.
//!
//! ```text
//!    PFN       0        1        2        3        4                     frames - 1
//!          +--------+--------+--------+--------+--------+-- ... --+--------+
//!          | frame  |        |        |        |        |         |        |  4096 bytes each
//!          +--------+--------+--------+--------+--------+-- ... --+--------+
//!    claimed   1        1        1        0        0                  0     one bit: a Run exists
//!    resident  1        1        0        0        1                  0     one bit: touched
//! ```
//!
//! Invariants
//! - A1: a claim bit is set exactly while a [`Run`] covers its frame, or the [`RawRun`] that the
//!   run was turned into. `claim` sets bits only if all of them were clear. `unclaim` consumes the
//!   token.
//! - A2: a resident bit is set before the frame is touched. Only `purge` clears it, and its caller
//!   holds the token. A frame whose bit is clear costs no memory.
//! - A3: `resident_frames` is the number of resident bits. It changes by the bits that changed.
//! - A4: the frames of a run are open, and so are their bits. The rest of the arena has no access
//!   rights, so it costs nothing even in a program that locks its memory.
//!
//! Claim and release cross threads through the claim bits alone. The release of a bit publishes
//! what was done to the frame, and the claim that finds the bit clear sees it.
//!
//! Lock: that of the steps, to open frames. Claims, releases and resident bits need none.

use super::bits::{mask_of, spans, word_of, words_for};
use super::error::{ClaimError, ForeignRun, HostDefect, HostError};
use super::faults::{FailureInjector, Operation, guard};
use super::mapping::{Access, Core, Mapping};
use super::run::{ArenaId, Pfn, RawRun, Run};
use super::steps::{PROCESS, Steps};
use super::table::Table;
use crate::locks::Rank;
use crate::machine::PAGE_SIZE;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

#[cfg(all(test, not(any(loom, shuttle))))]
mod damage;
mod purge;

pub use purge::Purged;

/// The most frames an arena can have.
pub const FRAMES_MAX: u32 = 1 << 30; // 4 TiB

const _: () = assert!(
    (FRAMES_MAX as usize).checked_mul(PAGE_SIZE).is_some(),
    "byte offsets of all frames fit in usize"
);

/// The unit of arena numbers in bytes, as a shift. Two arenas of at least one unit start in
/// different units. User addresses have 48 bits unless a program asks for more, so the number of a
/// unit has 27.
const NUMBER_SHIFT: u32 = 21;
/// Bits of an address.
const ADDRESS_BITS: u32 = 48;
/// Frames from which on an arena has a number of its own ([`Arena::number`]).
pub const NUMBERED_FRAMES_MIN: u32 = (1 << NUMBER_SHIFT) / PAGE_SIZE as u32; // 512

const _: () = assert!(
    ADDRESS_BITS - NUMBER_SHIFT <= u32::BITS,
    "the unit of any address fits a number, else two arenas could have the same"
);

/// Frames that are opened at once, at the least.
const STEP_FRAMES: u32 = 512; // 2 MiB

/// A reserved range of frames, which are claimed by number.
///
/// Frame `n` is the `n`th 4096 bytes from [`Arena::base`]. Claiming frames gives a [`Run`], the
/// right to touch them. Memory is taken when a frame is touched, and returned by [`Arena::purge`].
#[derive(Debug)]
pub struct Arena {
    frames: u32,
    mapping: Mapping,
    /// `None` if all of it is open.
    steps: Option<Steps>,
    claimed: Table<AtomicU64>,
    resident: Table<AtomicU64>,
    /// Bits set in `resident` (A3).
    resident_frames: AtomicU64,
    faults: Option<Arc<FailureInjector>>,
}

impl Arena {
    /// Reserves address space for `frames` frames, 1 to [`FRAMES_MAX`]. No memory is touched.
    ///
    /// # Errors
    ///
    /// [`HostError::Size`] if `frames` is out of range; [`HostError::Reserve`] if the system
    /// refuses.
    pub fn reserve(frames: u32) -> Result<Arena, HostError> {
        Arena::build(frames, None)
    }

    /// The same as [`Arena::reserve`], for an arena whose operations `faults` can make fail.
    ///
    /// # Errors
    ///
    /// Those of [`Arena::reserve`], and [`HostError::Injected`].
    pub fn with_faults(
        frames: u32,
        faults: impl Into<Option<Arc<FailureInjector>>>,
    ) -> Result<Arena, HostError> {
        Arena::build(frames, faults.into())
    }

    fn build(frames: u32, faults: Option<Arc<FailureInjector>>) -> Result<Arena, HostError> {
        if frames == 0 || frames > FRAMES_MAX {
            return Err(HostError::Size { len: frames.into(), max: FRAMES_MAX.into() });
        }
        guard(faults.as_deref(), Operation::Reserve)?;
        let (pages, words) = (frames as usize, words_for(frames as usize));
        let in_steps = frames > STEP_FRAMES;
        let access = if in_steps { Access::Closed } else { Access::Open };
        let steps = || Steps::new(pages, STEP_FRAMES as usize, Rank::Frames, &PROCESS);
        Ok(Arena {
            frames,
            mapping: Mapping::reserve(pages, access, Core::LeftOut)?,
            steps: in_steps.then(steps),
            claimed: Table::in_steps(words, faults.clone())?,
            resident: Table::in_steps(words, faults.clone())?,
            resident_frames: AtomicU64::new(0),
            faults,
        })
    }

    /// Frames in the arena.
    #[inline]
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// The address of frame 0. Only the holder of a [`Run`] may touch the frames of the run.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.mapping.base()
    }

    /// A number that no other arena of this process has while this one lives, or for ever after
    /// [`Arena::keep_number`]. It is the first address in units of 2 MiB. Arenas of fewer frames
    /// than [`NUMBERED_FRAMES_MIN`] may share a number.
    #[inline]
    pub fn number(&self) -> u32 {
        (self.base().as_ptr().addr() >> NUMBER_SHIFT) as u32
    }

    /// Makes the addresses of the arena stay reserved, without memory, when it is dropped. No later
    /// arena then has its number.
    pub fn keep_number(&self) {
        self.mapping.keep_addresses();
    }

    /// The addresses of all frames.
    pub fn range(&self) -> Range<usize> {
        self.mapping.range()
    }

    /// Whether the program has locked all of its memory (`mlockall`) after the arena was made. The
    /// part of the arena that was open then is in memory, whatever the bits say.
    pub fn is_locked(&self) -> bool {
        self.mapping.is_locked()
    }

    /// Bytes of memory that the bits of the arena take.
    pub fn metadata_bytes(&self) -> u64 {
        self.claimed.held_bytes() + self.resident.held_bytes() + self.heap_bytes()
    }

    /// The part of [`Arena::metadata_bytes`] that lies on the heap.
    pub fn heap_bytes(&self) -> u64 {
        self.claimed.heap_bytes() + self.resident.heap_bytes()
    }

    /// The addresses of the bits of the arena, for measuring the memory that they take.
    pub fn metadata_ranges(&self) -> [Range<usize>; 2] {
        [self.claimed.range(), self.resident.range()]
    }

    /// Claims frames `pfn..pfn + frames`, all or none. Frames that are not open are opened.
    ///
    /// Of two racing claims of overlapping frames exactly one gets its run. If there are more, a
    /// claim may be refused because of another one that is refused in turn.
    ///
    /// # Errors
    ///
    /// [`ClaimError`]: a frame is claimed already, the frames are not in the arena, or the system
    /// does not open them.
    pub fn claim(&self, pfn: Pfn, frames: u32) -> Result<Run, ClaimError> {
        let raw = RawRun { pfn, frames };
        self.check_range(raw)?;
        guard(self.faults.as_deref(), Operation::Claim).map_err(|_| ClaimError::Injected)?;
        let bits = bits_of(raw);
        self.open(&bits).map_err(|_| ClaimError::NotOpened { pfn })?;
        self.claimed.touch(word_of(bits.start)..word_of(bits.end - 1) + 1);
        for (word, mask) in spans(bits.start, bits.end) {
            if let Err(taken) = self.claim_word(word, mask) {
                self.undo_claim(bits.start, word);
                return Err(ClaimError::InUse { pfn: taken });
            }
        }
        Ok(Run::new(raw, self.id()))
    }

    #[inline]
    fn open(&self, frames: &Range<usize>) -> io::Result<()> {
        match &self.steps {
            Some(steps) if !steps.is_open(frames) => self.open_in(steps, frames),
            _ => Ok(()),
        }
    }

    #[cold]
    fn open_in(&self, steps: &Steps, frames: &Range<usize>) -> io::Result<()> {
        steps.open(frames, |frames| {
            // The bits are opened first, because a thread that finds the frames open looks no
            // further (A4).
            let words = word_of(frames.start)..words_for(frames.end);
            self.claimed.open(words.clone()).map_err(io::Error::other)?;
            self.resident.open(words).map_err(io::Error::other)?;
            self.mapping.open(frames)
        })
    }

    fn check_range(&self, raw: RawRun) -> Result<(), ClaimError> {
        match raw.pfn.get().checked_add(raw.frames) {
            Some(end) if raw.frames > 0 && end <= self.frames => Ok(()),
            _ => Err(ClaimError::OutOfRange { pfn: raw.pfn, frames: raw.frames }),
        }
    }

    /// Sets `mask` in one word if none of its bits is set. Otherwise it gives the lowest frame that
    /// is taken.
    fn claim_word(&self, word: usize, mask: u64) -> Result<(), Pfn> {
        // Acquire pairs with the Release in `unclaim`, so that what the last owner did to the
        // frame is seen by the next one.
        let claim = |bits: u64| if bits & mask == 0 { Some(bits | mask) } else { None };
        self.claimed[word]
            .fetch_update(Ordering::Acquire, Ordering::Acquire, claim)
            .map(drop)
            .map_err(|bits| Pfn::new((word as u32) * u64::BITS + (bits & mask).trailing_zeros()))
    }

    /// Clears the bits that a refused claim has set: from `start` up to, excluding, `word`.
    fn undo_claim(&self, start: usize, word: usize) {
        for (earlier, mask) in spans(start, word * u64::BITS as usize) {
            // relaxed: these frames were not touched, so there is nothing to publish. Because it is
            // a read-modify-write, the release sequence of the last `unclaim` goes on.
            self.claimed[earlier].fetch_and(!mask, Ordering::Relaxed);
        }
    }

    fn id(&self) -> ArenaId {
        ArenaId(self.base().as_ptr().addr())
    }

    /// Gives up the frames of a run, which may then be claimed again. Gives the number of those
    /// that are resident; they stay so.
    ///
    /// # Errors
    ///
    /// [`ForeignRun`], with the run, if it is another arena's.
    pub fn unclaim(&self, run: Run) -> Result<u32, ForeignRun> {
        if !run.is_of(self.id()) {
            return Err(ForeignRun { run });
        }
        let resident = self.resident_in(run.pfn(), run.frames());
        let bits = bits_of(run.into_raw());
        for (word, mask) in spans(bits.start, bits.end) {
            // Release pairs with the Acquire in `claim_word`, so that the next owner sees
            // everything this one did to the frame.
            let before = self.claimed[word].fetch_and(!mask, Ordering::Release);
            debug_assert_eq!(before & mask, mask, "A1: word {word} lost claims of a live run");
        }
        Ok(resident)
    }

    /// Turns the numbers that [`Run::into_raw`] gave into a token again.
    ///
    /// # Safety
    ///
    /// - `raw` came from `into_raw` of a run of this arena, or is a part of such a run.
    /// - No frame of it is covered by any other token made since.
    pub unsafe fn run_from_raw(&self, raw: RawRun) -> Run {
        debug_assert_eq!(self.claimed_in(raw.pfn, raw.frames), raw.frames, "A1: {raw:?}");
        Run::new(raw, self.id())
    }

    /// How many of the frames `pfn..pfn + frames` are claimed.
    pub fn claimed_in(&self, pfn: Pfn, frames: u32) -> u32 {
        self.count(&self.claimed, RawRun { pfn, frames })
    }

    /// Whether frame `pfn` has been touched since it was last purged.
    #[inline]
    pub fn is_resident(&self, pfn: Pfn) -> bool {
        let word = self.resident.get(word_of(pfn.index()));
        // relaxed: a single bit; a caller that needs it to stay as it is has the token.
        word.is_some_and(|word| word.load(Ordering::Relaxed) & mask_of(pfn.index()) != 0)
    }

    /// How many of the frames `pfn..pfn + frames` are resident.
    pub fn resident_in(&self, pfn: Pfn, frames: u32) -> u32 {
        self.count(&self.resident, RawRun { pfn, frames })
    }

    /// Resident frames of the whole arena.
    pub fn resident_frames(&self) -> u64 {
        // relaxed: one independent number, exact while no thread is marking or purging.
        self.resident_frames.load(Ordering::Relaxed)
    }

    /// Counts the resident frames that are not claimed. It is exact while no thread uses the arena.
    pub fn resident_unclaimed(&self) -> u64 {
        let unclaimed = |(index, resident): (usize, &AtomicU64)| {
            // relaxed: a count of single bits, as in `count`.
            let claimed = self.claimed[index].load(Ordering::Relaxed);
            // relaxed: the same.
            u64::from((resident.load(Ordering::Relaxed) & !claimed).count_ones())
        };
        self.resident.held().map(unclaimed).sum()
    }

    /// Recounts the bits and compares them with the counters. Call it while no other thread uses
    /// the arena.
    ///
    /// # Errors
    ///
    /// [`HostDefect`]: what does not agree.
    pub fn check(&self) -> Result<(), HostDefect> {
        self.steps.as_ref().map_or(Ok(()), Steps::check)?;
        self.claimed.check()?;
        self.resident.check()?;
        // relaxed: the caller has brought the arena to rest.
        let ones = |bits: &AtomicU64| u64::from(bits.load(Ordering::Relaxed).count_ones());
        let counted: u64 = self.resident.held().map(|(_, bits)| ones(bits)).sum();
        match self.resident_frames() {
            resident if resident == counted => Ok(()),
            resident => {
                Err(HostDefect(format!("A3: {resident} resident frames, the bits say {counted}")))
            }
        }
    }

    /// Set bits of `bitmap` for a run. Frames past the arena count as clear.
    fn count(&self, bitmap: &Table<AtomicU64>, raw: RawRun) -> u32 {
        let bits = bits_of(raw);
        let end = bits.end.min(self.frames as usize);
        let ones = |(word, mask): (usize, u64)| {
            // relaxed: a count of single bits; a caller that needs them to stay has the token.
            (bitmap[word].load(Ordering::Relaxed) & mask).count_ones()
        };
        spans(bits.start, end).map(ones).sum()
    }

    /// Records that frame `pfn` is about to be touched. True if it was not resident before.
    ///
    /// # Panics
    ///
    /// If the arena has no such frame, or the frame was never claimed: a broken caller.
    pub fn mark_resident(&self, pfn: Pfn) -> bool {
        assert!(pfn.get() < self.frames, "{pfn} lies past the arena's {}", self.frames);
        let (word, mask) = (word_of(pfn.index()), mask_of(pfn.index()));
        // relaxed: a bit that is set may be set by any thread. It is cleared only after the owner
        // of the run has brought all threads that work on it to rest, and that order is the
        // owner's.
        if self.resident[word].load(Ordering::Relaxed) & mask != 0 {
            return false;
        }
        self.resident.touch(word..word + 1);
        // relaxed: a bit of accounting; the frame's content is published by its owner.
        let news = self.resident[word].fetch_or(mask, Ordering::Relaxed) & mask == 0;
        // relaxed: an independent sum of bits that changed (A3).
        self.resident_frames.fetch_add(news.into(), Ordering::Relaxed);
        news
    }

    /// Makes the system give frames `pfn..pfn + frames` their memory in one call instead of at the
    /// first touch of each. They are marked resident already, and their contents stay. If the
    /// system refuses, nothing is reported, and they get their memory when they are touched.
    ///
    /// # Panics
    ///
    /// If one of them is not marked (A2): a broken caller.
    pub fn populate(&self, pfn: Pfn, frames: u32) {
        let marked = self.resident_in(pfn, frames);
        assert_eq!(marked, frames, "{frames} frames from {pfn} on are not all marked");
        self.mapping.populate(bits_of(RawRun { pfn, frames }));
    }

    /// The bytes of a run; `None` if the run is another arena's.
    pub fn bytes<'a>(&'a self, run: &'a Run) -> Option<&'a [u8]> {
        let start = self.start_of(run)?;
        // SAFETY: the frames are mapped, and zeroed or written (M1). By A1 only the holder of the
        // token writes to them, and the token is borrowed for as long as the slice lives.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), len_of(run)) })
    }

    /// Copies `data` to byte `offset` of the run, and marks the frames that it touches. False if
    /// the data does not fit or the run is another arena's; nothing is done then.
    pub fn write(&self, run: &mut Run, offset: usize, data: &[u8]) -> bool {
        let Some(start) = self.start_of(run) else { return false };
        let Some(end) = offset.checked_add(data.len()) else { return false };
        if end > len_of(run) {
            return false;
        }
        if data.is_empty() {
            return true; // no frame is touched, not even one that `offset` lies in
        }
        for frame in offset / PAGE_SIZE..end.div_ceil(PAGE_SIZE) {
            self.mark_resident(run.pfn().plus(frame as u32));
        }
        // SAFETY: `offset..end` lies in the run. The token is borrowed exclusively, so by A1 there
        // is no other reference to its frames, and `data` is none either.
        unsafe {
            start.add(offset).copy_from_nonoverlapping(NonNull::from(data).cast(), data.len())
        };
        true
    }

    fn start_of(&self, run: &Run) -> Option<NonNull<u8>> {
        let offset = run.pfn().index() * PAGE_SIZE;
        // SAFETY: a run of this arena was checked against its size when it was claimed.
        run.is_of(self.id()).then(|| unsafe { self.base().add(offset) })
    }
}

impl Drop for Arena {
    /// A token that still exists must not be taken for one of a later arena.
    fn drop(&mut self) {
        // relaxed: only this thread has the value.
        if self.claimed.held().any(|(_, word)| word.load(Ordering::Relaxed) != 0) {
            self.keep_number();
        }
    }
}

/// The bits of a run.
fn bits_of(raw: RawRun) -> Range<usize> {
    let start = raw.pfn.index();
    start..start + raw.frames as usize
}

/// Bytes in a run.
fn len_of(run: &Run) -> usize {
    run.frames() as usize * PAGE_SIZE
}
