//! Applies operations, and undoes them.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{
    moves::placed,
    operations::{Kind, Operation},
    process,
    world::{self, Declared, NAME, VOTERS, World},
};
use crate::{
    members::{Server, spec},
    versions::PARTS,
};

/// The smaller number of voters.
const FEWER: usize = 3;
/// A taint of nodes.
const TAINT: &str = "example.com/maintenance";
/// Milliseconds that a packet may take between two clusters.
const DELAYS: [u32; 3] = [50, 100, 200];
/// How wrong the operator's clock is. A record is stuck after minutes.
const OFFSETS: [&str; 4] = ["-2d", "-20m", "+20m", "+2d"];

/// How a fault ends. Power comes first, because the others need it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Undo {
    /// The cluster gets power.
    Power(String),
    /// The node gets power.
    Node(String),
    /// The cluster joins Karmada again.
    Joined(String),
    /// Other member clusters reach the cluster.
    Servers(String),
    /// Karmada reaches the cluster.
    Karmada(String),
    /// A new control plane continues this incarnation.
    Rebuilt(String),
    /// The control plane has the data of this copy.
    Restored(PathBuf),
    /// The cluster has no firewall with this table.
    Firewall(String, &'static str),
    /// The cluster has no quota.
    Refused(String),
    /// The control plane has no admission policy.
    RefusedAll(PathBuf),
    /// Packets are in time.
    Delay,
    /// The processes of the server continue.
    Resume(Pod),
    /// The processes of these servers continue.
    ResumeAll(Vec<Pod>),
    /// The disk of the server works.
    Stall(Pod),
    /// The client ends its sessions.
    Connections,
    /// Files of the server may grow.
    Disk(Pod),
    /// The node takes pods: cluster and node.
    Uncordon(String, String),
    /// The node keeps pods: cluster and node.
    Untaint(String, String),
    /// One operator is left.
    SecondOperator,
    /// The operator's clock is right.
    Clock,
    /// The rollout continues.
    Unpause,
    /// The user asks for the voters of this cluster to go home.
    Home(String),
}

/// A pod of a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pod {
    /// Its cluster.
    pub cluster: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl From<&Server> for Pod {
    fn from(server: &Server) -> Self {
        Self { cluster: server.cluster.clone(), name: server.name.clone(), uid: server.uid.clone() }
    }
}

/// What an operation did.
pub struct Applied {
    /// On which part, for the file of operations.
    pub text: String,
    /// How it ends.
    pub undo: Option<Undo>,
}

impl Applied {
    pub(super) fn new(text: impl Into<String>, undo: Option<Undo>) -> Self {
        Self { text: text.into(), undo }
    }
}

