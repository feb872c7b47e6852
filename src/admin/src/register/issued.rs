//! The certificate of the webhook from cert-manager: a `Certificate` of `cert-manager.io/v1`, and the Secret that
//! cert-manager writes for it.

use std::str::FromStr;

use k8s_openapi::api::core::v1::Secret;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use super::{object::Object, ownership::is_marked};
use mczk_api::contract::labels::{MANAGED_BY_INSTALL, MANAGED_BY_LABEL};

/// API group of cert-manager.
pub(crate) const GROUP: &str = "cert-manager.io";
/// Annotation of a Secret of cert-manager: the Certificate.
const CERTIFICATE_NAME: &str = "cert-manager.io/certificate-name";
/// Annotation of a Secret of cert-manager: kind of the issuer.
const ISSUER_KIND: &str = "cert-manager.io/issuer-kind";
/// Annotation of a Secret of cert-manager: name of the issuer.
const ISSUER_NAME: &str = "cert-manager.io/issuer-name";

/// An issuer of cert-manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IssuerReference {
    /// `Issuer` or `ClusterIssuer`.
    kind: String,
    name: String,
}

impl FromStr for IssuerReference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((kind @ ("Issuer" | "ClusterIssuer"), name)) if !name.is_empty() && !name.contains('/') => {
                Ok(Self { kind: kind.to_owned(), name: name.to_owned() })
            }
            _ => Err("write it as Issuer/NAME or ClusterIssuer/NAME".to_owned()),
        }
    }
}

/// The kind Certificate.
#[must_use]
pub(crate) fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, "v1", "Certificate"), "certificates")
}

/// A Certificate by its name alone, for its removal.
///
/// # Errors
/// Never.
pub(crate) fn named(namespace: &str, name: &str) -> serde_json::Result<Object> {
    Object::new(resource(), &body(namespace, name, &Value::Null))
}

/// The Certificate, with the name of its Secret. The Secret carries the mark of `mczk install`: cert-manager leaves it
/// when the Certificate is deleted.
///
/// # Errors
/// Never.
pub(crate) fn certificate(
    namespace: &str,
    secret: &str,
    issuer: &IssuerReference,
    dns: &[String],
    addresses: &[String],
) -> serde_json::Result<Object> {
    let mut spec = json!({
        "secretName": secret,
        "issuerRef": { "group": GROUP, "kind": issuer.kind, "name": issuer.name },
        "usages": ["digital signature", "server auth"],
        "privateKey": { "algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always" },
        "secretTemplate": { "labels": { MANAGED_BY_LABEL: MANAGED_BY_INSTALL } },
    });
    for (field, names) in [("dnsNames", dns), ("ipAddresses", addresses)] {
        if !names.is_empty() {
            json_patch::merge(&mut spec, &json!({ field: names }));
        }
    }
    Object::new(resource(), &body(namespace, secret, &spec))
}

fn body(namespace: &str, name: &str, spec: &Value) -> Value {
    let labels = json!({ MANAGED_BY_LABEL: MANAGED_BY_INSTALL });
    let mut body = json!({
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": { "name": name, "namespace": namespace, "labels": labels },
    });
    // A null of a merge would remove the field.
    json_patch::merge(&mut body, &json!({ "spec": spec }));
    body
}

/// True if cert-manager wrote the Secret for a Certificate of `mczk install`.
#[must_use]
pub(crate) fn is_issued(secret: &Secret) -> bool {
    let annotations = secret.metadata.annotations.as_ref();
    is_marked(&secret.metadata) && annotations.is_some_and(|all| all.contains_key(CERTIFICATE_NAME))
}

/// True if the issuer wrote the Secret. Before that, the Secret may hold the certificate of a former source.
#[must_use]
pub(crate) fn is_of(secret: &Secret, issuer: &IssuerReference) -> bool {
    let annotations = secret.metadata.annotations.as_ref();
    let text = |key: &str| annotations.and_then(|all| all.get(key)).map(String::as_str);
    is_issued(secret)
        && text(ISSUER_KIND) == Some(issuer.kind.as_str())
        && text(ISSUER_NAME) == Some(issuer.name.as_str())
}

