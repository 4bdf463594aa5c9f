//! A reserved, zeroed, lazily touched array whose elements never move and never change type.
//!
//! ```text
//!    entries    | 0 1 2 ... | ... 511 512 | ...                         len - 1 |
//!    pages      |     0     |     1       |      2      |         ...           |   4096 bytes
//!    held             1            0             1                ...               one bit a page
//! ```
//!
//! Invariants
//! - T1: an entry is zero until a thread stores to it, and again after its page is discarded.
//! - T2: `held_bytes` is 4096 times the number of held bits. It changes by the bits that changed.
//! - T3: no entry lies on two pages, because its size divides 4096.
//!
//! Callers keep two rules. They touch an entry before its first store; otherwise its page is in
//! memory and in no counter. They discard only entries that no thread relies on. A reader with a
//! stale index may look at an entry at any moment and sees zero. Elements are therefore atomics
//! ([`Zeroed`]).
//!
//! A table in steps ([`Table::in_steps`]) is for owners that hand out parts, and has a third rule:
//! they open an entry before they touch it. An entry that is not open reads as zero. A store to it,
//! or an exchange even if it fails, ends the process. So in a program that locks its memory, the
//! system fills only the parts of such a table that are in use.
//!
//! Lock: that of the steps, to open entries.

use super::bits::{mask_of, spans, word_of, words_for};
use super::error::{HostDefect, HostError};
use super::faults::{FailureInjector, Operation, guard};
use super::mapping::Access;
use super::zeroed::Zeroed;
use crate::machine::PAGE_SIZE;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::ops::{Index, Range};
use std::sync::Arc;
use store::Store;

/// An array of `len` entries in memory from the system. The module has a picture, and the rules for
/// callers.
#[derive(Debug)]
pub struct Table<T: Zeroed> {
    store: Store<T>,
    held: Box<[AtomicU64]>,
    held_pages: AtomicU64,
    faults: Option<Arc<FailureInjector>>,
}

impl<T: Zeroed> Table<T> {
    /// Entries on a page.
    pub const PER_PAGE: usize = {
        assert!(T::BYTES > 0, "an entry has a size");
        assert!(PAGE_SIZE.is_multiple_of(T::BYTES), "T3: an entry's size divides the page");
        PAGE_SIZE / T::BYTES
    };

    /// Reserves address space for `len` entries, at least one. It takes one bit of heap for each
    /// page, and no other memory.
    ///
    /// # Errors
    ///
    /// [`HostError::Size`] if `len` is out of range; [`HostError::Reserve`] if the system refuses.
    pub fn reserve(len: usize) -> Result<Table<T>, HostError> {
        Table::build(len, Access::Open, None)
    }

    /// The same as [`Table::with_faults`], for a table whose parts are opened by [`Table::open`]
    /// when they are taken into use.
    ///
    /// # Errors
    ///
    /// Those of [`Table::with_faults`].
    pub fn in_steps(
        len: usize,
        faults: impl Into<Option<Arc<FailureInjector>>>,
    ) -> Result<Table<T>, HostError> {
        Table::build(len, Access::Zeros, faults.into())
    }

    /// The same as [`Table::reserve`], for a table whose operations `faults` can make fail.
    ///
    /// # Errors
    ///
    /// Those of [`Table::reserve`], and [`HostError::Injected`].
    pub fn with_faults(
        len: usize,
        faults: impl Into<Option<Arc<FailureInjector>>>,
    ) -> Result<Table<T>, HostError> {
        Table::build(len, Access::Open, faults.into())
    }

    /// Asks whether a part that was not in use may be taken into use. Owners that hand out parts
    /// call it.
    ///
    /// # Errors
    ///
    /// [`HostError::Injected`] if an injector says so, and no other.
    pub fn extend(&self) -> Result<(), HostError> {
        guard(self.faults.as_deref(), Operation::Extend)
    }

    /// Opens `entries` of a table in steps. They may be touched from now on, and stay open.
    ///
    /// # Errors
    ///
    /// [`HostError::Open`] if the system refuses. Nothing has changed then.
    ///
    /// # Panics
    ///
    /// If the table has no such entries: a broken caller.
    #[inline]
    pub fn open(&self, entries: Range<usize>) -> Result<(), HostError> {
        assert!(entries.end <= self.len(), "entries {entries:?} lie past the table");
        self.store.open(entries.start / Self::PER_PAGE..entries.end.div_ceil(Self::PER_PAGE))
    }

