//! Where a page should be: the rule of the tiers.
//!
//! ```text
//!              two ages, one if dense        four ages, if dense
//!   first algorithm ----------------> pagelz -----------------> the densest
//!          ^  '----------------------------------------------->    |
//!          '------------------------------------------------------'
//!             read so often that the time costs more than the bytes
//! ```
//!
//! If balanced, a page goes to pagelz only if that saves so much that reads may take longer.
//! Otherwise the first algorithm searches longer, which costs no time when the page is read.
//!
//! A page that is not used costs bytes, and one that is read costs time. A density says how many
//! bytes a microsecond for each age is worth. Reads for each age are foretold from how far the last
//! ones were apart, and from how long there was none. A page that was not read twice is expected to
//! be read never.
//!
//! Invariant: a page that is used within an age never becomes denser. A page of its last tier is
//! left alone until it is used.
//!
//! Locks: none.

use crate::terms::{Density, TiersConfig};

/// Microseconds that a read takes longer than with lz4, in tenths: pagelz, zstd, and lz4 with a
/// dictionary.
const PAGELZ_TENTHS: u64 = 15;
const ZSTD_TENTHS: u64 = 40;
const SEARCHED_TENTHS: u64 = 3;
/// A page that becomes denser is expected to lose 1/this of its bytes.
const SAVED_PART: u64 = 4;
/// A page that is dense is expected to gain 1/this of its bytes if it comes back.
const ADDED_PART: u64 = 2;
/// Percent of what a page takes otherwise that pagelz has to save if balanced. A lower one saves
/// more bytes and makes more reads slow.
const SAVED_PERCENT: u64 = 27;
/// Ages after which a page is written back, if that is wanted.
const WRITE_BACK_AGES: u32 = 64;
/// Ages after which a page is stored together with its neighbours, if dense. A read of such a page
/// decompresses all of them, so it is to be rare.
const UNIT_AGES: u32 = 32;

/// Which form a page has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// That of the first algorithm.
    First,
    /// pagelz, with the latest tables.
    Latest,
    /// pagelz, with older tables.
    Older,
    /// That of the first algorithm, with a dictionary.
    Searched,
    /// Another algorithm for recompression.
    Densest,
}

/// What is known of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) form: Form,
    /// Bytes of its object.
    pub(super) len: usize,
    /// Seconds since it was used.
    pub(super) unused_seconds: u32,
    /// Seconds between its last reads. `None` if it was not read twice.
    pub(super) gap_seconds: Option<u32>,
    /// pagelz did not make it smaller, since it was used last.
    pub(super) tried: bool,
    /// Nothing makes it smaller.
    pub(super) settled: bool,
}

/// What is to be done with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Leave,
    /// Back to the first algorithm.
    Faster,
    /// To pagelz.
    Denser,
    /// To the algorithm of the highest priority.
    Densest,
    /// To the latest tables.
    Renew,
    /// To the backing disk.
    WriteBack,
}

/// The rule of one density.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    age_seconds: u32,
    /// Ages after which a page becomes denser.
    denser_ages: u32,
    /// Ages after which it becomes as dense as can be. `None` means never.
    densest_ages: Option<u32>,
    /// Bytes that a microsecond for each age is worth.
    price: u64,
    /// Percent of what a page takes otherwise that pagelz has to save. `None` means anything.
    least_saved: Option<u64>,
    write_back: bool,
}

impl Rule {
    /// The rule of a density. An age of no length makes every page as old as can be.
    pub(super) fn new(config: &TiersConfig) -> Rule {
        let (denser_ages, densest_ages, price, least_saved) = match config.density {
            Density::Fast => (u32::MAX, None, 0, None),
            Density::Balanced => (2, None, 4096, Some(SAVED_PERCENT)),
            Density::Dense => (1, Some(4), 16, None),
        };
        let age_seconds = u32::try_from(config.age.as_secs()).unwrap_or(u32::MAX);
        let write_back = config.write_back;
        Rule { age_seconds, denser_ages, densest_ages, price, least_saved, write_back }
    }

    /// The rule for a device that may have no backing disk.
    pub(super) fn with_disk(self, has_disk: bool) -> Rule {
        Rule { write_back: self.write_back && has_disk, ..self }
    }

    /// Whether pages become denser than pagelz makes them.
    pub(super) fn has_densest(&self) -> bool {
        self.densest_ages.is_some()
    }

