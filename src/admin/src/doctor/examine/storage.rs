//! Storage classes of the member clusters.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;

use crate::doctor::{
    finding::DoctorFinding,
    observed::{DoctorObserved, MemberCluster, clusters_of, ensembles, full_name, members, of_member, parsed},
};
use mczk_api::{MultiClusterZooKeeper, contract::labels::DEFAULT_CLASS};

pub(super) const CHECKED: &str =
    "Every member cluster has the storage classes of its ensembles, also as a spare, and others have one";

/// Storage classes that are missing.
pub(super) fn examine(observed: &DoctorObserved, _now: Timestamp) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    let members = members(observed, &mut findings);
    // By cluster and class; an empty class is the default one.
    let mut wanted: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for ensemble in parsed(ensembles(observed, &mut findings)) {
        for cluster in clusters_of(&ensemble, members) {
            let class = class_of(&ensemble, &cluster);
            wanted.entry((cluster, class)).or_default().insert(full_name(&ensemble.metadata));
        }
    }
    for member in members {
        let Some(classes) = of_member(member, |objects| &objects.storage_classes, &mut findings) else { continue };
        let own = wanted.iter().filter(|((cluster, _), _)| cluster == member.cluster.name());
        let missing: Vec<DoctorFinding> =
            own.filter_map(|((_, class), ensembles)| missing(member, class, classes, ensembles)).collect();
        if missing.is_empty() && classes.is_empty() {
            let remedy =
                format!("Create a storage class: kubectl --context {} get storageclasses", member.cluster.name());
            let message = "The cluster has no storage class: no server could have a volume there";
            findings.push(DoctorFinding::warning(member.cluster.name(), message, remedy));
        }
        findings.extend(missing);
    }
    findings
}

/// The class that an ensemble names for a cluster; empty for the default one.
fn class_of(ensemble: &MultiClusterZooKeeper, cluster: &str) -> String {
    let spec = &ensemble.spec;
    let other = spec.overrides.iter().find(|other| other.cluster == cluster);
    let class = other.and_then(|other| other.storage_class_name.as_ref());
    class.or(spec.template.storage.storage_class_name.as_ref()).cloned().unwrap_or_default()
}

fn missing(
    member: &MemberCluster,
    class: &str,
    classes: &[StorageClass],
    ensembles: &BTreeSet<String>,
) -> Option<DoctorFinding> {
    let is_default = |found: &StorageClass| {
        DEFAULT_CLASS.iter().any(|key| found.annotations().get(*key).is_some_and(|value| value == "true"))
    };
    let exists =
        classes.iter().any(|found| if class.is_empty() { is_default(found) } else { found.name_any() == class });
    if exists {
        return None;
    }
    let of = ensembles.iter().cloned().collect::<Vec<_>>().join(", ");
    let name = member.cluster.name();
    Some(if class.is_empty() {
        let message = format!("The cluster has no default storage class, and {of} names none: servers stay Pending");
        let remedy = format!(
            "kubectl --context {name} annotate storageclass NAME {}=true, or name one in spec.overrides of the ensemble",
            DEFAULT_CLASS[0]
        );
        DoctorFinding::fault(name, message, remedy)
    } else {
        let message = format!("The storage class {class} of {of} does not exist: servers stay Pending");
        let remedy =
            "Create it in the cluster, or name another one in spec.overrides[].storageClassName of the ensemble";
        DoctorFinding::fault(name, message, remedy)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::healthy::{assert_fault, assert_warning, ensemble_with, healthy, member, now};

    fn classes(observed: &mut DoctorObserved) -> &mut Vec<StorageClass> {
        member(observed).objects.as_mut().unwrap().storage_classes.as_mut().unwrap()
    }

    #[test]
    fn no_storage_class() {
        let mut observed = healthy();
        classes(&mut observed).clear();
        let remedy = "annotate storageclass NAME storageclass.kubernetes.io/is-default-class=true";
        assert_fault(&examine(&observed, now()), "no default storage class, and n/zk names none", remedy);
        observed.ensembles = Ok(vec![]);
        assert_warning(&examine(&observed, now()), "no storage class", "Create a storage class");
    }

    #[test]
    fn no_default_class() {
        let mut observed = healthy();
        classes(&mut observed)[0].metadata.annotations = None;
        assert_fault(&examine(&observed, now()), "no default storage class", "is-default-class=true");
    }

    #[test]
    fn a_named_class_is_missing() {
        let mut observed = healthy();
        ensemble_with(
            &mut observed,
            json!({ "spec": {
            "template": { "storage": { "storageClassName": "standard" } },
            "overrides": [{ "cluster": "m1", "storageClassName": "fast" }],
        } }),
        );
        let findings = examine(&observed, now());
        assert_fault(&findings, "The storage class fast of n/zk does not exist", "spec.overrides[].storageClassName");
        assert_eq!(findings[0].subject, "m1");
    }

    /// No condition of the ensemble tells it before the voters of a lost cluster move there.
    #[test]
    fn a_spare_lacks_the_class() {
        let mut observed = healthy();
        let mut spare = member(&mut observed).clone();
        spare.cluster.metadata.name = Some("m3".to_owned());
        spare.objects.as_mut().unwrap().storage_classes = Ok(vec![]);
        observed.clusters.as_mut().unwrap().push(spare);
        ensemble_with(&mut observed, json!({ "spec": { "failover": { "spares": ["m3"] } } }));
        let findings = examine(&observed, now());
        assert_fault(&findings, "no default storage class, and n/zk names none", "annotate storageclass NAME");
        assert_eq!(findings[0].subject, "m3");
    }
}
