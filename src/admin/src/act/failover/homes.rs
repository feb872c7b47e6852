//! The clusters that voters belong to, as the object itself tells.

use std::collections::{BTreeMap, BTreeSet};

use mczk_api::{
    MultiClusterZooKeeper,
    contract::requested_places::RequestedPlaces,
    multiclusterzookeeper::{ClusterStatus, Failover},
};

/// The homes of an ensemble, and its spares.
#[derive(Clone, Debug, Default)]
pub(super) struct VoterHomes {
    homes: BTreeMap<String, HomeVoters>,
    spares: Vec<String>,
}

/// Where the voters of one home are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HomeVoters {
    /// The cluster in which they shall be, by the operator's last status.
    pub(super) place: String,
    /// The cluster that the server list names for them.
    pub(super) seat: String,
    /// How many they are.
    pub(super) count: usize,
}

impl VoterHomes {
    /// The homes by status, placement and annotation: a home may have no voters while they are on their way back.
    pub(super) fn of(object: &MultiClusterZooKeeper, requested: &RequestedPlaces) -> Self {
        let clusters = object.status.as_ref().map(|status| status.clusters.as_slice()).unwrap_or_default();
        let spares =
            object.spec.failover.as_ref().map(|failover: &Failover| failover.spares.clone()).unwrap_or_default();
        let placement = object.spec.placement.as_ref().and_then(|placement| placement.cluster_affinity.as_ref());
        let placed = placement.map(|affinity| affinity.cluster_names.as_slice()).unwrap_or_default();
        let used: BTreeSet<&str> = clusters.iter().filter_map(|cluster| cluster.moved_to.as_deref()).collect();
        let is_home = |name: &&str| !used.contains(name) && !spares.iter().any(|spare| spare == name);
        let names = clusters.iter().map(|cluster| cluster.name.as_str());
        let names = names.chain(placed.iter().map(String::as_str)).chain(requested.homes()).filter(is_home);
        // A spare that is the place of no home any more has the voters of a home that gets another one.
        let is_left = |cluster: &&ClusterStatus| {
            !cluster.voters.is_empty() && spares.contains(&cluster.name) && !used.contains(cluster.name.as_str())
        };
        let left = clusters.iter().find(is_left).map(|cluster| cluster.name.as_str());
        let homes = names.map(|name| (name.to_owned(), HomeVoters::of(name, clusters, left))).collect();
        Self { homes, spares }
    }

    /// The declared spares, in order.
    pub(super) fn spares(&self) -> &[String] {
        &self.spares
    }

    /// The home that a user means: a home, or the spare that holds its voters.
    ///
    /// # Errors
    /// If the cluster is neither.
    pub(super) fn meant_by(&self, cluster: &str) -> Result<&str, String> {
        let at = |home: &HomeVoters| home.place == cluster || home.seat == cluster;
        let known = self.homes.get_key_value(cluster).or_else(|| self.homes.iter().find(|(_, home)| at(home)));
        known.map(|(home, _)| home.as_str()).ok_or_else(|| {
            let homes = if self.homes.is_empty() { "none".to_owned() } else { self.names().join(", ") };
            if self.spares.iter().any(|spare| spare == cluster) {
                return format!(
                    "the spare {cluster} holds the voters of no cluster. Clusters with voters of their own: {homes}"
                );
            }
            format!("{cluster} has no voters of its own. Clusters that have: {homes}")
        })
    }

    /// Where the voters of a home are.
    pub(super) fn voters(&self, home: &str) -> HomeVoters {
        let at_home = || HomeVoters { place: home.to_owned(), seat: home.to_owned(), count: 0 };
        self.homes.get(home).cloned().unwrap_or_else(at_home)
    }

    /// True if a place is not free: it is that of another home.
    pub(super) fn is_of_another(&self, place: &str, home: &str) -> bool {
        self.homes.iter().any(|(name, voters)| name != home && (name == place || voters.place == place))
    }

    /// The homes with voters, by name.
    pub(super) fn with_voters(&self) -> impl Iterator<Item = (&String, &HomeVoters)> {
        self.homes.iter().filter(|(home, voters)| voters.count > 0 || voters.place != **home)
    }

    fn names(&self) -> Vec<&str> {
        self.with_voters().map(|(home, _)| home.as_str()).collect()
    }
}

impl HomeVoters {
    fn of(home: &str, clusters: &[ClusterStatus], left: Option<&str>) -> Self {
        let find = |name: &str| clusters.iter().find(|cluster| cluster.name == name);
        let count = |name: &str| find(name).map_or(0, |cluster| cluster.voters.len());
        let place = find(home).and_then(|cluster| cluster.moved_to.as_deref()).unwrap_or(home);
        let has_voters = |name: &&str| count(name) > 0;
        let seat = [place, home].into_iter().chain(left).find(has_voters).unwrap_or(home);
        Self { place: place.to_owned(), seat: seat.to_owned(), count: count(seat) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::fixtures::multi_cluster_zookeeper;

    /// m1 has its voters at m4, m2 at home. Those of m3 are on their way to m5.
    fn homes(annotation: &str) -> VoterHomes {
        let object = multi_cluster_zookeeper(json!({
            "spec": { "failover": { "spares": ["m4", "m5", "m6"] } },
            "status": { "clusters": [
                { "name": "m1", "movedTo": "m4" }, { "name": "m2", "voters": [3] },
                { "name": "m3", "movedTo": "m5", "voters": [4] }, { "name": "m4", "voters": [1, 2] },
            ] },
        }));
        VoterHomes::of(&object, &annotation.parse().unwrap())
    }

    #[rstest]
    #[case::at_home("m2", Ok("m2"))]
    #[case::moved("m1", Ok("m1"))]
    #[case::the_spare_in_use("m4", Ok("m1"))]
    #[case::the_spare_of_a_move("m5", Ok("m3"))]
    #[case::on_its_way_home("m7", Ok("m7"))]
    #[case::a_free_spare(
        "m6",
        Err("the spare m6 holds the voters of no cluster. Clusters with voters of their own: m1, m2, m3")
    )]
    #[case::unknown("m9", Err("m9 has no voters of its own. Clusters that have: m1, m2, m3"))]
    fn a_name_means_a_home(#[case] named: &str, #[case] expected: Result<&str, &str>) {
        let homes = homes("m7=m7");
        assert_eq!(homes.meant_by(named), expected.map_err(str::to_owned));
    }

    #[rstest]
    #[case("m1", "m4", "m4", 2)]
    #[case("m2", "m2", "m2", 1)]
    #[case("m3", "m5", "m3", 1)]
    fn the_voters_of_a_home(#[case] home: &str, #[case] place: &str, #[case] seat: &str, #[case] count: usize) {
        let expected = HomeVoters { place: place.to_owned(), seat: seat.to_owned(), count };
        assert_eq!(homes("").voters(home), expected);
    }
}
