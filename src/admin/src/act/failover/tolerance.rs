//! What an ensemble survived while the command looked.

use std::fmt::{self, Display, Formatter};

use k8s_openapi::jiff::Timestamp;

use mczk_rules::rollout::plan::{Observed, plan};

/// The lowest numbers of losses that the ensemble would have survived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tolerated {
    looks: usize,
    /// Voters and clusters; `None` before the first look.
    lowest: Option<(usize, usize)>,
}

impl Tolerated {
    /// Counts what the operator's own gauges would show now.
    pub(super) fn look(&mut self, observed: &Observed, now: Timestamp) {
        let Some(voters) = plan(observed, now).measures.voters else { return };
        let (of_voters, of_clusters) = self.lowest.unwrap_or((usize::MAX, usize::MAX));
        self.looks += 1;
        self.lowest = Some((of_voters.min(voters.tolerated_voters), of_clusters.min(voters.tolerated_clusters)));
    }
}

impl Display for Tolerated {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Some((voters, clusters)) = self.lowest else {
            return writeln!(formatter, "What the ensemble survived meanwhile could not be read.");
        };
        writeln!(
            formatter,
            "Losses that it survived meanwhile, at least: {voters} of voters, {clusters} of clusters. This is the lowest of {} looks. \
             Each counts the voters that serve beyond a majority of ZooKeeper's configuration, as the metrics \
             mczk_ensemble_tolerated_voter_losses and mczk_ensemble_tolerated_cluster_losses do.",
            self.looks
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::see::plan::tests::running;

    #[test]
    fn the_lowest_look_counts() {
        let now = "2026-01-02T00:00:00Z".parse().unwrap();
        let mut tolerated = Tolerated::default();
        insta::assert_snapshot!(tolerated, @r"
        What the ensemble survived meanwhile could not be read.
        ");
        let mut observed = running();
        tolerated.look(&observed, now);
        assert_eq!(tolerated, Tolerated { looks: 1, lowest: Some((1, 1)) });
        let binding = observed.binding.as_mut().unwrap();
        let status = binding.status.aggregated_status[2].status.as_mut().unwrap();
        status["servers"][0]["serving"] = false.into();
        tolerated.look(&observed, now);
        tolerated.look(&running(), now);
        insta::assert_snapshot!(tolerated, @r"
        Losses that it survived meanwhile, at least: 0 of voters, 0 of clusters. This is the lowest of 3 looks. Each counts the voters that serve beyond a majority of ZooKeeper's configuration, as the metrics mczk_ensemble_tolerated_voter_losses and mczk_ensemble_tolerated_cluster_losses do.
        ");
    }
}
