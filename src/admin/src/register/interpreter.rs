//! The registration of the interpreter webhook: its address, and the operations that it answers.

use k8s_openapi::api::core::v1::ObjectReference;
use std::str::FromStr;

use base64::{Engine, engine::general_purpose::STANDARD};
use hyper::Uri;
use kube::core::{ApiResource, ObjectMeta};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde::Deserialize as _;
use serde_json::Value;

use super::object::{NAME, Object};
use mczk_api::{
    GROUP, VERSION,
    contract::naming::is_label,
    karmada::interpreter::{
        API_VERSION, ResourceInterpreterWebhook, ResourceInterpreterWebhookConfiguration, RuleWithOperations,
        ServiceReference, WebhookClientConfig,
    },
};
use mczk_reading::kinds;
use mczk_rules::interpreter::wire::Operation;

/// Kind of the registration.
const KIND: &str = "ResourceInterpreterWebhookConfiguration";
/// Default path of the webhook.
const DEFAULT_PATH: &str = "/interpreter";
/// Default of the seconds after which Karmada cancels a request.
pub(crate) const DEFAULT_TIMEOUT: u8 = 10;
/// Placeholder for the certificate authority in printed manifests. It is not base64, so an API server refuses it.
pub(crate) const CA_PLACEHOLDER: &str = "FILL-IN: base64 of the PEM file of the certificate authority";

/// Why an address or a certificate authority cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not a URL that Karmada would call.
    #[error("{0:?} is not https://HOST[:PORT][/PATH] without user, query and fragment")]
    Url(String),
    /// The URL has a path, and another one is given.
    #[error("the URL already has the path {0:?}: give the path there or with --webhook-path, not both")]
    TwoPaths(String),
    /// Not a Service.
    #[error("{0:?} is not NAMESPACE/NAME[:PORT], as in mczk-system/mczk:443")]
    Service(String),
    /// Not a path.
    #[error("{0:?} is not a path: it must begin with / and contain no spaces, ? or #")]
    Path(String),
    /// The file holds no certificate.
    #[error("the file holds no certificate in PEM: name the certificate of the authority, as `mczk certs` writes it")]
    NoCertificate,
    /// The file holds a key, which everyone with the right to read the registration would see.
    #[error("the file holds a private key: name only the certificate of the authority")]
    PrivateKey,
}

/// Address of the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A URL. It is better than a Service: Karmada reads a Service in its own control plane first.
    Url(String),
    /// A Service of the host cluster.
    Service(ServiceReference),
}

impl Endpoint {
    /// The webhook at a URL. The URL's own path is used, or else `path`, or else [`DEFAULT_PATH`].
    ///
    /// # Errors
    /// If it is not a URL that Karmada calls, or both name a path.
    pub fn url(url: &str, path: Option<&str>) -> Result<Self, Error> {
        let refused = || Error::Url(url.to_owned());
        let parsed = Uri::from_str(url).map_err(|_| refused())?;
        let authority = parsed.authority().ok_or_else(refused)?.as_str();
        if parsed.scheme_str() != Some("https")
            || parsed.host().is_none_or(str::is_empty)
            || authority.contains('@')
            || parsed.query().is_some()
            || url.contains('#')
        {
            return Err(refused());
        }
        let path = match (parsed.path(), path) {
            ("" | "/", path) => checked_path(path.unwrap_or(DEFAULT_PATH))?,
            (own, None) => own,
            (own, Some(path)) if own == path => own,
            (own, Some(_)) => return Err(Error::TwoPaths(own.to_owned())),
        };
        Ok(Self::Url(format!("https://{authority}{path}")))
    }

    /// The address in a registration; `None` if it has none.
    pub(crate) fn of_registration(registration: &Value) -> Option<Self> {
        let client = registration.pointer("/webhooks/0/clientConfig")?;
        match client.get("url").and_then(Value::as_str) {
            Some(url) => Some(Self::Url(url.to_owned())),
            None => ServiceReference::deserialize(client.get("service")?).ok().map(Self::Service),
        }
    }

