//! Readiness of the member clusters.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::doctor::{
    finding::DoctorFinding,
    observed::{DoctorObserved, MemberCluster, MemberObjects, readable},
};
use mczk_api::karmada::additions::is_karmada_key;

pub(super) const CHECKED: &str =
    "Every member cluster is Ready and without taints, reaches the webhook, and answers through Karmada";

/// Member clusters that Karmada does not reach, or does not schedule to.
pub(super) fn examine(observed: &DoctorObserved, _now: Timestamp) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    let Some(clusters) = readable(&observed.clusters, "clusters", &mut findings) else { return findings };
    if clusters.is_empty() {
        let message = "The federation has no member cluster: no ensemble can start";
        findings.push(DoctorFinding::fault("clusters", message, "karmadactl join NAME --cluster-kubeconfig FILE"));
    }
    let webhook = observed.webhook_of_ours();
    let service = webhook.and_then(|webhook| webhook.client_config.service);
    let service = service.map(|service| format!("{}.{}.svc", service.name, service.namespace));
    for member in clusters {
        findings.extend(not_ready(member));
        findings.extend(tainted(member));
        findings.extend(pull(member, service.as_deref()));
        findings.extend(silent(member));
    }
    findings
}

fn not_ready(member: &MemberCluster) -> Option<DoctorFinding> {
    let name = member.cluster.name();
    let message = if member.cluster.has_no_ready_node() {
        "None of the cluster's nodes is Ready: its agent does not run. Nothing changes there".to_owned()
    } else {
        format!("The cluster is not Ready in Karmada: {}. Nothing changes there", member.ready_message)
    };
    let remedy = format!(
        "See kubectl describe cluster {name}. If it is lost for good, remove it from the placement of its ensembles"
    );
    (!member.cluster.ready()).then(|| DoctorFinding::fault(name, message, remedy))
}

/// Taints of users. Karmada's own only repeat that a cluster is not Ready.
fn tainted(member: &MemberCluster) -> Option<DoctorFinding> {
    let name = member.cluster.name();
    let foreign =
        member.taints.iter().filter(|taint| !is_karmada_key(&taint.key) && taint.effect != "PreferNoSchedule");
    let taints: Vec<String> = foreign.map(|taint| format!("{}:{}", taint.key, taint.effect)).collect();
    let first = taints.first()?;
    let message = format!(
        "The cluster has the taint {}: an ensemble without a toleration gets no voters there",
        taints.join(", ")
    );
    let remedy =
        format!("karmadactl taint clusters {name} {first}-, or tolerate it in spec.placement.clusterTolerations");
    Some(DoctorFinding::warning(name, message, remedy))
}

/// Karmada's agent in a cluster of mode Pull calls the webhook from there.
fn pull(member: &MemberCluster, service: Option<&str>) -> Option<DoctorFinding> {
    let name = service.filter(|_| member.cluster.is_pull())?;
    let message =
        format!("The cluster is of mode Pull: its karmada-agent calls the webhook, and {name} does not resolve there");
    let remedy = "mczk install --url https://ADDRESS, with an address that the cluster reaches";
    Some(DoctorFinding::fault(member.cluster.name(), message, remedy))
}

/// Reads through Karmada's proxy that failed.
fn silent(member: &MemberCluster) -> Option<DoctorFinding> {
    let MemberObjects { definition, agents, storage_classes } = member.objects.as_ref()?;
    let failed = [definition.as_ref().err(), agents.as_ref().err(), storage_classes.as_ref().err()];
    let failed: BTreeSet<&str> = failed.into_iter().flatten().map(String::as_str).collect();
    let why = failed.into_iter().collect::<Vec<_>>().join("; ");
    let name = member.cluster.name();
    let message = format!("Its agent and storage classes cannot all be examined through Karmada's proxy: {why}");
    let remedy = format!(
        "Check that karmada-aggregated-apiserver runs, and that you may read there: kubectl get --raw \
         /apis/cluster.karmada.io/v1alpha1/clusters/{name}/proxy/version"
    );
    (!why.is_empty()).then(|| DoctorFinding::warning(name, message, remedy))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::healthy::{assert_fault, assert_warning, healthy, member, now, register_with};

    #[test]
    fn a_cluster_that_is_not_ready() {
        let mut observed = healthy();
        let m1 = member(&mut observed);
        m1.cluster.status.conditions[0].status = "False".to_owned();
        m1.ready_message = "cluster is not reachable".to_owned();
        m1.taints =
            serde_json::from_value(json!([{ "key": "cluster.karmada.io/not-ready", "effect": "NoExecute" }])).unwrap();
        m1.objects = None;
        let findings = examine(&observed, now());
        assert_fault(&findings, "not Ready in Karmada: cluster is not reachable", "kubectl describe cluster m1");
    }

    #[test]
    fn a_tainted_cluster() {
        let mut observed = healthy();
        member(&mut observed).taints =
            serde_json::from_value(json!([{ "key": "maintenance", "effect": "NoSchedule" }])).unwrap();
        let findings = examine(&observed, now());
        assert_warning(&findings, "maintenance:NoSchedule", "karmadactl taint clusters m1 maintenance:NoSchedule-");
    }

    #[test]
    fn a_cluster_of_mode_pull_cannot_resolve_a_service() {
        let mut observed = healthy();
        member(&mut observed).cluster.spec.sync_mode = "Pull".to_owned();
        assert_fault(&examine(&observed, now()), "mczk.mczk-system.svc does not resolve", "mczk install --url");
        let url = json!({ "clientConfig": { "service": null, "url": "https://mczk.example/interpreter" } });
        register_with(&mut observed, url);
        assert_eq!(examine(&observed, now()), []);
    }

    #[test]
    fn a_cluster_that_does_not_answer_through_the_proxy() {
        let mut observed = healthy();
        let objects = member(&mut observed).objects.as_mut().unwrap();
        objects.agents = Err("no answer within 5 s".to_owned());
        objects.definition = Err("no answer within 5 s".to_owned());
        let findings = examine(&observed, now());
        assert_warning(&findings, "Karmada's proxy: no answer within 5 s", "clusters/m1/proxy/version");
    }

    #[test]
    fn no_clusters() {
        let mut observed = healthy();
        observed.clusters = Ok(vec![]);
        assert_fault(&examine(&observed, now()), "no member cluster", "karmadactl join");
    }
}