    fn build(
        len: usize,
        access: Access,
        faults: Option<Arc<FailureInjector>>,
    ) -> Result<Table<T>, HostError> {
        let max = isize::MAX as usize / T::BYTES - 2 * Self::PER_PAGE;
        if len == 0 || len > max {
            return Err(HostError::Size { len: len as u64, max: max as u64 });
        }
        guard(faults.as_deref(), Operation::Reserve)?;
        let store = Store::reserve(len, access)?;
        let words = words_for(len.div_ceil(Self::PER_PAGE));
        let held = (0..words).map(|_| AtomicU64::new(0)).collect();
        Ok(Table { store, held, held_pages: AtomicU64::new(0), faults })
    }

    /// Entries in the table.
    #[expect(clippy::len_without_is_empty, reason = "a table has at least one entry")]
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Entry `index`; `None` if there is no such entry.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.store.get(index)
    }

    /// Entries `entries` as a slice.
    ///
    /// # Panics
    ///
    /// If the table has no such entries: a broken caller.
    #[inline]
    pub fn slice(&self, entries: Range<usize>) -> &[T] {
        assert!(entries.start <= entries.end && entries.end <= self.len(), "entries in the table");
        self.store.slice(entries)
    }

    /// The addresses of the table, for measuring the memory that it takes. Empty if nothing is
    /// mapped.
    pub fn range(&self) -> Range<usize> {
        self.store.range()
    }

    /// Bytes of the pages that are held: those that were touched and not discarded since.
    pub fn held_bytes(&self) -> u64 {
        // relaxed: one independent number, exact while no thread is touching or discarding.
        self.held_pages.load(Ordering::Relaxed) * PAGE_SIZE as u64
    }

    /// Bytes of heap that the held bits take.
    pub fn heap_bytes(&self) -> u64 {
        size_of_val(&*self.held) as u64
    }

    /// Records that `entries` are about to be stored to: their pages are held from now on.
    ///
    /// # Panics
    ///
    /// If the table has no such entries, or they are not open: a broken caller.
    #[inline]
    pub fn touch(&self, entries: Range<usize>) {
        assert!(entries.end <= self.len(), "entries {entries:?} lie past the table");
        if entries.is_empty() {
            return;
        }
        let (first, last) = (entries.start / Self::PER_PAGE, (entries.end - 1) / Self::PER_PAGE);
        if first == last {
            // This is the usual case.
            return self.touch_word(word_of(first), mask_of(first));
        }
        self.touch_pages(first..last + 1);
    }

    /// Separate from [`Table::touch`], which mostly is one look.
    #[inline(never)]
    fn touch_pages(&self, pages: Range<usize>) {
        spans(pages.start, pages.end).for_each(|(word, mask)| self.touch_word(word, mask));
    }

    #[inline]
    fn touch_word(&self, word: usize, mask: u64) {
        // relaxed: a bit that is seen set says only that its page is counted.
        if self.held[word].load(Ordering::Relaxed) & mask != mask {
            self.hold(word, mask);
        }
    }

    #[cold]
    #[inline(never)]
    fn hold(&self, word: usize, mask: u64) {
        assert!(self.store.is_open(word, mask), "an entry is opened before it is touched");
        // relaxed: a bit of accounting; what an entry publishes, its own stores order.
        let before = self.held[word].fetch_or(mask, Ordering::Relaxed);
        let news = u64::from((mask & !before).count_ones());
        // relaxed: an independent sum of bits that changed (T2).
        self.held_pages.fetch_add(news, Ordering::Relaxed);
    }

    /// Returns the pages that lie wholly inside `entries` to the system, and gives the number of
    /// bytes that were held there. Entries on them are zero from now on.
    ///
    /// # Errors
    ///
    /// [`HostError::Advise`] if the system refuses, and [`HostError::Injected`]. Nothing is counted
    /// as returned then.
    ///
    /// # Panics
    ///
    /// If the table has no such entries: a broken caller.
    pub fn discard(&self, entries: Range<usize>) -> Result<u64, HostError> {
        assert!(entries.end <= self.len(), "entries {entries:?} lie past the table");
        guard(self.faults.as_deref(), Operation::Discard)?;
        let pages = self.whole_pages(entries);
        self.store.discard(pages.clone())?;
        let release = |(word, mask): (usize, u64)| {
            // relaxed: a bit of accounting, as in `hold`.
            let before = self.held[word].fetch_and(!mask, Ordering::Relaxed);
            u64::from((before & mask).count_ones())
        };
        let released: u64 = spans(pages.start, pages.end).map(release).sum();
        // relaxed: an independent sum of bits that changed (T2).
        self.held_pages.fetch_sub(released, Ordering::Relaxed);
        Ok(released * PAGE_SIZE as u64)
    }

    /// The pages whose entries are all in `entries`. The last page may be short.
    fn whole_pages(&self, entries: Range<usize>) -> Range<usize> {
        let start = entries.start.div_ceil(Self::PER_PAGE);
        let end = if entries.end == self.len() {
            entries.end.div_ceil(Self::PER_PAGE)
        } else {
            entries.end / Self::PER_PAGE
        };
        start..end.max(start)
    }

    /// The entries on pages that are held, with their indices. All others are zero.
    pub fn held(&self) -> impl Iterator<Item = (usize, &T)> {
        let width = u64::BITS as usize;
        let held = move |page: &usize| {
            // relaxed: a bit of accounting, as in `hold`.
            self.held[page / width].load(Ordering::Relaxed) >> (page % width) & 1 == 1
        };
        let pages = (0..self.len().div_ceil(Self::PER_PAGE)).filter(held);
        let entries = pages.flat_map(|page| page * Self::PER_PAGE..(page + 1) * Self::PER_PAGE);
        entries.filter_map(|index| Some((index, self.get(index)?)))
    }

    /// Recounts the held bits and compares them with the counter (T2). Call it while no other
    /// thread uses the table.
    ///
    /// # Errors
    ///
    /// [`HostDefect`]: what does not agree.
    pub fn check(&self) -> Result<(), HostDefect> {
        self.store.check()?;
        // relaxed: the caller has brought the table to rest.
        let bits = |word: &AtomicU64| u64::from(word.load(Ordering::Relaxed).count_ones());
        let counted: u64 = self.held.iter().map(bits).sum::<u64>() * PAGE_SIZE as u64;
        match self.held_bytes() {
            held if held == counted => Ok(()),
            held => Err(HostDefect(format!("T2: held_bytes says {held}, the bits say {counted}"))),
        }
    }
}

