//! The operator's credential: a kubeconfig of karmada-apiserver with a token of its service account.
//!
//! The token is a file of its own beside the kubeconfig. The operator reads it again while it runs, so that a renewal needs no
//! restart.

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
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

/// The kubeconfig of the operator: the server and authority of an administrator's connection, with the token beside it.
pub(crate) fn kubeconfig(administrator: &Config, server: Option<&str>) -> Value {
    let own = administrator.cluster_url.to_string();
    let mut cluster = json!({ "server": server.unwrap_or_else(|| own.trim_end_matches('/')) });
    if let Some(members) = cluster.as_object_mut() {
        if let Some(authority) = &administrator.root_cert {
            members.insert("certificate-authority-data".to_owned(), json!(STANDARD.encode(pem(authority))));
        }
        if let Some(name) = &administrator.tls_server_name {
            members.insert("tls-server-name".to_owned(), json!(name));
        }
        if administrator.accept_invalid_certs {
            members.insert("insecure-skip-tls-verify".to_owned(), json!(true));
        }
    }
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "karmada",
        "clusters": [{ "name": "karmada", "cluster": cluster }],
        "users": [{ "name": ACCOUNT, "user": { "tokenFile": TOKEN } }],
        "contexts": [{ "name": "karmada", "context": { "cluster": "karmada", "user": ACCOUNT } }],
    })
}

/// Certificates in PEM.
fn pem(certificates: &[Vec<u8>]) -> String {
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
        let made = kubeconfig(&administrator, None);
        assert_eq!(made["clusters"][0]["cluster"]["server"], "https://karmada.example:5443");
        let pem =
            STANDARD.decode(made["clusters"][0]["cluster"]["certificate-authority-data"].as_str().unwrap()).unwrap();
        assert_eq!(String::from_utf8(pem).unwrap().lines().map(str::len).collect::<Vec<_>>(), [27, 64, 16, 25]);
        assert_eq!(made["users"][0]["user"], json!({ "tokenFile": "token" }));
        assert_eq!(
            kubeconfig(&administrator, Some("https://other"))["clusters"][0]["cluster"]["server"],
            "https://other"
        );
    }
}
