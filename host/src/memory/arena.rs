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
//! - A1: a claim bit is set exactly while a [`Run`] (or the [`RawRun`] it was turned into) covers
//!   its frame. `claim` sets bits only where all were clear, `unclaim` consumes the token.
//! - A2: a resident bit is set before the frame is touched, and cleared only by `purge`, whose
//!   caller holds the token. A frame without its bit costs no memory.
//! - A3: `resident_frames` is the number of resident bits: it moves by the bits that changed.
//! - A4: the frames of a run are open, and so are their bits. The rest of the arena has no access
//!   rights: where a program locks its memory, it costs nothing.
//!
//! Claim and release cross threads through the claim bits alone: the release of a bit publishes
//! whatever was done to the frame, and the claim that finds the bit clear sees it.

use super::bits::{mask_of, spans, word_of, words_for};
use super::error::{ClaimError, ForeignRun, HostDefect, HostError};
use super::faults::{FailureInjector, Operation, guard};
use super::mapping::{Access, Core, Mapping};
use super::run::{ArenaId, RawRun, Run};
use super::steps::{PROCESS, Steps};
use super::table::Table;
use crate::locks::Rank;
use crate::machine::PAGE_SIZE;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

mod purge;

pub use purge::Purged;

/// The most frames an arena can have.
pub const FRAMES_MAX: u32 = 1 << 30; // 4 TiB

const _: () = assert!(
    (FRAMES_MAX as usize).checked_mul(PAGE_SIZE).is_some(),
    "byte offsets of all frames fit in usize"
);

/// Two arenas of this many bytes, as a shift, start in different units of as many. User addresses
/// have 48 bits unless a program asks for more, so the number of the unit has 27.
const NUMBER_SHIFT: u32 = 21;
/// Bits of an address.
const ADDRESS_BITS: u32 = 48;
/// Arenas of at least so many frames have a number each ([`Arena::number`]).
pub const NUMBERED_FRAMES_MIN: u32 = (1 << NUMBER_SHIFT) / PAGE_SIZE as u32; // 512

const _: () = assert!(
    ADDRESS_BITS - NUMBER_SHIFT <= u32::BITS,
    "the unit of any address fits a number, else two arenas could have the same"
);

/// Frames that are opened at once, at least.
const STEP_FRAMES: u32 = 512; // 2 MiB

/// A reserved range of frames. See the module's picture.
#[derive(Debug)]
pub struct Arena {
    frames: u32,
    mapping: Mapping,
    /// Without, all of it is open.
    steps: Option<Steps>,
    claimed: Table<AtomicU64>,
    resident: Table<AtomicU64>,
    /// Bits set in `resident` (A3).
    resident_frames: AtomicU64,
    faults: Option<Arc<FailureInjector>>,
}

impl Arena {
    /// Reserves address space for `frames` frames, 1 to [`FRAMES_MAX`]. No memory is touched.
    pub fn reserve(frames: u32) -> Result<Arena, HostError> {
        Arena::build(frames, None)
    }

    /// As [`Arena::reserve`], with operations that `faults`, where there are any, can make fail.
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