/// What the conditions of a Certificate say while it is not ready. Empty without a message.
#[must_use]
pub(crate) fn messages(certificate: &Value) -> String {
    let conditions = certificate.pointer("/status/conditions").and_then(Value::as_array);
    let text = |condition: &Value, field: &str| condition.get(field).and_then(Value::as_str).map(str::to_owned);
    let is_news = |condition: &&Value| {
        let state = (text(condition, "type"), text(condition, "status"));
        matches!((state.0.as_deref(), state.1.as_deref()), (Some("Ready"), Some("False")) | (Some("Issuing"), Some(_)))
    };
    let messages = conditions.into_iter().flatten().filter(is_news).filter_map(|condition| text(condition, "message"));
    messages.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("Issuer/a", true)]
    #[case("ClusterIssuer/a.b", true)]
    #[case("a", false)]
    #[case("Issuer/", false)]
    #[case("issuer/a", false)]
    #[case("Issuer/a/b", false)]
    fn an_issuer_has_a_kind_and_a_name(#[case] text: &str, #[case] expected: bool) {
        assert_eq!(text.parse::<IssuerReference>().is_ok(), expected);
    }

    #[test]
    fn a_certificate_names_issuer_secret_and_addresses() {
        let issuer = "ClusterIssuer/company".parse().unwrap();
        let (dns, addresses) = (["mczk.sys.svc".to_owned()], ["127.0.0.1".to_owned()]);
        let object = certificate("sys", "mczk-webhook-tls", &issuer, &dns, &addresses).unwrap();
        assert_eq!(object.name(), "sys/mczk-webhook-tls");
        assert!(is_marked(&object.body.metadata));
        let spec = &object.body.data["spec"];
        assert_eq!(spec["secretName"], "mczk-webhook-tls");
        assert_eq!(
            spec["issuerRef"],
            json!({ "group": "cert-manager.io", "kind": "ClusterIssuer", "name": "company" })
        );
        assert_eq!((&spec["dnsNames"], &spec["ipAddresses"]), (&json!(dns), &json!(addresses)));
        assert_eq!(spec["secretTemplate"]["labels"]["app.kubernetes.io/managed-by"], "mczk-install");
        assert!(certificate("sys", "a", &issuer, &dns, &[]).unwrap().body.data["spec"].get("ipAddresses").is_none());
        assert!(named("sys", "a").unwrap().body.data.get("spec").is_none());
    }

    #[rstest]
    #[case::of_the_issuer("Issuer", "a", true)]
    #[case::of_another_kind("ClusterIssuer", "a", false)]
    #[case::of_another_issuer("Issuer", "b", false)]
    fn a_secret_is_that_of_the_issuer(#[case] kind: &str, #[case] name: &str, #[case] expected: bool) {
        let secret = json!({ "metadata": {
            "labels": { "app.kubernetes.io/managed-by": "mczk-install" },
            "annotations": {
                "cert-manager.io/certificate-name": "x", "cert-manager.io/issuer-kind": kind,
                "cert-manager.io/issuer-name": name,
            },
        } });
        let secret: Secret = serde_json::from_value(secret).unwrap();
        assert!(is_issued(&secret));
        assert_eq!(is_of(&secret, &"Issuer/a".parse().unwrap()), expected);
        assert!(!is_of(&Secret::default(), &"Issuer/a".parse().unwrap()));
    }

    #[test]
    fn conditions_say_what_is_missing() {
        let certificate = json!({ "status": { "conditions": [
            { "type": "Ready", "status": "False", "message": "Issuer a not found" },
            { "type": "Other", "status": "False", "message": "x" },
        ] } });
        assert_eq!(messages(&certificate), "Issuer a not found");
        assert_eq!(messages(&json!({})), "");
    }
}
