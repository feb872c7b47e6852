//! Flags of `mczk install`, and the connections that they name.

use std::collections::BTreeMap;

use anyhow::Context;
use clap::{
    Args,
    builder::{NonEmptyStringValueParser, RangedU64ValueParser},
};
use kube::{Client, Config, api::ObjectMeta};

use crate::{
    register::{
        agents::Agents,
        host,
        interpreter::Endpoint,
        pods::{PodSettings, TolerationText},
    },
    terminal::{connection::Connection, error::Error, host_connection::HostConnection, lease_timing::LeaseTiming},
};

/// The cluster of the operator.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Host")]
pub(super) struct HostFlags {
    #[command(flatten)]
    pub(super) connection: HostConnection,
    /// URL of karmada-apiserver for the operator's pods, such as
    /// `https://karmada-apiserver.karmada-system.svc.cluster.local:5443` [default: that of the administrator's kubeconfig]
    #[arg(long, env = "MCZK_KARMADA_SERVER", value_name = "URL")]
    pub(super) karmada_server: Option<String>,
}

/// Both control planes.
pub(super) struct InstallTargets {
    pub(super) karmada: Client,
    /// Configuration of the administrator's connection to Karmada.
    pub(super) administrator: Config,
    pub(super) karmada_url: String,
    pub(super) host: Client,
    /// Namespace of the operator in the host.
    pub(super) namespace: String,
}

impl InstallTargets {
    /// Connects to both.
    ///
    /// # Errors
    /// [`Error::Usage`] if a kubeconfig or context does not exist, or both name one server.
    pub(super) async fn connect(karmada: &Connection, flags: &HostFlags) -> Result<Self, Error> {
        let administrator = karmada.config().await?;
        let host = flags.connection.config(karmada).await?;
        if host.cluster_url == administrator.cluster_url {
            return Err(Error::Usage(format!(
                "the host and karmada-apiserver are both {}: name the cluster in which the operator runs with \
                 --host-kubeconfig or --host-context",
                host.cluster_url
            )));
        }
        let client = |config: Config| Client::try_from(config).context("cannot use the kubeconfig");
        Ok(Self {
            karmada: client(administrator.clone())?,
            karmada_url: administrator.cluster_url.to_string(),
            administrator,
            host: client(host)?,
            namespace: flags.connection.namespace.clone(),
        })
    }

    /// The refusal of a Secret in the host that opens another control plane of Karmada than the named one.
    pub(super) fn another_karmada(&self, metadata: &ObjectMeta) -> Error {
        let (namespace, name) = (&self.namespace, metadata.name.as_deref().unwrap_or_default());
        Error::Usage(format!(
            "the operator in the namespace {namespace} of the host belongs to another control plane of Karmada: name that \
             one with --kubeconfig, or another namespace with --host-namespace. If this control plane was built again, \
             delete Secret {namespace}/{name} of the host first"
        ))
    }
}

/// Address of the webhook.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Webhook")]
pub(super) struct WebhookFlags {
    /// URL of the webhook, if Karmada does not run in the host, or a member cluster is of mode Pull: `https://HOST[:PORT]`
    /// [default: the Service of the operator]
    #[arg(long, env = "MCZK_URL", value_name = "URL")]
    url: Option<String>,
    /// Name of the operator's Service, if another tool creates it
    #[arg(long, env = "MCZK_SERVICE_NAME", value_name = "NAME", default_value = host::SERVICE)]
    service_name: String,
    /// Port of the operator's Service, if another tool creates it
    #[arg(long, env = "MCZK_SERVICE_PORT", value_name = "PORT", default_value_t = host::PORT,
          value_parser = RangedU64ValueParser::<u16>::new().range(1..), requires = "without_operator")]
    service_port: u16,
    /// Path of the webhook, if another tool starts the operator with --webhook-path [default: that of --url, or
    /// /interpreter]
    #[arg(long, env = "MCZK_WEBHOOK_PATH", value_name = "PATH", requires = "without_operator")]
    webhook_path: Option<String>,
}

