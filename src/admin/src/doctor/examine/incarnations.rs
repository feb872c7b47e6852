//! Incarnations in member clusters whose ensemble karmada-apiserver does not have.
//!
//! After the loss of the control plane, an ensemble continues only under its name: agents report other incarnations of the
//! names that exist, from the clusters that are selected. So nothing else names an incarnation whose ensemble is created under
//! another name, or not at all, or one in a cluster that had not joined when another one began under its name.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::Value;

use crate::doctor::{
    finding::DoctorFinding,
    observed::{DoctorObserved, IncarnationKey, IncarnationObjects, full_name, members, of_member, skipped},
};
use mczk_api::contract::{former_incarnations::FormerIncarnations, labels::TOMBSTONE};

pub(super) const CHECKED: &str = "Every ensemble with servers in a member cluster has its MultiClusterZooKeeper";

/// Incarnations without their ensemble. If the ensemble exists, its condition `IncarnationLives` names another incarnation.
pub(super) fn examine(observed: &DoctorObserved, _now: Timestamp) -> Vec<DoctorFinding> {
    let Ok(ensembles) = &observed.ensembles else {
        // Without them, every incarnation would be one without its ensemble.
        return vec![skipped("ensembles", "ensembles")];
    };
    let ensembles: BTreeMap<String, &DynamicObject> =
        ensembles.iter().map(|ensemble| (full_name(&ensemble.metadata), ensemble)).collect();
    let ended = ended(observed);
    let mut findings = Vec::new();
    let mut left: BTreeMap<&IncarnationKey, BTreeMap<&str, IncarnationObjects>> = BTreeMap::new();
    for member in members(observed, &mut findings) {
        let incarnations = of_member(member, |objects| &objects.incarnations, &mut findings);
        for (key, objects) in incarnations.into_iter().flatten() {
            let is_left = match ensembles.get(&key.full_name()) {
                None => *objects != IncarnationObjects::default(),
                Some(ensemble) => objects.servers > 0 && is_beside(ensemble, &key.id),
            };
            if is_left && !ended.contains(key) {
                left.entry(key).or_default().insert(member.cluster.name(), *objects);
            }
        }
    }
    findings.extend(left.into_iter().map(|(key, clusters)| {
        if ensembles.contains_key(&key.full_name()) { beside(key, &clusters) } else { without_ensemble(key, &clusters) }
    }));
    findings
}

/// True if an ensemble runs as another incarnation, and its user has not declared this one over.
fn is_beside(ensemble: &DynamicObject, id: &str) -> bool {
    let own = ensemble.data.pointer("/status/ensemble/incarnation").and_then(Value::as_str);
    own.is_some_and(|own| own != id) && !FormerIncarnations::of(ensemble.annotations()).over.contains(id)
}

fn beside(key: &IncarnationKey, clusters: &BTreeMap<&str, IncarnationObjects>) -> DoctorFinding {
    let IncarnationKey { namespace, ensemble, id } = key;
    let names = clusters.keys().copied().collect::<Vec<_>>().join(", ");
    let message = format!(
        "Servers of incarnation {id} run in cluster {names}, beside those of the MultiClusterZooKeeper, which is another incarnation: \
         clients there may see other data"
    );
    let remedy = format!(
        "Delete nothing before you know which data counts. Select these clusters in spec.placement: mczk why {ensemble} --namespace \
         {namespace} then names what can become of {id}. See docs/how-to/backup.md, \"Two ensembles of one name\""
    );
    DoctorFinding::fault(key.full_name(), message, remedy)
}

/// The incarnations with a tombstone: agents remove their servers as soon as they read it.
fn ended(observed: &DoctorObserved) -> BTreeSet<IncarnationKey> {
    let policies = observed.policies.iter().flatten();
    let tombstones = policies.filter(|policy| policy.annotations().contains_key(TOMBSTONE));
    tombstones.filter_map(|policy| IncarnationKey::of(&policy.metadata)).collect()
}

