//! The registration of the interpreter webhook, and its address.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Service;

use crate::doctor::{
    finding::DoctorFinding,
    observed::{DoctorObserved, FailedCall, readable},
};
use mczk_api::{
    GROUP, VERSION,
    contract::last_write::last_write,
    karmada::interpreter::{ResourceInterpreterWebhook, RuleWithOperations, ServiceReference},
};
use mczk_rules::interpreter::wire::Operation;

pub(super) const CHECKED: &str =
    "The registration exists, has every operation, and names an address that Karmada can call";

/// The command that repairs a registration.
const REGISTER: &str = "mczk register --only interpreter, with --service or --url and --ca-file";
const SUBJECT: &str = "webhook";
/// Time for which a failed call of Karmada counts. Karmada repeats a call after at most a quarter of an hour.
const RECENT: SignedDuration = SignedDuration::from_mins(20);

/// What is wrong with the registration and its address.
pub(super) fn examine(observed: &DoctorObserved, now: Timestamp) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    if readable(&observed.registrations, SUBJECT, &mut findings).is_none() {
        return findings;
    }
    let Some(webhook) = observed.webhook_of_ours() else {
        let message =
            "The ResourceInterpreterWebhookConfiguration mczk does not exist: Karmada cannot read ZooKeeper objects";
        return vec![DoctorFinding::fault(SUBJECT, message, format!("Run {REGISTER}, or mczk install"))];
    };
    findings.extend(rules(&webhook));
    if webhook.timeout_seconds == 0 {
        let message = "The registration has no timeoutSeconds: Karmada waits without end for an answer";
        findings.push(DoctorFinding::fault(SUBJECT, message, format!("Run {REGISTER}")));
    }
    if !webhook.interpreter_context_versions.iter().any(|version| version == "v1alpha1") {
        let message =
            "The registration lacks v1alpha1 in interpreterContextVersions: Karmada does not call the webhook";
        findings.push(DoctorFinding::fault(SUBJECT, message, format!("Run {REGISTER}")));
    }
    match &webhook.client_config.service {
        Some(service) => findings.extend(of_service(service, observed)),
        None => findings.extend(unreachable(observed, webhook.client_config.url.as_deref().unwrap_or_default())),
    }
    let failed = readable(&observed.failed_call, SUBJECT, &mut findings).and_then(Option::as_ref);
    findings.extend(failed.and_then(|call| failed_call(call, registered_at(observed), now)));
    findings
}

/// When the registration was last changed.
fn registered_at(observed: &DoctorObserved) -> Option<Timestamp> {
    last_write(&observed.registration_of_ours()?.metadata)
}

/// A call of Karmada that failed a short time ago. An older registration may have had another address.
fn failed_call(call: &FailedCall, registered: Option<Timestamp>, now: Timestamp) -> Option<DoctorFinding> {
    let is_recent = now.duration_since(call.at) < RECENT && registered.is_none_or(|registered| registered < call.at);
    let why = call.message.split_once("failed to call webhook: ").map_or(call.message.as_str(), |(_, why)| why);
    let message = format!("Karmada's last call of the webhook that failed, at {}: {why}", call.at);
    let remedy = "If Karmada does not reach this address, register another one: mczk install --url URL. See \
                  docs/how-to/install-layouts.md#karmada-outside-of-the-host";
    is_recent.then(|| DoctorFinding::fault(SUBJECT, message, remedy))
}

/// Operations that no rule has.
fn rules(webhook: &ResourceInterpreterWebhook) -> Option<DoctorFinding> {
    let missing: Vec<String> = Operation::ALL
        .iter()
        .map(ToString::to_string)
        .filter(|operation| !webhook.rules.iter().any(|rule| covers(rule, operation)))
        .collect();
    if missing.is_empty() {
        return None;
    }
    let message = format!(
        "The rules of the registration lack {} for the kind ZooKeeper: Karmada answers it itself, and wrongly",
        missing.join(", ")
    );
    Some(DoctorFinding::fault(SUBJECT, message, format!("Run {REGISTER}")))
}

fn covers(rule: &RuleWithOperations, operation: &str) -> bool {
    has(&rule.operations, operation) && names_our_kind(rule)
}

/// True if a rule is for ZooKeeper objects.
pub(super) fn names_our_kind(rule: &RuleWithOperations) -> bool {
    has(&rule.api_groups, GROUP) && has(&rule.api_versions, VERSION) && has(&rule.kinds, "ZooKeeper")
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == wanted || item == "*")
}

/// A registered Service. Karmada looks it up in karmada-apiserver first, and otherwise resolves its name in DNS.
fn of_service(service: &ServiceReference, observed: &DoctorObserved) -> Vec<DoctorFinding> {
    let name = format!("{}/{}", service.namespace, service.name);
    let mut findings = Vec::new();
    match readable(&observed.service, SUBJECT, &mut findings) {
        Some(Some(found)) => findings.extend(in_karmada(found, service, &name)),
        _ => findings.extend(unreachable(observed, &format!("Service {name}"))),
    }
    findings
}

