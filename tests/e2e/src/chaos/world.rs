//! What operations act on: the federation, the ensemble as the user declares it, and the faults that last.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::time::timeout;

use super::{moves::failover, network::Network};
use crate::{
    members::{Members, Pods, Server, logs::Logs, spec},
    programs::Process,
    scene::{self, Scene, ensemble},
};

/// The name of the ensemble.
pub const NAME: &str = "zoo";
/// Voters at the beginning, and the larger one of both numbers.
pub const VOTERS: usize = 5;
/// Connections that a server accepts: few enough for one client to hold them all.
const CONNECTIONS: u32 = 80;
/// The longest time of a command: an API server may have no power.
const COMMAND: Duration = Duration::from_secs(20);

/// A spec with the settings of a change, by its number. One address may hold all connections.
#[must_use]
pub fn settings(number: u32) -> Value {
    let of_client = (CONNECTIONS + 1 + number).to_string();
    spec::settings(&[("maxClientCnxns", &of_client), ("maxCnxns", &CONNECTIONS.to_string())])
}

/// The ensemble as the user declares it.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Number of voters.
    pub voters: usize,
    /// Clusters of the placement.
    pub placement: Vec<String>,
    /// Image of ZooKeeper.
    pub image: &'static str,
    /// Number of changes so far. It makes each change different from all before.
    pub changes: u32,
}

impl Declared {
    /// The whole object. Clusters outside its placement are spares.
    pub(super) fn object(&self, clusters: &[String]) -> Result<Value> {
        let mut spec = spec::first(self.image, spec::FOLDERS, &self.placement, true);
        let (path, settings) = ("/template/zooCfg", settings(self.changes));
        if let (Some(first), Some(settings)) = (spec.pointer_mut(path), settings.pointer(path)) {
            first.clone_from(settings);
        }
        if let Some(spec) = spec.as_object_mut() {
            spec.insert("failover".to_owned(), failover(&self.placement, clusters));
        }
        Ok(ensemble(NAME, i32::try_from(self.voters)?, &spec))
    }
}

/// A federation with an ensemble.
pub struct World<'a> {
    /// The federation.
    pub members: &'a Members<'a>,
    /// The namespace of the ensemble.
    pub scene: Scene<'a>,
    /// All member clusters.
    pub clusters: Vec<String>,
    /// The faults of the network.
    pub network: tokio::sync::Mutex<Network>,
    /// Held while the operator is killed and started.
    pub operator: tokio::sync::Mutex<()>,
    /// The second operator, while it runs.
    pub second: tokio::sync::Mutex<Option<Process>>,
    /// What holds up processes whose disk stalls, by their ids.
    pub stalled: tokio::sync::Mutex<BTreeMap<String, Process>>,
    /// The sessions of the client that holds all connections of a server.
    pub sessions: tokio::sync::Mutex<Vec<zookeeper_client::Client>>,
    /// The transactions read so far.
    pub logs: tokio::sync::Mutex<Logs>,
    /// True if a control plane was lost, and Secrets of its authority may be left in member clusters.
    pub has_lost_secrets: AtomicBool,
    /// The number of decisions to move voters that were seen.
    pub moves: AtomicUsize,
    /// Held while the user changes the spec.
    pub changing: tokio::sync::Mutex<()>,
    declared: Mutex<Declared>,
}

impl<'a> World<'a> {
    /// Declares an ensemble over the first three clusters. Others are spares.
    ///
    /// # Errors
    /// If the API server refuses it.
    pub async fn new(members: &'a Members<'a>) -> Result<Self> {
        let scene = Scene::new(members.federation, "chaos", crate::agent::Behaviour::default()).await?;
        let clusters: Vec<String> = members.federation.members.keys().cloned().collect();
        // The last one of four is a spare at first.
        let placement = clusters.get(..clusters.len().min(3)).unwrap_or_default().to_vec();
        let declared = Declared { voters: VOTERS, placement, image: scene::IMAGE, changes: 0 };
        scene.create(&declared.object(&clusters)?).await?;
        Ok(Self {
            members,
            scene,
            clusters,
            network: tokio::sync::Mutex::default(),
            operator: tokio::sync::Mutex::default(),
            second: tokio::sync::Mutex::default(),
            stalled: tokio::sync::Mutex::default(),
            sessions: tokio::sync::Mutex::default(),
            logs: tokio::sync::Mutex::default(),
            has_lost_secrets: AtomicBool::new(false),
            moves: AtomicUsize::default(),
            changing: tokio::sync::Mutex::default(),
            declared: Mutex::new(declared),
        })
    }

    /// The ensemble as the user declares it now.
    pub fn declared(&self) -> MutexGuard<'_, Declared> {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The whole object as the user declares it now. Its annotations of pods are those of the beginning.
    ///
    /// # Errors
    /// If it has too many voters.
    pub fn object(&self) -> Result<Value> {
        self.declared().object(&self.clusters)
    }

    /// Changes the spec.
    ///
    /// # Errors
    /// If the API server refuses it.
    pub async fn declare(&self, spec: Value) -> Result<()> {
        self.scene.change(NAME, spec).await.map(drop)
    }

    /// The servers' pods.
    #[must_use]
    pub fn pods(&self) -> Pods {
        self.members.pods(&self.scene.namespace)
    }

    /// The servers that are not being deleted, in clusters that answer.
    ///
    /// # Errors
    /// If an API server refuses.
    pub async fn servers(&self) -> Result<Vec<Server>> {
        Ok(self.pods().servers().await?.into_iter().filter(|server| !server.terminating).collect())
    }

    /// Ends a command that takes too long.
    ///
    /// # Errors
    /// Those of the command, or that it takes too long.
    pub async fn soon<T>(&self, command: impl Future<Output = Result<T>>) -> Result<T> {
        timeout(COMMAND, command).await.with_context(|| format!("no answer in {} s", COMMAND.as_secs()))?
    }

    /// Runs `kubectl` in the ensemble's namespace of a cluster.
    ///
    /// # Errors
    /// Its output, if it fails or takes too long.
    pub async fn kubectl(&self, cluster: &str, arguments: &[&str]) -> Result<String> {
        let arguments = [arguments, &["-n", &self.scene.namespace]].concat();
        self.soon(self.members.kubectl(cluster, &arguments)).await
    }

    /// Reads the logs on all existing volumes, also before one is lost: its logs are compared too.
    ///
    /// # Errors
    /// If two transactions have one number, or a volume cannot be read.
    pub async fn gather(&self) -> Result<()> {
        let mut logs = self.logs.lock().await;
        for volumes in self.members.federation.rig.volumes() {
            logs.gather(&volumes)?;
        }
        Ok(())
    }
}
