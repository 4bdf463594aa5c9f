//! The payload of zspages: the only file of this crate with `unsafe` in it.
//!
//! ```text
//!   arena  | frame | frame | frame |        a zspage of 3 frames, 7 objects of 1744 bytes
//!          | obj 0 | obj 1 | obj 2 | ...     object i at PFN * 4096 + i * size, never split:
//!                                            frames of a zspage are contiguous
//! ```
//!
//! Invariants the blocks below rest on
//! - I1 frames: the frames of a zspage were claimed from the arena by a `Run` token, which
//!   [`adopt`] turned into the PFN kept in the descriptor and [`surrender`] turns back once, when
//!   the zspage was unlinked from its class. In between nobody else can claim them.
//! - I2 slots: `Descriptor::take_lowest` gives a slot to one owner until `Descriptor::give`; both
//!   run under the class lock.
//! - I3 access: only the thread that stores an unpublished object knows it. A published object is
//!   read, moved and freed only under the lock of the cell that names it. For a handle, the mover
//!   alone locks. Readers borrow from the owner and have pinned the word, which keeps the mover
//!   out. The owner frees under the class lock, which keeps it out too.
//!
//! So no two threads ever access the bytes of one slot unless both only read, and the ranges below
//! are checked against the arena before a pointer is made.

use host::{Arena, PAGE_SIZE, Pfn, RawRun, Run};

use crate::numbers::{Place, Shape, Slot};

/// Keeps a run as the number of its first frame, in a descriptor.
pub(crate) fn adopt(run: Run) -> Pfn {
    run.into_raw().pfn
}

/// Gets the run of an unlinked zspage back as a token.
pub(crate) fn surrender(arena: &Arena, pfn: Pfn, frames: u32) -> Run {
    // SAFETY: by I1 `pfn` came from `adopt` of a run of as many frames (its class says how many),
    // and unlinking a zspage happens once, so the token is made once.
    unsafe { arena.run_from_raw(RawRun { pfn, frames }) }
}

/// Frames that the first `len` bytes of a slot lie in: first and last.
#[inline]
pub(crate) fn frames_of(shape: Shape, slot: Slot, len: usize) -> (Pfn, Pfn) {
    let start = usize::from(slot.object) * usize::from(shape.size);
    let first = start / PAGE_SIZE;
    let last = (start + len - 1) / PAGE_SIZE;
    (slot.pfn.plus(first as u32), slot.pfn.plus(last as u32))
}

/// The bytes of an object; the caller holds the lock of its cell, or has pinned its handle, for as
/// long as they are borrowed.
pub(crate) fn bytes(arena: &Arena, shape: Shape, place: Place) -> &[u8] {
    let len = usize::from(shape.size) - usize::from(place.slack());
    // SAFETY: `start` checked the range; by I3 nobody writes these bytes while the cell is locked
    // or pinned, and they were initialised by `fill` (or by zeroed memory) before it was published.
    unsafe { std::slice::from_raw_parts(start(arena, shape, place.slot(), len), len) }
}

/// Lets `fill` write an object that is not yet published.
#[inline]
pub(crate) fn fill(
    arena: &Arena,
    shape: Shape,
    slot: Slot,
    len: usize,
    fill: impl FnOnce(&mut [u8]),
) {
    // SAFETY: `start` checked the range; by I2 and I3 this thread alone knows the slot, and its
    // bytes are zeroed memory or those of an earlier object.
    fill(unsafe { std::slice::from_raw_parts_mut(start(arena, shape, slot, len), len) });
}

/// Starts loading the slot of an object that is about to be copied.
pub(crate) fn prefetch(arena: &Arena, shape: Shape, pfn: Pfn, object: usize) {
    let offset = pfn.index() * PAGE_SIZE + object * usize::from(shape.size);
    host::prefetch_bytes(arena.base().as_ptr().wrapping_add(offset), shape.size.into());
}

/// An object's place, with the shape of the zspage that it is in.
#[derive(Clone, Copy)]
pub(crate) struct Located {
    pub(crate) shape: Shape,
    pub(crate) place: Place,
}

impl Located {
    fn len(self) -> usize {
        usize::from(self.shape.size - self.place.slack())
    }

    fn start(self, arena: &Arena) -> *mut u8 {
        start(arena, self.shape, self.place.slot(), self.len())
    }
}

