//! One pass over the pages of a device, each of which goes to the tier where it should be.
//!
//! ```text
//!   512 pages --rule--> chosen --> decoded under its slot's lock --> compressed, nothing locked
//!       ^                                                                    |
//!       '--- next, in a later turn <-- slot locked again <-- stored <--------'
//!                                      PP gone: it is used, and left as it is
//!   before: runs of cold pages become units, see `pack`
//! ```
//!
//! If balanced, a page is compressed twice: by pagelz, and by the first algorithm with a longer
//! search. The rule says which of them is stored.
//!
//! Marks: a page that was tried and did not go to pagelz is idle, which any use clears. A page that
//! nothing makes smaller is incompressible, until it is written.
//!
//! Invariant: a page is replaced by its own content, in another form. It becomes denser only if it
//! gets into a smaller size class.
//!
//! Locks: `Settings::run` for a slice of the pages; a stream, and with it one cell at a time.

use std::ops::Range;

use codec::{Algorithm, Codec};
use disk::DiskError;
use host::{PAGE_SIZE, clock};
use zsmalloc::Object;

use super::bench::Bench;
use super::candidates::{Candidate, Candidates, Kinds};
use super::pack::Packing;
use super::rule::{Form, Look, Rule, Step};
use crate::cells::flags::{self, IDLE, INCOMPRESSIBLE, PP, priority};
use crate::cells::totals::change;
use crate::cells::{Stored, bump, read, stored};
use crate::device::{Generation, Zram};
use crate::terms::{PRIORITIES, PostError, TiersConfig, disk_error};

/// Pages of a slice: those of a leaf.
pub(super) const SLICE_PAGES: u64 = 512;
/// A pool is compacted after a pass if 1/this of its pages became denser since the last time.
const COMPACT_PART: u64 = 32;

/// What came of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slice {
    /// The next slice begins at this page.
    Next(u64),
    /// It was the last of the pass.
    Last,
    /// Nothing was done, because pages are about to become denser and tables may be trained first.
    Train,
}

/// How a slice is worked on.
struct Tender<'z> {
    zram: &'z Zram,
    rule: Rule,
    latest: Generation,
    /// The algorithm of the coldest pages, if dense; what searches in a dictionary, if balanced and
    /// it has one.
    densest: Option<(u8, &'z Codec)>,
    now: u32,
}

/// The work of [`Zram::tend`] a slice at a time, for an owner that has other work in between.
#[derive(Debug)]
pub struct Tending {
    rule: Rule,
    page: u64,
    /// Tables are yet to be trained.
    train: bool,
}

impl Tending {
    /// Begins with the first page.
    pub fn begin(config: &TiersConfig) -> Tending {
        Tending { rule: Rule::new(config), page: 0, train: true }
    }

    /// Works on some pages, or trains tables. False if it has worked on all pages.
    ///
    /// # Errors
    ///
    /// Those of [`Zram::tend`].
    pub fn go_on(&mut self, device: &Zram) -> Result<bool, PostError> {
        if device.ages().is_none() {
            return Err(PostError::Invalid("the device does not note when pages are used"));
        }
        match device.tend_slice(&self.rule, self.page..self.page + SLICE_PAGES, self.train)? {
            Slice::Train => {
                self.train = false;
                device.train()?;
            }
            Slice::Next(next) => self.page = next,
            Slice::Last => return Ok(false),
        }
        Ok(true)
    }
}

impl Zram {
    /// Brings every page to the tier where it should be, at once and however long it takes. A
    /// [`Tiers`](super::Tiers) does this by itself. Tables are trained first, if there are enough
    /// pages.
    ///
    /// # Errors
    ///
    /// [`PostError::NoMemory`], and [`PostError::Invalid`] if the device does not note ages.
    pub fn tend(&self, config: &TiersConfig) -> Result<(), PostError> {
        let mut tending = Tending::begin(config);
        while tending.go_on(self)? {}
        Ok(())
    }

