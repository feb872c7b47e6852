//! ResourceInterpreterWebhookConfiguration (`config.karmada.io/v1alpha1`): how Karmada learns of the interpreter webhook.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// `apiVersion` of the registration, and of what Karmada and the webhook exchange.
pub const API_VERSION: &str = "config.karmada.io/v1alpha1";

/// A registration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceInterpreterWebhookConfiguration {
    /// `config.karmada.io/v1alpha1`
    pub api_version: String,
    /// `ResourceInterpreterWebhookConfiguration`
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
    /// Where it listens.
    pub client_config: WebhookClientConfig,
    /// What it is asked.
    pub rules: Vec<RuleWithOperations>,
    /// Seconds, 1 to 30. Karmada has no default, whatever the field's comment says.
    pub timeout_seconds: i32,
    /// Versions of the protocol that it speaks.
    pub interpreter_context_versions: Vec<String>,
}

/// Where a webhook listens: `url` or `service`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookClientConfig {
    /// Its URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Its Service.
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

/// What a webhook is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleWithOperations {
    /// The operations.
    pub operations: Vec<String>,
    /// Of which groups.
    pub api_groups: Vec<String>,
    /// Of which versions.
    pub api_versions: Vec<String>,
    /// Of which kinds.
    pub kinds: Vec<String>,
}
