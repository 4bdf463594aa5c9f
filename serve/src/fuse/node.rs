//! The tree's files and directories, and their numbers.
//!
//! ```text
//!   DIR/  pagetypeinfo  buddyinfo            1, 16 + place
//!         zram-control/ hot_add hot_remove   2, 3, 4
//!         zram0/        disk                 life 1, part 1       number: | life | part |
//!                       disksize, mm_stat..  life 1, 16 + place           56 bits   8
//!                       block_state          life 1, part 2
//!                       zsmalloc/ classes    life 1, parts 3, 4
//! ```
//!
//! A *life* is one device from its addition to its removal. Device numbers are used again, but
//! lives are not. So an open file of a removed device never becomes a file of the next device.
//!
//! Invariant: a node and its number determine each other. Numbers below 256 belong to no device.
//!
//! Lock: the list of lives, a leaf.

use super::channel::wire::ROOT;
use host::Rank;
use host::unmodelled::RankedMutex;
use std::sync::{Arc, Weak};
use zram::{Attribute, Device};

/// Bits of a number that say which part of a device it is.
const PART_BITS: u32 = 8;
const PART_MASK: u64 = (1 << PART_BITS) - 1; // 255
/// Where places in a list begin.
const PLACES: u64 = 16;

const _: () = assert!(
    PLACES + Attribute::ALL.len() as u64 <= PART_MASK,
    "every attribute has a part of its own"
);

/// A file or a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// The directory that is mounted over.
    Root,
    /// `zram-control`.
    Control,
    /// Reading it adds a device.
    HotAdd,
    /// Writing it removes one.
    HotRemove,
    /// A text about the memory of all devices, by its place in the list of them.
    Text(usize),
    /// A part of a device, by its life.
    Device(u64, Part),
}

/// The parts of a device in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Its directory.
    Directory,
    /// The disk itself.
    Disk,
    /// A line for each stored page.
    BlockState,
    /// `zsmalloc`.
    Zsmalloc,
    /// `zsmalloc/classes`.
    Classes,
    /// An attribute.
    Attribute(Attribute),
}

impl Node {
    /// The node of a number.
    pub(crate) fn from_number(number: u64) -> Option<Self> {
        let (life, part) = (number >> PART_BITS, number & PART_MASK);
        if life > 0 {
            return Part::from_number(part).map(|part| Self::Device(life, part));
        }
        match number {
            ROOT => Some(Self::Root),
            2 => Some(Self::Control),
            3 => Some(Self::HotAdd),
            4 => Some(Self::HotRemove),
            PLACES.. => Some(Self::Text((number - PLACES) as usize)),
            _ => None,
        }
    }

    /// Its number.
    pub(crate) fn number(self) -> u64 {
        match self {
            Self::Root => ROOT,
            Self::Control => 2,
            Self::HotAdd => 3,
            Self::HotRemove => 4,
            Self::Text(place) => PLACES + place as u64,
            Self::Device(life, part) => life << PART_BITS | part.number(),
        }
    }

    /// Whether it has files in it.
    pub(crate) fn is_directory(self) -> bool {
        use Part::{Directory, Zsmalloc};
        matches!(self, Self::Root | Self::Control | Self::Device(_, Directory | Zsmalloc))
    }
}

impl Part {
    fn from_number(number: u64) -> Option<Self> {
        match number {
            0 => Some(Self::Directory),
            1 => Some(Self::Disk),
            2 => Some(Self::BlockState),
            3 => Some(Self::Zsmalloc),
            4 => Some(Self::Classes),
            PLACES.. => {
                Attribute::ALL.get((number - PLACES) as usize).copied().map(Self::Attribute)
            }
            _ => None,
        }
    }

    fn number(self) -> u64 {
        match self {
            Self::Directory => 0,
            Self::Disk => 1,
            Self::BlockState => 2,
            Self::Zsmalloc => 3,
            Self::Classes => 4,
            Self::Attribute(of) => PLACES + place(of),
        }
    }
}

/// An attribute's place in the list of all.
fn place(of: Attribute) -> u64 {
    Attribute::ALL.iter().take_while(|&&attribute| attribute != of).count() as u64
}

/// The lives of devices.
#[derive(Debug)]
pub(crate) struct Lives(RankedMutex<Known>);

#[derive(Debug, Default)]
struct Known {
    last: u64,
    lives: Vec<(u64, Weak<Device>)>,
}

impl Lives {
    /// No lives yet.
    pub(crate) fn new() -> Self {
        Self(RankedMutex::new(Rank::Leaf, Known::default()))
    }

    /// The life of a device. A device that was not seen before gets a new one.
    pub(crate) fn of(&self, device: &Arc<Device>) -> u64 {
        let mut known = self.0.lock();
        // Lives of devices that are gone are removed here, and not before.
        known.lives.retain(|(_, seen)| seen.strong_count() > 0);
        let is_it = |seen: &Weak<Device>| std::ptr::eq(seen.as_ptr(), Arc::as_ptr(device));
        if let Some(&(life, _)) = known.lives.iter().find(|(_, seen)| is_it(seen)) {
            return life;
        }
        known.last += 1;
        let life = known.last;
        known.lives.push((life, Arc::downgrade(device)));
        life
    }

    /// The device of this life. It may have been removed from the list of devices.
    pub(crate) fn device(&self, life: u64) -> Option<Arc<Device>> {
        let known = self.0.lock();
        known.lives.iter().find(|(number, _)| *number == life).and_then(|(_, seen)| seen.upgrade())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_number_means_one_node(number in prop_oneof![0..1024_u64, any::<u64>()]) {
            if let Some(node) = Node::from_number(number) {
                prop_assert_eq!(node.number(), number);
            }
        }
    }

    #[test]
    fn every_node_has_its_number_back() {
        let attributes = Attribute::ALL.map(Part::Attribute);
        let parts = [Part::Directory, Part::Disk, Part::BlockState, Part::Zsmalloc, Part::Classes];
        let parts = parts.into_iter().chain(attributes);
        let shared = [Node::Root, Node::Control, Node::HotAdd, Node::HotRemove, Node::Text(1)];
        for node in parts.map(|part| Node::Device(7, part)).chain(shared) {
            assert_eq!(Node::from_number(node.number()), Some(node));
        }
    }
}
