//! The operator's credential: a kubeconfig of karmada-apiserver with a token of its service account.
//!
//! The token is a file of its own beside the kubeconfig. The operator reads it again while it runs, so that a renewal needs no
//! restart.

use std::net::IpAddr;

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use hyper::Uri;
use k8s_openapi::{
    api::{
        authentication::v1::{TokenRequest, TokenRequestSpec, TokenReview, TokenReviewSpec},
        core::v1::{Namespace, ObjectReference, ServiceAccount},
        rbac::v1::{PolicyRule, Role, RoleBinding},
    },
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    Api, Client, Config,
    api::{ObjectMeta, PostParams},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    interpreter::Endpoint,
    object::Object,
    pods::restricted_labels,
    rbac::{self, Identity},
};
use mczk_api::contract::certificate_expiry;

/// Namespace of the service account in karmada-apiserver.
pub(crate) const NAMESPACE: &str = "mczk-system";
/// Name of the service account.
pub(crate) const ACCOUNT: &str = "mczk-operator";
/// Name of the role to renew the token, and of its binding.
const RENEWAL: &str = "mczk-operator-token";
/// Key of the kubeconfig in the Secret.
pub(crate) const KUBECONFIG: &str = "kubeconfig";
/// Key of the token in the Secret.
pub const TOKEN: &str = "token";

/// The validity that the operator requests. An API server may grant less.
const LIFE: SignedDuration = SignedDuration::from_hours(30 * 24);

/// The validity of a token: the part of it that its signature covers, and that this program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct TokenValidity {
    /// Begin, in seconds since 1970.
    #[serde(rename = "iat")]
    begin: i64,
    /// End, in seconds since 1970.
    #[serde(rename = "exp")]
    end: i64,
}

impl TokenValidity {
    /// The validity of a JSON Web Token; `None` if the text is none, or the token has no end.
    #[must_use]
    pub fn of(token: &str) -> Option<Self> {
        let payload = token.trim().split('.').nth(1)?;
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
    }

    /// True once half of the validity is over: the other half is time to notice that a renewal fails.
    pub(crate) fn is_due(self, now: Timestamp) -> bool {
        now.as_second() >= self.begin + (self.end - self.begin) / 2
    }

    /// The end of the validity.
    #[must_use]
    pub fn end(self) -> Timestamp {
        Timestamp::from_second(self.end).unwrap_or(Timestamp::MAX)
    }

    /// Begin and end, for the rule about what expires soon.
    pub(crate) fn span(self) -> certificate_expiry::Validity {
        let begin = Timestamp::from_second(self.begin).unwrap_or(Timestamp::MIN);
        certificate_expiry::Validity { begin, end: self.end() }
    }
}

/// The service account of the operator, as the subject of events.
#[must_use]
pub fn account() -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("ServiceAccount".to_owned()),
        namespace: Some(NAMESPACE.to_owned()),
        name: Some(ACCOUNT.to_owned()),
        ..ObjectReference::default()
    }
}

/// The service account of the operator in karmada-apiserver, with its namespace and the right to renew its own token.
///
/// # Errors
/// Never.
pub(crate) fn objects() -> serde_json::Result<Vec<Object>> {
    let metadata = |name: &str| ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(NAMESPACE.to_owned()),
        ..ObjectMeta::default()
    };
    let one = |text: &str| Some(vec![text.to_owned()]);
    let account = Identity::ServiceAccount { namespace: NAMESPACE.to_owned(), name: ACCOUNT.to_owned() };
    Ok(vec![
        Object::of(&Namespace {
            // Karmada propagates it with its labels. The agents' manifest has the same object.
            metadata: ObjectMeta { namespace: None, labels: Some(restricted_labels()), ..metadata(NAMESPACE) },
            ..Namespace::default()
        })?,
        Object::of(&ServiceAccount {
            metadata: metadata(ACCOUNT),
            // It runs no pods, so no other program needs the token.
            automount_service_account_token: Some(false),
            ..ServiceAccount::default()
        })?,
        Object::of(&Role {
            metadata: metadata(RENEWAL),
            rules: Some(vec![PolicyRule {
                api_groups: one(""),
                resources: one("serviceaccounts/token"),
                resource_names: one(ACCOUNT),
                verbs: vec!["create".to_owned()],
                ..PolicyRule::default()
            }]),
        })?,
        Object::of(&RoleBinding {
            metadata: metadata(RENEWAL),
            role_ref: rbac::role_ref("Role", RENEWAL),
            subjects: Some(vec![account.subject()]),
        })?,
    ])
}

