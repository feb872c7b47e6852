//! What the rounds say together: the mean ratio of two sides, and how far chance may have moved it.

/// Quantiles 0.975 of Student's t, for 1 to 30 degrees of freedom.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// A mean ratio, with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    /// The geometric mean.
    pub(crate) mean: f64,
    /// The lower end of the interval.
    pub(crate) low: f64,
    /// The upper end of the interval.
    pub(crate) high: f64,
}

impl Ratio {
    /// The mean of the rounds' ratios. A ratio and its inverse weigh the same, so logarithms are averaged. `None` for fewer
    /// than two rounds.
    pub(crate) fn of(rounds: &[f64]) -> Option<Self> {
        let logarithms: Vec<f64> = rounds.iter().map(|ratio| ratio.ln()).collect();
        let freedom = rounds.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
        // More rounds make the quantile smaller: the last one is on the safe side.
        let quantile = STUDENT.get(freedom - 1).or(STUDENT.last())?;
        let mean = mean(&logarithms);
        let variance = logarithms.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / as_number(freedom);
        let half = quantile * (variance / as_number(rounds.len())).sqrt();
        Some(Self { mean: mean.exp(), low: (mean - half).exp(), high: (mean + half).exp() })
    }
}

/// The arithmetic mean.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / as_number(values.len())
}

/// The value below which 99 of 100 lie, of sorted values.
pub(crate) fn p99(sorted: &[f64]) -> Option<f64> {
    let rank = (sorted.len() * 99).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(crate) fn as_number(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64) -> bool {
        (value - expected).abs() < 0.0005
    }

    #[test]
    fn a_ratio_and_its_inverse_cancel() {
        let ratio = Ratio::of(&[2.0, 0.5, 2.0, 0.5]);
        assert!(ratio.is_some_and(|ratio| near(ratio.mean, 1.0) && near(ratio.low * ratio.high, 1.0)), "{ratio:?}");
    }

    #[test]
    fn the_interval_is_that_of_student() {
        // Of the logarithms: mean 0, standard deviation 0.1, four rounds. So it reaches 3.182 * 0.1 / 2 to each side.
        let step = 0.1 * 0.75_f64.sqrt();
        let ratio = Ratio::of(&[step, -step, step, -step].map(f64::exp));
        let expected = |ratio: Ratio| near(ratio.low, (-0.1591_f64).exp()) && near(ratio.high, 0.1591_f64.exp());
        assert!(ratio.is_some_and(expected), "{ratio:?}");
    }

    #[test]
    fn equal_rounds_leave_no_doubt_and_one_round_says_nothing() {
        let ratio = Ratio::of(&[0.97; 10]);
        assert!(ratio.is_some_and(|ratio| near(ratio.low, 0.97) && near(ratio.high, 0.97)), "{ratio:?}");
        assert_eq!(Ratio::of(&[0.97]), None);
        assert_eq!(Ratio::of(&[]), None);
    }

    #[test]
    fn many_rounds_use_the_last_quantile() {
        assert!(Ratio::of(&[1.0, 1.1].repeat(50)).is_some());
    }

    #[test]
    fn one_of_a_hundred_lies_above_p99() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(p99(&values), Some(198.0));
        assert_eq!(p99(&[7.0]), Some(7.0));
        assert_eq!(p99(&[]), None);
    }
}