    /// Whether pages that pagelz saves too little of are searched longer by the first algorithm.
    pub(super) fn has_search(&self) -> bool {
        self.least_saved.is_some()
    }

    /// Whether pagelz, with which reads take longer, saves enough bytes. `otherwise` are those that
    /// the page takes in the shortest form that is read as fast as now.
    pub(super) fn saves_enough(&self, bytes: u64, otherwise: u64) -> bool {
        let least = self.least_saved.map_or(1, |percent| otherwise * percent / 100);
        bytes + least <= otherwise
    }

    /// Whether a page that was not used for so long is to be stored together with its neighbours.
    pub(super) fn is_for_units(&self, unused_seconds: u32) -> bool {
        let ages = self.ages(unused_seconds);
        let leaves = self.write_back && ages >= WRITE_BACK_AGES;
        self.has_densest() && ages >= UNIT_AGES && !leaves
    }

    fn ages(&self, unused_seconds: u32) -> u32 {
        unused_seconds.checked_div(self.age_seconds).unwrap_or(u32::MAX - 1)
    }

    /// What is to be done with a page.
    pub(super) fn step(&self, page: &Look) -> Step {
        let ages = self.ages(page.unused_seconds);
        match ages {
            0 if self.is_read_too_often(page) => Step::Faster,
            0 => Step::Leave,
            // Before it goes to the disk, where it would keep its tables alive.
            _ if page.form == Form::Older => Step::Renew,
            _ if self.write_back && ages >= WRITE_BACK_AGES => Step::WriteBack,
            _ => self.step_down(page, ages),
        }
    }

    fn step_down(&self, page: &Look, ages: u32) -> Step {
        let densest = self.densest_ages.is_some_and(|least| ages >= least);
        match page.form {
            _ if page.settled => Step::Leave,
            Form::First | Form::Latest if densest => Step::Densest,
            Form::First if ages >= self.denser_ages && !page.tried && self.pays(page) => {
                Step::Denser
            }
            _ => Step::Leave,
        }
    }

    /// Whether the bytes that a page is expected to lose are worth the time that its reads are
    /// expected to take longer.
    fn pays(&self, page: &Look) -> bool {
        page.len as u64 / SAVED_PART >= self.worth_of_reads(page, PAGELZ_TENTHS)
    }

    fn is_read_too_often(&self, page: &Look) -> bool {
        let tenths = match page.form {
            Form::First => return false,
            Form::Latest | Form::Older => PAGELZ_TENTHS,
            Form::Densest => ZSTD_TENTHS,
            Form::Searched => SEARCHED_TENTHS,
        };
        self.worth_of_reads(page, tenths) > page.len as u64 / ADDED_PART
    }

