//! Figures of a run over time, in bounded memory.
//!
//! ```text
//!   looks     . . . . . . . . . . . . . . . .      every 100 ms
//!   samples   |  |  |  |  |  |  |  |                of `per` looks each
//!             full: two become one, and `per` doubles
//!             |     |     |     |     |
//! ```
//!
//! Invariant: a sample has the most of each figure in its looks, and the counts at its end. So no
//! peak is lost, and the last counts are those of the run. Locks: none.

use std::time::Duration;

use crate::command::run::moment::Moment;

/// Samples that are kept. Between half as many and all of them are there in a long run.
pub(super) const SAMPLES_MAX: usize = 1024;

const _: () = assert!(SAMPLES_MAX.is_multiple_of(2), "two become one");

/// Some looks at a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sample {
    /// The time of the last of them, from the beginning of the run.
    pub(super) at: Duration,
    pub(super) moment: Moment,
}

/// Samples in the order of time.
#[derive(Debug, Clone)]
pub(super) struct Series {
    samples: Vec<Sample>,
    /// Looks of one sample.
    per: u32,
    /// Looks of the last sample.
    looks: u32,
}

impl Series {
    pub(super) fn new() -> Series {
        Series { samples: Vec::new(), per: 1, looks: 1 }
    }

    pub(super) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Adds a look.
    pub(super) fn add(&mut self, look: Sample) {
        match self.samples.last_mut() {
            Some(last) if self.looks < self.per => {
                *last = joined(last, &look);
                self.looks += 1;
            }
            _ => {
                if self.samples.len() == SAMPLES_MAX {
                    self.halve();
                }
                self.samples.push(look);
                self.looks = 1;
            }
        }
    }

    /// Two samples become one.
    fn halve(&mut self) {
        let pairs = self.samples.chunks_exact(2);
        self.samples = pairs.map(|pair| joined(&pair[0], &pair[1])).collect();
        self.per = self.per.saturating_mul(2);
    }
}

fn joined(earlier: &Sample, later: &Sample) -> Sample {
    Sample { at: later.at, moment: earlier.moment.most(&later.moment) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use inside::board::RunCounts;
    use proptest::prelude::*;

    fn look(number: u64, resident: u64) -> Sample {
        let counts = RunCounts { pages_out: number, ..RunCounts::default() };
        let moment = Moment { resident, counts, ..Moment::default() };
        Sample { at: Duration::from_millis(number * 100), moment }
    }

    proptest! {
        /// The twin keeps every look.
        #[test]
        fn a_series_has_the_peaks_and_counts_of_its_looks(
            residents in prop::collection::vec(0..1000_u64, 0..6 * SAMPLES_MAX)
        ) {
            let mut series = Series::new();
            let looks = residents.iter().zip(1..).map(|(&resident, at)| look(at, resident));
            let looks: Vec<Sample> = looks.collect();
            looks.iter().for_each(|look| series.add(*look));
            prop_assert!(series.samples.len() <= SAMPLES_MAX);
            let mut rest = &looks[..];
            for sample in series.samples() {
                let last = rest.iter().position(|look| look.at == sample.at);
                let until = last.expect("a look's") + 1;
                let most = rest[..until].iter().map(|look| look.moment.resident).max();
                prop_assert_eq!(Some(sample.moment.resident), most);
                prop_assert_eq!(sample.moment.counts, rest[until - 1].moment.counts);
                rest = &rest[until..];
            }
            prop_assert!(rest.is_empty(), "every look is in a sample");
        }
    }

    #[test]
    fn a_long_run_has_fewer_samples_of_the_same_length() {
        let mut series = Series::new();
        for number in 1..=(4 * SAMPLES_MAX as u64) {
            series.add(look(number, number));
            let len = series.samples().len();
            assert!(len <= SAMPLES_MAX && (number < SAMPLES_MAX as u64 || len > SAMPLES_MAX / 2));
        }
        let steps = series.samples().windows(2).map(|pair| pair[1].at - pair[0].at);
        let all: Vec<Duration> = steps.collect();
        assert!(all.iter().all(|step| step == &Duration::from_millis(400)), "{:?}", &all[..3]);
    }
}
