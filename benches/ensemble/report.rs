//! The tables, in Markdown, and the verdict.

use std::fmt;

use anyhow::{Result, ensure};
use e2e::table::table;

use crate::{
    load::Sample,
    statistics::{Ratio, mean},
};

/// What the interval of each ratio must reach.
const BAR: f64 = 0.97;

/// What one side shows in a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Of writes.
    pub(crate) writes: Sample,
    /// Of reads.
    pub(crate) reads: Sample,
}

impl Figures {
    /// The mean of two windows of each kind.
    pub(crate) fn mean(&self, other: &Self) -> Self {
        Self { writes: self.writes.mean(other.writes), reads: self.reads.mean(other.reads) }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { writes, reads } = self;
        write!(f, "{:.0} writes/s ({:.1} ms), {:.0} reads/s ({:.1} ms)", writes.rate, writes.p99, reads.rate, reads.p99)
    }
}

/// A measured quantity: its name, its digits, its value, and whether more of it is better.
struct Quantity {
    name: &'static str,
    digits: usize,
    value: fn(&Figures) -> f64,
    more_is_better: bool,
}

const QUANTITIES: [Quantity; 4] = [
    Quantity { name: "writes/s", digits: 0, value: |of| of.writes.rate, more_is_better: true },
    Quantity { name: "p99 of a write, ms", digits: 1, value: |of| of.writes.p99, more_is_better: false },
    Quantity { name: "reads/s", digits: 0, value: |of| of.reads.rate, more_is_better: true },
    Quantity { name: "p99 of a read, ms", digits: 1, value: |of| of.reads.p99, more_is_better: false },
];

/// Two sides of each round, and how they are called.
pub(crate) struct Comparison {
    /// The names of the sides.
    pub(crate) names: [&'static str; 2],
    /// The figures of each round.
    pub(crate) rounds: Vec<[Figures; 2]>,
}

impl Comparison {
    /// How good the first side is in proportion to the second one: above 1 if it is better, also of times.
    fn ratio(&self, quantity: &Quantity) -> Option<Ratio> {
        let ratios = self.rounds.iter().map(|round| {
            let [first, second] = round.each_ref().map(quantity.value);
            if quantity.more_is_better { first / second } else { second / first }
        });
        Ratio::of(&ratios.collect::<Vec<_>>())
    }

    /// A row for each quantity: the means of both sides, and their ratio.
    pub(crate) fn means(&self) -> String {
        let rows = QUANTITIES.iter().map(|of| {
            let side = |side: fn(&[Figures; 2]) -> &Figures| {
                let values: Vec<f64> = self.rounds.iter().map(|round| (of.value)(side(round))).collect();
                in_digits(mean(&values), of.digits)
            };
            let means = [side(|[first, _]| first), side(|[_, second]| second)];
            let ratio = self.ratio(of).map_or_else(Default::default, |ratio| {
                let interval = format!("{:.3} to {:.3}", ratio.low, ratio.high);
                [format!("{:.3}", ratio.mean), interval, verdict(ratio).to_owned()]
            });
            [vec![of.name.to_owned()], means.into(), ratio.into()].concat()
        });
        let [first, second] = self.names;
        let head = ["per round", first, second, "ratio", "95 % interval", &BAR.to_string()];
        table(1, &head, &rows.collect::<Vec<_>>())
    }

    /// Fails if the interval of a ratio does not reach the bar.
    ///
    /// # Errors
    /// The quantities.
    pub(crate) fn check(&self) -> Result<()> {
        let misses = |of: &&Quantity| self.ratio(of).is_none_or(|ratio| ratio.high < BAR);
        let missing: Vec<&str> = QUANTITIES.iter().filter(misses).map(|of| of.name).collect();
        ensure!(missing.is_empty(), "the interval of the ratio does not reach {BAR}: {}", missing.join(", "));
        Ok(())
    }
}

/// Where an interval lies: wholly above the bar, around it, or wholly below.
fn verdict(ratio: Ratio) -> &'static str {
    match ratio {
        Ratio { low, .. } if low >= BAR => "above",
        Ratio { high, .. } if high >= BAR => "reached",
        Ratio { .. } => "missed",
    }
}

fn in_digits(value: f64, digits: usize) -> String {
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(first: [f64; 2], second: [f64; 2]) -> Comparison {
        let figures = |[rate, p99]: [f64; 2]| {
            let sample = Sample { rate, p99 };
            Figures { writes: sample, reads: sample }
        };
        Comparison { names: ["mczk", "by hand"], rounds: vec![[figures(first), figures(second)]; 3] }
    }

    #[test]
    fn a_shorter_time_is_better() {
        let text = comparison([990.0, 20.0], [1000.0, 19.0]).means();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "| per round          | mczk | by hand | ratio |  95 % interval |   0.97 |",
                "|--------------------|-----:|--------:|------:|---------------:|-------:|",
                "| writes/s           |  990 |    1000 | 0.990 | 0.990 to 0.990 |  above |",
                "| p99 of a write, ms | 20.0 |    19.0 | 0.950 | 0.950 to 0.950 | missed |",
                "| reads/s            |  990 |    1000 | 0.990 | 0.990 to 0.990 |  above |",
                "| p99 of a read, ms  | 20.0 |    19.0 | 0.950 | 0.950 to 0.950 | missed |",
            ]
        );
    }

    #[test]
    fn the_verdict_names_what_costs_too_much() {
        assert!(comparison([990.0, 20.0], [1000.0, 20.0]).check().is_ok());
        let error = comparison([900.0, 20.0], [1000.0, 20.0]).check().err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("the interval of the ratio does not reach 0.97: writes/s, reads/s"));
    }

    #[test]
    fn an_interval_around_the_bar_reaches_it() {
        let [low, high] = [0.9, 1.1].map(|rate| comparison([rate, 1.0], [1.0, 1.0]).rounds);
        let both = Comparison { names: ["a", "b"], rounds: [low, high].concat() };
        assert!(both.check().is_ok());
        assert!(both.means().contains("reached"));
    }
}
