//! What a store pays for a blob.
//!
//! ```text
//!   blob of a page     its share of a zspage: frames * 4096 / objects, and metadata
//!   longer than that   a frame of its own, and metadata
//!   blob of a unit     whole frames, and a class for the rest
//!
//!   metadata           a cell and a reference back for each object; a descriptor for each zspage,
//!                      and a number for each of its frames
//! ```
//!
//! The share is that of a full zspage. What is lost in zspages that are not full is a matter of the
//! workload, and compaction takes most of it back.
//!
//! Invariant: no page costs more than a frame and its metadata. Locks: none.

use crate::pages::PAGE_SIZE;
use zsmalloc::{ChainSize, Geometry, Rule};

/// Bytes of a cell and of a reference back.
const OBJECT_METADATA: f64 = 12.0;
/// Bytes of a zspage's descriptor, and of the number of each frame.
const ZSPAGE_METADATA: f64 = 28.0;
const FRAME_METADATA: f64 = 4.0;
/// The default chain: at most eight frames.
const CHAIN_ORDER: u32 = 3;

/// The cost of blobs of any length.
pub(super) struct Cost(Geometry);

impl Cost {
    pub(super) fn new() -> Self {
        let chain = ChainSize::from_order(CHAIN_ORDER).expect("an order of a chain");
        Self(Geometry::new(Rule::LeastWaste, chain))
    }

    /// The longest blob that is not stored as a page in a frame of its own.
    pub(super) fn longest(&self) -> usize {
        self.0.huge_watermark()
    }

    /// What `len` bytes cost, of which each whole frame has its own.
    pub(super) fn of(&self, len: usize) -> f64 {
        let (frames, rest) = (len / PAGE_SIZE, len % PAGE_SIZE);
        let whole =
            frames as f64 * (PAGE_SIZE as f64 + OBJECT_METADATA + ZSPAGE_METADATA + FRAME_METADATA);
        whole + if rest == 0 { 0.0 } else { self.of_rest(rest) }
    }

    fn of_rest(&self, len: usize) -> f64 {
        let Some(class) = self.0.class_of(len).filter(|_| len <= self.longest()) else {
            return self.of(PAGE_SIZE);
        };
        let shape = self.0.shape(class);
        let (frames, objects) = (f64::from(shape.frames), f64::from(shape.objects));
        let zspage = frames * (PAGE_SIZE as f64 + FRAME_METADATA) + ZSPAGE_METADATA;
        zspage / objects + OBJECT_METADATA
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_grow_with_lengths_and_end_with_a_frame() {
        let cost = Cost::new();
        let costs: Vec<f64> = (1..=PAGE_SIZE).map(|len| cost.of(len)).collect();
        assert!(costs.windows(2).all(|pair| pair[0] <= pair[1] + 3.0), "classes grow");
        assert!(costs.iter().enumerate().all(|(at, &cost)| cost > at as f64 + 1.0));
        assert_eq!(cost.of(3633), cost.of(PAGE_SIZE));
        assert_eq!(cost.of(2 * PAGE_SIZE + 100), 2.0 * cost.of(PAGE_SIZE) + cost.of(100));
    }
}
