//! Where descriptors live: headers in one table, what follows them in another.
//!
//! ```text
//!   headers   | 0 | 1 | 2 | 3 | ...        16 bytes each, four on a cache line
//!               |       `--------.
//!   bodies    | PFN, owners | PFN, owners, owners, ... |           of different lengths
//! ```
//!
//! A free needs the header alone: objects are freed in any order, and with headers side by side the
//! cache has those of four times as many zspages.
//!
//! Invariant: a header in use names a body in use.
//!
//! Lock: one leaf lock; zspages come and go far less often than objects.

use std::ops::Range;
use std::sync::Arc;

use host::{FailureInjector, HostError, Lock, Rank};

use crate::descriptor::body_words;
use crate::descriptor::{BODY_WORDS_MAX, BODY_WORDS_MIN, Descriptor, DescriptorId};
use crate::descriptor::{HEADER_WORDS, Header};
use crate::error::AllocError;
use crate::geometry::{CLASSES, Shape};
use crate::pool::SHARDS_MAX;
use crate::slabs::{self, SLAB_WORDS, Slabs};

/// Frames per slab of bodies: 64 bytes a frame, enough when the objects of a full arena average 300
/// bytes. An arena is larger than memory, and shorter objects need fewer frames.
const FRAMES_PER_SLAB: usize = 32;
/// Headers in a slab.
const HEADERS: usize = SLAB_WORDS / HEADER_WORDS;
const _: () = assert!(BODY_WORDS_MAX <= SLAB_WORDS, "the longest body fits a slab");

/// All descriptors of one memory.
pub(crate) struct DescriptorHeap {
    headers: Slabs<HEADER_WORDS>,
    bodies: Slabs<1>,
    state: Lock<State>,
}

/// Apart from the tables, which every operation reads.
#[repr(align(128))]
struct State {
    headers: slabs::State,
    bodies: slabs::State,
}

impl DescriptorHeap {
    /// Room for the descriptors of an arena of so many frames; nothing is touched yet.
    pub(crate) fn reserve(
        frames: u32,
        faults: Option<Arc<FailureInjector>>,
    ) -> Result<DescriptorHeap, HostError> {
        let (headers, bodies) = slabs_for(frames as usize);
        Ok(DescriptorHeap {
            headers: Slabs::reserve(headers, faults.clone())?,
            bodies: Slabs::reserve(bodies, faults)?,
            state: Lock::new(
                Rank::Leaf,
                State {
                    headers: slabs::State::new(HEADERS),
                    bodies: slabs::State::new(SLAB_WORDS / BODY_WORDS_MIN),
                },
            ),
        })
    }

    /// A descriptor for a zspage of this shape, made by a shard; its words hold whatever they held,
    /// but for the number of its body.
    pub(crate) fn alloc(&self, shape: Shape, shard: usize) -> Result<DescriptorId, AllocError> {
        let mut state = self.state.lock();
        let body = self.bodies.alloc(&mut state.bodies, body_words(shape), shard)?;
        match self.headers.alloc(&mut state.headers, 1, shard) {
            Ok(number) => {
                self.header(DescriptorId(number)).set_body(body);
                Ok(DescriptorId(number))
            }
            Err(error) => {
                self.bodies.free(&mut state.bodies, body);
                Err(error)
            }
        }
    }

    /// Gives descriptors back.
    pub(crate) fn free(&self, ids: &[DescriptorId]) {
        let state = &mut *self.state.lock();
        for &id in ids {
            self.bodies.free(&mut state.bodies, self.header(id).body());
            self.headers.free(&mut state.headers, id.0);
        }
    }

    /// Returns pages without a descriptor to the system.
    pub(crate) fn release(&self) {
        let state = &mut *self.state.lock();
        self.headers.give_back(&mut state.headers);
        self.bodies.give_back(&mut state.bodies);
    }

    /// Keeps every descriptor from being freed or handed out.
    pub(crate) fn hold(&self) -> impl Sized + '_ {
        self.state.lock()
    }

    /// The descriptor `id` of a zspage of this shape.
    #[inline]
    pub(crate) fn get(&self, id: DescriptorId, shape: Shape) -> Descriptor<'_> {
        Descriptor::new(self.header(id), shape)
    }

    /// What all descriptors begin with.
    #[inline]
    pub(crate) fn header(&self, id: DescriptorId) -> Header<'_> {
        Header::new(self.headers.unit(id.0), &self.bodies)
    }

    /// Bytes held: touched pages, and what is kept about them.
    pub(crate) fn held_bytes(&self) -> u64 {
        let state = self.state.lock();
        self.headers.held_bytes(&state.headers) + self.bodies.held_bytes(&state.bodies)
    }

    /// The part of [`DescriptorHeap::held_bytes`] that lies in the tables.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.headers.mapped_bytes() + self.bodies.mapped_bytes()
    }

    /// The address ranges reserved for descriptors.
    pub(crate) fn ranges(&self) -> [Range<usize>; 2] {
        [self.headers.range(), self.bodies.range()]
    }
}

/// Slabs of headers and of bodies for an arena of so many frames.
fn slabs_for(frames: usize) -> (usize, usize) {
    // A partly filled slab for each class of each shard comes on top, also in a small arena. Under
    // loom each word costs.
    const KINDS: usize = CLASSES * SHARDS_MAX;
    match cfg!(loom) {
        true => (4, 16),
        false => (frames.div_ceil(HEADERS) + SHARDS_MAX, frames.div_ceil(FRAMES_PER_SLAB) + KINDS),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::geometry::OBJECTS_MAX;

    #[test]
    fn a_descriptor_costs_its_words_and_nothing_is_lost() {
        let shape = Shape { size: 3264, frames: 4, objects: 5 };
        let heap = DescriptorHeap::reserve(512, None).expect("address space");
        for _ in 0..3 {
            let mut ids = Vec::new();
            while let Ok(id) = heap.alloc(shape, ids.len() % SHARDS_MAX) {
                let zspage = heap.get(id, shape);
                zspage.reset(ids.len() as u32, 0, 7);
                ids.push(id);
            }
            assert!(ids.len() >= 512, "a zspage for every frame: {}", ids.len());
            for (number, &id) in ids.iter().enumerate() {
                assert_eq!(heap.header(id).pfn(), number as u32);
            }
            heap.free(&ids);
        }
    }

    /// One object of every class in every shard, as far as the smallest arena has frames.
    #[test]
    fn a_small_arena_has_descriptors_for_every_class_of_every_shard() {
        let chain = crate::ChainSize::from_order(4).expect("order 4 is a chain size");
        let geometry = crate::Geometry::new(crate::Rule::LeastWaste, chain);
        let shapes = || geometry.classes().map(|class| geometry.shape(class));
        let pairs = || (0..SHARDS_MAX).flat_map(|shard| shapes().map(move |shape| (shape, shard)));
        // Whichever come first: those of few frames, of many, or of many objects.
        let keys: [fn(&Shape) -> u16; 3] =
            [|s| s.frames.into(), |s| 16 - u16::from(s.frames), |s| OBJECTS_MAX as u16 - s.objects];
        for key in keys {
            let heap = DescriptorHeap::reserve(512, None).expect("address space");
            let (mut left, mut all) = (512, pairs().collect::<Vec<_>>());
            all.sort_by_key(|(shape, _)| key(shape));
            for (shape, shard) in all {
                if let Some(after) = u32::checked_sub(left, shape.frames.into()) {
                    left = after;
                    heap.alloc(shape, shard).expect("a descriptor for every frame");
                }
            }
            assert_eq!(left, 0, "every frame is used");
        }
    }
}
