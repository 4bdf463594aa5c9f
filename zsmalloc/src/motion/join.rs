//! Sparse zspages of several classes become one.
//!
//! ```text
//!   class 1200   | a | b |   |   |   |            what merging leaves, one of each class
//!   class 1248   | c |   |   |   |   |
//!                  `-> b, a: slots of 1248 bytes
//!   class 1248   | c | a | b |   |   |
//! ```
//!
//! Each class that is in use has half a frame too much on average, however few its objects are. An
//! object's word says its class and how much of its slot it leaves, so a slot of a larger class
//! will do. As many objects go there as it takes for both classes to need fewer frames in all: the
//! objects of the whole zspage, or those that reach into its last frame. No zspage is built for it.
//!
//! Invariants
//! - I1 objects change their class under the locks of both, and the move is counted before either
//!   is given up (free I2).
//! - I2 an object that is not in the smallest class that holds it leaves an eighth of its slot at
//!   most, however often it moves.
//!
//! Locks: a class, then a larger one by trying; then cells by trying. With one lock for all classes
//! there is no second lock to take, and nothing is joined.

use host::PAGE_SIZE;

use crate::class::Class;
use crate::numbers::SLACK_BITS;
use crate::numbers::{SIZE_MAX, Shape};
use crate::pool::Leaving;
use crate::pool::Pool;
use crate::zspages::Zspage;

/// Larger classes that are looked at for each.
const REACH: usize = 8;
/// What an object may leave of the slot of a class larger than need be: 1 / this.
const SLACK_DIVISOR: u16 = 8;
const _: () = assert!(
    SIZE_MAX / SLACK_DIVISOR as usize <= 1 << SLACK_BITS,
    "what a joined object leaves fits its field"
);

/// Bytes that an object may leave of the slot of a class larger than need be.
pub(crate) const fn joined_slack_max(shape: Shape) -> u16 {
    shape.size / SLACK_DIVISOR
}

/// Frames that so many objects fill.
pub(crate) const fn frames_packed(shape: Shape, objects: usize) -> usize {
    (objects * shape.size as usize).div_ceil(PAGE_SIZE)
}

impl Pool {
    /// Moves what the sparse zspages hold to those of larger classes. Returns the frames freed.
    pub(crate) fn join(&self) -> u64 {
        let mut freed = 0;
        for (position, shards) in self.classes.each().enumerate() {
            let class = shards.first;
            let near = |above: &&Class| {
                above.shape.size - class.shape.size <= joined_slack_max(above.shape)
            };
            let larger = self.classes.each().skip(position + 1).take(REACH);
            let larger = larger.map(|shards| shards.first).take_while(near);
            let joined = larger.map(|above| self.join_to(class, above)).find(|&freed| freed > 0);
            freed += joined.unwrap_or(0);
        }
        freed
    }

    /// Moves objects of a class's sparse zspage to that of a larger class, as many as it takes for
    /// both to need fewer frames. Returns the frames freed. The frames of a zspage that keeps some
    /// of its objects are freed when it is packed.
    fn join_to(&self, class: &Class, above: &Class) -> u64 {
        let mut moving = self.lock_moving(class);
        let Some(mut theirs) = above.try_lock() else { return 0 };
        let Some(&source) = moving.fullness.partial(class.layout()).last() else { return 0 };
        let Some(&target) = theirs.fullness.partial(above.layout()).first() else { return 0 };
        let of = self.descriptors(class);
        let zspage = of.get(source);
        let (here, there) = (zspage.in_use(), self.descriptors(above).header(target).in_use());
        let room = usize::from(above.shape.objects) - there;
        let frames = |moves: usize| {
            frames_packed(class.shape, here - moves) + frames_packed(above.shape, there + moves)
        };
        let fewest = (1..=here.min(room)).min_by_key(|&moves| frames(moves));
        let Some(moves) = fewest.filter(|&moves| frames(moves) < frames(0)) else { return 0 };
        let mut moved = 0;
        for object in zspage.used_slots().rev().take(moves) {
            let from = zspage.slot(object);
            moved += usize::from(self.move_object(above, &mut theirs, (zspage, from), target));
        }
        self.count_move();
        let emptied =
            moved > 0 && moving.note_given(&of, Zspage { id: source, header: *zspage }, moved);
        let mut leaving = Leaving::NONE;
        if emptied {
            leaving.push(&self.memory, source);
        }
        drop((theirs, moving));
        self.release_zspages(leaving);
        u64::from(emptied) * u64::from(class.shape.frames)
    }
}
