//! A region: an address range that a program uses as memory, and whose cold pages are elsewhere.
//!
//! Invariant: the bytes are what was last written to them, whatever was paged out meanwhile.
//!
//! Lock: none of its own; the calls into `Folded` take a gate, and under it one group after the
//! other.

use super::control::RegionControl;
use super::ending::Teardown;
use super::life::{Life, limit_pages};
use super::pinned::{Pinned, PinnedMut};
use crate::state::Folded;
use crate::terms::{PageRange, RegionConfig, RegionError, RegionStats};
use crate::upkeep::Pager;
use bytemuck::Pod;
use host::fault::begin_call;
use host::{Span, SpanMemory};
use std::ops::Range;
use std::sync::Arc;

/// Memory whose cold pages live compressed.
///
/// Its bytes are lent as slices, whose pages may be out at any time. An access brings them back. In
/// each [`FaultMode`](crate::FaultMode) except `Thread`, three things must not be done with such a
/// slice:
/// - do not pass it to a system call. The call fails with `EFAULT` (`Bad address`) if a page is
///   out. Pin the slice first, see below;
/// - do not block the signal (`SIGBUS`, or `SIGSEGV` with protection or guards) in a thread that
///   touches it, because the system then ends the process without a message. Do not install a
///   handler for it that does not call the previous one;
/// - do not use it as a thread's stack. The handler would need the very stack that must come back,
///   and the system ends the process without a message.
///
/// In no mode:
/// - do not pass it unpinned to this library, for example as the buffer of a disk;
/// - do not touch it in a signal handler that may interrupt a call on regions. Do not touch it in a
///   [disk] that such a call uses. The page may wait for that call;
/// - do not discard its pages by `madvise`, nor move or unmap them by `mremap` or `munmap`.
///   [`Region::discard`] and [`Region::unmap`] do these things. Most cases are noticed, but not all
///   at once. Pages discarded from a group of 256 KiB from which nothing has left read as zeros;
/// - do not keep a pointer and touch it after the [`Region`] was dropped.
///
/// Unless another result is named above, the process ends with a message on standard error.
/// `docs/region.md` has a table of the results.
///
/// [disk]: zswap::ZswapConfig
/// [`FaultError::Inherited`]: crate::FaultError::Inherited
///
/// A forked child has the region with protection only, copy on write, and may read, write and pin
/// it. With a userfaultfd it does not have it, and touching it ends the child with a message. In
/// both cases the [`Pager`] belongs to the parent. It refuses the child new regions, page-outs and
/// discards ([`FaultError::Inherited`]). What the child drops is freed when the child ends. With a
/// pager of its own it may map regions of its own.
///
/// Pin bytes that a system call reads or writes, for as long as the call takes:
///
/// ```
/// # use ramfold_region::{Memory, MemoryConfig, Pager, PagerConfig, Region, RegionConfig};
/// # let memory = Memory::new(MemoryConfig::for_disk(1 << 20))?;
/// # let pager = match Pager::new(memory, &PagerConfig::default()) {
/// #     Ok(pager) => pager,
/// #     Err(error) => {
/// #         eprintln!("skipped: needs {error}");
/// #         return Ok(());
/// #     }
/// # };
/// # let path = std::env::temp_dir().join(format!("ramfold-bytes-{}", std::process::id()));
/// # let mut region = Region::map(&pager, 8192, &RegionConfig::default())?;
/// # region.as_mut_slice().fill(7);
/// # region.control().page_out(0..8192)?;
/// let pinned = region.pin(0..5000)?;
/// std::fs::write(&path, &pinned)?;
/// # assert_eq!(std::fs::read(&path)?, [7; 5000]);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Region {
    memory: SpanMemory,
    pub(crate) folded: Arc<Folded>,
    /// It is dropped last, because it waits for all other owners of the folding half.
    life: Life,
}

impl Region {
    /// A region of `bytes` bytes, rounded up to a page, all zeros. No page is touched.
    ///
    /// # Errors
    ///
    /// [`RegionError`] if a size or limit is not valid, or if the system refuses something.
    pub fn map(
        pager: &Arc<Pager>,
        bytes: usize,
        config: &RegionConfig,
    ) -> Result<Region, RegionError> {
        let pages = Life::pages(pager, bytes)?;
        let (span, memory) = Span::reserve(&pager.shared.path, pages)?;
        let life = Life::begin(pager, span, config)?;
        Ok(Region { memory, folded: life.folded(), life })
    }

    /// Bytes, a multiple of 4096. Bytes that were given back count too.
    #[expect(clippy::len_without_is_empty, reason = "a region has at least one page")]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// All bytes.
    ///
    /// # Panics
    ///
    /// If part of the region was given back. [`Region::bytes`] returns an error instead.
    pub fn as_slice(&self) -> &[u8] {
        self.memory.bytes(0..self.len()).expect("the region is whole")
    }

