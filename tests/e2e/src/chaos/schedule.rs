//! The operations of each round, from a seed alone.

use std::time::Duration;

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

use super::{
    governor::refusal,
    operations::{Kind, Operation},
};

/// The time in which the operations of a round begin.
const BEGIN: Duration = Duration::from_secs(45);
/// Number of operations in a round.
const OPERATIONS: std::ops::RangeInclusive<usize> = 6..=14;
/// How often a refused operation is chosen again.
const TRIES: usize = 10;

/// What a schedule depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Number of member clusters.
    pub clusters: usize,
    /// The operations to choose from.
    pub kinds: Vec<Kind>,
}

impl Plan {
    /// The operations of a round, in the order of their beginnings.
    #[must_use]
    pub fn round(&self, number: usize) -> Vec<Operation> {
        // Each round has its own generator: a round does not depend on the number of choices in those before it.
        let round = u64::try_from(number).unwrap_or_default();
        let mut chance = StdRng::seed_from_u64(self.seed.wrapping_mul(1_000_003).wrapping_add(round));
        let mut operations = Vec::new();
        for _ in 0..chance.random_range(OPERATIONS) {
            let chosen = (0..TRIES)
                .map(|_| self.one(&mut chance))
                .find(|new| new.as_ref().is_some_and(|new| refusal(&operations, new, self.clusters).is_none()));
            operations.extend(chosen.flatten());
        }
        operations.sort_by_key(|operation| operation.at);
        operations
    }

    /// An operation, by the weights; none if there are no kinds.
    fn one(&self, chance: &mut StdRng) -> Option<Operation> {
        let total: u32 = self.kinds.iter().map(|kind| kind.nature().weight).sum();
        let mut left = chance.random_range(0..total.max(1));
        let kind = *self.kinds.iter().find(|kind| {
            let weight = kind.nature().weight;
            let found = left < weight;
            left = left.saturating_sub(weight);
            found
        })?;
        let tenths =
            |range: std::ops::Range<u64>, chance: &mut StdRng| Duration::from_millis(chance.random_range(range) * 100);
        let at = tenths(0..u64::try_from(BEGIN.as_millis()).unwrap_or_default() / 100, chance);
        let lasts = kind.nature().lasts;
        let lasts = lasts.map_or(Duration::ZERO, |(least, most)| tenths(least * 10..most * 10, chance));
        Some(Operation { at, lasts, kind, pick: chance.random_range(0..=u8::MAX) })
    }
}

/// The operations of a run of some minutes, if no round takes longer than its operations.
#[must_use]
pub fn schedule(plan: &Plan, minutes: u64) -> Vec<Vec<Operation>> {
    let rounds = minutes * 60 / BEGIN.as_secs() + 1;
    (1..=usize::try_from(rounds).unwrap_or(usize::MAX)).map(|number| plan.round(number)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::ValueEnum as _;

    use super::*;
    use crate::chaos::governor::check;

    fn plan(seed: u64, clusters: usize) -> Plan {
        Plan { seed, clusters, kinds: Kind::value_variants().to_vec() }
    }

    #[test]
    fn every_round_of_every_seed_keeps_the_rules() {
        for seed in 0..200 {
            let plan = plan(seed, 3 + usize::try_from(seed % 4).unwrap_or_default());
            for (nth, round) in schedule(&plan, 60).iter().enumerate() {
                // Not only in the order in which the generator chose them.
                if let Err(error) = check(round, plan.clusters) {
                    unreachable!("seed {seed}, round {}: {error:#}", nth + 1);
                }
                let volumes = round.iter().filter(|o| o.kind.loses_volumes()).count();
                assert!(volumes <= 1, "seed {seed}, round {}: {volumes} volumes", nth + 1);
                assert!(round.windows(2).all(|pair| pair.first().map(|o| o.at) <= pair.last().map(|o| o.at)));
                for operation in round {
                    assert!(operation.at < BEGIN, "seed {seed}: {operation}");
                    assert_eq!(operation.lasts.is_zero(), operation.kind.nature().lasts.is_none(), "{operation}");
                }
            }
        }
    }

    #[test]
    fn a_seed_has_one_schedule_and_another_seed_another_one() {
        assert_eq!(schedule(&plan(7, 4), 30), schedule(&plan(7, 4), 30));
        assert_ne!(schedule(&plan(7, 4), 30), schedule(&plan(8, 4), 30));
        // A longer run begins with the same rounds.
        let (short, long) = (schedule(&plan(7, 4), 5), schedule(&plan(7, 4), 30));
        assert_eq!(long.get(..short.len()), Some(&short[..]));
    }

    #[test]
    fn an_hour_has_every_operation_and_overlaps() {
        let rounds = schedule(&plan(1, 4), 60);
        let mut counts: BTreeMap<Kind, usize> = BTreeMap::new();
        for operation in rounds.iter().flatten() {
            *counts.entry(operation.kind).or_default() += 1;
        }
        assert_eq!(counts.len(), Kind::value_variants().len(), "{counts:?}");
        let overlaps = |round: &Vec<Operation>| {
            let mut faults = round.iter().filter(|o| !o.lasts.is_zero());
            faults.clone().any(|a| faults.any(|b| a != b && a.at < b.end() && b.at < a.end()))
        };
        assert!(rounds.iter().filter(|round| overlaps(round)).count() * 2 > rounds.len(), "faults seldom overlap");
        let average = rounds.iter().map(Vec::len).sum::<usize>() / rounds.len();
        assert!(average >= 7, "{average} operations in a round");
    }

    #[test]
    fn only_the_given_kinds_are_chosen() {
        let plan = Plan { seed: 3, clusters: 3, kinds: vec![Kind::KillLeader, Kind::Cordon] };
        assert!(schedule(&plan, 20).iter().flatten().all(|o| plan.kinds.contains(&o.kind)));
        assert!(Plan { kinds: Vec::new(), ..plan }.round(1).is_empty());
    }
}