/// A new token of the service account.
///
/// # Errors
/// If karmada-apiserver refuses or does not answer.
pub(crate) async fn request(client: &Client) -> kube::Result<String> {
    let api: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let spec = TokenRequestSpec { expiration_seconds: Some(LIFE.as_secs()), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let answer = api.create_token_request(ACCOUNT, &PostParams::default(), &request).await?;
    Ok(answer.status.map(|status| status.token).unwrap_or_default())
}

/// True if Karmada accepts a token, by a TokenReview.
///
/// # Errors
/// If the API server refuses or does not answer.
pub(crate) async fn is_accepted(client: &Client, token: &str) -> kube::Result<bool> {
    let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
    let review = TokenReview { spec, ..TokenReview::default() };
    let answer = Api::<TokenReview>::all(client.clone()).create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.authenticated == Some(true)))
}

/// The kubeconfig of the operator: the server and authority of an administrator's connection, with the token beside it. It has
/// no credential of the administrator.
///
/// # Errors
/// A text for users, if pods cannot use this connection, or not safely.
pub(crate) fn kubeconfig(administrator: &Config, server: Option<&str>) -> Result<Value, String> {
    usable_in_a_pod(administrator, server)?;
    let own = administrator.cluster_url.to_string();
    let mut cluster = json!({ "server": server.unwrap_or_else(|| own.trim_end_matches('/')) });
    if let Some(members) = cluster.as_object_mut() {
        if let Some(authority) = &administrator.root_cert {
            members.insert("certificate-authority-data".to_owned(), json!(STANDARD.encode(pem(authority))));
        }
        if let Some(name) = &administrator.tls_server_name {
            members.insert("tls-server-name".to_owned(), json!(name));
        }
    }
    Ok(json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "karmada",
        "clusters": [{ "name": "karmada", "cluster": cluster }],
        "users": [{ "name": ACCOUNT, "user": { "tokenFile": TOKEN } }],
        "contexts": [{ "name": "karmada", "context": { "cluster": "karmada", "user": ACCOUNT } }],
    }))
}

/// Refuses what makes an administrator's connection unsafe for the operator's token, or works on one machine alone. The text
/// has no part of a URL but its host, since a URL may hold a password.
fn usable_in_a_pod(administrator: &Config, server: Option<&str>) -> Result<(), String> {
    let field = if server.is_some() { "--karmada-server" } else { "server in the administrator's kubeconfig" };
    let url = server.map_or_else(|| administrator.cluster_url.to_string(), str::to_owned);
    let must = |what: &str| Err(format!("{field}: {what}: name another address with --karmada-server"));
    let (Ok(_), Ok(uri)) = (Endpoint::url(&url, None), url.parse::<Uri>()) else {
        return must("the operator sends its token only to https://HOST[:PORT] without user and query");
    };
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    if host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|address: IpAddr| address.is_loopback()) {
        return must(&format!("in a pod, {host} is the pod itself"));
    }
    let why = match (administrator.accept_invalid_certs, &administrator.root_cert) {
        (true, _) => "insecure-skip-tls-verify: the operator would give its token to any server that answers",
        (false, None) => "no authority of karmada-apiserver: the operator's image has none of a machine",
        (false, Some(_)) => return Ok(()),
    };
    Err(format!("the administrator's kubeconfig has {why}: set certificate-authority-data in its place"))
}

