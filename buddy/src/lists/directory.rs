//! Which pageblocks are online, and the way from a frame number to its metadata.
//!
//! A vector of pointers, as long as the highest pageblock that is online requires: pageblocks come
//! online lowest first, so memory follows what is online and not what could be.
//!
//! Invariants
//!
//! * D1: an entry is filled exactly when its pageblock is online.
//! * D2: the last entry is filled: a pageblock past the end is offline.
//! * D3: `online` is the number of filled entries, and the published count of each type the
//!   number of those whose pageblock has it.
//! * D4: every entry below `holes_from` is filled.

use super::pageblock::{BoxedPageblock, LINKED, Links, Pageblock};
use super::published::Published;
use crate::numbers::{
    AllocError, Arc, Kind, Migratetype, PAGEBLOCK_FRAMES, PageblockIndex, Pfn, Role, State, Used,
    ZoneDefect,
};

/// The metadata of the online pageblocks.
pub(crate) struct Directory {
    entries: Vec<Option<BoxedPageblock>>,
    online: u32,
    holes_from: u32,
    pageblocks_max: u32,
    counts: Arc<Published>,
}

impl Directory {
    /// Nothing online, and never more than the whole pageblocks among `frames_max` frames. How
    /// many there are of each type is published in `counts`.
    pub(crate) fn new(frames_max: u32, counts: Arc<Published>) -> Directory {
        let pageblocks_max = frames_max / PAGEBLOCK_FRAMES;
        Directory { entries: Vec::new(), online: 0, holes_from: 0, pageblocks_max, counts }
    }

    pub(crate) fn contains(&self, index: PageblockIndex) -> bool {
        index.get() < self.pageblocks_max
    }

    pub(crate) fn pageblocks_max(&self) -> u32 {
        self.pageblocks_max
    }

    pub(crate) fn online(&self) -> u32 {
        self.online
    }

    pub(crate) fn is_online(&self, index: PageblockIndex) -> bool {
        self.get(index).is_some()
    }

    /// The online pageblocks, lowest first.
    pub(crate) fn iter_online(&self) -> impl Iterator<Item = PageblockIndex> {
        let filled = self.entries.iter().enumerate().filter(|(_, entry)| entry.is_some());
        filled.map(|(index, _)| PageblockIndex::new(index as u32))
    }

    /// The lowest pageblock that is not online, if the zone has one.
    pub(crate) fn lowest_offline(&mut self) -> Option<PageblockIndex> {
        let from = self.holes_from as usize;
        let online = self.entries[from..].iter().take_while(|entry| entry.is_some()).count();
        self.holes_from += online as u32;
        (self.holes_from < self.pageblocks_max).then(|| PageblockIndex::new(self.holes_from))
    }

    /// How many entries the vector has: every pageblock from here on is offline.
    pub(crate) fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Gives an offline pageblock of the zone its metadata. Its frames are inner afterwards.
    pub(crate) fn insert(
        &mut self,
        index: PageblockIndex,
        migratetype: Migratetype,
    ) -> Result<(), AllocError> {
        debug_assert!(self.contains(index), "{index} is beyond the zone");
        debug_assert!(!self.is_online(index), "{index} is online already");
        let len = self.entries.len().max(index.index() + 1);
        let more = len - self.entries.len();
        self.entries.try_reserve(more).map_err(|_| AllocError::NoMetadata)?;
        let pageblock = Pageblock::boxed(migratetype).ok_or(AllocError::NoMetadata)?;
        self.entries.resize_with(len, || None);
        self.entries[index.index()] = Some(pageblock);
        self.online += 1;
        self.counts.pageblock_added(migratetype);
        Ok(())
    }

    /// Drops the metadata of an online pageblock. Memory for the pointers stays with the vector.
    pub(crate) fn remove(&mut self, index: PageblockIndex) {
        self.counts.pageblock_taken(self.migratetype(index));
        self.entries[index.index()] = None;
        self.online -= 1;
        self.holes_from = self.holes_from.min(index.get());
        while let Some(None) = self.entries.last() {
            self.entries.pop();
        }
    }