fn without_ensemble(key: &IncarnationKey, clusters: &BTreeMap<&str, IncarnationObjects>) -> DoctorFinding {
    let IncarnationKey { namespace, ensemble, id } = key;
    let in_cluster = |(cluster, objects): (&&str, &IncarnationObjects)| {
        format!("{cluster} (servers: {}, volumes: {})", objects.servers, objects.volumes)
    };
    let places = clusters.iter().map(in_cluster).collect::<Vec<_>>().join(", ");
    let state = format!("Incarnation {id} is in cluster {places}, and no MultiClusterZooKeeper has this name");
    if clusters.values().any(|objects| objects.servers > 0) {
        let message = format!("{state}: its servers run on, and no operator knows them");
        let remedy = format!(
            "Only an ensemble of this name can continue it. Create the MultiClusterZooKeeper {ensemble} in the namespace \
             {namespace} again, then: mczk adopt {ensemble} {id} --namespace {namespace}. Delete nothing in the member clusters"
        );
        return DoctorFinding::fault(key.full_name(), message, remedy);
    }
    let message = format!("{state}: these volumes may have the only copy of its data");
    let remedy = format!(
        "Keep them. Create the MultiClusterZooKeeper {ensemble} in the namespace {namespace} again: mczk why {ensemble} \
         --namespace {namespace} then names the incarnation, and mczk adopt continues it if an agent knows its servers"
    );
    DoctorFinding::warning(key.full_name(), message, remedy)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use mczk_api::contract::{labels::DECLARE_OVER, tombstone::Tombstone};
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::doctor::healthy::{
        assert_fault, assert_skipped, assert_warning, ensemble_with, healthy, incarnation, member, now, object,
    };

    /// Both clusters have servers and volumes of one more incarnation.
    fn with(namespace: &str, ensemble: &str, sizes: [(usize, usize); 2]) -> DoctorObserved {
        let mut observed = healthy();
        for (member, (servers, volumes)) in observed.clusters.as_mut().unwrap().iter_mut().zip(sizes) {
            let incarnations = member.objects.as_mut().unwrap().incarnations.as_mut().unwrap();
            let key = incarnation(namespace, ensemble, "def456");
            incarnations.insert(key, IncarnationObjects { servers, volumes });
        }
        observed
    }

    #[rstest]
    #[case::of_another_name("n", "orders")]
    #[case::in_another_namespace("other", "zk")]
    fn servers_without_their_ensemble(#[case] namespace: &str, #[case] ensemble: &str) {
        let findings = examine(&with(namespace, ensemble, [(2, 2), (1, 0)]), now());
        let message = "Incarnation def456 is in cluster m1 (servers: 2, volumes: 2), m2 (servers: 1, volumes: 0)";
        let remedy = format!("mczk adopt {ensemble} def456 --namespace {namespace}. Delete nothing");
        assert_fault(&findings, message, &remedy);
        assert_eq!(findings[0].subject, format!("{namespace}/{ensemble}"));
    }

    /// The cluster of the former one joined after the object was created again, and its placement goes by labels.
    #[rstest]
    #[case::serves_beside_it(1, "", true)]
    #[case::has_volumes_alone(0, "", false)]
    #[case::is_being_ended(1, "def456", false)]
    fn servers_beside_those_of_their_ensemble(#[case] servers: usize, #[case] over: &str, #[case] found: bool) {
        let mut observed = with("n", "zk", [(servers, 1), (0, 0)]);
        ensemble_with(&mut observed, json!({ "metadata": { "annotations": { DECLARE_OVER: over } } }));
        let findings = examine(&observed, now());
        let named = findings
            .iter()
            .any(|finding| finding.message.contains("Servers of incarnation def456 run in cluster m1, beside"));
        assert_eq!(named, found, "{findings:?}");
    }

    #[test]
    fn volumes_without_servers_are_a_warning() {
        let findings = examine(&with("n", "orders", [(0, 2), (0, 0)]), now());
        let message = "(servers: 0, volumes: 2), and no MultiClusterZooKeeper has this name: these volumes";
        assert_warning(&findings, message, "Keep them. Create the MultiClusterZooKeeper orders in the namespace n");
    }

    #[rstest]
    #[case::volumes_of_a_name_that_exists("zk", [(0, 2), (0, 1)])]
    #[case::nothing_is_left("orders", [(0, 0), (0, 0)])]
    fn no_finding(#[case] ensemble: &str, #[case] sizes: [(usize, usize); 2]) {
        assert_eq!(examine(&with("n", ensemble, sizes), now()), []);
    }

    #[test]
    fn an_incarnation_that_ended_while_karmada_did_not_reach_the_cluster() {
        let mut observed = with("n", "orders", [(2, 2), (0, 0)]);
        let tombstone = Tombstone {
            namespace: "n".to_owned(),
            name: "orders".to_owned(),
            incarnation: "def456".to_owned(),
            clusters: BTreeSet::from(["m1".to_owned()]),
        };
        let metadata = json!({ "metadata": tombstone.policy().metadata });
        let policy = object("policy.karmada.io/v1alpha1", "PropagationPolicy", Some("n"), "orders", metadata);
        observed.policies.as_mut().unwrap().push(policy);
        assert_eq!(examine(&observed, now()), []);
    }

    #[test]
    fn nothing_is_compared_with_ensembles_that_cannot_be_read() {
        let mut observed = with("n", "orders", [(2, 2), (1, 1)]);
        observed.ensembles = Err("forbidden".to_owned());
        assert_skipped(&examine(&observed, now()), "ensembles");
    }

    #[test]
    fn a_cluster_whose_servers_cannot_be_read_is_skipped() {
        let mut observed = healthy();
        member(&mut observed).objects.as_mut().unwrap().incarnations = Err("forbidden".to_owned());
        assert_skipped(&examine(&observed, now()), "m1");
    }
}