    /// The address of frame 0. What may be done there, a [`Run`] says.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.mapping.base()
    }

    /// A number that no other arena of this process has while this one lives, or for ever after
    /// [`Arena::keep_number`]. Its first address in units of 2 MiB; arenas of fewer frames than
    /// [`NUMBERED_FRAMES_MIN`] may share one.
    #[inline]
    pub fn number(&self) -> u32 {
        (self.base().as_ptr().addr() >> NUMBER_SHIFT) as u32
    }

    /// Keeps the arena's addresses reserved, without memory, when it is dropped, so that no later
    /// arena has its number.
    pub fn keep_number(&self) {
        self.mapping.keep_addresses();
    }

    /// The addresses of all frames.
    pub fn range(&self) -> Range<usize> {
        self.mapping.range()
    }

    /// Whether the program has locked its memory (`mlockall`), all that there is of it, after the
    /// arena was made. What of it was open then is in memory, whatever the bits say.
    pub fn is_locked(&self) -> bool {
        self.mapping.is_locked()
    }

    /// Bytes of memory that the arena's own bits take.
    pub fn metadata_bytes(&self) -> u64 {
        self.claimed.held_bytes() + self.resident.held_bytes() + self.heap_bytes()
    }

    /// The part of [`Arena::metadata_bytes`] that lies on the heap.
    pub fn heap_bytes(&self) -> u64 {
        self.claimed.heap_bytes() + self.resident.heap_bytes()
    }

    /// The addresses of the arena's bits, for measuring what they take.
    pub fn metadata_ranges(&self) -> [Range<usize>; 2] {
        [self.claimed.range(), self.resident.range()]
    }

    /// Claims frames `pfn..pfn + frames`, all or none; what is not open of them is opened.
    ///
    /// While another claim of overlapping frames is under way this may be refused even if that one
    /// fails in turn; of two racing claims of overlapping frames exactly one gets its run.
    pub fn claim(&self, pfn: u32, frames: u32) -> Result<Run, ClaimError> {
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
            // First, as who finds the frames open looks no further (A4).
            let words = word_of(frames.start)..words_for(frames.end);
            self.claimed.open(words.clone()).map_err(io::Error::other)?;
            self.resident.open(words).map_err(io::Error::other)?;
            self.mapping.open(frames)
        })
    }

    fn check_range(&self, raw: RawRun) -> Result<(), ClaimError> {
        match raw.pfn.checked_add(raw.frames) {
            Some(end) if raw.frames > 0 && end <= self.frames => Ok(()),
            _ => Err(ClaimError::OutOfRange { pfn: raw.pfn, frames: raw.frames }),
        }
    }

    /// Sets `mask` in one word if none of it is set; otherwise names the lowest frame taken.
    fn claim_word(&self, word: usize, mask: u64) -> Result<(), u32> {
        // Acquire pairs with the Release in `unclaim`, so that what the last owner did to the
        // frame is seen by the next one.
        let claim = |bits: u64| if bits & mask == 0 { Some(bits | mask) } else { None };
        self.claimed[word]
            .fetch_update(Ordering::Acquire, Ordering::Acquire, claim)
            .map(drop)
            .map_err(|bits| (word as u32) * u64::BITS + (bits & mask).trailing_zeros())
    }

    /// Clears what a refused claim has set: the bits from `start` up to `word`, exclusive.
    fn undo_claim(&self, start: usize, word: usize) {
        for (earlier, mask) in spans(start, word * u64::BITS as usize) {
            // relaxed: these frames were not touched, so there is nothing to publish; as a
            // read-modify-write it keeps the release sequence of the last `unclaim` alive.
            self.claimed[earlier].fetch_and(!mask, Ordering::Relaxed);
        }
    }

    fn id(&self) -> ArenaId {
        ArenaId(self.base().as_ptr().addr())
    }

    /// Gives frames up for anyone to claim, and says how many of them are resident (they stay so).
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

    /// A token again, after [`Run::into_raw`].
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
    pub fn claimed_in(&self, pfn: u32, frames: u32) -> u32 {
        self.count(&self.claimed, RawRun { pfn, frames })
    }

    /// Whether frame `pfn` has been touched since it was last purged.
    #[inline]
    pub fn is_resident(&self, pfn: u32) -> bool {
        let word = self.resident.get(word_of(pfn as usize));
        // relaxed: a single bit; whoever needs it to hold still has the token.
        word.is_some_and(|word| word.load(Ordering::Relaxed) & mask_of(pfn as usize) != 0)
    }

    /// How many of the frames `pfn..pfn + frames` are resident.
    pub fn resident_in(&self, pfn: u32, frames: u32) -> u32 {
        self.count(&self.resident, RawRun { pfn, frames })
    }

    /// Frames resident in the whole arena.
    pub fn resident_frames(&self) -> u64 {
        // relaxed: one independent number, exact whenever nobody is marking or purging.
        self.resident_frames.load(Ordering::Relaxed)
    }

    /// Counts the resident frames that nobody has claimed; exact when nobody is busy.
    pub fn resident_unclaimed(&self) -> u64 {
        let unclaimed = |(index, resident): (usize, &AtomicU64)| {
            // relaxed: a count of single bits, as in `count`.
            let claimed = self.claimed[index].load(Ordering::Relaxed);
            // relaxed: the same.
            u64::from((resident.load(Ordering::Relaxed) & !claimed).count_ones())
        };
        self.resident.held().map(unclaimed).sum()
    }

    /// Recounts the bits and compares them with the counters; for when nobody is busy.
    ///
    /// # Errors
    ///
    /// What does not agree.
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

    /// Frames past the arena count as clear.
    fn count(&self, bitmap: &Table<AtomicU64>, raw: RawRun) -> u32 {
        let bits = bits_of(raw);
        let end = bits.end.min(self.frames as usize);
        let ones = |(word, mask): (usize, u64)| {
            // relaxed: a count of single bits; whoever needs them to hold still has the token.
            (bitmap[word].load(Ordering::Relaxed) & mask).count_ones()
        };
        spans(bits.start, end).map(ones).sum()
    }

    /// Records that frame `pfn` is about to be touched, and says whether that is news.
    ///
    /// # Panics
    ///
    /// When the arena has no such frame, or it was never claimed: a broken caller.
    pub fn mark_resident(&self, pfn: u32) -> bool {
        assert!(pfn < self.frames, "frame {pfn} lies past the arena's {}", self.frames);
        let (word, mask) = (word_of(pfn as usize), mask_of(pfn as usize));
        // relaxed: set is set, whoever did it; the bit is cleared only when the run's owner has
        // brought everyone who works on it to rest, and that ordering is the owner's.
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

    /// Has the system give frames `pfn..pfn + frames`, which are marked resident, their memory in
    /// one call rather than at each one's first touch; what they hold stays. Where it cannot, and
    /// reports nothing, they get it when they are touched.
    ///
    /// # Panics
    ///
    /// When one of them is not marked (A2): a broken caller.
    pub fn populate(&self, pfn: u32, frames: u32) {
        let marked = self.resident_in(pfn, frames);
        assert_eq!(marked, frames, "frames {frames} from {pfn} on are not all marked");
        self.mapping.populate(bits_of(RawRun { pfn, frames }));
    }

    /// The run's bytes, if the run is this arena's.
    pub fn bytes<'a>(&'a self, run: &'a Run) -> Option<&'a [u8]> {
        let start = self.start_of(run)?;
        // SAFETY: the frames are mapped and zeroed or written (M1); by A1 only the holder of
        // the token writes to them, and it is borrowed for as long as the slice lives.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), len_of(run)) })
    }

    /// Copies `data` to `offset` of the run and marks the frames it touches. False, and nothing
    /// done, when it does not fit or the run is another arena's.
    pub fn write(&self, run: &mut Run, offset: usize, data: &[u8]) -> bool {
        let Some(start) = self.start_of(run) else { return false };
        let Some(end) = offset.checked_add(data.len()) else { return false };
        if end > len_of(run) {
            return false;
        }
        if data.is_empty() {
            return true; // no frame is touched, in the middle of one neither
        }
        for frame in offset / PAGE_SIZE..end.div_ceil(PAGE_SIZE) {
            self.mark_resident(run.pfn() + frame as u32);
        }
        // SAFETY: `offset..end` lies in the run; the token is borrowed exclusively, so by A1
        // nobody else has a reference to its frames, `data` included.
        unsafe {
            start.add(offset).copy_from_nonoverlapping(NonNull::from(data).cast(), data.len())
        };
        true
    }

    fn start_of(&self, run: &Run) -> Option<NonNull<u8>> {
        let offset = run.pfn() as usize * PAGE_SIZE;
        // SAFETY: a run of this arena was checked against its size when it was claimed.
        run.is_of(self.id()).then(|| unsafe { self.base().add(offset) })
    }
}

impl Drop for Arena {
    /// A token that is still out must not pass for one of a later arena's.
    fn drop(&mut self) {
        // relaxed: the value is this thread's alone.
        if self.claimed.held().any(|(_, word)| word.load(Ordering::Relaxed) != 0) {
            self.keep_number();
        }
    }
}

/// The bits of a run.
fn bits_of(raw: RawRun) -> Range<usize> {
    let start = raw.pfn as usize;
    start..start + raw.frames as usize
}

/// Bytes in a run.
fn len_of(run: &Run) -> usize {
    run.frames() as usize * PAGE_SIZE
}
