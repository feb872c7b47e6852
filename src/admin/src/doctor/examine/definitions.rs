//! The definitions of both kinds in karmada-apiserver, and of ZooKeeper in the member clusters.

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::{
    doctor::{
        finding::DoctorFinding,
        observed::{DoctorObserved, MemberCluster, Read, members, readable, skipped},
    },
    register::propagation::policies,
    terminal::field_changes::field_changes,
};
use mczk_api::{API_VERSION, VERSION, contract::owned_fields::differing_path, crd};

pub(super) const CHECKED: &str =
    "karmada-apiserver and all member clusters serve the definitions of this version of mczk";

const REGISTER: &str = "mczk register --only crds,propagation";
/// The kind of the member clusters.
const OF_MEMBERS: &str = "zookeepers.mczk.io";

/// Definitions and policies of definitions that are missing or differ.
pub(super) fn examine(observed: &DoctorObserved, _now: Timestamp) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    let mut wanted = None;
    for definition in crd::definitions().unwrap_or_default() {
        let name = definition.metadata.name.clone().unwrap_or_default();
        let unknown: Read<Option<CustomResourceDefinition>> = Ok(None);
        let read = observed.definitions.get(&name).unwrap_or(&unknown);
        let Some(live) = readable(read, "karmada-apiserver", &mut findings) else { continue };
        let problem = problem(live.as_ref(), &definition);
        // A definition that differs here differs in the member clusters too: one cause, one finding.
        if name == OF_MEMBERS && problem.is_none() {
            wanted = Some(definition);
        }
        findings.extend(problem.map(|problem| {
            let message = format!("The CustomResourceDefinition {name} {problem}");
            DoctorFinding::fault("karmada-apiserver", message, REGISTER)
        }));
    }
    findings.extend(missing_policies(observed));
    let Some(wanted) = wanted else { return findings };
    let members = members(observed, &mut findings).iter();
    findings.extend(members.filter_map(|member| in_member(member, &wanted)));
    findings
}

/// What is wrong with a definition.
fn problem(live: Option<&CustomResourceDefinition>, wanted: &CustomResourceDefinition) -> Option<String> {
    let Some(live) = live else { return Some("does not exist".to_owned()) };
    let conditions = live.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    if let Some(not) = conditions.iter().find(|c| c.type_ == "Established" && c.status != "True") {
        return Some(format!("is stored but not served: {}", not.message.as_deref().unwrap_or("see its conditions")));
    }
    if !live.spec.versions.iter().any(|version| version.name == VERSION && version.served) {
        return Some(format!("does not serve {VERSION}"));
    }
    let (live, wanted) = (json!(live.spec), json!(wanted.spec));
    differing_path(&live, &wanted, |live, wanted| live == wanted)?;
    let differs = first_difference(&live, &wanted);
    Some(format!("is of another version than this program ({}): {differs} differs", env!("CARGO_PKG_VERSION")))
}

fn first_difference(live: &Value, wanted: &Value) -> String {
    let changes = field_changes(Some(live), Some(wanted));
    let first = changes.into_iter().find(|change| change.after.is_some());
    first.map_or_else(|| "spec".to_owned(), |change| format!("spec.{}", change.path))
}

/// The policies that bring the definitions to the member clusters.
fn missing_policies(observed: &DoctorObserved) -> Vec<DoctorFinding> {
    // The area of the policies reports that they cannot be read.
    let Ok(live) = &observed.policies else { return Vec::new() };
    let exists = |name: &str| {
        let is_it = |policy: &DynamicObject| {
            let kind = policy.types.as_ref().map(|types| types.kind.as_str());
            kind == Some("ClusterPropagationPolicy") && policy.metadata.name.as_deref() == Some(name)
        };
        live.iter().any(is_it)
    };
    let names = policies().into_iter().filter_map(|policy| policy.metadata.name);
    let message = |name: String| {
        format!("The ClusterPropagationPolicy {name} does not exist: Karmada brings no definition to a new cluster")
    };
    names
        .filter(|name| !exists(name))
        .map(|name| DoctorFinding::fault("karmada-apiserver", message(name), REGISTER))
        .collect()
}

