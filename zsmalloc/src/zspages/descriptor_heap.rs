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
//! Both tables are cut into as many parts as there are CPUs, four at most. The descriptors of a
//! shard are in one part, so that two CPUs neither write to items on one cache line nor wait for
//! each other.
//!
//! Invariant: a header in use names a body in use, of the same part.
//!
//! Lock: a leaf lock for each part, one at a time.

use std::ops::Range;
use std::sync::Arc;

use host::{FailureInjector, HostError, Lock, Rank};

use super::descriptor::body_words;
use super::descriptor::{BODY_WORDS_MAX, BODY_WORDS_MIN, DescriptorId};
use super::descriptor::{HEADER_WORDS, Header, Headers};
use super::slabs::{self, SLAB_WORDS, Slabs};
use crate::numbers::AllocError;
use crate::numbers::{CLASSES, Shape};

/// Frames per slab of bodies: 64 bytes a frame, enough when the objects of a full arena average 300
/// bytes. An arena is larger than memory, and shorter objects need fewer frames.
const FRAMES_PER_SLAB: usize = 32;
/// Headers in a slab.
const HEADERS: usize = SLAB_WORDS / HEADER_WORDS; // 128
const _: () = assert!(BODY_WORDS_MAX <= SLAB_WORDS, "the longest body fits a slab");

/// Parts at most.
const PARTS_MAX: usize = 4;

/// All descriptors of one memory.
pub(crate) struct DescriptorHeap {
    headers: Slabs<HEADER_WORDS>,
    bodies: Slabs<1>,
    parts: Box<[Part]>,
}

/// On cache lines of its own.
#[repr(align(128))]
struct Part(Lock<State>);

struct State {
    headers: slabs::State,
    bodies: slabs::State,
}

impl Part {
    fn new(part: usize) -> Part {
        let headers = slabs::State::new(part, HEADERS);
        let bodies = slabs::State::new(part, SLAB_WORDS / BODY_WORDS_MIN);
        Part(Lock::new(Rank::Leaf, State { headers, bodies }))
    }
}

impl DescriptorHeap {
    /// Room for the descriptors of an arena of so many frames; nothing is touched yet.
    pub(crate) fn reserve(
        frames: u32,
        faults: Option<Arc<FailureInjector>>,
    ) -> Result<DescriptorHeap, HostError> {
        let (headers, bodies) = slabs_for(frames as usize);
        let parts = if cfg!(loom) { 1 } else { host::cpu::count().min(PARTS_MAX) };
        Ok(DescriptorHeap {
            headers: Slabs::reserve(headers, parts, faults.clone())?,
            bodies: Slabs::reserve(bodies, parts, faults)?,
            parts: (0..parts).map(Part::new).collect(),
        })
    }

    /// A descriptor for a zspage of this shape, made by a shard. Its words are not cleared; only
    /// the number of its body is set. If the shard's part is full, it is of another part.
    pub(crate) fn alloc(&self, shape: Shape, shard: usize) -> Result<DescriptorId, AllocError> {
        let count = self.parts.len();
        let mut found = self.alloc_in(shard % count, shape);
        for turn in 1..count {
            found = found.or_else(|_| self.alloc_in((shard + turn) % count, shape));
        }
        found
    }

    fn alloc_in(&self, part: usize, shape: Shape) -> Result<DescriptorId, AllocError> {
        let state = &mut *self.parts[part].0.lock();
        let body = self.bodies.alloc(&mut state.bodies, body_words(shape))?;
        match self.headers.alloc(&mut state.headers, 1) {
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

    /// Gives descriptors back: those of one part in a row under one hold of its lock.
    pub(crate) fn free(&self, ids: &[DescriptorId]) {
        for same in ids.chunk_by(|&a, &b| self.part_of(a) == self.part_of(b)) {
            let state = &mut *self.parts[self.part_of(same[0])].0.lock();
            for &id in same {
                self.bodies.free(&mut state.bodies, self.header(id).body());
                self.headers.free(&mut state.headers, id.0);
            }
        }
    }

    /// Returns pages without a descriptor to the system.
    pub(crate) fn release(&self) {
        for part in &self.parts {
            let state = &mut *part.0.lock();
            self.headers.give_back(&mut state.headers);
            self.bodies.give_back(&mut state.bodies);
        }
    }

    /// Keeps a descriptor, and its neighbours, from being freed or handed out.
    pub(crate) fn hold(&self, id: DescriptorId) -> impl Sized + '_ {
        self.parts[self.part_of(id)].0.lock()
    }

    #[inline]
    fn part_of(&self, id: DescriptorId) -> usize {
        self.headers.part_of(id.0)
    }

    /// What all descriptors begin with.
    #[inline]
    pub(crate) fn header(&self, id: DescriptorId) -> Header<'_> {
        self.headers().get(id)
    }

    /// What each descriptor begins with.
    #[inline]
    pub(crate) fn headers(&self) -> Headers<'_> {
        Headers { words: self.headers.units(), bodies: self.bodies.units().as_flattened() }
    }

    /// Bytes held: touched pages, and what is kept about them.
    pub(crate) fn held_bytes(&self) -> u64 {
        let lists = |part: &Part| {
            let state = part.0.lock();
            state.headers.heap_bytes() + state.bodies.heap_bytes()
        };
        let lists: u64 = self.parts.iter().map(lists).sum();
        let parts = size_of_val(&*self.parts) as u64;
        self.headers.held_bytes() + self.bodies.held_bytes() + lists + parts
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

/// Slabs of headers and of bodies in a part, enough for an arena of so many frames.
fn slabs_for(frames: usize) -> (usize, usize) {
    // A partly filled slab for each class comes on top, also in a small arena. Under loom each word
    // costs, in every interleaving: one slab of headers, and bodies of three lengths.
    match cfg!(loom) {
        true => (1, 3),
        false => (frames.div_ceil(HEADERS) + 1, frames.div_ceil(FRAMES_PER_SLAB) + CLASSES),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::descriptor::Descriptor;
    use super::*;
    use crate::numbers::OBJECTS_MAX;
    use crate::numbers::SHARDS_MAX;
    use host::Pfn;

    #[test]
    fn a_descriptor_costs_its_words_and_nothing_is_lost() {
        let shape = Shape { size: 3264, frames: 4, objects: 5 };
        let heap = DescriptorHeap::reserve(512, None).expect("address space");
        for _ in 0..3 {
            let mut ids = Vec::new();
            while let Ok(id) = heap.alloc(shape, ids.len() % SHARDS_MAX) {
                let zspage = Descriptor::new(heap.header(id), shape);
                zspage.reset(Pfn::new(ids.len() as u32), 0, 7);
                ids.push(id);
            }
            assert!(ids.len() >= 512, "a zspage for every frame: {}", ids.len());
            for (number, &id) in ids.iter().enumerate() {
                assert_eq!(heap.header(id).pfn(), Pfn::new(number as u32));
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
