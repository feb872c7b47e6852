//! ResourceInterpreterWebhookConfiguration (`config.karmada.io/v1alpha1`): the registration of the interpreter webhook.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// `apiVersion` of the registration, and of the questions and answers of the webhook.
pub(crate) const API_VERSION: &str = "config.karmada.io/v1alpha1";

/// A registration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResourceInterpreterWebhookConfiguration {
    /// Always [`API_VERSION`].
    pub(crate) api_version: String,
    /// Always `ResourceInterpreterWebhookConfiguration`.
    pub(crate) kind: String,
    /// Name.
    pub(crate) metadata: ObjectMeta,
    /// The webhooks.
    pub(crate) webhooks: Vec<ResourceInterpreterWebhook>,
}

/// One webhook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResourceInterpreterWebhook {
    /// Name, with a domain.
    pub(crate) name: String,
    /// Address of the webhook.
    pub(crate) client_config: WebhookClientConfig,
    /// Operations and kinds that the webhook answers for.
    pub(crate) rules: Vec<RuleWithOperations>,
    /// Seconds, 1 to 30. Karmada has no default, unlike the comment on its field says.
    pub(crate) timeout_seconds: i32,
    /// Versions of the protocol that the webhook supports.
    pub(crate) interpreter_context_versions: Vec<String>,
}

/// Address of a webhook: `url` or `service`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebhookClientConfig {
    /// URL of the webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
    /// Service of the webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) service: Option<ServiceReference>,
    /// Certificate authority, PEM in base64.
    pub(crate) ca_bundle: String,
}

/// A Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceReference {
    /// Namespace.
    pub(crate) namespace: String,
    /// Name.
    pub(crate) name: String,
    /// Path of the URL.
    pub(crate) path: String,
    /// Port.
    pub(crate) port: i32,
}

/// Operations and kinds that a webhook answers for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RuleWithOperations {
    /// The operations.
    pub(crate) operations: Vec<String>,
    /// Groups of the kinds.
    pub(crate) api_groups: Vec<String>,
    /// Versions of the kinds.
    pub(crate) api_versions: Vec<String>,
    /// The kinds.
    pub(crate) kinds: Vec<String>,
}
