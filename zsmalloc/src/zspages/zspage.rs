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

/// Has `write` copy an object from a place to another: to a slot that
/// the caller has just taken under its class's lock; the caller holds the lock of the object's
/// cell, if its cell has one.
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

/// Where a slot starts that holds `len` bytes. Panics when they do not lie in it, or it not in the
/// arena: the word is not one of ours.
#[inline]
fn start(arena: &Arena, shape: Shape, slot: Slot, len: usize) -> *mut u8 {
    assert!(u16::from(slot.object) < shape.objects, "object index within the zspage");
    assert!(len <= usize::from(shape.size), "an object is no longer than its slot");
    let end = u64::from(slot.pfn.get()) + u64::from(shape.frames);
    assert!(end <= u64::from(arena.frames()), "zspage within the arena");
    let offset = slot.pfn.index() * PAGE_SIZE + usize::from(slot.object) * usize::from(shape.size);
    // SAFETY: the asserts keep offset + size within the arena's mapping, which lives as long as
    // the arena is borrowed.
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
