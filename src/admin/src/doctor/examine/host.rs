//! The pods of the operator and its credential, in the host.

use std::collections::BTreeSet;

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, Secret};
use serde_json::Value;

use crate::{
    doctor::{
        finding::{DoctorFinding, FindingSeverity},
        image::version,
        observed::{DoctorObserved, readable},
    },
    install::{
        host::text,
        wait::{available, waiting},
        webhook_authority::Certified,
    },
    register::{
        credential::{KUBECONFIG, TOKEN, TokenValidity},
        host::DEPLOYMENT,
    },
};
use mczk_api::{contract::certificate_expiry::phrase, yaml};

pub(super) const CHECKED: &str = "The operator's pods are available and of one version, and its credential is valid";

const SUBJECT: &str = "operator";
/// A token that is due for this long is a finding: the operator looks every ten minutes.
const OVERDUE: SignedDuration = SignedDuration::from_hours(24);

/// What is wrong with the pods of the operator and its credential.
pub(super) fn examine(observed: &DoctorObserved, now: Timestamp) -> Vec<DoctorFinding> {
    let Some(host) = &observed.host else {
        let message = "Not examined: the pods of the operator, its credential and the version of Karmada";
        let remedy = "Name the cluster of the operator with --host-kubeconfig or --host-context";
        return vec![DoctorFinding::new(FindingSeverity::Skipped, "host", message, remedy)];
    };
    let mut findings = Vec::new();
    let namespace = &host.namespace;
    if let Some(deployment) = readable(&host.deployment, "host", &mut findings) {
        let state = deployment.as_ref().map(available);
        let text = state.map_or_else(
            || Some("does not exist in the host".to_owned()),
            |state| (!state.complete).then(|| format!("is not complete: {}", state.text)),
        );
        if let Some(text) = text {
            let why = host.pods.iter().flatten().find_map(waiting).map(|(pod, why)| format!(". {pod}: {why}"));
            let message = format!("The Deployment {namespace}/{DEPLOYMENT} {text}{}", why.unwrap_or_default());
            let remedy = format!("Run mczk install, and see kubectl --namespace {namespace} describe pods");
            findings.push(DoctorFinding::fault(SUBJECT, message, remedy));
        }
    }
    if let Some(pods) = readable(&host.pods, "host", &mut findings) {
        findings.extend(versions(pods));
    }
    if let Some(Some(secret)) = readable(&host.credential, "host", &mut findings) {
        findings.extend(credential(secret, namespace, now));
    }
    findings
}

/// Operators of two versions decide differently.
fn versions(pods: &[Pod]) -> Option<DoctorFinding> {
    let containers = pods.iter().filter_map(|pod| pod.spec.as_ref()).flat_map(|spec| &spec.containers);
    let images: BTreeSet<&str> = containers.filter_map(|container| container.image.as_deref()).collect();
    let versions: BTreeSet<&str> = images.iter().map(|image| version(image).unwrap_or(image)).collect();
    (versions.len() > 1).then(|| {
        let list = versions.into_iter().collect::<Vec<_>>().join(" and ");
        let remedy = "Wait for a rollout of the Deployment to end. If it does not: mczk install --image IMAGE, and remove \
                      other operators";
        DoctorFinding::fault(SUBJECT, format!("Operators of several versions run: {list}"), remedy)
    })
}