/// The Service of this name in karmada-apiserver takes precedence over the one in the host.
fn in_karmada(found: &Service, reference: &ServiceReference, name: &str) -> Option<DoctorFinding> {
    let spec = found.spec.clone().unwrap_or_default();
    let type_ = spec.type_.as_deref().unwrap_or("ClusterIP");
    let has_port = spec.ports.iter().flatten().any(|port| port.port == reference.port);
    let remedy = format!(
        "Delete it in karmada-apiserver: kubectl --namespace {} delete service {}, or register with --url",
        reference.namespace, reference.name
    );
    let fault = |why: &str| {
        let message = format!("Karmada cannot call Service {name}: karmada-apiserver has a Service of that name {why}");
        Some(DoctorFinding::fault(SUBJECT, message, remedy.clone()))
    };
    match type_ {
        "ExternalName" => None,
        _ if spec.cluster_ip.as_deref() == Some("None") => fault("without an address"),
        _ if !has_port => fault(&format!("without the port {}", reference.port)),
        _ => {
            let address = spec.cluster_ip.unwrap_or_default();
            let message = format!("Karmada calls {address}, the address of Service {name} in karmada-apiserver");
            Some(DoctorFinding::warning(SUBJECT, format!("{message}: it seldom leads to the operator"), remedy))
        }
    }
}

/// Karmada may reach what this program does not.
fn unreachable(observed: &DoctorObserved, name: &str) -> Option<DoctorFinding> {
    let Some(Err(why)) = &observed.webhook else { return None };
    let message = format!("{name} is not reachable from here: {why}. Karmada may reach it all the same");
    let remedy = "Run the command beside karmada-controller-manager, or check that the operator runs and its Service has \
                  endpoints: kubectl --namespace mczk-system get endpointslices";
    Some(DoctorFinding::warning(SUBJECT, message, remedy))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::doctor::healthy::{assert_fault, assert_warning, healthy, now, register_with};

    fn found(patch: Value) -> Vec<DoctorFinding> {
        let mut observed = healthy();
        register_with(&mut observed, patch);
        examine(&observed, now())
    }

    #[test]
    fn a_missing_registration() {
        let mut observed = healthy();
        observed.registrations = Ok(vec![]);
        assert_fault(&examine(&observed, now()), "does not exist", "mczk register --only interpreter");
    }

    #[test]
    fn a_missing_operation() {
        let rule = json!({
            "operations": ["InterpretReplica", "AggregateStatus", "InterpretHealth", "InterpretDependency"],
            "apiGroups": ["mczk.io"], "apiVersions": ["v1alpha1"], "kinds": ["ZooKeeper"],
        });
        assert_fault(&found(json!({ "rules": [rule] })), "lack ReviseReplica for", "mczk register");
    }

    #[test]
    fn a_missing_kind() {
        let rule = json!({ "operations": ["*"], "apiGroups": ["mczk.io"], "apiVersions": ["*"], "kinds": ["Other"] });
        assert_fault(&found(json!({ "rules": [rule] })), "lack InterpretReplica, ReviseReplica", "mczk register");
        let rule = json!({ "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "kinds": ["*"] });
        assert_eq!(found(json!({ "rules": [rule] })), []);
    }

    #[test]
    fn no_timeout_and_no_version() {
        assert_fault(&found(json!({ "timeoutSeconds": null })), "no timeoutSeconds", "mczk register");
        let findings = found(json!({ "interpreterContextVersions": ["v2"] }));
        assert_fault(&findings, "interpreterContextVersions", "mczk register");
    }

    #[test]
    fn an_address_that_this_program_does_not_reach_is_a_warning() {
        let mut observed = healthy();
        observed.webhook = Some(Err("connection refused".to_owned()));
        assert_warning(&examine(&observed, now()), "connection refused. Karmada may reach it", "endpointslices");
    }

    #[test]
    fn a_call_of_karmada_that_failed() {
        let message = r#"Internal error occurred: failed calling webhook "mczk/zookeepers.mczk.io": failed to call webhook: dial tcp: lookup mczk.mczk-system.svc: no such host"#;
        let of = |minutes| {
            let mut observed = healthy();
            let at = now() - SignedDuration::from_mins(minutes);
            observed.failed_call = Ok(Some(FailedCall { at, message: message.to_owned() }));
            observed
        };
        let findings = examine(&of(5), now());
        assert_fault(&findings, "that failed, at 2025-12-31T23:55:00Z: dial tcp", "mczk install --url URL");
        assert!(findings[0].message.ends_with("dial tcp: lookup mczk.mczk-system.svc: no such host"));
        assert_eq!(examine(&of(21), now()), []);
        let mut observed = of(5);
        let fields = json!([{ "time": now().to_string() }]);
        observed.registrations.as_mut().unwrap()[0].metadata.managed_fields = serde_json::from_value(fields).unwrap();
        assert_eq!(examine(&observed, now()), [], "the registration is newer");
    }

    #[test]
    fn a_service_that_karmada_cannot_resolve() {
        let with = |service: Value| {
            let mut observed = healthy();
            observed.service = Ok(Some(serde_json::from_value(service).unwrap()));
            examine(&observed, now())
        };
        let remedy = "delete service mczk";
        let headless = with(json!({ "spec": { "clusterIP": "None", "ports": [{ "port": 8443 }] } }));
        assert_fault(&headless, "without an address", remedy);
        let other_port = with(json!({ "spec": { "clusterIP": "10.0.0.1", "ports": [{ "port": 443 }] } }));
        assert_fault(&other_port, "without the port 8443", remedy);
        let shadow = with(json!({ "spec": { "clusterIP": "10.0.0.1", "ports": [{ "port": 8443 }] } }));
        assert_warning(&shadow, "Karmada calls 10.0.0.1", remedy);
        assert_eq!(with(json!({ "spec": { "type": "ExternalName", "externalName": "a.example" } })), []);
    }

    #[test]
    fn a_read_that_fails_is_a_warning() {
        let mut observed = healthy();
        observed.registrations = Err("forbidden".to_owned());
        assert_warning(&examine(&observed, now()), "Cannot be examined: forbidden", "administrator");
    }
}
