//! Zspages: their frames' payload, and the descriptors that say what is in them.
//!
//! A descriptor is changed under the lock of its zspage's class. Classes, which choose zspages, are
//! the next room up; here a zspage knows nothing of the others.

mod descriptor;
mod descriptor_heap;
mod slabs;
#[expect(unsafe_code, reason = "the fence: payload of zspages, see its invariants")]
pub(crate) mod zspage;

pub(crate) use descriptor::{Descriptor, DescriptorId, Header, Headers, LOCKS_NAMED, Zspage};
pub(crate) use descriptor_heap::DescriptorHeap;