impl World<'_> {
    /// Applies an operation.
    ///
    /// # Errors
    /// If it is not possible now, for example because its cluster does not answer.
    pub async fn apply(&self, operation: &Operation) -> Result<Applied> {
        match operation.kind {
            Kind::PowerOff
            | Kind::LongPowerOff
            | Kind::PowerOffNode
            | Kind::CutServers
            | Kind::CutKarmada
            | Kind::Unjoin
            | Kind::Delay => self.environment(operation).await,
            Kind::Cordon | Kind::Drain | Kind::Taint => self.unload(operation).await,
            Kind::KillAgent | Kind::KillOperator | Kind::SecondOperator | Kind::WrongClock | Kind::ChangeVersion => {
                self.hit_part(operation).await
            }
            Kind::KillServer
            | Kind::KillLeader
            | Kind::DeletePod
            | Kind::ForceDeletePod
            | Kind::DeleteStatefulSet
            | Kind::LoseVolume
            | Kind::OldVolume
            | Kind::DeleteLogs
            | Kind::SwapVolumes
            | Kind::ReplaceVolume
            | Kind::PauseServer
            | Kind::StallDisk
            | Kind::UseUpConnections
            | Kind::FillDisk => self.hit_server(operation).await,
            Kind::PauseAll => self.pause_all().await,
            Kind::RequestMove | Kind::RehearseMove => self.request_move(operation).await,
            Kind::KillKarmada => self.kill_karmada(operation).await,
            Kind::ForgetConnections | Kind::DropLargePackets | Kind::Refuse => self.limit(operation).await,
            Kind::RefuseAll => self.refuse_all().await,
            Kind::LoseControlPlane | Kind::RestoreControlPlane => self.lose_control_plane(operation.kind).await,
            Kind::EditPropagation | Kind::EditOverride | Kind::EditTemplate => {
                self.soon(self.edit(operation)).await.map(|text| Applied::new(text, None))
            }
            Kind::DeletePropagation | Kind::DeleteOverride | Kind::DeleteTemplate | Kind::DeleteWork => {
                self.soon(self.delete_owned(operation)).await.map(|text| Applied::new(text, None))
            }
            Kind::WipeStatus => self.soon(self.wipe_status()).await.map(|()| Applied::new("", None)),
            Kind::ReplaceAuthority => {
                let annotation = format!("mczk.io/replace-authority=chaos-{}", self.another_change());
                let arguments = ["annotate", "mczk", NAME, &annotation, "--overwrite"];
                self.kubectl("karmada", &arguments).await.map(|_| Applied::new(annotation, None))
            }
            Kind::ChangeSetting
            | Kind::ChangeAnnotation
            | Kind::ChangeImage
            | Kind::ChangeReplicas
            | Kind::ChangePlacement
            | Kind::PauseRollout => self.change(operation).await,
        }
    }

    /// Nodes, networks and power.
    async fn environment(&self, operation: &Operation) -> Result<Applied> {
        let rig = &self.members.federation.rig;
        let cluster = operation.of(&self.clusters).context("there are no clusters")?.clone();
        let undo = match operation.kind {
            Kind::PowerOff | Kind::LongPowerOff => {
                rig.stop_cluster(&cluster).await?;
                Undo::Power(cluster.clone())
            }
            Kind::PowerOffNode => {
                let node = self.node(operation, &cluster)?;
                rig.stop_node(&node).await?;
                Undo::Node(node)
            }
            Kind::Unjoin => {
                self.gather().await?;
                let undo = Undo::Joined(cluster.clone());
                if let Err(error) = rig.unjoin(&cluster).await {
                    // Karmada may remove the cluster later than the command waits.
                    return Ok(Applied::new(format!("{cluster}: {error:#}"), Some(undo)));
                }
                undo
            }
            Kind::CutServers => {
                let mut network = self.network.lock().await;
                network.change(rig, &self.clusters, |faults| faults.servers.extend([cluster.clone()])).await?;
                Undo::Servers(cluster.clone())
            }
            Kind::CutKarmada => {
                let mut network = self.network.lock().await;
                network.change(rig, &self.clusters, |faults| faults.karmada.extend([cluster.clone()])).await?;
                Undo::Karmada(cluster.clone())
            }
            Kind::Delay => {
                let delay = *operation.of(&DELAYS).context("there are no delays")?;
                self.network.lock().await.change(rig, &self.clusters, |faults| faults.delay = delay).await?;
                return Ok(Applied::new(format!("{delay} ms"), Some(Undo::Delay)));
            }
            other => bail!("{} is no fault of a node or a network", other.name()),
        };
        let text = if let Undo::Node(node) = &undo { node.clone() } else { cluster };
        Ok(Applied::new(text, Some(undo)))
    }

    /// Nodes that their pods must leave.
    async fn unload(&self, operation: &Operation) -> Result<Applied> {
        let cluster = operation.of(&self.clusters).context("there are no clusters")?.clone();
        let node = self.node(operation, &cluster)?;
        if operation.kind == Kind::Taint {
            self.kubectl(&cluster, &["taint", "node", &node, &format!("{TAINT}=true:NoExecute"), "--overwrite"])
                .await?;
            return Ok(Applied::new(node.clone(), Some(Undo::Untaint(cluster, node))));
        }
        self.kubectl(&cluster, &["cordon", &node]).await?;
        if operation.kind == Kind::Drain {
            let drain = ["drain", &node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=15s"];
            // The PodDisruptionBudget may refuse evictions for longer.
            let _ = self.soon(self.members.kubectl(&cluster, &drain)).await;
        }
        Ok(Applied::new(node.clone(), Some(Undo::Uncordon(cluster, node))))
    }

    /// A node of a cluster.
    fn node(&self, operation: &Operation, cluster: &str) -> Result<String> {
        let all = self.members.federation.rig.nodes();
        let nodes: Vec<&String> =
            all.iter().filter(|node| *node == cluster || node.starts_with(&format!("{cluster}-"))).collect();
        // The same number chose the cluster.
        let nth = usize::from(operation.pick) / self.clusters.len().max(1);
        let node = nth.checked_rem(nodes.len()).and_then(|nth| nodes.get(nth));
        node.map(|&node| node.clone()).with_context(|| format!("{cluster} has no node"))
    }

    async fn hit_part(&self, operation: &Operation) -> Result<Applied> {
        if operation.kind == Kind::KillOperator {
            let _starts = self.operator.lock().await;
            if self.members.kill_operator().await.is_err() {
                self.members.federation.start_operator_patiently().await?;
            }
            return Ok(Applied::new("", None));
        }
        if operation.kind == Kind::SecondOperator {
            let second = self.members.federation.another_operator().await?;
            *self.second.lock().await = Some(second);
            return Ok(Applied::new("", Some(Undo::SecondOperator)));
        }
        if operation.kind == Kind::WrongClock {
            let _starts = self.operator.lock().await;
            let offset = *operation.of(&OFFSETS).context("there are no offsets")?;
            self.members.federation.set_clock(Some(offset)).await?;
            return Ok(Applied::new(offset, Some(Undo::Clock)));
        }
        if operation.kind == Kind::ChangeVersion {
            let _starts = self.operator.lock().await;
            let part = *operation.of(&PARTS).context("there are no parts")?;
            let is_other = self.members.federation.switch(part).await?;
            return Ok(Applied::new(
                format!("{part:?} to the {} version", if is_other { "other" } else { "first" }),
                None,
            ));
        }
        let cluster = operation.of(&self.clusters).context("there are no clusters")?;
        self.soon(self.members.kill_agents(cluster)).await?;
        Ok(Applied::new(cluster, None))
    }

    /// Faults of one server, or of those of one cluster.
    async fn hit_server(&self, operation: &Operation) -> Result<Applied> {
        let namespace = self.scene.namespace.as_str();
        if operation.kind == Kind::DeleteStatefulSet {
            let cluster = operation.of(&self.clusters).context("there are no clusters")?;
            let all = ["delete", "statefulsets", "-l", "app.kubernetes.io/managed-by=mczk-agent", "--wait=false"];
            let deleted = self.kubectl(cluster, &all).await?;
            anyhow::ensure!(deleted.contains("deleted"), "{cluster} has no StatefulSet");
            return Ok(Applied::new(cluster, None));
        }
        let servers = self.servers().await?;
        let server = match operation.kind {
            Kind::KillLeader => {
                let leads = futures::future::join_all(servers.iter().map(Server::leads)).await;
                servers.iter().zip(leads).find(|(_, leads)| *leads).map(|(server, _)| server)
            }
            _ => operation.of(&servers),
        };
        let server = server.context("there is no such server now")?;
        let (cluster, name) = (server.cluster.as_str(), server.name.as_str());
        let mut undo = None;
        match operation.kind {
            Kind::KillServer | Kind::KillLeader => self.soon(self.members.signal(namespace, server, "KILL")).await?,
            Kind::PauseServer => {
                self.soon(self.members.signal(namespace, server, "STOP")).await?;
                undo = Some(Undo::Resume(server.into()));
            }
            Kind::DeletePod => drop(self.kubectl(cluster, &["delete", "pod", name, "--wait=false"]).await?),
            Kind::ForceDeletePod => {
                let force = ["delete", "pod", name, "--wait=false", "--grace-period=0", "--force"];
                self.kubectl(cluster, &force).await?;
            }
            Kind::LoseVolume => {
                self.gather().await?;
                self.soon(self.members.delete_volume(namespace, server)).await?;
            }
            Kind::OldVolume => return Ok(Applied::new(self.restore_old_volume(operation, server).await?, None)),
            Kind::DeleteLogs => return Ok(Applied::new(self.delete_logs(server).await?, None)),
            Kind::SwapVolumes => return Ok(Applied::new(self.swap_volumes(&servers, server).await?, None)),
            Kind::ReplaceVolume => {
                self.gather().await?;
                let one = format!("{cluster}/{name}");
                self.soon(self.scene.command(&["replace", NAME, &one, "--yes"])).await?;
            }
            Kind::StallDisk => {
                self.stall(&server.into()).await?;
                undo = Some(Undo::Stall(server.into()));
            }
            Kind::UseUpConnections => return self.use_up_connections(server).await,
            Kind::FillDisk => {
                process::fill(&server.uid).await?;
                undo = Some(Undo::Disk(server.into()));
            }
            other => bail!("{} is no fault of a server", other.name()),
        }
        Ok(Applied::new(server.to_string(), undo))
    }

    /// The number of a change, which no other change has.
    fn another_change(&self) -> u32 {
        let mut declared = self.declared();
        declared.changes += 1;
        declared.changes
    }

    /// Changes that the user makes.
    async fn change(&self, operation: &Operation) -> Result<Applied> {
        // The API server gets changes in the order in which they are made.
        let _order = self.changing.lock().await;
        let number = self.another_change();
        let spec = wanted(operation, &mut self.declared(), &self.clusters, number)?;
        self.soon(self.declare(spec.clone())).await?;
        let undo = (operation.kind == Kind::PauseRollout).then_some(Undo::Unpause);
        Ok(Applied::new(spec.to_string(), undo))
    }

    /// Ends a fault.
    ///
    /// # Errors
    /// If that is not possible now.
    pub async fn undo(&self, undo: &Undo) -> Result<()> {
        let rig = &self.members.federation.rig;
        match undo {
            Undo::Power(cluster) => {
                rig.start_cluster(cluster).await?;
                rig.ready(cluster).await
            }
            Undo::Node(node) => rig.start_node(node).await,
            Undo::Joined(cluster) => rig.join(cluster).await,
            Undo::Servers(cluster) => {
                let mut network = self.network.lock().await;
                network.change(rig, &self.clusters, |faults| faults.servers.retain(|cut| cut != cluster)).await
            }
            Undo::Karmada(cluster) => {
                let mut network = self.network.lock().await;
                network.change(rig, &self.clusters, |faults| faults.karmada.retain(|cut| cut != cluster)).await
            }
            Undo::Rebuilt(incarnation) => self.rebuild_control_plane(incarnation).await,
            Undo::Restored(copy) => self.restore_control_plane(copy).await,
            Undo::Firewall(cluster, table) => self.no_firewall(cluster, table).await,
            Undo::Refused(cluster) => self.no_quota(cluster).await,
            Undo::RefusedAll(policy) => self.no_policy(policy).await,
            Undo::Delay => self.network.lock().await.change(rig, &self.clusters, |faults| faults.delay = 0).await,
            Undo::Resume(pod) => process::resume(&pod.uid).await,
            Undo::ResumeAll(pods) => {
                let all = pods.iter().map(|pod| process::resume(&pod.uid));
                futures::future::try_join_all(all).await.map(drop)
            }
            Undo::Stall(_) => {
                self.stalled.lock().await.clear();
                Ok(())
            }
            Undo::Connections => {
                self.sessions.lock().await.clear();
                Ok(())
            }
            Undo::Disk(pod) => process::free(&pod.uid).await,
            Undo::Uncordon(cluster, node) => self.kubectl(cluster, &["uncordon", node]).await.map(drop),
            Undo::Untaint(cluster, node) => {
                let taints =
                    self.kubectl(cluster, &["get", "node", node, "-o", "jsonpath={.spec.taints[*].key}"]).await?;
                if taints.contains(TAINT) {
                    self.kubectl(cluster, &["taint", "node", node, &format!("{TAINT}-")]).await?;
                }
                Ok(())
            }
            Undo::SecondOperator => match self.second.lock().await.take() {
                Some(second) => second.kill().await,
                None => Ok(()),
            },
            Undo::Clock => {
                let _starts = self.operator.lock().await;
                self.members.federation.set_clock(None).await
            }
            Undo::Unpause => self.soon(self.declare(json!({ "rollout": { "paused": false } }))).await,
            Undo::Home(home) => self.soon(self.scene.command(&["failover", NAME, "--back", home])).await.map(drop),
        }
    }
}