    /// Bytes of heap behind this directory.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Option<BoxedPageblock>>()
            + self.online as usize * size_of::<Pageblock>()
    }

    pub(crate) fn migratetype(&self, index: PageblockIndex) -> Migratetype {
        self.of(index).migratetype
    }

    pub(crate) fn set_migratetype(&mut self, index: PageblockIndex, migratetype: Migratetype) {
        let before = std::mem::replace(&mut self.of_mut(index).migratetype, migratetype);
        if before != migratetype {
            self.counts.pageblock_taken(before);
            self.counts.pageblock_added(migratetype);
        }
    }

    /// The role of a frame: none if it is offline or its state byte has no meaning.
    pub(crate) fn role(&self, pfn: Pfn) -> Option<Role> {
        self.state(pfn)?.role()
    }

    /// The state byte of a frame: none if it is offline.
    pub(crate) fn state(&self, pfn: Pfn) -> Option<State> {
        Some(self.get(pfn.pageblock())?.states[pfn.offset()])
    }

    pub(crate) fn set_state(&mut self, pfn: Pfn, state: State) {
        self.of_mut(pfn.pageblock()).states[pfn.offset()] = state;
    }

    /// The links of a free head.
    pub(crate) fn links(&self, pfn: Pfn) -> Links {
        self.of(pfn.pageblock()).links[pfn.offset() / LINKED]
    }

    /// As [`Directory::links`].
    pub(crate) fn links_mut(&mut self, pfn: Pfn) -> &mut Links {
        &mut self.of_mut(pfn.pageblock()).links[pfn.offset() / LINKED]
    }

    /// The length of the run whose head is `pfn`.
    pub(crate) fn run_frames(&self, pfn: Pfn) -> u32 {
        let pageblock = self.of(pfn.pageblock());
        match pageblock.states[pfn.offset()].is_single() {
            true => 1,
            false => pageblock.links[pfn.offset() / LINKED].prev,
        }
    }

    /// Makes `pfn` the head of a run, asked for as `migratetype`.
    pub(crate) fn set_allocated(&mut self, pfn: Pfn, frames: u32, migratetype: Migratetype) {
        let (kind, inside) = (Kind::of(migratetype), frames_inside(pfn, frames));
        let pageblock = self.of_mut(pfn.pageblock());
        pageblock.states[pfn.offset()] = State::allocated(migratetype, frames);
        if frames > 1 {
            pageblock.links[pfn.offset() / LINKED].prev = frames;
        }
        pageblock.used.add(kind, inside);
        if frames > inside {
            self.of_mut(pfn.plus(inside).pageblock()).used.add(kind, frames - inside);
        }
    }

    /// Undoes `set_allocated`: the head is inner afterwards.
    pub(crate) fn clear_allocated(&mut self, pfn: Pfn, frames: u32, migratetype: Migratetype) {
        let (kind, inside) = (Kind::of(migratetype), frames_inside(pfn, frames));
        let pageblock = self.of_mut(pfn.pageblock());
        pageblock.states[pfn.offset()] = State::INNER;
        pageblock.used.sub(kind, inside);
        if frames > inside {
            self.of_mut(pfn.plus(inside).pageblock()).used.sub(kind, frames - inside);
        }
    }

    /// Frames of an online pageblock that are in runs.
    pub(crate) fn used(&self, index: PageblockIndex) -> Used {
        self.of(index).used
    }

    /// The type of an online pageblock, even while it is isolated.
    pub(crate) fn own_type(&self, index: PageblockIndex) -> Migratetype {
        let pageblock = self.of(index);
        match pageblock.migratetype {
            Migratetype::Isolate => pageblock.before,
            own => own,
        }
    }

    /// Remembers the type of a pageblock that is about to be isolated.
    pub(crate) fn keep_type(&mut self, index: PageblockIndex) {
        let pageblock = self.of_mut(index);
        pageblock.before = pageblock.migratetype;
    }

    /// Recounts D2, D3 and D4; D1 is a matter of the type.
    pub(crate) fn check(&self) -> Result<(), ZoneDefect> {
        let (counted, recorded) = (self.iter_online().count() as u32, self.online);
        let end = self.entries.last().is_none_or(Option::is_some);
        let filled = self.entries.iter().take_while(|entry| entry.is_some()).count();
        if counted != recorded || !end || filled < self.holes_from as usize {
            return Err(ZoneDefect::Directory { counted, recorded });
        }
        self.check_types()?;
        match self.iter_online().last().filter(|index| !self.contains(*index)) {
            Some(beyond) => Err(ZoneDefect::BeyondTheZone(beyond)),
            None => Ok(()),
        }
    }

    /// Recounts the second half of D3.
    fn check_types(&self) -> Result<(), ZoneDefect> {
        let mut counted = [0; Migratetype::COUNT];
        self.iter_online().for_each(|index| counted[self.migratetype(index).index()] += 1);
        for (migratetype, counted) in Migratetype::ALL.into_iter().zip(counted) {
            let recorded = self.counts.pageblocks(migratetype);
            if counted != recorded {
                return Err(ZoneDefect::PageblockCount { migratetype, counted, recorded });
            }
        }
        Ok(())
    }

    fn get(&self, index: PageblockIndex) -> Option<&Pageblock> {
        self.entries.get(index.index())?.as_ref().map(|boxed| &boxed[0])
    }

    fn of(&self, index: PageblockIndex) -> &Pageblock {
        self.get(index).expect("D1: frames on lists and in runs are online")
    }

    fn of_mut(&mut self, index: PageblockIndex) -> &mut Pageblock {
        let entry = self.entries.get_mut(index.index()).and_then(Option::as_mut);
        &mut entry.expect("D1: frames on lists and in runs are online")[0]
    }
}

/// How many frames of a run lie in the pageblock of its head.
fn frames_inside(pfn: Pfn, frames: u32) -> u32 {
    frames.min(PAGEBLOCK_FRAMES - pfn.offset() as u32)
}
