//! Readiness of the member clusters.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use kube::api::ObjectMeta;

use crate::doctor::{
    finding::DoctorFinding,
    observed::{DoctorObserved, MemberCluster, MemberObjects, full_name, readable},
};
use mczk_api::{
    contract::naming::template_of_binding,
    karmada::{additions::is_karmada_key, work},
    pod::TaintEffect,
};

pub(super) const CHECKED: &str = "Every member cluster is Ready and without taints, reaches the webhook, answers through Karmada, and keeps no deleted object";

/// A deletion that takes longer needs the user. The agent keeps an object for two minutes at most, if no server is in the way.
const ENDING: SignedDuration = SignedDuration::from_mins(10);

/// Member clusters that Karmada does not reach, or does not schedule to.
pub(super) fn examine(observed: &DoctorObserved, now: Timestamp) -> Vec<DoctorFinding> {
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
    let works = readable(&observed.ending_works, "works", &mut findings);
    let is_ready = |name: &str| clusters.iter().any(|member| member.cluster.name() == name && member.cluster.ready());
    findings.extend(works.into_iter().flatten().filter_map(|meta| ending(meta, is_ready, now)));
    findings
}

/// A Work whose deletion lasts. Karmada never completes that of an object that the cluster does not have.
fn ending(meta: &ObjectMeta, is_ready: impl Fn(&str) -> bool, now: Timestamp) -> Option<DoctorFinding> {
    let since = meta.deletion_timestamp.as_ref()?.0;
    let cluster = work::cluster_of(meta)?;
    let annotation = |key| meta.annotations.as_ref()?.get(key).map(String::as_str);
    let namespace = annotation(work::BINDING_NAMESPACE)?;
    let name = template_of_binding(annotation(work::BINDING_NAME)?)?;
    let message = format!(
        "Karmada has been deleting ZooKeeper {namespace}/{name} of cluster {cluster} since {since}. Until this ends, the cluster \
         cannot get the ensemble again, and karmadactl unjoin waits"
    );
    let work = meta.name.as_deref().unwrap_or_default();
    let remedy = if is_ready(cluster) {
        format!(
            "If cluster {cluster} still has that object, see its condition Blocked there. If it does not: kubectl patch work {work} \
         --namespace {} --type merge --patch '{{\"metadata\":{{\"finalizers\":null}}}}'",
            meta.namespace.as_deref().unwrap_or_default()
        )
    } else {
        format!("Karmada completes it once cluster {cluster} is Ready again")
    };
    (now.duration_since(since) > ENDING).then(|| DoctorFinding::warning(full_name(meta), message, remedy))
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
    let taints = member.cluster.spec.taints.iter();
    let foreign =
        taints.filter(|taint| !is_karmada_key(&taint.key) && taint.effect != TaintEffect::PreferNoSchedule.as_str());
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
    let MemberObjects { definition, agents, storage_classes, incarnations } = member.objects.as_ref()?;
    let failed =
        [definition.as_ref().err(), agents.as_ref().err(), storage_classes.as_ref().err(), incarnations.as_ref().err()];
    let failed: BTreeSet<&str> = failed.into_iter().flatten().map(String::as_str).collect();
    let why = failed.into_iter().collect::<Vec<_>>().join("; ");
    let name = member.cluster.name();
    let message =
        format!("Its agent, servers and storage classes cannot all be examined through Karmada's proxy: {why}");
    let remedy = format!(
        "Check that karmada-aggregated-apiserver runs, and that you may read there: kubectl get --raw \
         /apis/cluster.karmada.io/v1alpha1/clusters/{name}/proxy/version"
    );
    (!why.is_empty()).then(|| DoctorFinding::warning(name, message, remedy))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    use super::*;
    use crate::doctor::healthy::{assert_fault, assert_warning, healthy, member, now, register_with};

    #[test]
    fn a_cluster_that_is_not_ready() {
        let mut observed = healthy();
        let m1 = member(&mut observed);
        m1.cluster.status.conditions[0].status = "False".to_owned();
        m1.ready_message = "cluster is not reachable".to_owned();
        m1.cluster.spec.taints =
            serde_json::from_value(json!([{ "key": "cluster.karmada.io/not-ready", "effect": "NoExecute" }])).unwrap();
        m1.objects = None;
        let findings = examine(&observed, now());
        assert_fault(&findings, "not Ready in Karmada: cluster is not reachable", "kubectl describe cluster m1");
    }

    #[test]
    fn a_tainted_cluster() {
        let mut observed = healthy();
        member(&mut observed).cluster.spec.taints =
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
    fn a_user_who_may_not_list_servers() {
        let mut observed = healthy();
        let objects = member(&mut observed).objects.as_mut().unwrap();
        objects.incarnations = Err("statefulsets.apps is forbidden".to_owned());
        assert_warning(&examine(&observed, now()), "statefulsets.apps is forbidden", "that you may read there");
    }

    /// A cluster was excluded before Karmada ever applied the object there.
    #[test]
    fn a_deletion_that_does_not_end() {
        let mut observed = healthy();
        let mut work: ObjectMeta = serde_json::from_value(json!({
            "namespace": "karmada-es-m1", "name": "zk-7f9c", "deletionTimestamp": "2025-12-31T23:55:00Z",
            "annotations": { work::BINDING_NAME: "zk-zookeeper", work::BINDING_NAMESPACE: "n" },
        }))
        .unwrap();
        observed.ending_works = Ok(vec![work.clone()]);
        assert_eq!(examine(&observed, now()), [], "it may take some minutes");
        work.deletion_timestamp = Some(Time("2025-12-31T23:45:00Z".parse().unwrap()));
        observed.ending_works = Ok(vec![work]);
        let remedy = "kubectl patch work zk-7f9c --namespace karmada-es-m1 --type merge";
        assert_warning(
            &examine(&observed, now()),
            "deleting ZooKeeper n/zk of cluster m1 since 2025-12-31T23:45",
            remedy,
        );
        // Karmada keeps it by design while it does not reach the cluster.
        member(&mut observed).cluster.status.conditions[0].status = "False".to_owned();
        let findings = examine(&observed, now());
        let away = &findings[findings.len() - 1..];
        assert_warning(away, "of cluster m1", "once cluster m1 is Ready again");
    }

    #[test]
    fn no_clusters() {
        let mut observed = healthy();
        observed.clusters = Ok(vec![]);
        assert_fault(&examine(&observed, now()), "no member cluster", "karmadactl join");
    }
}
