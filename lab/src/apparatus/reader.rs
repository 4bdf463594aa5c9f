//! A reader of a zone's pagetypeinfo, in one of three ways.
//!
//! ```text
//!   counts             the published counts                         no lock
//!   list-walk          every block of every list is counted         the zone lock, all the while
//!   list-walk-capped   no further than 100000 blocks of a list      the same: the kernel's way
//!                |
//!                v     before study S2, but for the pauses it makes between two lists
//!          the kernel's text, into a buffer that is used again
//! ```
//!
//! Invariant: with nobody else at the zone the three give the same text. Pageblocks are published
//! counts in each of them.

use crate::ground::LabError;
use buddy::{NodePageTypes, PageTypeInfo, SharedZone, TextForm};

/// The zone's name in its text.
const ZONE: &str = "Normal";
/// Where the kernel stopped counting.
const KERNEL_CAP: u64 = 100_000;

/// Where the counts come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    Counts,
    ListWalk,
    ListWalkCapped,
}

impl Mode {
    pub(crate) const ALL: [Mode; 3] = [Mode::Counts, Mode::ListWalk, Mode::ListWalkCapped];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Counts => "counts",
            Mode::ListWalk => "list-walk",
            Mode::ListWalkCapped => "list-walk-capped",
        }
    }
}

/// A buffer and what is rendered into it.
pub(crate) struct Reader<'a> {
    zone: &'a SharedZone,
    mode: Mode,
    text: String,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(zone: &'a SharedZone, mode: Mode) -> Reader<'a> {
        const TEXT_BYTES: usize = 4096;
        Reader { zone, mode, text: String::with_capacity(TEXT_BYTES) }
    }

    /// The file as it is now.
    pub(crate) fn read(&mut self) -> &str {
        let counts = match self.mode {
            Mode::Counts => self.zone.published().read(),
            Mode::ListWalk => self.zone.counts_by_walk(u64::MAX),
            Mode::ListWalkCapped => self.zone.counts_by_walk(KERNEL_CAP),
        };
        self.text.clear();
        NodePageTypes::new(0, ZONE, counts).render(TextForm::Kernel, &mut self.text);
        &self.text
    }

    /// Whether what was read last is a pagetypeinfo. While others work nothing more can be said.
    pub(crate) fn is_readable(&self) -> Result<(), LabError> {
        let found = PageTypeInfo::parse(&self.text).map(drop);
        found.map_err(|error| LabError::Wrong(format!("pagetypeinfo: {error}")))
    }
}

/// Compares the three with nobody else at the zone.
pub(crate) fn agree(zone: &SharedZone) -> Result<(), LabError> {
    let [counts, others @ ..] = Mode::ALL.map(|mode| Reader::new(zone, mode).read().to_owned());
    let agree = others.iter().all(|other| *other == counts);
    let wrong = || LabError::Wrong("what is published is not what a walk finds".into());
    agree.then_some(()).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apparatus::scattered;

    #[test]
    fn all_modes_give_one_text_at_rest() {
        let zone = scattered::shared(2000, 1024).unwrap();
        zone.alloc_run(5, buddy::Migratetype::Unmovable).unwrap();
        agree(&zone).unwrap();
        let mut reader = Reader::new(&zone, Mode::Counts);
        assert!(reader.read().contains("Movable   2000 "), "{}", reader.text);
        reader.is_readable().unwrap();
        reader.text.truncate(40);
        assert!(reader.is_readable().is_err(), "half a text is none");
    }
}
