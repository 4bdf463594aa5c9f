//! Medians with their spread, and paired differences with Student's t interval.
//!
//! ```text
//!   runs     1    2    3        d = after - before, pair by pair
//!   before  b1   b2   b3        mean(d) +- t(0.975, n - 1) * sd(d) / sqrt(n)
//!   after   a1   a2   a3
//! ```
//!
//! Pairing takes out what differs between runs but not between treatments: which half of the
//! corpus was drawn.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// The middle, the smallest and the largest of some samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// The spread of `samples`, or nothing when there are none.
pub(crate) fn spread(samples: &[f64]) -> Option<Spread> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (&min, &max) = (sorted.first()?, sorted.last()?);
    let middle = sorted.len() / 2;
    let median = match sorted.len() % 2 {
        0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    };
    Some(Spread { median, min, max })
}

/// The smallest sample that `percent` of them do not exceed; samples ascend.
pub(crate) fn percentile(ascending: &[u32], percent: usize) -> Option<u32> {
    let rank = (ascending.len() * percent).div_ceil(100);
    ascending.get(rank.saturating_sub(1)).copied()
}

/// The mean of some samples and their standard deviation, or nothing when there are none.
pub(crate) fn mean_and_sd(samples: &[u32]) -> Option<(f64, f64)> {
    let count = samples.len() as f64;
    let mean = samples.iter().map(|&x| f64::from(x)).sum::<f64>() / count;
    let squares: f64 = samples.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum();
    (count > 0.0).then(|| (mean, (squares / count).sqrt()))
}

/// What changed from one treatment to another, measured on the same subjects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Difference {
    pub(crate) mean: f64,
    /// Half the width of the 95 % interval of the mean; nothing below two pairs.
    pub(crate) ci95: Option<f64>,
}

/// The paired difference `after - before`; nothing unless there are as many of each.
pub(crate) fn paired(before: &[f64], after: &[f64]) -> Option<Difference> {
    if before.is_empty() || before.len() != after.len() {
        return None;
    }
    let differences: Vec<f64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
    let pairs = differences.len() as f64;
    let mean = differences.iter().sum::<f64>() / pairs;
    let squares: f64 = differences.iter().map(|d| (d - mean).powi(2)).sum();
    let ci95 = t_975(pairs - 1.0).map(|t| t * (squares / (pairs - 1.0) / pairs).sqrt());
    Some(Difference { mean, ci95 })
}

/// Nothing when there are no samples.
pub(crate) fn mean(samples: &[f64]) -> Option<f64> {
    (!samples.is_empty()).then(|| samples.iter().sum::<f64>() / samples.len() as f64)
}

/// The difference `after - before` of two means whose samples belong to no pairs, with half the
/// width of its 95 % interval by Welch's t test; nothing below two samples of each.
pub(crate) fn welch(before: &[f64], after: &[f64]) -> Option<(f64, f64)> {
    let of = |samples: &[f64]| {
        let (count, mean) = (samples.len() as f64, mean(samples)?);
        let squares: f64 = samples.iter().map(|x| (x - mean).powi(2)).sum();
        // The variance of the mean, and what it adds to the degrees of freedom.
        let variance = squares / (count - 1.0) / count;
        (count > 1.0).then(|| (mean, variance, variance.powi(2) / (count - 1.0)))
    };
    let ((was, before, few), (is, after, many)) = (of(before)?, of(after)?);
    let variance = before + after;
    let freedom = variance.powi(2) / (few + many);
    // Samples that are all the same leave no doubt.
    let half = if variance == 0.0 { 0.0 } else { t_975(freedom)? * variance.sqrt() };
    Some((is - was, half))
}

/// The t value that leaves 2.5 % above it, for the given degrees of freedom.
pub(crate) fn t_975(freedom: f64) -> Option<f64> {
    (freedom >= 1.0).then(|| StudentsT::new(0.0, 1.0, freedom).ok())?.map(|t| t.inverse_cdf(0.975))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 0.975 column of the usual printed table.
    #[test]
    fn t_is_the_printed_tables() {
        for (freedom, t) in
            [(1.0, 12.706), (2.0, 4.303), (4.0, 2.776), (8.0, 2.306), (9.0, 2.262), (30.0, 2.042)]
        {
            let got = t_975(freedom).unwrap();
            assert!((got - t).abs() < 5.1e-4, "t(0.975, {freedom}) is {t}, not {got}");
        }
        assert_eq!(t_975(0.0), None);
    }

    /// The chain-size posting: five runs each of order 2 (sd 6731), 3 (sd 42 211) and 4 (31 409),
    /// published as -1.34038e7 +- 44 081 and -1.55222e7 +- 33 126 from pooled deviations.
    #[test]
    fn intervals_of_the_published_chain_size_test() {
        for (sd, interval) in [(42_211.0_f64, 44_081.0), (31_409.0, 33_126.0)] {
            let pooled = f64::midpoint(6731.0_f64.powi(2), sd.powi(2)).sqrt();
            let got = t_975(8.0).unwrap() * pooled * (2.0_f64 / 5.0).sqrt();
            assert!((got - interval).abs() < 2.0, "published +- {interval}, computed {got:.0}");
        }
    }

    /// Student's own sleep data (1908): mean difference 1.58, 95 % interval 0.70 .. 2.46.
    #[test]
    fn paired_interval_of_the_sleep_data() {
        let dextro = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let laevo = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let difference = paired(&dextro, &laevo).unwrap();
        let half = difference.ci95.unwrap();
        assert!((difference.mean - 1.58).abs() < 1e-9, "{difference:?}");
        assert!((difference.mean - half - 0.700_114_2).abs() < 1e-6, "{difference:?}");
        assert!((difference.mean + half - 2.459_885_8).abs() < 1e-6, "{difference:?}");
    }

    /// The sleep data as two groups: t = 1.8608 with 17.776 degrees of freedom, interval of the
    /// difference -0.2054832 to 3.3654832.
    #[test]
    fn unpaired_interval_of_the_sleep_data() {
        let dextro = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let laevo = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let (difference, half) = welch(&dextro, &laevo).unwrap();
        assert!((difference - 1.58).abs() < 1e-9, "{difference}");
        assert!((difference - half + 0.205_483_2).abs() < 1e-6, "{half}");
        assert_eq!(welch(&dextro, &[1.0]), None);
        assert_eq!(welch(&[1.0, 1.0], &[3.0, 3.0]), Some((2.0, 0.0)));
    }

    #[test]
    fn a_single_pair_has_no_interval() {
        let difference = paired(&[1.0], &[3.0]).unwrap();
        assert_eq!((difference.mean, difference.ci95), (2.0, None));
        assert!(paired(&[], &[]).is_none());
        assert!(paired(&[1.0], &[]).is_none());
    }

    #[test]
    fn percentiles_are_samples() {
        let samples: Vec<u32> = (1..=200).collect();
        assert_eq!(percentile(&samples, 50), Some(100));
        assert_eq!(percentile(&samples, 99), Some(198));
        assert_eq!(percentile(&[7], 99), Some(7));
        assert_eq!(percentile(&[1, 2, 3], 50), Some(2), "half of three are two");
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn deviations_are_from_the_mean() {
        assert_eq!(mean_and_sd(&[2, 4, 4, 4, 5, 5, 7, 9]), Some((5.0, 2.0)));
        assert_eq!(mean_and_sd(&[]), None);
    }

    #[test]
    fn medians_of_odd_even_and_no_samples() {
        assert_eq!(spread(&[3.0, 1.0, 2.0]).unwrap(), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(spread(&[]), None);
    }
}
