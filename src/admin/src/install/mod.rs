//! `mczk install` and `mczk uninstall`: everything of mczk, in Karmada's control plane and in the cluster of the operator.

pub(super) mod cert_manager;
pub mod certificate;
pub mod certs;
pub mod check_webhook;
pub mod copy;
pub mod crds;
pub mod flags;
pub(super) mod host;
pub mod karmada;
pub mod operation;
pub mod register;
pub mod stage;
pub mod steps;
pub(super) mod trust;
pub mod uninstall;
pub(super) mod uninstall_check;
pub(super) mod wait;
pub(super) mod webhook_authority;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{
    Args,
    builder::{NonEmptyStringValueParser, RangedU64ValueParser},
};

use crate::{
    register::{apply, credential, host as host_objects, interpreter::Endpoint},
    terminal::{
        connection::Connection,
        error::Error,
        output::{Exit, print},
        run::block_on,
    },
};

use certificate::CertificateFlags;
use flags::{AgentFlags, HostFlags, InstallTargets, PodFlags, WebhookFlags};
use stage::Stage;
use steps::InstallSteps;

pub use uninstall::Uninstall;

/// Installs mczk: the operator in its cluster, and everything in Karmada and its member clusters
///
/// It needs two connections: to karmada-apiserver as an administrator, and to the cluster in which the operator runs, the
/// host. It creates certificates, a credential for the operator, definitions, rights, the operator, the registration of
/// the webhook, and an agent in every member cluster. Webhook and agents follow once the operator runs. Then it waits for
/// the agents. A second run changes nothing.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 if everything runs, 1 for a failure, 2 for a wrong command line. 3 if something does not \
                        run in time, or --dry-run shows a difference."
)]
pub struct Install {
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
    /// The part of the installation that this run does, if another tool starts the operator between both. The hooks of the
    /// chart use it [default: both]
    #[arg(long, env = "MCZK_INSTALL_STAGE", value_enum, value_name = "STAGE", requires = "without_operator")]
    stage: Option<Stage>,
    /// Secret of the host for the operator's kubeconfig, if another tool starts the operator with it
    #[arg(long, env = "MCZK_INSTALL_KUBECONFIG_SECRET", value_name = "NAME", requires = "without_operator",
          default_value = host_objects::KUBECONFIG_SECRET, value_parser = NonEmptyStringValueParser::new())]
    kubeconfig_secret: String,
    /// Seconds to wait for each of certificate, operator and agents; 0 does not wait
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
    pub fn run(self) -> Result<Exit, Error> {
        match &self.folder {
            Some(folder) => copy::copy_to(folder).map(|()| Exit::Fine).map_err(Error::from),
            None => block_on(self.install()),
        }
    }

    async fn install(&self) -> Result<Exit, Error> {
        let endpoint = self.webhook.endpoint(&self.host.connection.namespace)?;
        self.install_in(&InstallTargets::connect(&self.connection, &self.host).await?, &endpoint).await
    }

    /// Rehearses all writes, then makes them.
    async fn install_in(&self, place: &InstallTargets, endpoint: &Endpoint) -> Result<Exit, Error> {
        if !self.dry_run {
            self.write(place, endpoint, &mut InstallSteps::rehearsal()).await?;
        }
        self.write(place, endpoint, &mut InstallSteps::new(self.dry_run)).await
    }

    async fn write(
        &self,
        place: &InstallTargets,
        endpoint: &Endpoint,
        steps: &mut InstallSteps,
    ) -> Result<Exit, Error> {
        apply::ensure_karmada(&place.karmada, &place.karmada_url).await?;
        let kubeconfig = credential::kubeconfig(&place.administrator, self.host.karmada_server.as_deref());
        let kubeconfig = kubeconfig.map_err(Error::Usage)?.to_string();
        let control_plane = host::control_plane(place, &self.kubeconfig_secret).await?;

        let prepares = Stage::Prepare.is_in(self.stage);
        if prepares {
            steps.begin("Karmada: definitions, rights and policies")?;
            karmada::prepare(&place.karmada, &self.namespaces, self.dashboard, steps).await?;
        }
        steps.begin(&format!("Host: the operator in the namespace {}", place.namespace))?;
        if !self.without_operator {
            steps.apply(&place.host, &host_objects::namespace(&place.namespace)?).await?;
        }
        let limit = Duration::from_secs(self.wait_seconds);
        let authority = self.certificate.provide(place, endpoint, limit, steps).await?;
        if prepares {
            // The authority too: only new pods are known to serve its certificate.
            let start = format!("{kubeconfig} {endpoint:?} {authority}");
            host::credential(place, &self.kubeconfig_secret, &control_plane, kubeconfig, steps).await?;
            // A missing one is an error now, and no operator that never pulls its image.
            host::pull_secret(place, self.pods.pull_secret.as_deref(), self.dry_run).await?;
            self.operator(place, start, steps).await?;
        }
        if Stage::Finish.is_in(self.stage) {
            return self.finish(place, endpoint, authority, steps).await;
        }
        Ok(Exit::waits(self.dry_run && steps.differs()))
    }

    fn image(&self) -> String {
        self.image.clone().unwrap_or_default()
    }

    fn member_image(&self) -> String {
        self.member_image.clone().unwrap_or_else(|| self.image())
    }

    /// The operator's objects in the host. `start` is that of [`host_objects::HostSettings`].
    async fn operator(&self, place: &InstallTargets, start: String, steps: &mut InstallSteps) -> Result<(), Error> {
        if self.without_operator {
            return Ok(());
        }
        let settings = host_objects::HostSettings {
            namespace: place.namespace.clone(),
            replicas: self.pods.replicas,
            member_image: self.member_image(),
            certificate_secret: self.certificate.secret_name().to_owned(),
            dashboard: self.dashboard,
            start,
            pods: self.pods.settings(self.image())?,
        };
        for object in host_objects::objects(&settings)? {
            steps.apply(&place.host, &object).await?;
        }
        for object in host_objects::leftovers(&settings)? {
            steps.remove(&place.host, &object).await?;
        }
        Ok(())
    }

    /// What follows an operator that runs: the registration, so that Karmada calls no webhook that does not answer, and the
    /// agents, since a new agent needs an operator of its version.
    async fn finish(
        &self,
        place: &InstallTargets,
        endpoint: &Endpoint,
        authority: String,
        steps: &mut InstallSteps,
    ) -> Result<Exit, Error> {
        let (limit, begun) = (Duration::from_secs(self.wait_seconds), Instant::now());
        let waits = self.wait_seconds > 0 && !steps.is_dry_run();
        if waits && stage::follows_operator(self.stage, self.without_operator) {
            steps.begin("Waiting until the operator runs")?;
            if !wait::operator(place, limit).await? {
                print("The webhook and the agents stay as they are. Repair the operator, and run the command again\n")?;
                return Ok(Exit::Waits);
            }
        }
        // Helm waits for a hook as long as for everything in it.
        let left = if waits { limit.saturating_sub(begun.elapsed()) } else { Duration::ZERO };
        let mut former = trust::with_former(&place.karmada, &authority).await?;
        if former.is_some() && wait::certificate(place, self.certificate.secret_name(), left).await? {
            former = None;
        }
        steps.begin("Karmada: the webhook and the agents")?;
        if former.is_some() {
            steps.say("  The registration keeps the former authority beside the new one: run the command again")?;
        }
        // A hook that fails lets Helm roll back: no member cluster, and no slow kubelet, may cause that.
        let is_hook = self.stage.is_some();
        let mut complete = former.is_none() || is_hook || !waits;
        karmada::register(&place.karmada, endpoint.clone(), former.unwrap_or(authority), steps).await?;
        self.apply_agents(place, steps).await?;

        if waits && !is_hook && !self.agents.without_agents {
            steps.begin("Waiting until the agents run")?;
            complete &= wait::agents(&place.karmada, limit).await?;
        }
        let outside = karmada::outside_of_host(&place.host, endpoint).await?;
        for line in karmada::unreachable_webhook(&place.karmada, endpoint).await?.into_iter().chain(outside) {
            complete &= is_hook;
            steps.say(&line)?;
        }
        Ok(Exit::waits(!complete || (self.dry_run && steps.differs())))
    }

    async fn apply_agents(&self, place: &InstallTargets, steps: &mut InstallSteps) -> Result<(), Error> {
        let secret = host::pull_secret(place, self.pods.pull_secret.as_deref(), self.dry_run).await?;
        if self.agents.without_agents {
            return Ok(());
        }
        let mut agents = self.agents.agents(self.member_image(), &self.pods)?;
        agents.secrets.extend(secret);
        karmada::agents(&place.karmada, agents, steps).await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
mod tests;