/// Certificates in PEM.
pub(crate) fn pem(certificates: &[Vec<u8>]) -> String {
    let mut text = String::new();
    for certificate in certificates {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let encoded = STANDARD.encode(certificate);
        for line in encoded.as_bytes().chunks(64) {
            text.push_str(&String::from_utf8_lossy(line));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn token(payload: &Value) -> String {
        format!("e30.{}.signature", URL_SAFE_NO_PAD.encode(payload.to_string()))
    }

    #[rstest]
    #[case::first_half(149, false)]
    #[case::second_half(150, true)]
    #[case::over(201, true)]
    fn a_token_is_due_at_half_of_its_life(#[case] second: i64, #[case] expected: bool) {
        let validity = TokenValidity::of(&token(&json!({ "iat": 100, "exp": 200, "sub": "x" }))).unwrap();
        assert_eq!(validity.is_due(Timestamp::from_second(second).unwrap()), expected);
        assert_eq!(validity.end().as_second(), 200);
    }

    #[rstest]
    #[case::no_token("")]
    #[case::no_base64("a.!.c")]
    #[case::no_end(&token(&json!({ "iat": 100 })))]
    fn a_text_without_validity(#[case] text: &str) {
        assert_eq!(TokenValidity::of(text), None);
    }

    #[test]
    fn the_kubeconfig_names_server_authority_and_token_file() {
        let mut administrator = Config::new("https://karmada.example:5443/".parse().unwrap());
        administrator.root_cert = Some(vec![vec![1; 60]]);
        let made = kubeconfig(&administrator, None).unwrap();
        assert_eq!(made["clusters"][0]["cluster"]["server"], "https://karmada.example:5443");
        let pem =
            STANDARD.decode(made["clusters"][0]["cluster"]["certificate-authority-data"].as_str().unwrap()).unwrap();
        assert_eq!(String::from_utf8(pem).unwrap().lines().map(str::len).collect::<Vec<_>>(), [27, 64, 16, 25]);
        assert_eq!(made["users"][0]["user"], json!({ "tokenFile": "token" }));
        assert_eq!(
            kubeconfig(&administrator, Some("https://other")).unwrap()["clusters"][0]["cluster"]["server"],
            "https://other"
        );
    }

    /// The connection of a kubeconfig with this cluster, and a user with all that kube reads.
    async fn administrator(cluster: &Value) -> Config {
        let authority = crate::install::webhook_authority::Authority::make(Timestamp::now(), 10).unwrap();
        let user = json!({
            "token": "secret", "username": "secret", "password": "secret", "tokenFile": "/secret", "as": "secret",
            "client-certificate-data": "secret", "client-key-data": "secret",
            "exec": { "apiVersion": "client.authentication.k8s.io/v1", "command": "secret" },
        });
        let mut all = json!({
            "server": "https://karmada.example:5443", "certificate-authority-data": STANDARD.encode(authority.pem),
        });
        json_patch::merge(&mut all, cluster);
        let file = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{ "name": "a", "cluster": all }], "users": [{ "name": "a", "user": user }],
            "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a", "namespace": "secret" } }],
        });
        let file = serde_json::from_value(file).unwrap();
        Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default()).await.unwrap()
    }

    #[tokio::test]
    async fn no_credential_of_the_administrator_reaches_the_operator() {
        let administrator = administrator(&json!({ "tls-server-name": "karmada" })).await;
        let mut made = kubeconfig(&administrator, None).unwrap();
        assert!(!made.to_string().contains("secret"), "{made}");
        let cluster = made["clusters"][0]["cluster"].as_object_mut().unwrap();
        assert!(cluster.remove("certificate-authority-data").is_some());
        assert_eq!(json!(cluster), json!({ "server": "https://karmada.example:5443", "tls-server-name": "karmada" }));
        assert_eq!(made["users"][0]["user"], json!({ "tokenFile": "token" }));
    }

    #[rstest]
    #[case::any_certificate(json!({ "insecure-skip-tls-verify": true }), None, "has insecure-skip-tls-verify: ")]
    #[case::any_certificate_elsewhere(
        json!({ "insecure-skip-tls-verify": true }), Some("https://inner"), "set certificate-authority-data in its place"
    )]
    #[case::authorities_of_the_machine(json!({ "certificate-authority-data": null }), None, "has no authority")]
    #[case::no_tls(json!({ "server": "http://karmada:8080" }), None, "server in the administrator's kubeconfig: the")]
    #[case::no_tls_by_flag(json!({}), Some("http://karmada:8080"), "--karmada-server: the operator sends")]
    #[case::no_scheme(json!({}), Some("karmada:5443"), "--karmada-server: ")]
    #[case::password(json!({ "server": "https://u:secret@karmada" }), None, "server in the administrator's kubeconfig: ")]
    #[case::password_by_flag(json!({}), Some("https://u:secret@karmada"), "--karmada-server: ")]
    #[case::forwarded_port(json!({ "server": "https://127.0.0.1:5443" }), None, "kubeconfig: in a pod, 127.0.0.1 is")]
    #[case::forwarded_port_of_both_families(json!({ "server": "https://[::1]:5443" }), None, "in a pod, ::1 is")]
    #[case::name_of_the_machine(json!({}), Some("https://Localhost:5443"), "--karmada-server: in a pod, Localhost is")]
    #[tokio::test]
    async fn a_connection_that_pods_cannot_use_safely_is_refused_with_its_field(
        #[case] cluster: Value,
        #[case] server: Option<&str>,
        #[case] expected: &str,
    ) {
        let why = kubeconfig(&administrator(&cluster).await, server).unwrap_err();
        assert!(why.contains(expected) && !why.contains("secret"), "{why}");
    }

    /// A forwarded port, and the address of the server in the host.
    #[tokio::test]
    async fn another_address_for_pods_is_used() {
        let administrator = administrator(&json!({ "server": "https://127.0.0.1:5443" })).await;
        let made = kubeconfig(&administrator, Some("https://karmada.sys.svc:5443")).unwrap();
        assert_eq!(made["clusters"][0]["cluster"]["server"], "https://karmada.sys.svc:5443");
    }
}