    /// All bytes, writable.
    ///
    /// # Panics
    ///
    /// If part of the region was given back.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let len = self.len();
        self.memory.bytes_mut(0..len).expect("the region is whole")
    }

    /// The bytes of a range.
    ///
    /// # Errors
    ///
    /// [`RegionError::OutOfRange`] or [`RegionError::Unmapped`].
    pub fn bytes(&self, range: Range<usize>) -> Result<&[u8], RegionError> {
        let error = self.refusal(&range);
        self.memory.bytes(range).ok_or(error)
    }

    /// The bytes of a range, writable.
    ///
    /// # Errors
    ///
    /// Those of [`Region::bytes`].
    pub fn bytes_mut(&mut self, range: Range<usize>) -> Result<&mut [u8], RegionError> {
        let error = self.refusal(&range);
        self.memory.bytes_mut(range).ok_or(error)
    }

    /// The right to move the region's pages while its bytes are lent, from any thread.
    pub fn control(&self) -> RegionControl {
        RegionControl::of(&self.folded)
    }

    /// Keeps the pages of a range in memory while the result lives, so that system calls may use
    /// them.
    ///
    /// # Errors
    ///
    /// Those of [`Region::bytes`]. In addition, the system may refuse to watch the pages, or a page
    /// cannot be brought back.
    pub fn pin(&self, range: Range<usize>) -> Result<Pinned<'_>, RegionError> {
        self.bytes(range.clone())?;
        self.pinned(range)
    }

    /// As [`Region::pin`], and writable.
    ///
    /// # Errors
    ///
    /// Those of [`Region::pin`].
    pub fn pin_mut(&mut self, range: Range<usize>) -> Result<PinnedMut<'_>, RegionError> {
        self.bytes(range.clone())?;
        self.pinned_mut(range)
    }

    /// Forgets the content of a range (`MADV_DONTNEED`), so that it reads as zeros. Bounds are
    /// multiples of 4096.
    ///
    /// # Errors
    ///
    /// [`RegionError`] if the range is not valid, or if the system refuses. Nothing has changed
    /// then.
    pub fn discard(&mut self, range: Range<usize>) -> Result<(), RegionError> {
        let _call = begin_call();
        let pages = self.mapped(range)?;
        let Region { memory, folded, .. } = self;
        folded.discard(&pages, || Ok(memory.discard(pages.clone())?))
    }

    /// Gives a range back (`munmap`). It is no longer memory afterwards. Bounds are multiples of
    /// 4096.
    ///
    /// Each separate range takes two of the mappings that the pager's regions may make. Ranges that
    /// touch each other are one range.
    ///
    /// # Errors
    ///
    /// Those of [`Region::discard`], and [`RegionError::TooManyMappings`].
    pub fn unmap(&mut self, range: Range<usize>) -> Result<(), RegionError> {
        let _call = begin_call();
        let pages = self.mapped(range)?;
        self.folded.alone(|| {
            if !self.folded.chunks.runs().has_room() {
                return Err(RegionError::TooManyMappings {
                    max: self.folded.shared.mappings.max(),
                });
            }
            self.folded.add_chunks(&pages);
            // This comes first, so that a late fault does not find only some of the pages gone.
            self.folded.mark_gone(&pages, true);
            if let Err(error) = self.memory.unmap(pages.clone()) {
                self.folded.mark_gone(&pages, false);
                return Err(error.into());
            }
            self.folded.chunks.runs().gave_back(self.memory.gone_ranges());
            self.folded.forget(&pages);
            Ok(())
        })?
    }

    /// Sets how many bytes of the region may be in memory; `None` means all of them. The pager soon
    /// pages out what is over the limit.
    ///
    /// # Errors
    ///
    /// [`RegionError::LimitTooSmall`], or another error if the system refuses to watch the region.
    pub fn set_resident_limit(&self, bytes: Option<usize>) -> Result<(), RegionError> {
        let _call = begin_call();
        self.folded.limit_to(bytes.map(limit_pages).transpose()?)
    }

    /// Where the pages are, and what faults have cost.
    pub fn stats(&self) -> RegionStats {
        let _call = begin_call();
        self.folded.stats()
    }

    /// The store's statistics, if it is a zram device of the region's own.
    pub fn store_stat(&self) -> Option<zram::ZramStat> {
        let _call = begin_call();
        self.folded.store.zram().map(zram::Zram::stat)
    }

    /// What the tiers of its pages hold, if it has some.
    pub fn tier_stat(&self) -> Option<zram::TierStat> {
        let _call = begin_call();
        self.folded.store.zram().and_then(zram::Zram::tier_stat)
    }

    /// Ends the region. With [`Teardown::Range`] this returns in microseconds, whatever the size.
    pub fn teardown(mut self, teardown: Teardown) {
        self.life.teardown = teardown;
    }

    /// As [`Region::pin`], for a range that was checked, with elements of any type.
    pub(super) fn pinned<T: Pod>(&self, range: Range<usize>) -> Result<Pinned<'_, T>, RegionError> {
        Pinned::new(&self.folded, &self.memory, range)
    }

    /// As `pinned`, and writable.
    pub(super) fn pinned_mut<T: Pod>(
        &mut self,
        range: Range<usize>,
    ) -> Result<PinnedMut<'_, T>, RegionError> {
        PinnedMut::new(&self.folded, &mut self.memory, range)
    }

    pub(crate) fn memory_mut(&mut self) -> &mut SpanMemory {
        &mut self.memory
    }

    pub(crate) fn memory(&self) -> &SpanMemory {
        &self.memory
    }

    fn mapped(&self, range: Range<usize>) -> Result<Range<usize>, RegionError> {
        let pages = PageRange::whole(range.clone(), self.len())?;
        if self.memory.is_gone(&pages) {
            return Err(RegionError::Unmapped { start: range.start, end: range.end });
        }
        Ok(pages)
    }

    fn refusal(&self, range: &Range<usize>) -> RegionError {
        let (start, end, len) = (range.start, range.end, self.len());
        if start <= end && end <= len {
            RegionError::Unmapped { start, end }
        } else {
            RegionError::OutOfRange { start, end, len }
        }
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Region").field("range", &self.folded.span.range()).finish_non_exhaustive()
    }
}