fn in_member(member: &MemberCluster, wanted: &CustomResourceDefinition) -> Option<DoctorFinding> {
    let name = member.cluster.name();
    let problem = match member.objects.as_ref().map(|objects| &objects.definition) {
        Some(Ok(live)) => problem(live.as_ref(), wanted)?,
        // Karmada's own list of kinds is all that is left without the proxy. It may be old if Karmada reaches no cluster.
        Some(Err(_)) if !member.cluster.serves(API_VERSION, "ZooKeeper") => {
            "is not served, as Karmada reports".to_owned()
        }
        _ => return Some(skipped(name, "clusters")),
    };
    let remedy = format!(
        "{REGISTER}: Karmada then brings it. If it stays, see the Work: kubectl --namespace karmada-es-{name} get works"
    );
    Some(DoctorFinding::fault(name, format!("The CustomResourceDefinition {OF_MEMBERS} {problem}"), remedy))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::doctor::healthy::{assert_fault, assert_skipped, healthy, member, now};

    fn karmadas<'a>(observed: &'a mut DoctorObserved, name: &str) -> &'a mut Option<CustomResourceDefinition> {
        observed.definitions.get_mut(name).unwrap().as_mut().unwrap()
    }

    #[test]
    fn a_definition_is_missing_in_karmada() {
        let mut observed = healthy();
        *karmadas(&mut observed, "multiclusterzookeepers.mczk.io") = None;
        let findings = examine(&observed, now());
        assert_fault(&findings, "multiclusterzookeepers.mczk.io does not exist", "mczk register --only crds");
    }

    #[test]
    fn a_definition_of_another_version_is_one_finding() {
        let mut observed = healthy();
        let live = karmadas(&mut observed, OF_MEMBERS).as_mut().unwrap();
        live.spec.versions[0].schema = None;
        let broken = live.clone();
        member(&mut observed).objects.as_mut().unwrap().definition = Ok(Some(broken));
        assert_fault(&examine(&observed, now()), "spec.versions[v1alpha1].schema", "mczk register --only crds");
    }

    #[test]
    fn a_definition_that_is_not_served() {
        let mut observed = healthy();
        karmadas(&mut observed, OF_MEMBERS).as_mut().unwrap().spec.versions[0].served = false;
        assert_fault(&examine(&observed, now()), "does not serve v1alpha1", "mczk register");
        let mut observed = healthy();
        let live = karmadas(&mut observed, OF_MEMBERS).as_mut().unwrap();
        live.status = serde_json::from_value(json!({ "conditions": [
            { "type": "Established", "status": "False", "reason": "NotAccepted", "message": "names conflict" },
        ] }))
        .unwrap();
        assert_fault(&examine(&observed, now()), "not served: names conflict", "mczk register");
    }

    #[test]
    fn a_definition_is_missing_in_a_member_cluster() {
        let mut observed = healthy();
        member(&mut observed).objects.as_mut().unwrap().definition = Ok(None);
        let findings = examine(&observed, now());
        assert_fault(&findings, "zookeepers.mczk.io does not exist", "kubectl --namespace karmada-es-m1 get works");
        assert_eq!(findings[0].subject, "m1");
    }

    #[test]
    fn without_the_proxy_karmadas_list_of_kinds_counts() {
        let mut observed = healthy();
        member(&mut observed).objects.as_mut().unwrap().definition = Err("no answer".to_owned());
        assert_skipped(&examine(&observed, now()), "m1");
        member(&mut observed).cluster.status.api_enablements.clear();
        assert_fault(&examine(&observed, now()), "as Karmada reports", "mczk register");
    }

    #[test]
    fn a_policy_of_definitions_is_missing() {
        let mut observed = healthy();
        observed.policies.as_mut().unwrap().retain(|policy| policy.metadata.name.as_deref() != Some("mczk-crds"));
        assert_fault(&examine(&observed, now()), "ClusterPropagationPolicy mczk-crds does not exist", "propagation");
    }
}