    /// Works on the pages of a slice, or on as many after it if they are absent. With `train` it
    /// stops before any page becomes denser.
    pub(super) fn tend_slice(
        &self,
        rule: &Rule,
        pages: Range<u64>,
        train: bool,
    ) -> Result<Slice, PostError> {
        let Some(start) = self.next_present(pages.start) else { return Ok(self.end_pass()) };
        let end = (start + (pages.end - pages.start)).min(self.pages());
        let _one = self.settings.run();
        let Some(tender) = Tender::new(self, rule) else { return Ok(Slice::Last) };
        let range = [start..=end - 1];
        let is_wanted = |candidate: &Candidate| {
            let step = tender.step(candidate);
            !matches!(step, Step::Leave | Step::WriteBack)
        };
        if train && !Candidates::choose(self, &range, is_wanted)?.is_empty() {
            return Ok(Slice::Train);
        }
        tender.pack(start..end)?;
        let mut chosen = Candidates::choose(self, &range, is_wanted)?;
        let mut bench = Bench::new(self);
        while let Some(page) = chosen.pop() {
            let tended = tender.tend(&mut bench, page).inspect_err(|_| self.unmark_post(page));
            // A page that is damaged is told by its next read. Without room it stays as it is.
            if let Err(DiskError::NoMemory) = tended {
                return Err(PostError::NoMemory);
            }
        }
        drop((chosen, bench));
        self.write_back_old(&tender, range)?;
        Ok(if end == self.pages() { self.end_pass_in_turn() } else { Slice::Next(end) })
    }

    fn end_pass(&self) -> Slice {
        let _one = self.settings.run();
        self.end_pass_in_turn()
    }

    fn end_pass_in_turn(&self) -> Slice {
        self.retire_unused();
        self.compact_after_pass();
        Slice::Last
    }

    /// Pages that became denser left holes. A pool whose pages are read may never rest, because
    /// reads take pages out of units, so its worker would not compact it.
    fn compact_after_pass(&self) {
        let tiering = &self.settings.tiering;
        let (denser, before) = (read(&tiering.denser), read(&tiering.compacted_at));
        if (denser - before) * COMPACT_PART > self.objects() {
            self.slots.pool.compact();
            change(&tiering.compacted_at, before, denser);
        }
    }

    /// The first page from `page` on that may hold something.
    fn next_present(&self, mut page: u64) -> Option<u64> {
        while page < self.pages() {
            match self.slots.absent(page) {
                0 => return Some(page),
                absent => page += absent,
            }
        }
        None
    }

    fn write_back_old(
        &self,
        tender: &Tender<'_>,
        range: [std::ops::RangeInclusive<u64>; 1],
    ) -> Result<(), PostError> {
        let Some(backing) = &self.values.backing else { return Ok(()) };
        let is_old = |candidate: &Candidate| tender.step(candidate) == Step::WriteBack;
        let chosen = Candidates::choose_of(self, Kinds::ObjectsAndUnits, &range, is_old)?;
        if !chosen.is_empty() {
            // A disk that is full or fails is a trouble of its own, which is counted and told.
            let _ = self.write_chosen(backing, chosen, u64::MAX, || true);
        }
        Ok(())
    }

    /// The latest generation of tables, with the shipped ones as the first. `None` if every
    /// priority has an algorithm.
    fn latest_generation(&self) -> Option<Generation> {
        self.generations.latest().or_else(|| {
            let priority = (1..PRIORITIES as u8).find(|&it| self.codec(it).is_none())?;
            let codec = Codec::new(codec::Algorithm::Pagelz);
            self.generations.add(Generation { priority, number: 0, codec });
            self.generations.latest()
        })
    }
}