/// The spec that a change declares.
fn wanted(operation: &Operation, declared: &mut Declared, clusters: &[String], number: u32) -> Result<Value> {
    Ok(match operation.kind {
        Kind::ChangeSetting => world::settings(number),
        Kind::ChangeAnnotation => {
            json!({ "template": { "metadata": { "annotations": { "example.com/change": number.to_string() } } } })
        }
        Kind::ChangeImage => {
            declared.image = spec::another(declared.image);
            json!({ "template": { "image": declared.image } })
        }
        Kind::ChangeReplicas => {
            declared.voters = if declared.voters == VOTERS { FEWER } else { VOTERS };
            json!({ "replicas": declared.voters })
        }
        Kind::ChangePlacement => {
            declared.placement = another_placement(operation, &declared.placement, clusters)?;
            placed(&declared.placement, clusters)
        }
        Kind::PauseRollout => json!({ "rollout": { "paused": true } }),
        other => bail!("{} is no change of the spec", other.name()),
    })
}

/// All clusters, or all but one: another placement than the current one.
fn another_placement(operation: &Operation, current: &[String], clusters: &[String]) -> Result<Vec<String>> {
    let without = clusters.iter().map(|one| clusters.iter().filter(|other| *other != one).cloned().collect());
    let mut all: Vec<Vec<String>> = without.chain([clusters.to_vec()]).collect();
    all.retain(|placement| placement != current);
    operation.of(&all).cloned().context("there is no other placement")
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use super::*;

    #[test]
    fn a_change_of_the_placement_always_changes_it() {
        let clusters = ["m1", "m2", "m3", "m4"].map(str::to_owned);
        let next = |current: &[String], pick| {
            let operation = Operation { at: Duration::ZERO, lasts: Duration::ZERO, kind: Kind::ChangePlacement, pick };
            another_placement(&operation, current, &clusters).unwrap_or_default()
        };
        for current in [&clusters[..], &next(&clusters, 0), &next(&clusters, 3)] {
            let reached: BTreeSet<Vec<String>> = (0..=u8::MAX).map(|pick| next(current, pick)).collect();
            assert_eq!(reached.len(), 4, "from {current:?}: {reached:?}");
            assert!(reached.iter().all(|next| next != current && next.len() >= 3), "from {current:?}: {reached:?}");
        }
    }

    #[test]
    fn power_returns_before_anything_else() {
        let mut all = [Undo::Unpause, Undo::Delay, Undo::Node("m1".into()), Undo::Power("m2".into())];
        all.sort();
        assert_eq!(all.first(), Some(&Undo::Power("m2".into())));
    }
}
