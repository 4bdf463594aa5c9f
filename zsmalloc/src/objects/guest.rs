//! Guests: objects of a small pool in slots of larger classes, on frames that are touched already.
//!
//! ```text
//!   class 1560   | a | b |   |         its next slot would touch a frame
//!   class 1574   | c | d | e |   |     the next slot of this one would not: the object goes there
//! ```
//!
//! Each class in use has half a frame too much on average. In a pool of 512 frames and 150 classes
//! that is a seventh of it. So before an object of such a pool touches a frame, or needs a zspage,
//! the next larger classes are asked for a slot that touches none. A large pool has few such frames
//! for what it holds, and its objects are better off in slots that fit: there no object is a guest.
//!
//! Invariant: a guest leaves no more of its slot than an object may that joined a larger class.
//!
//! Locks: the larger class by trying, with no other held.

use host::sync::atomic::Ordering;

use super::object::Object;
use super::store::Reserved;
use crate::class::{Age, Class};
use crate::numbers::{CellNumber, Shape, Slot};
use crate::pool::Pool;
use crate::zspages::zspage;

/// Larger classes that are asked.
const REACH: usize = 2;
/// What a guest may leave of its slot: 1 / this.
const SLACK_DIVISOR: u16 = 32;

impl Pool {
    /// A slot of a larger class that touches no frame, where the pool is small; the entry is the
    /// slot's owner then.
    pub(crate) fn take_as_guest<'p>(
        &'p self,
        class: &'p Class,
        len: usize,
        entry: CellNumber,
    ) -> Option<(Slot, Age, &'p Class)> {
        // relaxed: a total, and what a few threads make of it together hardly matters.
        if self.counters.resident.load(Ordering::Relaxed) >= self.guests_below {
            return None;
        }
        let fits = |above: &&Class| leaves_little(above.shape, len);
        self.classes
            .after(self.position(class.index))
            .take(REACH)
            .take_while(fits)
            .find_map(|above| self.lodge(above, len, entry).map(|(slot, age)| (slot, age, above)))
    }

    /// The next slot of a class, where the object would touch no frame.
    fn lodge(&self, above: &Class, len: usize, entry: CellNumber) -> Option<(Slot, Age)> {
        let (mut state, of) = (above.try_lock()?, self.descriptors(above));
        let host = of.get(state.fullness.fullest_with_room()?);
        let (first, last) = zspage::frames_of(above.shape, host.slot(host.lowest_free()?), len);
        let arena = &self.memory.arena;
        let touched = arena.is_resident(first) && arena.is_resident(last);
        touched.then(|| state.take_slot(&of, entry)).flatten()
    }

    /// The same for an object that has a slot of its own class, which goes back.
    pub(crate) fn reserve_as_guest<'p>(
        &'p self,
        reserved: &mut Reserved<'p>,
        len: usize,
    ) -> Option<()> {
        let entry = reserved.object.entry;
        let (slot, age, class) = self.take_as_guest(reserved.class, len, entry)?;
        let object = Object { pool: self, place: class.place(slot, len), entry };
        let left = std::mem::replace(reserved, Reserved { object, age, class }).object;
        // It was never anybody's: nothing is to be compacted because of it.
        self.give_slot(left.into_place(), CellNumber::NONE);
        Some(())
    }
}

/// True where an object of `len` bytes fills a slot well enough.
fn leaves_little(shape: Shape, len: usize) -> bool {
    usize::from(shape.size) - len <= usize::from(shape.size / SLACK_DIVISOR)
}