impl<'z> Tender<'z> {
    fn new(zram: &'z Zram, rule: &Rule) -> Option<Tender<'z>> {
        let latest = zram.latest_generation()?;
        let is_wanted = |(_, codec): &(u8, &Codec)| match rule.has_search() {
            true => codec.algorithm() == Algorithm::Lz4hc && !codec.is_learning(),
            false => rule.has_densest(),
        };
        let densest = zram.config.configured_densest().filter(is_wanted);
        // Without a disk, pages that would go there are to become as dense as they can.
        let rule = rule.with_disk(zram.values.backing.is_some());
        Some(Tender { zram, rule, latest, densest, now: clock::boot_seconds() })
    }

    /// Makes units of the runs that begin in `pages`, if the density has them.
    fn pack(&self, pages: Range<u64>) -> Result<(), PostError> {
        let (Some(to), Some(units)) = (self.densest, &self.zram.values.units) else {
            return Ok(());
        };
        let latest = (self.latest.priority, &self.latest.codec);
        Packing::new(self.zram, units, &self.rule, (to, latest)).pack(pages)
    }

    /// What is to be done with a page that was chosen.
    fn step(&self, page: &Candidate) -> Step {
        let Some(ages) = self.zram.ages() else { return Step::Leave };
        self.rule.step(&Look {
            form: self.form(priority(page.bits)),
            len: page.len,
            unused_seconds: self.now.saturating_sub(ages.of(page.page)),
            gap_seconds: ages.gap_of(page.page),
            tried: page.is_idle(),
            settled: page.bits & INCOMPRESSIBLE != 0,
        })
    }

    fn form(&self, of: u8) -> Form {
        match of {
            0 => Form::First,
            _ if of == self.latest.priority => Form::Latest,
            _ if self.rule.has_search() && self.densest.is_some_and(|it| it.0 == of) => {
                Form::Searched
            }
            _ if self.zram.config.has_priority(of) => Form::Densest,
            _ => Form::Older,
        }
    }

    /// Does what is to be done with a page that has the mark.
    fn tend(&self, bench: &mut Bench<'_>, page: u64) -> Result<(), DiskError> {
        let mut data = [0; PAGE_SIZE];
        let Some((step, len)) = self.look_at(page, &mut data)? else { return Ok(()) };
        let tiering = &self.zram.settings.tiering;
        match step {
            Step::Faster => {
                let put = self.put(bench, page, &data, (0, &self.zram.config.algorithm))?;
                bump(&tiering.faster, put.into());
            }
            Step::Renew => {
                let put = self.put(bench, page, &data, self.latest())?;
                bump(&tiering.renewed, put.into());
            }
            Step::Denser if self.rule.has_search() => {
                self.worth_its_time(bench, page, (&data, len))?;
            }
            Step::Denser => {
                let blob = bench.compress(self.latest().1, page, &data);
                self.put_denser(page, (blob, len), (self.latest.priority, 0), IDLE)?;
            }
            Step::Densest => self.densest(bench, page, (&data, len))?,
            Step::Leave | Step::WriteBack => self.zram.unmark_post(page),
        }
        Ok(())
    }

    /// Decodes a page that has the mark. Gives what is to be done with it, and its length.
    fn look_at(&self, page: u64, data: &mut [u8]) -> Result<Option<(Step, usize)>, DiskError> {
        self.zram.with_stream(|stream| {
            let Some((slot, len)) = self.zram.lock_chosen(page) else { return Ok(None) };
            let step = self.step(&Candidate { page, len, bits: slot.client() });
            self.zram.decode_object(page, &slot, stream, data)?;
            Ok(Some((step, len)))
        })
    }

    /// pagelz with the latest tables, and its priority.
    fn latest(&self) -> (u8, &Codec) {
        (self.latest.priority, &self.latest.codec)
    }

    /// Stores a page with another algorithm, whether it is smaller or not. False if it stays.
    fn put(
        &self,
        bench: &mut Bench<'_>,
        page: u64,
        data: &[u8],
        (priority, codec): (u8, &Codec),
    ) -> Result<bool, DiskError> {
        let blob = bench.compress(codec, page, data).filter(|it| it.len() <= self.zram.watermark);
        let (blob, priority) = match blob {
            Some(blob) => (blob, priority),
            // Raw, as a write would leave it.
            None => (data, 0),
        };
        // It may be larger than before, so the limit applies.
        let object = self.zram.slots.pool.store(blob).map_err(disk_error)?;
        Ok(self.replace(page, (priority, 0), object))
    }

    /// Puts an object in a page's place, with some marks, if the page was not used meanwhile.
    fn replace<'p>(&'p self, page: u64, (priority, marks): (u8, u8), object: Object<'p>) -> bool {
        let Some((mut slot, _)) = self.zram.lock_chosen(page) else { return false };
        let old = Stored::in_cell(&slot);
        stored::put_blob(&mut slot, priority, object);
        flags::set(&mut slot, marks);
        self.zram.replaced(&slot, old);
        true
    }