    /// The webhook behind `NAMESPACE/NAME[:PORT]`, by default port 443.
    ///
    /// # Errors
    /// If the text has another form.
    pub fn service(text: &str, path: Option<&str>) -> Result<Self, Error> {
        let refused = || Error::Service(text.to_owned());
        let (namespace, rest) = text.split_once('/').ok_or_else(refused)?;
        let (name, port) = match rest.split_once(':') {
            Some((name, port)) => (name, port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(refused)?),
            None => (rest, 443),
        };
        if !is_label(namespace) || !is_label(name) {
            return Err(refused());
        }
        Ok(Self::Service(ServiceReference {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            path: checked_path(path.unwrap_or(DEFAULT_PATH))?.to_owned(),
            port: port.into(),
        }))
    }
}

fn checked_path(path: &str) -> Result<&str, Error> {
    let fine = path.starts_with('/') && !path.contains(|c: char| c.is_whitespace() || c == '?' || c == '#');
    if fine { Ok(path) } else { Err(Error::Path(path.to_owned())) }
}

/// The `caBundle` of an authority's PEM file.
///
/// # Errors
/// If it holds no certificate, or a key.
pub(crate) fn ca_bundle(pem: &[u8]) -> Result<String, Error> {
    if pem.windows(b"PRIVATE KEY-----".len()).any(|window| window == b"PRIVATE KEY-----") {
        return Err(Error::PrivateKey);
    }
    let mut certificates = CertificateDer::pem_slice_iter(pem).peekable();
    if certificates.peek().is_none() || certificates.any(|certificate| certificate.is_err()) {
        return Err(Error::NoCertificate);
    }
    Ok(STANDARD.encode(pem))
}

/// The parts of a registration that users choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Address of the webhook.
    pub endpoint: Endpoint,
    /// Authority that signed its certificate, from [`ca_bundle`]; [`CA_PLACEHOLDER`] in manifests.
    pub ca_bundle: String,
    /// Seconds after which Karmada cancels a request, 1 to 30. Always written: Karmada has no default, unlike the
    /// comment on its field says, and would wait forever.
    pub timeout_seconds: u8,
    /// Operations that the webhook answers. Karmada answers all others itself, and does not know the kind.
    pub operations: Vec<Operation>,
}

impl Registration {
    /// The object that registers.
    #[must_use]
    fn configuration(&self) -> ResourceInterpreterWebhookConfiguration {
        let (url, service) = match &self.endpoint {
            Endpoint::Url(url) => (Some(url.clone()), None),
            Endpoint::Service(service) => (None, Some(service.clone())),
        };
        ResourceInterpreterWebhookConfiguration {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            metadata: ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() },
            webhooks: vec![ResourceInterpreterWebhook {
                name: format!("zookeepers.{GROUP}"),
                client_config: WebhookClientConfig { url, service, ca_bundle: self.ca_bundle.clone() },
                rules: vec![RuleWithOperations {
                    operations: self.operations.iter().map(ToString::to_string).collect(),
                    api_groups: vec![GROUP.to_owned()],
                    api_versions: vec![VERSION.to_owned()],
                    kinds: vec!["ZooKeeper".to_owned()],
                }],
                timeout_seconds: self.timeout_seconds.into(),
                interpreter_context_versions: vec!["v1alpha1".to_owned()],
            }],
        }
    }

    /// The same as an object to apply.
    ///
    /// # Errors
    /// Never.
    pub fn object(&self) -> serde_json::Result<Object> {
        Object::new(resource(), &self.configuration())
    }
}

/// The registration, as the subject of events.
#[must_use]
pub fn reference() -> ObjectReference {
    ObjectReference {
        api_version: Some(API_VERSION.to_owned()),
        kind: Some(KIND.to_owned()),
        name: Some(NAME.to_owned()),
        ..ObjectReference::default()
    }
}

