//! The cluster in which the operator runs.

use std::path::PathBuf;

use clap::{Args, builder::NonEmptyStringValueParser};
use kube::{Client, Config};

use super::{
    connection::{Connection, unusable},
    error::Error,
};
use crate::register::host;

/// The cluster of the operator.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Host")]
pub(crate) struct HostConnection {
    /// Kubeconfig of the cluster in which the operator runs [default: with --host-context that of --kubeconfig, in a pod the
    /// cluster of the pod]
    #[arg(long, env = "MCZK_HOST_KUBECONFIG", value_name = "FILE")]
    host_kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig of the host
    #[arg(long, env = "MCZK_HOST_CONTEXT", value_name = "NAME")]
    host_context: Option<String>,
    /// Namespace of the operator in the host
    #[arg(id = "host_namespace", long = "host-namespace", env = "MCZK_HOST_NAMESPACE", value_name = "NAMESPACE", default_value = host::NAMESPACE,
          value_parser = NonEmptyStringValueParser::new())]
    pub(crate) namespace: String,
}

impl HostConnection {
    /// True if the user names the host.
    const fn is_named(&self) -> bool {
        self.host_kubeconfig.is_some() || self.host_context.is_some()
    }

    /// A client of the host. Outside of a pod the host is optional.
    ///
    /// # Errors
    /// [`Error::Usage`] if a kubeconfig or context does not exist.
    pub(crate) async fn client_if_any(&self, karmada: &Connection) -> Result<Option<Client>, Error> {
        match self.config(karmada).await {
            Ok(config) => Ok(Some(Client::try_from(config).map_err(unusable)?)),
            Err(error) if self.is_named() => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Configuration of a client of the host. In a pod the default is the cluster of the pod.
    ///
    /// # Errors
    /// [`Error::Usage`] if the host is not named outside of a pod, or a kubeconfig or context does not exist.
    pub(crate) async fn config(&self, karmada: &Connection) -> Result<Config, Error> {
        if !self.is_named() {
            return Config::incluster().map_err(|_| {
                Error::Usage(
                    "the cluster in which the operator runs is missing: name it with --host-kubeconfig or --host-context"
                        .to_owned(),
                )
            });
        }
        let kubeconfig = self.host_kubeconfig.clone().or_else(|| karmada.kubeconfig.clone());
        Connection { kubeconfig, context: self.host_context.clone(), identity: None }.config().await
    }
}