    /// Puts a blob in a page's place, with some marks, if that gets it into a smaller class.
    /// Otherwise the page gets a mark, so that it is not tried again.
    fn put_denser(
        &self,
        page: u64,
        (blob, len): (Option<&[u8]>, usize),
        form: (u8, u8),
        otherwise: u8,
    ) -> Result<(), DiskError> {
        match blob {
            Some(blob) if self.zram.is_smaller(blob.len(), len, 0) => {
                // A longer object is freed in return, so the limit does not apply to this one.
                let object = self.zram.slots.pool.store_past_limit(blob).map_err(disk_error)?;
                let put = self.replace(page, form, object);
                bump(&self.zram.settings.tiering.denser, put.into());
            }
            _ => self.mark(page, otherwise),
        }
        Ok(())
    }

    /// pagelz, if that saves so much that reads may take longer. Otherwise the first algorithm with
    /// a longer search, in a dictionary if there is one, and a mark that the page was tried.
    fn worth_its_time(
        &self,
        bench: &mut Bench<'_>,
        page: u64,
        (data, len): (&[u8], usize),
    ) -> Result<(), DiskError> {
        let mut room = [0; PAGE_SIZE];
        let (priority, search) = match self.densest {
            Some((priority, codec)) => (priority, Some(codec.clone())),
            None => (0, self.zram.config.algorithm.searched()),
        };
        let searched = search.and_then(|codec| bench.compress(&codec, page, data));
        let searched = searched.and_then(|blob| copied(blob, &mut room));
        let cost = |len| self.zram.class_cost(len);
        let by_search = cost(searched.map_or(len, |blob| blob.len().min(len)));
        let saves = |blob: &&[u8]| self.rule.saves_enough(cost(blob.len()), by_search);
        let blob = bench.compress(self.latest().1, page, data);
        // With other tables, or if dense, pagelz may be taken yet.
        let is_smaller = blob.is_some_and(|blob| self.zram.is_smaller(blob.len(), len, 0));
        let otherwise = if is_smaller { IDLE } else { INCOMPRESSIBLE };
        match blob.filter(saves) {
            Some(_) => self.put_denser(page, (blob, len), (self.latest.priority, 0), otherwise),
            None => self.put_denser(page, (searched, len), (priority, IDLE), otherwise),
        }
    }

    /// The densest algorithm or pagelz, whichever is smaller: a page of the first algorithm that
    /// was not tried with pagelz is, and the other form has to be smaller than that.
    fn densest(
        &self,
        bench: &mut Bench<'_>,
        page: u64,
        (data, len): (&[u8], usize),
    ) -> Result<(), DiskError> {
        let mut room = [0; PAGE_SIZE];
        let by_pagelz = bench.compress(self.latest().1, page, data);
        let by_pagelz = by_pagelz.and_then(|blob| copied(blob, &mut room));
        let least = by_pagelz.map_or(PAGE_SIZE, <[u8]>::len);
        if let Some((priority, codec)) = self.densest
            && let Some(blob) = bench.compress(codec, page, data)
            && self.zram.is_smaller(blob.len(), least, 0)
        {
            return self.put_denser(page, (Some(blob), len), (priority, 0), INCOMPRESSIBLE);
        }
        self.put_denser(page, (by_pagelz, len), (self.latest.priority, 0), INCOMPRESSIBLE)
    }

    fn mark(&self, page: u64, bits: u8) {
        if let Some((mut slot, _)) = self.zram.lock_chosen(page) {
            flags::clear(&mut slot, PP);
            flags::set(&mut slot, bits);
        }
    }
}

/// A blob in another room, while the next one is made. `None` if it is longer than a page.
fn copied<'r>(blob: &[u8], room: &'r mut [u8; PAGE_SIZE]) -> Option<&'r [u8]> {
    let to = room.get_mut(..blob.len())?;
    to.copy_from_slice(blob);
    Some(to)
}
