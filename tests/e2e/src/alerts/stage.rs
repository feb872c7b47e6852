//! What the faults share: Prometheus, the processes besides the operator, and the ensembles.

use anyhow::{Context, Result};
use serde_json::json;
use tokio::task::JoinHandle;

use super::prometheus::Prometheus;
use crate::{
    agent::Behaviour,
    federation::{Federation, Ports},
    programs::Process,
    scene::{Scene, ensemble},
};

/// The ensembles of three voters. `zoo` stays to the end; a fault deletes `gone`.
pub(super) const ENSEMBLES: [&str; 3] = ["zoo", "other", "gone"];

/// The federation, and the state that one fault leaves to its end.
pub struct Stage<'a> {
    pub(super) federation: &'a Federation,
    pub(super) prometheus: Prometheus,
    /// The namespace of the ensembles, once they exist.
    scene: Option<Scene<'a>>,
    /// Ports of a second operator, which Prometheus scrapes.
    pub(super) second: Ports,
    pub(super) other_operator: Option<Process>,
    /// Ports of two agents, which Prometheus scrapes.
    pub(super) agent_ports: [u16; 2],
    pub(super) agent: Option<Process>,
    pub(super) other_agent: Option<Process>,
    /// A client that sends requests.
    pub(super) client: Option<JoinHandle<()>>,
    /// Number of images so far: each one is a change.
    images: u32,
}

impl<'a> Stage<'a> {
    /// Starts Prometheus. It scrapes ports on which programs start later.
    ///
    /// # Errors
    /// If Prometheus does not start.
    pub async fn new(federation: &'a Federation) -> Result<Self> {
        let second = federation.free_ports()?;
        let agent_ports = [federation.rig.free_port()?, federation.rig.free_port()?];
        let operators = [federation.probes(), second.probes];
        let jobs = [("mczk", &operators[..]), ("mczk-agent", &agent_ports[..])];
        let prometheus = Prometheus::start(&federation.folder, federation.rig.free_port()?, &jobs).await?;
        let (other_operator, agent, other_agent, client, scene) = Default::default();
        Ok(Self {
            federation,
            prometheus,
            scene,
            second,
            other_operator,
            agent_ports,
            agent,
            other_agent,
            client,
            images: 0,
        })
    }

    /// The namespace of the ensembles.
    pub(super) fn scene(&self) -> Result<&Scene<'a>> {
        self.scene.as_ref().context("there are no ensembles yet")
    }

    /// Creates the ensembles, and waits until they serve.
    pub(super) async fn create_ensembles(&mut self) -> Result<()> {
        let scene = Scene::new(self.federation, "alerts", Behaviour::default()).await?;
        for name in ENSEMBLES {
            scene.create(&ensemble(name, 3, &json!({}))).await?;
        }
        for name in ENSEMBLES {
            scene.settled(name).await?;
        }
        self.scene = Some(scene);
        Ok(())
    }

    /// Changes the image of an ensemble to one that it did not have before.
    pub(super) async fn change_image(&mut self, name: &str) -> Result<()> {
        self.images += 1;
        let image = format!("zookeeper:3.9.{}", 10 + self.images);
        self.scene()?.image(name, &image).await
    }

    /// An agent of m1, on a port of probes and metrics.
    pub(super) fn agent_at(&self, port: u16, lease: &str) -> Result<Process> {
        let rig = &self.federation.rig;
        let arguments = [
            ("--kubeconfig", rig.kubeconfig("m1").display().to_string()),
            ("--cluster", "m1".to_owned()),
            ("--probe-address", format!("127.0.0.1:{port}")),
            ("--lease", lease.to_owned()),
            ("--lease-duration-seconds", "6".to_owned()),
            ("--lease-renew-deadline-seconds", "4".to_owned()),
            ("--lease-retry-period-seconds", "1".to_owned()),
        ];
        let arguments = arguments.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
        let arguments: Vec<String> = std::iter::once("agent".to_owned()).chain(arguments).collect();
        Process::start(&self.federation.mczk, &arguments, &self.federation.folder.join("agent.log"))
    }

    /// Ends all processes but the operator.
    pub(super) async fn end(&mut self) -> Result<()> {
        self.end_agents().await?;
        if let Some(client) = self.client.take() {
            client.abort();
        }
        match self.other_operator.take() {
            Some(other) => other.kill().await,
            None => Ok(()),
        }
    }

    /// Ends the agents that run as processes.
    pub(super) async fn end_agents(&mut self) -> Result<()> {
        for agent in [self.agent.take(), self.other_agent.take()].into_iter().flatten() {
            agent.kill().await?;
        }
        Ok(())
    }
}
