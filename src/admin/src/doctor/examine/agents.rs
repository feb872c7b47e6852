//! The agents of the member clusters.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;

use crate::doctor::{
    finding::DoctorFinding,
    image::version,
    observed::{DoctorObserved, full_name, members, of_member, readable},
};

pub(super) const CHECKED: &str =
    "Every member cluster has an agent, which is available and has the version of the others";

const INSTALL: &str = "mczk register --only agents --agent-image IMAGE";

/// Agents that are missing, not available, or of another version.
pub(super) fn examine(observed: &DoctorObserved, _now: Timestamp) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    let expected = readable(&observed.agent_image, "karmada-apiserver", &mut findings).and_then(Clone::clone);
    let expected = expected.as_deref().and_then(version).map(str::to_owned).or_else(|| most_common(observed));
    for member in members(observed, &mut findings) {
        if let Some(agents) = of_member(member, |objects| &objects.agents, &mut findings) {
            findings.extend(of_cluster(member.cluster.name(), agents, expected.as_deref()));
        }
    }
    findings
}

fn of_cluster(name: &str, agents: &[Deployment], expected: Option<&str>) -> Vec<DoctorFinding> {
    if agents.is_empty() {
        let message = "The cluster has no agent: no servers start or change there";
        let remedy = format!(
            "{INSTALL}. If it stays, see the Work: kubectl --namespace karmada-es-{name} get works, or apply manifests/agent.yaml there"
        );
        return vec![DoctorFinding::fault(name, message, remedy)];
    }
    agents.iter().filter_map(|agent| of_agent(name, agent, expected)).collect()
}

fn of_agent(cluster: &str, agent: &Deployment, expected: Option<&str>) -> Option<DoctorFinding> {
    let title = full_name(&agent.metadata);
    let wanted = agent.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let available = agent.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0);
    let namespace = agent.metadata.namespace.as_deref().unwrap_or_default();
    let see = format!("See kubectl --context {cluster} --namespace {namespace} describe pods");
    if available == 0 {
        let message =
            format!("The agent {title} is not available: {available} of {wanted} pods. No servers start or change");
        return Some(DoctorFinding::fault(cluster, message, see));
    }
    if let (Some(own), Some(expected)) = (image(agent).and_then(|image| version(image)), expected)
        && own != expected
    {
        let message = format!("The agent {title} has the version {own}, and Karmada or most clusters have {expected}");
        let remedy = format!("{INSTALL}. An agent of the chart: helm upgrade, with image.tag={expected}");
        return Some(DoctorFinding::fault(cluster, message, remedy));
    }
    let message = format!("{available} of {wanted} pods of the agent {title} are available");
    (available < wanted).then(|| DoctorFinding::warning(cluster, message, see))
}

fn image(agent: &Deployment) -> Option<&String> {
    agent.spec.as_ref()?.template.spec.as_ref()?.containers.first()?.image.as_ref()
}

/// The version of most agents. Of several, the highest name: the result must not depend on the order of clusters.
fn most_common(observed: &DoctorObserved) -> Option<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let objects = observed.clusters.iter().flatten().filter_map(|member| member.objects.as_ref());
    for agent in objects.flat_map(|objects| objects.agents.iter().flatten()) {
        if let Some(version) = image(agent).and_then(|image| version(image)) {
            *counts.entry(version).or_default() += 1;
        }
    }
    counts.into_iter().max_by_key(|(version, count)| (*count, *version)).map(|(version, _)| version.to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::doctor::healthy::{assert_fault, assert_skipped, assert_warning, healthy, member, now};

    fn agents(observed: &mut DoctorObserved) -> &mut Vec<Deployment> {
        member(observed).objects.as_mut().unwrap().agents.as_mut().unwrap()
    }

    fn set_image(observed: &mut DoctorObserved, image: &str) {
        let spec = agents(observed)[0].spec.as_mut().unwrap();
        spec.template.spec.as_mut().unwrap().containers[0].image = Some(image.to_owned());
    }

    #[test]
    fn a_cluster_that_karmada_does_not_reach_is_skipped() {
        let mut observed = healthy();
        member(&mut observed).objects = None;
        assert_skipped(&examine(&observed, now()), "m1");
    }

    #[test]
    fn no_agent() {
        let mut observed = healthy();
        agents(&mut observed).clear();
        let findings = examine(&observed, now());
        assert_fault(&findings, "The cluster has no agent", "mczk register --only agents --agent-image IMAGE");
        assert_eq!(findings[0].subject, "m1");
    }

    #[test]
    fn an_agent_that_is_not_available() {
        let mut observed = healthy();
        agents(&mut observed)[0].status.as_mut().unwrap().available_replicas = None;
        assert_fault(
            &examine(&observed, now()),
            "is not available: 0 of 2 pods",
            "--context m1 --namespace mczk-system",
        );
        agents(&mut observed)[0].status.as_mut().unwrap().available_replicas = Some(1);
        assert_warning(&examine(&observed, now()), "1 of 2 pods of the agent mczk-system/mczk-agent", "describe pods");
    }

    #[test]
    fn an_agent_of_another_version_than_karmada_propagates() {
        let mut observed = healthy();
        set_image(&mut observed, "mirror.example/mczk:0.0.9");
        assert_fault(&examine(&observed, now()), "has the version 0.0.9, and Karmada", "--agent-image IMAGE");
        // A mirror keeps the tag.
        set_image(&mut observed, "mirror.example/mczk:0.1.0");
        assert_eq!(examine(&observed, now()), []);
    }

    #[test]
    fn an_agent_of_another_version_than_most() {
        let mut observed = healthy();
        observed.agent_image = Ok(None);
        set_image(&mut observed, "mczk:0.0.9");
        assert_fault(&examine(&observed, now()), "have 0.1.0", "image.tag=0.1.0");
    }
}
