//! What reads a disk through a door, several pages at a time.

use crate::ground::LabError;

/// A client that has reads under way.
pub(super) trait Client {
    /// Begins to read a page of the disk, in a place that is free.
    fn ask(&mut self, place: usize, page: usize) -> Result<(), LabError>;

    /// Waits for the next answer: its place and the page.
    fn answer(&mut self) -> Result<(usize, &[u8]), LabError>;
}
