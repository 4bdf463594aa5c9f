//! Making units of neighbouring pages that have been cold together.
//!
//! ```text
//!   run of 16 pages --look--> 4 or more are cold, or a unit wants to be made anew
//!                                   | marked PP
//!   pages of its unit, unpacked ----+--> pages in order --packed, nothing locked--> frame
//!   marked pages, decoded ----------'                                                 |
//!        not smaller by 1/16: left, and noted until one of them is used  <------------+
//!                                                                                     v
//!   each marked page: slot locked again, PP there: it names the unit  <-- pieces, word stored
//!                                        PP gone: it is dead in the unit from the start
//! ```
//!
//! A unit is made anew when the pages that may join it and the dead ones are more than an eighth of
//! its pages. If more than that is dead, and too few pages are left or it would not be smaller, its
//! pages get objects of their own again.
//!
//! Invariants
//! - I1 a page is replaced by its own content, in another form.
//! - I2 after a pass at most an eighth of the pages of a frame are dead. If there is no room for
//!   objects of their own, pages stay in a unit that is worse.
//!
//! Locks: `Settings::run`; a stream, and with it one cell or unit at a time. None while a unit is
//! packed.

use std::ops::{Range, RangeInclusive};

use codec::{Codec, CodecError, Stream, UnitPacker};
use disk::DiskError;
use host::{PAGE_SIZE, clock};

use super::candidates::{Candidate, Candidates, Kinds};
use super::rule::Rule;
use crate::cells::flags::{self, INCOMPRESSIBLE, PP, priority};
use crate::cells::totals::change;
use crate::cells::unit::{UNIT_PAGES, UNIT_PAGES_MIN, UnitState, bit_of, pages_of, unit_of};
use crate::cells::{Stored, Units, bump, stored};
use crate::device::Zram;
use crate::page::undecoded;
use crate::terms::{PostError, disk_error};

/// A unit has to be smaller than what it replaces by 1/this.
const SAVED_PART: u64 = 16;

/// An algorithm and its priority.
type Form<'z> = (u8, &'z Codec);

/// What a glance says of a run.
#[derive(Default)]
struct Run {
    unit: UnitState,
    /// Cold pages with objects of their own, which may join the unit.
    joining: u16,
    /// The second of their last use.
    newest: u32,
}

/// Makes units, in one slice of the pages.
pub(super) struct Packing<'z> {
    zram: &'z Zram,
    units: &'z Units,
    rule: &'z Rule,
    densest: Form<'z>,
    /// What pages get that have to leave a unit.
    apart: Form<'z>,
    now: u32,
    /// With the first unit that is packed.
    packer: Option<UnitPacker>,
    /// The pages of a run, each at its place in the run or one after the other.
    pages: Vec<u8>,
    counted_bytes: u64,
}

impl Drop for Packing<'_> {
    fn drop(&mut self) {
        self.count_bytes(0);
    }
}

