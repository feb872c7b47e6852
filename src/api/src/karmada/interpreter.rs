//! ResourceInterpreterWebhookConfiguration (`config.karmada.io/v1alpha1`): the registration of the interpreter webhook.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// `apiVersion` of the registration, and of the questions and answers of the webhook.
pub const API_VERSION: &str = "config.karmada.io/v1alpha1";

/// A registration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceInterpreterWebhookConfiguration {
    /// Always [`API_VERSION`].
    pub api_version: String,
    /// Always `ResourceInterpreterWebhookConfiguration`.
    pub kind: String,
    /// Name.
    pub metadata: ObjectMeta,
    /// The webhooks.
    pub webhooks: Vec<ResourceInterpreterWebhook>,
}

/// One webhook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceInterpreterWebhook {
    /// Name, with a domain.
    pub name: String,
    /// Address of the webhook.
    pub client_config: WebhookClientConfig,
    /// Operations and kinds that the webhook answers for.
    pub rules: Vec<RuleWithOperations>,
    /// Seconds, 1 to 30. Karmada has no default, unlike the comment on its field says.
    pub timeout_seconds: i32,
    /// Versions of the protocol that the webhook supports.
    pub interpreter_context_versions: Vec<String>,
}

/// Address of a webhook: `url` or `service`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookClientConfig {
    /// URL of the webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Service of the webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceReference>,
    /// Certificate authority, PEM in base64.
    pub ca_bundle: String,
}

/// A Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceReference {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Path of the URL.
    pub path: String,
    /// Port.
    pub port: i32,
}

/// Operations and kinds that a webhook answers for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleWithOperations {
    /// The operations.
    pub operations: Vec<String>,
    /// Groups of the kinds.
    pub api_groups: Vec<String>,
    /// Versions of the kinds.
    pub api_versions: Vec<String>,
    /// The kinds.
    pub kinds: Vec<String>,
}