/// The resource of registrations.
#[must_use]
pub(crate) fn resource() -> ApiResource {
    kinds::resource(API_VERSION, KIND)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case("https://mczk.example.org", None, Ok("https://mczk.example.org/interpreter"))]
    #[case("https://127.0.0.1:8443/", None, Ok("https://127.0.0.1:8443/interpreter"))]
    #[case("https://[::1]:8443", Some("/x/y"), Ok("https://[::1]:8443/x/y"))]
    #[case("https://h/own", None, Ok("https://h/own"))]
    #[case("https://h/own", Some("/own"), Ok("https://h/own"))]
    #[case("https://h/own", Some("/other"), Err(Error::TwoPaths("/own".into())))]
    #[case("https://h", Some("x"), Err(Error::Path("x".into())))]
    #[case("http://h", None, Err(Error::Url("http://h".into())))]
    #[case("https://u:p@h", None, Err(Error::Url("https://u:p@h".into())))]
    #[case("https://h/?a=b", None, Err(Error::Url("https://h/?a=b".into())))]
    #[case("https://h/#a", None, Err(Error::Url("https://h/#a".into())))]
    #[case("h:8443", None, Err(Error::Url("h:8443".into())))]
    #[case("", None, Err(Error::Url(String::new())))]
    fn a_url_is_parsed(#[case] url: &str, #[case] path: Option<&str>, #[case] expected: Result<&str, Error>) {
        assert_eq!(Endpoint::url(url, path), expected.map(|url| Endpoint::Url(url.to_owned())));
    }

    #[rstest]
    #[case("mczk-system/mczk", Some(443))]
    #[case("mczk-system/mczk:8443", Some(8443))]
    #[case("mczk", None)]
    #[case("a/b:0", None)]
    #[case("a/b:70000", None)]
    #[case("a/b/c", None)]
    #[case("A/b", None)]
    #[case("/b", None)]
    fn a_service_is_parsed(#[case] text: &str, #[case] port: Option<i32>) {
        match Endpoint::service(text, None) {
            Ok(Endpoint::Service(service)) => {
                assert_eq!(Some(service.port), port);
                assert_eq!(service.path, "/interpreter");
            }
            other => assert_eq!((other, port), (Err(Error::Service(text.to_owned())), None)),
        }
    }

    #[test]
    fn a_bundle_holds_only_certificates() {
        let signed = rcgen::generate_simple_self_signed(vec!["ca".to_owned()]).unwrap();
        let (pem, key) = (signed.cert.pem(), signed.signing_key.serialize_pem());
        assert_eq!(STANDARD.decode(ca_bundle(pem.as_bytes()).unwrap()).unwrap(), pem.as_bytes());
        assert_eq!(ca_bundle(format!("{pem}{key}").as_bytes()), Err(Error::PrivateKey));
        assert_eq!(ca_bundle(key.as_bytes()), Err(Error::PrivateKey));
        assert_eq!(ca_bundle(b"hello"), Err(Error::NoCertificate));
        assert_eq!(ca_bundle(b""), Err(Error::NoCertificate));
    }

    #[test]
    fn the_placeholder_is_not_base64() {
        assert!(STANDARD.decode(CA_PLACEHOLDER).is_err());
    }

    #[test]
    fn the_registration_names_only_our_kind_and_always_has_a_timeout() {
        let registration = Registration {
            endpoint: Endpoint::url("https://127.0.0.1:8443", None).unwrap(),
            ca_bundle: "Q0E=".to_owned(),
            timeout_seconds: DEFAULT_TIMEOUT,
            operations: Operation::ALL.to_vec(),
        };
        assert_eq!(
            serde_json::to_value(registration.object().unwrap().body).unwrap(),
            json!({
                "apiVersion": "config.karmada.io/v1alpha1",
                "kind": "ResourceInterpreterWebhookConfiguration",
                "metadata": {"name": "mczk"},
                "webhooks": [{
                    "name": "zookeepers.mczk.io",
                    "clientConfig": {"url": "https://127.0.0.1:8443/interpreter", "caBundle": "Q0E="},
                    "rules": [{
                        "operations": [
                            "InterpretReplica", "ReviseReplica", "AggregateStatus", "InterpretHealth", "InterpretDependency",
                        ],
                        "apiGroups": ["mczk.io"],
                        "apiVersions": ["v1alpha1"],
                        "kinds": ["ZooKeeper"],
                    }],
                    "timeoutSeconds": 10,
                    "interpreterContextVersions": ["v1alpha1"],
                }],
            })
        );
    }
}