    /// Bytes that the reads of an age are worth if each takes so many tenths of a microsecond
    /// longer.
    fn worth_of_reads(&self, page: &Look, tenths: u64) -> u64 {
        let Some(gap) = page.gap_seconds else { return 0 };
        let apart = gap.max(page.unused_seconds).max(1);
        self.price * tenths / 10 * u64::from(self.age_seconds) / u64::from(apart)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Duration;

    const AGE: u32 = 10;

    fn rule(density: Density) -> Rule {
        let age = Duration::from_secs(AGE.into());
        Rule::new(&TiersConfig { age, ..TiersConfig::new(density) })
    }

    fn page(form: Form, unused_seconds: u32) -> Look {
        Look { form, len: 1200, unused_seconds, gap_seconds: None, tried: false, settled: false }
    }

    #[test]
    fn a_page_becomes_denser_with_its_age() {
        let rows = [
            (Density::Balanced, Form::First, 19, Step::Leave),
            (Density::Balanced, Form::First, 20, Step::Denser),
            (Density::Balanced, Form::Latest, 900, Step::Leave),
            (Density::Balanced, Form::Older, 9, Step::Leave),
            (Density::Balanced, Form::Older, 10, Step::Renew),
            (Density::Dense, Form::First, 9, Step::Leave),
            (Density::Dense, Form::First, 10, Step::Denser),
            (Density::Dense, Form::First, 40, Step::Densest),
            (Density::Dense, Form::Latest, 39, Step::Leave),
            (Density::Dense, Form::Latest, 40, Step::Densest),
            (Density::Dense, Form::Densest, 900, Step::Leave),
            (Density::Fast, Form::First, 900, Step::Leave),
        ];
        for (density, form, seconds, expected) in rows {
            let found = rule(density).step(&page(form, seconds));
            assert_eq!(found, expected, "{density}: {form:?} unused for {seconds} s");
        }
    }

    #[test]
    fn a_page_that_is_read_often_comes_back_and_stays() {
        let balanced = rule(Density::Balanced);
        let of = |form, gap, unused| Look { gap_seconds: Some(gap), ..page(form, unused) };
        let never = |form| page(form, 0);
        assert_eq!(balanced.step(&of(Form::Latest, 102, 0)), Step::Faster, "602 bytes for 600");
        assert_eq!(balanced.step(&of(Form::Latest, 103, 0)), Step::Leave, "596 bytes for 600");
        assert_eq!(balanced.step(&never(Form::Latest)), Step::Leave, "it is not read again");
        assert_eq!(balanced.step(&of(Form::Searched, 20, 0)), Step::Faster, "614 bytes for 600");
        assert_eq!(balanced.step(&of(Form::Searched, 21, 0)), Step::Leave, "584 bytes for 600");
        assert_eq!(balanced.step(&of(Form::Searched, 20, 900)), Step::Leave, "it is not used");
        assert_eq!(balanced.step(&of(Form::First, 1, 0)), Step::Leave, "it is fast");
        assert_eq!(balanced.step(&of(Form::First, 1, 203)), Step::Leave, "302 bytes for 300");
        assert_eq!(balanced.step(&of(Form::First, 203, 20)), Step::Leave, "so long, so often");
        assert_eq!(balanced.step(&of(Form::First, 1, 205)), Step::Denser, "299 bytes for 300");
        let dense = rule(Density::Dense);
        assert_eq!(dense.step(&of(Form::Latest, 1, 0)), Step::Leave, "240 bytes for 600");
        assert_eq!(dense.step(&of(Form::Densest, 1, 0)), Step::Faster, "640 bytes for 600");
        assert_eq!(dense.step(&of(Form::Densest, 2, 0)), Step::Leave, "320 bytes for 600");
    }

    #[test]
    fn pagelz_has_to_save_enough_if_balanced() {
        let balanced = rule(Density::Balanced);
        assert!(balanced.has_search() && balanced.saves_enough(730, 1000));
        assert!(!balanced.saves_enough(731, 1000), "less than 27 %");
        let dense = rule(Density::Dense);
        assert!(!dense.has_search() && dense.saves_enough(999, 1000));
        assert!(!dense.saves_enough(1000, 1000), "nothing");
    }

    #[test]
    fn what_was_tried_is_left_alone() {
        let tried = Look { tried: true, ..page(Form::First, 10) };
        let dense = rule(Density::Dense);
        assert_eq!(dense.step(&tried), Step::Leave);
        assert_eq!(dense.step(&Look { unused_seconds: 40, ..tried }), Step::Densest);
        let settled = Look { settled: true, ..page(Form::First, 900) };
        assert_eq!(dense.step(&settled), Step::Leave);
        assert_eq!(rule(Density::Balanced).step(&settled), Step::Leave);
    }

    #[test]
    fn pages_are_written_back_only_if_that_is_asked_for() {
        let old = page(Form::Latest, 64 * AGE);
        assert_eq!(rule(Density::Balanced).step(&old), Step::Leave);
        let asked = Rule { write_back: true, ..rule(Density::Balanced) };
        assert_eq!(asked.step(&old), Step::WriteBack);
        assert_eq!(asked.step(&page(Form::Latest, 64 * AGE - 1)), Step::Leave);
    }

    #[test]
    fn pages_are_for_units_if_dense_and_until_they_are_written_back() {
        let dense = rule(Density::Dense);
        let asked = Rule { write_back: true, ..dense };
        for (seconds, is_for, if_asked) in
            [(319, false, false), (320, true, true), (640, true, false)]
        {
            assert_eq!(dense.is_for_units(seconds), is_for, "{seconds} s");
            assert_eq!(asked.is_for_units(seconds), if_asked, "{seconds} s, with a disk");
            assert!(!rule(Density::Balanced).is_for_units(seconds), "{seconds} s, balanced");
        }
    }

    #[test]
    fn an_age_of_no_length_makes_all_pages_old() {
        let old = Rule { age_seconds: 0, ..rule(Density::Dense) };
        assert_eq!(old.step(&Look { gap_seconds: Some(1), ..page(Form::First, 0) }), Step::Densest);
    }
}
