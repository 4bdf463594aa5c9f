//! The number of a group.
//!
//! ```text
//!   0        every entry that is in no other group; without a limit
//!   1..255   groups with limits of their own
//! ```
//!
//! Invariant: a number fits the byte that is kept for each cell.

/// A group, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct GroupId(pub(crate) u8);

impl GroupId {
    /// The group of every entry that is in no other group. It has no limit.
    pub const ROOT: GroupId = GroupId(0);
    /// The most groups that there can be, including group 0.
    pub const COUNT: usize = 1 << u8::BITS; // 256

    /// Its number, from 0 on.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}