impl<'z> Packing<'z> {
    pub(super) fn new(
        zram: &'z Zram,
        units: &'z Units,
        rule: &'z Rule,
        (densest, apart): (Form<'z>, Form<'z>),
    ) -> Packing<'z> {
        let (now, packer, pages, counted_bytes) = (clock::boot_seconds(), None, Vec::new(), 0);
        Packing { zram, units, rule, densest, apart, now, packer, pages, counted_bytes }
    }

    /// Works on the runs that begin in `pages`.
    pub(super) fn pack(&mut self, pages: Range<u64>) -> Result<(), PostError> {
        for number in pages.start.div_ceil(UNIT_PAGES)..pages.end.div_ceil(UNIT_PAGES) {
            // A page that is damaged is told by its next read. Without room it stays as it is.
            if let Err(DiskError::NoMemory) = self.tend_run(number) {
                return Err(PostError::NoMemory);
            }
        }
        Ok(())
    }

    fn tend_run(&mut self, number: u64) -> Result<(), DiskError> {
        let run = self.look(number).map_err(|_| DiskError::NoMemory)?;
        let is_too_dead = run.unit.is_too_dead();
        if (is_too_dead || self.is_worth_trying(number, &run)) && self.remake(number, &run)? {
            return Ok(());
        }
        if is_too_dead { self.part(number) } else { Ok(()) }
    }

    fn range_of(&self, number: u64) -> [RangeInclusive<u64>; 1] {
        let first = number * UNIT_PAGES;
        [first..=(first + UNIT_PAGES - 1).min(self.zram.pages() - 1)]
    }

    fn look(&self, number: u64) -> Result<Run, PostError> {
        let mut run = Run { unit: self.units.unit(number), ..Run::default() };
        let unit = run.unit;
        let range = self.range_of(number);
        self.zram.each_of(Kinds::Objects, &range, |candidate, _| {
            if self.may_join(unit, candidate) {
                run.joining |= bit_of(candidate.page);
                run.newest = run.newest.max(self.used(candidate.page));
            }
            Ok(())
        })?;
        Ok(run)
    }

    fn used(&self, page: u64) -> u32 {
        self.zram.ages().map_or(self.now, |ages| ages.of(page))
    }

    /// A huge page gains nothing. A page that is in the unit still, by a cell of a leaf that is yet
    /// to be drained, cannot join it.
    fn may_join(&self, unit: UnitState, page: &Candidate) -> bool {
        let unused = self.now.saturating_sub(self.used(page.page));
        let is_free = unit.live & bit_of(page.page) == 0 && page.bits & PP == 0;
        is_free && !page.is_huge() && self.rule.is_for_units(unused)
    }

    fn is_worth_trying(&self, number: u64, run: &Run) -> bool {
        let joining = run.joining.count_ones();
        let is_enough = match run.unit.exists() {
            true => run.unit.is_worth_remaking(joining),
            false => joining >= UNIT_PAGES_MIN,
        };
        is_enough && self.units.tried(number) != run.newest
    }

    /// Makes a unit of the pages that may join it and of those that it has. False if there is none
    /// that is worth it.
    fn remake(&mut self, number: u64, run: &Run) -> Result<bool, DiskError> {
        let (zram, unit) = (self.zram, run.unit);
        let wanted = |page: &Candidate| self.may_join(unit, page);
        let chosen = Candidates::choose(zram, &self.range_of(number), wanted);
        let mut chosen = chosen.map_err(|_| DiskError::NoMemory)?;
        let joining = std::iter::from_fn(|| chosen.pop()).fold(0, |mask, page| mask | bit_of(page));
        let made = self.remake_marked(number, run, joining);
        pages_of(number, joining).for_each(|page| zram.unmark_post(page));
        made
    }

    fn remake_marked(&mut self, number: u64, run: &Run, joining: u16) -> Result<bool, DiskError> {
        let gathered = self.zram.with_stream(|stream| self.gather(number, joining, stream));
        let Gathered { living, joining, cost_bytes } = gathered?;
        let members = living | joining;
        if members.count_ones() < UNIT_PAGES_MIN {
            return Ok(false);
        }
        self.close_up(members);
        self.prepare_packer()?;
        let Some(packer) = &mut self.packer else { return Ok(false) };
        let unit = &self.pages[..members.count_ones() as usize * PAGE_SIZE];
        // A unit that is too dead has to go, so it need not become much smaller.
        let least = if run.unit.is_too_dead() { 0 } else { cost_bytes / SAVED_PART };
        let pays = |frame: &[u8]| {
            let is_smaller = self.zram.frame_cost(frame.len()) + least <= cost_bytes;
            frame.len() <= Units::FRAME_MAX && is_smaller
        };
        // A codec that fails is no error.
        let Some(frame) = packer.pack(unit).ok().filter(|frame| pays(frame)) else {
            self.units.note_tried(number, run.newest);
            pages_of(number, joining).for_each(|page| self.settle(page));
            return Ok(false);
        };
        self.units.put(number, frame, (members, joining)).map_err(disk_error)?;
        pages_of(number, joining).for_each(|page| self.enter(page));
        Ok(true)
    }

    /// A page of pagelz that zstd makes little smaller with its neighbours is not tried alone.
    fn settle(&self, page: u64) {
        if let Some((mut slot, _)) = self.zram.lock_chosen(page)
            && priority(slot.client()) == self.apart.0
        {
            flags::set(&mut slot, INCOMPRESSIBLE);
        }
    }

    /// Has a page name the unit whose frame has it, if it was not used meanwhile.
    fn enter(&self, page: u64) {
        match self.zram.lock_chosen(page) {
            Some((mut slot, _)) => {
                let old = Stored::in_cell(&slot);
                stored::put_unit(&mut slot, self.densest.0, page);
                self.zram.replaced(&slot, old);
                bump(&self.zram.settings.tiering.denser, 1);
            }
            None => self.units.retire(page),
        }
    }

    /// Decodes the pages of a unit, and those that join it, each to its place in the run.
    fn gather(
        &mut self,
        number: u64,
        joining: u16,
        stream: &mut Stream,
    ) -> Result<Gathered, DiskError> {
        self.room()?;
        let living = self.gather_unit(number, stream)?;
        let mut gathered = Gathered { living: living.live, joining: 0, cost_bytes: 0 };
        gathered.cost_bytes += self.zram.frame_cost(living.len);
        for page in pages_of(number, joining & !living.live) {
            let to = &mut self.pages[place_in_run(page)];
            // A page that is damaged stays as it is, so that its next read tells.
            if let Some((slot, len)) = self.zram.lock_chosen(page)
                && self.zram.decode_object(page, &slot, stream, to).is_ok()
            {
                gathered.joining |= bit_of(page);
                gathered.cost_bytes += self.zram.class_cost(len);
            }
        }
        Ok(gathered)
    }

    fn gather_unit(&mut self, number: u64, stream: &mut Stream) -> Result<UnitState, DiskError> {
        let first = number * UNIT_PAGES;
        let unpacked = self.units.unpack(number, stream);
        let (unit, bytes) = unpacked.map_err(|error| undecoded(first, error))?;
        for page in pages_of(number, unit.live) {
            let from = unit.place_of(page).unwrap_or(0);
            self.pages[place_in_run(page)].copy_from_slice(&bytes[from..from + PAGE_SIZE]);
        }
        Ok(unit)
    }

    /// Moves the pages of a mask together.
    fn close_up(&mut self, mask: u16) {
        for (index, page) in pages_of(0, mask).enumerate() {
            self.pages.copy_within(place_in_run(page), index * PAGE_SIZE);
        }
    }

    fn room(&mut self) -> Result<(), DiskError> {
        let len = UNIT_PAGES as usize * PAGE_SIZE;
        if self.pages.is_empty() {
            self.pages.try_reserve_exact(len).map_err(|_| DiskError::NoMemory)?;
            self.pages.resize(len, 0);
            self.count_bytes(self.bytes());
        }
        Ok(())
    }

    fn prepare_packer(&mut self) -> Result<(), DiskError> {
        if self.packer.is_none() {
            let packer = self.densest.1.unit_packer();
            self.packer = Some(packer.map_err(|_: CodecError| DiskError::NoMemory)?);
            self.count_bytes(self.bytes());
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        let packer = self.packer.as_ref().map_or(0, UnitPacker::heap_bytes);
        (self.pages.capacity() + packer) as u64
    }

    fn count_bytes(&mut self, bytes: u64) {
        change(&self.zram.settings.tiering.packing_bytes, self.counted_bytes, bytes);
        self.counted_bytes = bytes;
    }

    /// Gives the pages of a unit objects of their own.
    fn part(&mut self, number: u64) -> Result<(), DiskError> {
        let _change = self.zram.counters.change();
        self.zram.with_stream(|stream| {
            self.room()?;
            let unit = self.gather_unit(number, stream)?;
            let mut pages = pages_of(number, unit.live);
            pages.try_for_each(|page| self.take_apart(page, stream))
        })
    }

    fn take_apart(&self, page: u64, stream: &mut Stream) -> Result<(), DiskError> {
        let (data, (priority, codec)) = (&self.pages[place_in_run(page)], self.apart);
        let blob = codec.compress(stream, data).ok().filter(|it| it.len() <= self.zram.watermark);
        let (priority, blob) = blob.map_or((0, data), |blob| (priority, blob));
        // It is longer than its share of the frame, so the limit applies.
        let object = self.zram.slots.pool.store(blob).map_err(disk_error)?;
        let Some(mut slot) = self.zram.slots.lock(page) else { return Ok(()) };
        let old = Stored::in_cell(&slot);
        // Only this post-processing puts pages in units, so it is the same content.
        if let Stored::Unit { .. } = old {
            stored::put_blob(&mut slot, priority, object);
            self.zram.replaced(&slot, old);
        }
        Ok(())
    }
}

/// Pages that were decoded for a unit.
struct Gathered {
    living: u16,
    joining: u16,
    /// Bytes that they take as they are.
    cost_bytes: u64,
}

/// Where a page of a run stands among all of its pages.
fn place_in_run(page: u64) -> Range<usize> {
    let start = (page - unit_of(page) * UNIT_PAGES) as usize * PAGE_SIZE;
    start..start + PAGE_SIZE
}

impl Zram {
    /// Bytes that a frame takes in objects of at most a page.
    fn frame_cost(&self, len: usize) -> u64 {
        let whole = (len / PAGE_SIZE * PAGE_SIZE) as u64;
        match len % PAGE_SIZE {
            0 => whole,
            rest => whole + self.class_cost(rest),
        }
    }
}