impl<T: Zeroed> Index<usize> for Table<T> {
    type Output = T;

    /// # Panics
    ///
    /// If the table has no such entry: a broken caller.
    #[inline]
    fn index(&self, index: usize) -> &T {
        match self.get(index) {
            Some(entry) => entry,
            None => lies_past(index, self.len()),
        }
    }
}

/// Out of line, so that the index need not be put in memory for the message.
#[cold]
#[inline(never)]
fn lies_past(index: usize, len: usize) -> ! {
    panic!("entry {index} lies past the table's {len}")
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod damage;

/// Entries in a mapping.
#[cfg(not(loom))]
mod store {
    use crate::locks::Rank;
    use crate::machine::PAGE_SIZE;
    use crate::memory::error::{HostDefect, HostError};
    use crate::memory::mapping::{Access, Core, Mapping};
    use crate::memory::steps::{PROCESS, Steps};
    use crate::memory::zeroed::Zeroed;
    use std::marker::PhantomData;
    use std::ops::Range;

    /// A step of a table.
    const STEP_PAGES: usize = 16; // 64 KiB

    #[derive(Debug)]
    pub(super) struct Store<T> {
        mapping: Mapping,
        /// `None` if all of it is open.
        steps: Option<Steps>,
        len: usize,
        entries: PhantomData<T>,
    }

    impl<T: Zeroed> Store<T> {
        pub(super) fn reserve(len: usize, access: Access) -> Result<Store<T>, HostError> {
            const { assert!(size_of::<T>() == T::BYTES, "Zeroed::BYTES is the size") };
            const { assert!(align_of::<T>() <= PAGE_SIZE, "a mapping is page-aligned") };
            let pages = len.div_ceil(super::Table::<T>::PER_PAGE);
            let access = if pages > STEP_PAGES { access } else { Access::Open };
            let mapping = Mapping::reserve(pages, access, Core::LeftOut)?;
            let in_steps = access != Access::Open;
            let steps = in_steps.then(|| Steps::new(pages, STEP_PAGES, Rank::Entries, &PROCESS));
            let store = Store { mapping, steps, len, entries: PhantomData };
            // Entry 0 is always open, because 0 often means "no entry", and code looks there all
            // the same.
            store.open(0..1)?;
            Ok(store)
        }

        #[inline]
        pub(super) fn open(&self, pages: Range<usize>) -> Result<(), HostError> {
            match &self.steps {
                Some(steps) if !steps.is_open(&pages) => self.open_in(steps, &pages),
                _ => Ok(()),
            }
        }

        #[cold]
        fn open_in(&self, steps: &Steps, pages: &Range<usize>) -> Result<(), HostError> {
            let bytes = (pages.len() * PAGE_SIZE) as u64;
            let opened = steps.open(pages, |pages| self.mapping.open(pages));
            opened.map_err(|source| HostError::Open { bytes, source })
        }

        /// Whether pages of a word of held bits are open.
        pub(super) fn is_open(&self, word: usize, mask: u64) -> bool {
            let width = u64::BITS as usize;
            let (first, end) = (mask.trailing_zeros(), u64::BITS - mask.leading_zeros());
            let pages = word * width + first as usize..word * width + end as usize;
            self.steps.as_ref().is_none_or(|steps| steps.is_open(&pages))
        }

        pub(super) fn check(&self) -> Result<(), HostDefect> {
            self.steps.as_ref().map_or(Ok(()), Steps::check)
        }

        pub(super) fn len(&self) -> usize {
            self.len
        }

        pub(super) fn range(&self) -> Range<usize> {
            self.mapping.range()
        }

        #[inline]
        pub(super) fn get(&self, index: usize) -> Option<&T> {
            if index >= self.len {
                return None;
            }
            // SAFETY: the mapping holds `len` entries (M1). It is page-aligned and so aligned for
            // T. Its bytes are zero or what was stored through `&T`, and `Zeroed` allows both.
            Some(unsafe { self.mapping.base().cast::<T>().add(index).as_ref() })
        }

        #[inline]
        pub(super) fn slice(&self, entries: Range<usize>) -> &[T] {
            // SAFETY: as in `get`; `Table::slice` checked the range against the length.
            unsafe {
                let first = self.mapping.base().cast::<T>().add(entries.start);
                std::slice::from_raw_parts(first.as_ptr(), entries.len())
            }
        }

        #[cfg(not(miri))]
        pub(super) fn discard(&self, pages: Range<usize>) -> Result<(), HostError> {
            // SAFETY: the pages hold entries only, and those are accessed atomically (`Zeroed`).
            unsafe { self.mapping.discard(pages) }
        }

        /// Stores zeros atomically. Miri would call the plain zeroing of the stand-in a race.
        #[cfg(miri)]
        pub(super) fn discard(&self, pages: Range<usize>) -> Result<(), HostError> {
            let per_page = super::Table::<T>::PER_PAGE;
            let entries = pages.start * per_page..(pages.end * per_page).min(self.len);
            entries.filter_map(|index| self.get(index)).for_each(T::clear);
            Ok(())
        }
    }
}

/// Entries in a boxed slice, because loom's atomics have to be constructed.
#[cfg(loom)]
mod store {
    use crate::memory::error::{HostDefect, HostError};
    use crate::memory::mapping::Access;
    use crate::memory::zeroed::Zeroed;
    use std::ops::Range;

    #[derive(Debug)]
    pub(super) struct Store<T>(Box<[T]>);

    impl<T: Zeroed> Store<T> {
        pub(super) fn reserve(len: usize, _: Access) -> Result<Store<T>, HostError> {
            Ok(Store((0..len).map(|_| T::zero()).collect()))
        }

        pub(super) fn open(&self, _: Range<usize>) -> Result<(), HostError> {
            Ok(())
        }

        pub(super) fn is_open(&self, _: usize, _: u64) -> bool {
            true
        }

        pub(super) fn check(&self) -> Result<(), HostDefect> {
            Ok(())
        }

        pub(super) fn len(&self) -> usize {
            self.0.len()
        }

        pub(super) fn range(&self) -> Range<usize> {
            0..0
        }

        pub(super) fn get(&self, index: usize) -> Option<&T> {
            self.0.get(index)
        }

        pub(super) fn slice(&self, entries: Range<usize>) -> &[T] {
            &self.0[entries]
        }

        pub(super) fn discard(&self, pages: Range<usize>) -> Result<(), HostError> {
            let per_page = super::Table::<T>::PER_PAGE;
            let entries = pages.start * per_page..(pages.end * per_page).min(self.len());
            entries.filter_map(|index| self.get(index)).for_each(T::clear);
            Ok(())
        }
    }
}
