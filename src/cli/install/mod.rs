//! `mczk install` and `mczk uninstall`: everything of mczk, in Karmada's control plane and in the cluster of the operator.

mod certificate;
mod copy;
mod flags;
pub(super) mod host;
mod karmada;
mod steps;
mod uninstall;
pub(super) mod wait;

use std::path::PathBuf;
use std::time::Duration;

use clap::{
    Args,
    builder::{NonEmptyStringValueParser, RangedU64ValueParser},
};

use super::{
    connection::Connection,
    error::Error,
    output::{Exit, print},
    run::block_on,
};
use crate::register::{apply, host as host_objects};

use certificate::CertificateFlags;
use flags::{AgentFlags, HostFlags, Place, PodFlags, WebhookFlags};
use steps::Steps;

pub(crate) use uninstall::Uninstall;

/// Installs mczk: the operator in its cluster, and everything in Karmada and its member clusters
///
/// It needs two connections: to karmada-apiserver as an administrator, and to the cluster in which the operator runs, the
/// host. It creates certificates, a credential for the operator, definitions, rights, the operator, the registration of
/// the webhook, and an agent in every member cluster. Then it waits until they run. A second run changes nothing.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 if everything runs, 1 for a failure, 2 for a wrong command line. 3 if something does not \
                        run in time, or --dry-run shows a difference."
)]
pub(crate) struct Install {
    /// Copies the program into this folder, and installs nothing: for init containers
    #[arg(value_name = "FOLDER", hide = true, exclusive = true)]
    folder: Option<PathBuf>,
    /// Image of mczk for operator, agents and servers
    #[arg(long, env = "MCZK_IMAGE", value_name = "IMAGE", required_unless_present = "folder",
          value_parser = NonEmptyStringValueParser::new())]
    image: Option<String>,
    /// Image of mczk for member clusters, if they pull from another registry [default: that of --image]
    #[arg(long, env = "MCZK_MEMBER_IMAGE", value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new())]
    member_image: Option<String>,
    /// Namespaces for ensembles, separated by commas. The operator may read and create Secrets in these namespaces and in
    /// those that hold ensembles already, and in no other [default: none]
    #[arg(long, env = "MCZK_NAMESPACES", value_name = "NAMESPACE", value_delimiter = ',',
          value_parser = NonEmptyStringValueParser::new())]
    namespaces: Vec<String>,
    /// Serve the read-only web page too: HTTPS, on port 8444 of the Service mczk-dashboard
    #[arg(long, env = "MCZK_INSTALL_DASHBOARD")]
    dashboard: bool,
    /// Print what would change, and change nothing
    #[arg(long, env = "MCZK_INSTALL_DRY_RUN")]
    dry_run: bool,
    /// Leave the operator's Deployment and Service to another tool, such as the chart
    #[arg(long, env = "MCZK_WITHOUT_OPERATOR")]
    without_operator: bool,
    /// Seconds to wait for operator and agents; 0 does not wait
    #[arg(long, env = "MCZK_INSTALL_WAIT_SECONDS", value_name = "SECONDS", default_value_t = 300,
          value_parser = RangedU64ValueParser::<u64>::new().range(0..=3600))]
    wait_seconds: u64,
    #[command(flatten)]
    host: HostFlags,
    #[command(flatten)]
    webhook: WebhookFlags,
    #[command(flatten)]
    certificate: CertificateFlags,
    #[command(flatten)]
    pods: PodFlags,
    #[command(flatten)]
    agents: AgentFlags,
    #[command(flatten)]
    connection: Connection,
}

impl Install {
    /// Installs, and prints every object with what became of it.
    ///
    /// # Errors
    /// [`Error::Usage`] for flags that exclude each other; otherwise if an API server refuses an object.
    pub(crate) fn run(self) -> Result<Exit, Error> {
        match &self.folder {
            Some(folder) => copy::copy_to(folder).map(|()| Exit::Fine).map_err(Error::from),
            None => block_on(self.install()),
        }
    }

    async fn install(&self) -> Result<Exit, Error> {
        let image = self.image.clone().unwrap_or_default();
        let endpoint = self.webhook.endpoint(&self.host.connection.namespace)?;
        let place = Place::connect(&self.connection, &self.host).await?;
        apply::ensure_karmada(&place.karmada, &place.karmada_url).await?;
        let mut steps = Steps::new(self.dry_run);

        steps.begin("Karmada: definitions, rights and policies")?;
        karmada::prepare(&place.karmada, &self.namespaces, self.dashboard, &mut steps).await?;

        steps.begin(&format!("Host: the operator in the namespace {}", place.namespace))?;
        if !self.without_operator {
            steps.apply(&place.host, &host_objects::namespace(&place.namespace)?).await?;
        }
        let authority = self.certificate.provide(&place, &endpoint, &mut steps).await?;
        host::credential(&place, self.host.karmada_server.as_deref(), &mut steps).await?;
        if !self.without_operator {
            let settings = host_objects::Settings {
                namespace: place.namespace.clone(),
                replicas: self.pods.replicas,
                member_image: self.member_image.clone().unwrap_or_else(|| image.clone()),
                certificate_secret: self.certificate.secret_name().to_owned(),
                dashboard: self.dashboard,
                pods: self.pods.settings(image.clone()),
            };
            for object in host_objects::objects(&settings)? {
                steps.apply(&place.host, &object).await?;
            }
            for object in host_objects::leftovers(&settings)? {
                steps.remove(&place.host, &object).await?;
            }
        }

        steps.begin("Karmada: the webhook and the agents")?;
        karmada::register(&place.karmada, endpoint.clone(), authority, &mut steps).await?;
        let mut agents = self.agents.agents(self.member_image.clone().unwrap_or(image), &self.pods);
        if let Some(secret) = host::pull_secret(&place, self.pods.pull_secret.as_deref(), self.dry_run).await? {
            agents.secrets.push(secret);
        }
        if !self.agents.without_agents {
            karmada::agents(&place.karmada, agents, &mut steps).await?;
        }

        let mut complete = true;
        if self.wait_seconds > 0 && !self.dry_run {
            steps.begin("Waiting until everything runs")?;
            let limit = Duration::from_secs(self.wait_seconds);
            if !self.without_operator {
                complete &= wait::operator(&place, limit).await?;
            }
            if !self.without_agents() {
                complete &= wait::agents(&place.karmada, limit).await?;
            }
        }
        for line in karmada::unreachable_webhook(&place.karmada, &endpoint).await? {
            complete = false;
            print(&format!("{line}\n"))?;
        }
        Ok(Exit::waits(!complete || (self.dry_run && steps.differs())))
    }

    const fn without_agents(&self) -> bool {
        self.agents.without_agents
    }
}