fn credential(secret: &Secret, namespace: &str, now: Timestamp) -> Option<DoctorFinding> {
    let secret_name = format!("{namespace}/{}", secret.metadata.name.as_deref().unwrap_or_default());
    let remedy = "Run mczk install again. If you made the kubeconfig by hand, replace the Secret";
    let ends = |what: &str, end| format!("The {what} of the operator in Secret {secret_name} {}", phrase(end, now));
    if let Some(validity) = text(Some(secret), TOKEN).as_deref().and_then(TokenValidity::of) {
        let end = validity.end();
        if end <= now {
            return Some(DoctorFinding::fault(SUBJECT, ends("token", end), remedy));
        }
        if validity.is_due(now - OVERDUE) {
            let message =
                format!("The operator has not renewed its token in Secret {secret_name}, which expires at {end}");
            return Some(DoctorFinding::warning(
                SUBJECT,
                message,
                "See the log of the operator, and run mczk install again",
            ));
        }
    }
    let validity = client_certificate(&text(Some(secret), KUBECONFIG)?)?.validity;
    let message = ends("client certificate", validity.end);
    if validity.end <= now {
        return Some(DoctorFinding::fault(SUBJECT, message, remedy));
    }
    validity.is_ending(now).then(|| DoctorFinding::warning(SUBJECT, message, remedy))
}

fn client_certificate(kubeconfig: &str) -> Option<Certified> {
    let kubeconfig: Value = yaml::read(kubeconfig).ok()?.pop()?;
    let data = kubeconfig.pointer("/users/0/user/client-certificate-data")?.as_str()?;
    Certified::read(&String::from_utf8(STANDARD.decode(data).ok()?).ok()?).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::healthy::{
        Webhook, assert_fault, assert_skipped, assert_warning, days, healthy, now, opaque_secret, token,
    };

    #[test]
    fn the_deployment_of_the_operator() {
        let mut observed = healthy();
        let host = observed.host.as_mut().unwrap();
        host.deployment.as_mut().unwrap().as_mut().unwrap().status.as_mut().unwrap().available_replicas = Some(1);
        host.pods.as_mut().unwrap()[0].status = serde_json::from_value(json!({ "containerStatuses": [{
            "name": "operator", "image": "mczk:1", "imageID": "", "ready": false, "restartCount": 3,
            "state": { "waiting": { "reason": "ImagePullBackOff" } },
        }] }))
        .unwrap();
        let findings = examine(&observed, now());
        assert_fault(&findings, "1 of 2 pods are available, 2 are new. Pod mczk-1: ImagePullBackOff", "describe pods");
        observed.host.as_mut().unwrap().deployment = Ok(None);
        assert_fault(&examine(&observed, now()), "mczk-system/mczk does not exist", "mczk install");
    }

    #[test]
    fn two_operators_of_different_versions() {
        let mut observed = healthy();
        let pods = observed.host.as_mut().unwrap().pods.as_mut().unwrap();
        pods[0].spec.as_mut().unwrap().containers[0].image = Some("mirror/mczk:0.2.0".to_owned());
        assert_fault(&examine(&observed, now()), "several versions run: 0.1.0 and 0.2.0", "mczk install --image");
    }

    #[test]
    fn the_token_of_the_operator() {
        let mut observed = healthy();
        assert_warning(&examine(&observed, days(17)), "has not renewed its token", "mczk install");
        assert_fault(&examine(&observed, days(31)), "The token of the operator", "mczk install");
        observed.host.as_mut().unwrap().credential = Ok(Some(opaque_secret(&[(TOKEN, &token(0, 1))])));
        assert_fault(&examine(&observed, now()), "expired on 1970-01-01 00:00 UTC", "mczk install");
    }

    #[test]
    fn the_client_certificate_of_the_operator() {
        let mut observed = healthy();
        let data = STANDARD.encode(Webhook::make("mczk-operator").pem);
        let kubeconfig = json!({ "users": [{ "user": { "client-certificate-data": data } }] }).to_string();
        observed.host.as_mut().unwrap().credential = Ok(Some(opaque_secret(&[(KUBECONFIG, &kubeconfig)])));
        assert_eq!(examine(&observed, now()), []);
        assert_warning(&examine(&observed, days(350)), "client certificate of the operator", "mczk install");
        assert_fault(&examine(&observed, days(366)), "The client certificate of the operator", "mczk install");
    }

    #[test]
    fn a_host_that_is_not_named_is_skipped() {
        let mut observed = healthy();
        observed.host = None;
        assert_skipped(&examine(&observed, now()), "host");
    }
}