impl WebhookFlags {
    /// The address.
    ///
    /// # Errors
    /// [`Error::Usage`] if it is not a URL that Karmada calls.
    pub(super) fn endpoint(&self, namespace: &str) -> Result<Endpoint, Error> {
        let path = self.webhook_path.as_deref();
        match &self.url {
            Some(url) => Endpoint::url(url, path).map_err(|error| Error::Usage(format!("--url: {error}"))),
            None => Endpoint::service(&format!("{namespace}/{}:{}", self.service_name, self.service_port), path)
                .map_err(|error| Error::Usage(format!("--host-namespace and --service-name: {error}"))),
        }
    }
}

/// Pods of the operator, and tolerations and credentials of all pods.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Pods")]
pub(super) struct PodFlags {
    /// Number of operators: one acts, all answer the webhook
    #[arg(long, env = "MCZK_REPLICAS", value_name = "NUMBER", default_value_t = 2,
          value_parser = RangedU64ValueParser::<u16>::new().range(1..=5))]
    pub(super) replicas: u16,
    /// Secret of type kubernetes.io/dockerconfigjson in the namespace of the operator, with which all pods pull. Karmada
    /// brings a copy to the agents
    #[arg(long, env = "MCZK_PULL_SECRET", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(super) pull_secret: Option<String>,
    /// Taint that the pods of operator and agents tolerate: KEY[=VALUE][:EFFECT]; several with commas
    #[arg(long = "toleration", env = "MCZK_TOLERATIONS", value_name = "TAINT", value_delimiter = ',')]
    tolerations: Vec<TolerationText>,
    /// Of operators and agents alike.
    #[command(flatten)]
    lease: LeaseTiming,
}

impl PodFlags {
    /// The settings of the operator's pods.
    ///
    /// # Errors
    /// As [`LeaseTiming::timing`].
    pub(super) fn settings(&self, image: String) -> Result<PodSettings, Error> {
        Ok(PodSettings {
            image,
            lease: Some(self.lease.timing()?),
            pull_secrets: self.pull_secret.iter().cloned().collect(),
            tolerations: self.tolerations.iter().map(|text| text.0.clone()).collect(),
            ..PodSettings::default()
        })
    }
}

/// Agents.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Agents")]
pub(super) struct AgentFlags {
    /// Leave the agents to another tool, such as their chart
    #[arg(long, env = "MCZK_WITHOUT_AGENTS")]
    pub(super) without_agents: bool,
    /// Resources that an agent requests, such as cpu=20m,memory=64Mi
    #[arg(long, env = "MCZK_AGENT_REQUESTS", value_name = "RESOURCE=QUANTITY", value_delimiter = ',', value_parser = resource)]
    agent_requests: Vec<(String, String)>,
    /// Limits of an agent, such as memory=256Mi
    #[arg(long, env = "MCZK_AGENT_LIMITS", value_name = "RESOURCE=QUANTITY", value_delimiter = ',', value_parser = resource)]
    agent_limits: Vec<(String, String)>,
}

impl AgentFlags {
    /// The agents.
    ///
    /// # Errors
    /// As [`PodFlags::settings`].
    pub(super) fn agents(&self, image: String, pods: &PodFlags) -> Result<Agents, Error> {
        let map = |list: &[(String, String)]| list.iter().cloned().collect::<BTreeMap<_, _>>();
        let (requests, limits) = (map(&self.agent_requests), map(&self.agent_limits));
        Ok(Agents { pods: PodSettings { requests, limits, ..pods.settings(image)? }, secrets: Vec::new() })
    }
}

fn resource(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, quantity)) if !name.is_empty() && !quantity.is_empty() => {
            Ok((name.to_owned(), quantity.to_owned()))
        }
        _ => Err("write it as RESOURCE=QUANTITY, such as memory=256Mi".to_owned()),
    }
}