/// Has `write` copy an object from one place to another. The caller has just taken the other slot,
/// under the lock of its class. It holds the lock of the object's cell too, if the cell has one.
pub(crate) fn copy(
    arena: &Arena,
    from: Located,
    to: Located,
    write: impl FnOnce(&mut [u8], &[u8]),
) {
    assert!(from.len() == to.len(), "an object is as long wherever it is");
    let len = to.len();
    let (source, target) = (from.start(arena), to.start(arena));
    assert!(source != target, "an object moves to another slot");
    // SAFETY: `start` checked both ranges, which `len` does not leave; by I2 the slots are
    // different, so they do not overlap, and by I3 nobody writes the old one or touches the new.
    let (to, from) = unsafe {
        (std::slice::from_raw_parts_mut(target, len), std::slice::from_raw_parts(source, len))
    };
    write(to, from);
}

/// The start of a slot that holds `len` bytes. Panics if they do not lie in the slot, or if its
/// zspage does not lie in the arena: then the word is not one of ours.
#[inline]
fn start(arena: &Arena, shape: Shape, slot: Slot, len: usize) -> *mut u8 {
    assert!(u16::from(slot.object) < shape.objects, "object index within the zspage");
    assert!(len <= usize::from(shape.size), "an object is no longer than its slot");
    let end = u64::from(slot.pfn.get()) + u64::from(shape.frames);
    assert!(end <= u64::from(arena.frames()), "zspage within the arena");
    debug_assert!(
        usize::from(shape.objects) * usize::from(shape.size)
            <= usize::from(shape.frames) * PAGE_SIZE,
        "the slots of a zspage lie in its frames"
    );
    let offset = slot.pfn.index() * PAGE_SIZE + usize::from(slot.object) * usize::from(shape.size);
    // SAFETY: all slots of a shape lie in its frames, because `Shape::of` divides the frames' bytes
    // by the size. So the asserts keep offset + size within the arena's mapping, which lives as
    // long as the arena is borrowed.
    unsafe { arena.base().as_ptr().add(offset) }
}

/// Has the program lock a frame, which the system then does not take back, or unlock it.
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) fn lock_in_memory(arena: &Arena, pfn: Pfn, lock: bool) -> Result<(), rustix::io::Errno> {
    assert!(pfn.get() < arena.frames(), "a frame of the arena");
    let frame = arena.base().as_ptr().wrapping_add(pfn.index() * PAGE_SIZE).cast();
    // SAFETY: by the assertion the range is the arena's mapping, which is borrowed. Locking changes
    // no byte.
    unsafe {
        match lock {
            true => rustix::mm::mlock(frame, PAGE_SIZE),
            false => rustix::mm::munlock(frame, PAGE_SIZE),
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::numbers::ClassIndex;

    const FRAMES: u32 = 512;
    const SHAPE: Shape = Shape { size: 2720, frames: 2, objects: 3 };

    fn slot(pfn: u32, object: u8) -> Slot {
        Slot { pfn: Pfn::new(pfn), object }
    }

    /// Lends the bytes of a slot of an arena in which only the last two frames are claimed.
    fn lend(slot: Slot, len: usize) {
        let arena = Arena::reserve(FRAMES).expect("address space");
        let run = arena.claim(Pfn::new(FRAMES - 2), 2).expect("nobody has them");
        fill(&arena, SHAPE, slot, len, |bytes| bytes.fill(7));
        let slack = SHAPE.size - len as u16;
        let found = bytes(&arena, SHAPE, Place::new(slot, ClassIndex(0), slack));
        assert_eq!(found, vec![7; len]);
        arena.unclaim(run).expect("it was claimed");
    }

    #[test]
    fn the_last_zspage_of_an_arena_lies_in_it() {
        (0..3).for_each(|object| lend(slot(FRAMES - 2, object), SHAPE.size.into()));
    }

    #[test]
    #[should_panic(expected = "zspage within the arena")]
    fn a_zspage_of_which_the_arena_has_the_first_frame_alone_is_refused() {
        lend(slot(FRAMES - 1, 0), 100);
    }

    #[test]
    #[should_panic(expected = "zspage within the arena")]
    fn a_number_beyond_every_arena_is_refused() {
        lend(slot(u32::MAX, 0), 100);
    }

    #[test]
    #[should_panic(expected = "object index within the zspage")]
    fn a_slot_that_the_zspage_does_not_have_is_refused() {
        lend(slot(FRAMES - 2, 3), 100);
    }

    #[test]
    #[should_panic(expected = "an object is no longer than its slot")]
    fn a_length_that_runs_into_the_next_slot_is_refused() {
        lend(slot(FRAMES - 2, 0), usize::from(SHAPE.size) + 1);
    }
}
