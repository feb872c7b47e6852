//! Samples of a quorum, once a second: who has a vote by the status, and by ZooKeeper itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use kube::Api;
use mczk_api::{MultiClusterZooKeeper, multiclusterzookeeper::MultiClusterZooKeeperStatus, zookeeper::Role};
use mczk_rules::server::dynamic_configuration;
use tokio::{sync::watch, task::JoinHandle, time::timeout};
use zookeeper_client::Client;

use super::{Pods, writer::connect};
use crate::metrics;

/// The time between two samples.
const PACE: Duration = Duration::from_secs(1);
/// The longest wait for the status, and for a configuration.
const ANSWER: Duration = Duration::from_secs(2);

/// Who has a vote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Quorum {
    /// Ids with a vote, by the status.
    pub(super) voters: BTreeSet<i32>,
    /// Ids that have lost their vote, by the status.
    pub(super) demoted: BTreeSet<i32>,
    /// Ids with a vote in ZooKeeper's own configuration. `None` if no server answered.
    pub(super) configured: Option<BTreeSet<i32>>,
    /// Status and reason of the condition `QuorumSafe`.
    safe: String,
    /// Losses of voters that the ensemble survives, and losses of clusters, by the metrics of the operator.
    tolerated: Option<(String, String)>,
}

impl fmt::Display for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "votes {:?}, lost votes {:?}, QuorumSafe={}, ", self.voters, self.demoted, self.safe)?;
        match &self.tolerated {
            Some((voters, clusters)) => write!(f, "survives {voters} more voters or {clusters} more clusters, ")?,
            None => f.write_str("no metric says what it survives, ")?,
        }
        match &self.configured {
            Some(ids) => write!(f, "{} votes in ZooKeeper's configuration", ids.len()),
            None => f.write_str("no server answers"),
        }
    }
}

/// A quorum at one moment.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// The moment before it was read.
    pub(super) at: Instant,
    /// Who has a vote.
    pub(super) quorum: Quorum,
    /// Ids of the listed voters of each cluster.
    pub(super) listed: BTreeMap<String, Vec<i32>>,
}

/// Where the samples come from.
pub(super) struct Source {
    /// The object in the control plane.
    pub(super) object: Api<MultiClusterZooKeeper>,
    /// Namespace and name of the object.
    pub(super) of: (String, &'static str),
    /// The pods of its servers.
    pub(super) pods: Pods,
    /// The operator's port of metrics.
    pub(super) metrics: u16,
}

impl Source {
    async fn sample(&self, session: &mut Option<Client>) -> Result<Sample> {
        let at = Instant::now();
        let status = timeout(ANSWER, self.object.get(self.of.1));
        // Without a quorum it would look for a session for long.
        let configured = timeout(ANSWER, self.configured(session));
        let (status, configured, tolerated) = tokio::join!(status, configured, self.tolerated());
        let status = status??.status.unwrap_or_default();
        let listed = status.clusters.iter().map(|cluster| (cluster.name.clone(), cluster.voters.clone())).collect();
        let configured = configured.ok().and_then(Result::ok);
        let quorum = Quorum { configured, tolerated: tolerated.ok(), ..quorum(&status) };
        Ok(Sample { at, quorum, listed })
    }

    /// The ids that have a vote in the configuration of a server that follows. A server that does not has no session.
    pub(super) async fn configured(&self, session: &mut Option<Client>) -> Result<BTreeSet<i32>> {
        let client = match session.take() {
            Some(client) => client,
            None => connect(&self.pods.addresses().await?.join(",")).await?,
        };
        let (text, _) = client.get_config().await?;
        *session = Some(client);
        let parsed = dynamic_configuration::parse(&String::from_utf8_lossy(&text));
        let servers = parsed.context("the configuration does not parse")?.servers;
        Ok(servers.into_iter().filter(|server| server.role == Role::Voter).map(|server| server.id).collect())
    }

    async fn tolerated(&self) -> Result<(String, String)> {
        let page = metrics::get(self.metrics, "/metrics").await?;
        let (namespace, name) = &self.of;
        let value = |of: &str| {
            let start = format!("mczk_ensemble_tolerated_{of}_losses{{namespace=\"{namespace}\",name=\"{name}\"}} ");
            page.lines().find_map(|line| line.strip_prefix(&start).map(str::to_owned))
        };
        match (value("voter"), value("cluster")) {
            (Some(voters), Some(clusters)) => Ok((voters, clusters)),
            _ => bail!("the operator has no such metric now"),
        }
    }
}

fn quorum(status: &MultiClusterZooKeeperStatus) -> Quorum {
    let ensemble = status.ensemble.clone().unwrap_or_default();
    let safe = status.conditions.iter().find(|condition| condition.type_ == "QuorumSafe");
    Quorum {
        voters: ensemble.voters.into_iter().collect(),
        demoted: ensemble.demoted.into_iter().collect(),
        safe: safe.map(|safe| format!("{} {}", safe.status, safe.reason)).unwrap_or_default(),
        ..Quorum::default()
    }
}

/// Takes samples until it is stopped or dropped.
pub(super) struct Recorder {
    begun: Instant,
    stop: watch::Sender<()>,
    task: JoinHandle<Vec<Sample>>,
}

impl Recorder {
    /// Starts to take samples.
    pub(super) fn start(source: Source) -> Self {
        let (stop, mut stopped) = watch::channel(());
        let task = tokio::spawn(async move {
            let (mut samples, mut session) = (Vec::new(), None);
            loop {
                // An API server that does not answer in time says nothing about the quorum.
                samples.extend(source.sample(&mut session).await);
                tokio::select! {
                    // It also ends if the recorder is dropped.
                    _ = stopped.changed() => break samples,
                    () = tokio::time::sleep(PACE) => {}
                }
            }
        });
        Self { begun: Instant::now(), stop, task }
    }

    /// Stops it.
    ///
    /// # Errors
    /// If its task failed, or took no sample.
    pub(super) async fn stop(self) -> Result<Samples> {
        drop(self.stop);
        let all = self.task.await.context("the recorder")?;
        if all.is_empty() {
            bail!("the recorder has read no status");
        }
        Ok(Samples { begun: self.begun, all })
    }
}

/// The samples of a period, oldest first.
pub(super) struct Samples {
    begun: Instant,
    /// The samples.
    pub(super) all: Vec<Sample>,
}

impl Samples {
    /// A line for each sample that differs from the one before it.
    pub(super) fn changes(&self) -> Vec<String> {
        let before = [None].into_iter().chain(self.all.iter().map(|sample| Some(&sample.quorum)));
        let changed = self.all.iter().zip(before).filter(|(sample, before)| *before != Some(&sample.quorum));
        let line = |sample: &Sample| format!("{:.0} s: {}", (sample.at - self.begun).as_secs_f64(), sample.quorum);
        changed.map(|(sample, _)| line(sample)).collect()
    }

    /// The lowest number of votes that ZooKeeper's own configuration had.
    pub(super) fn lowest(&self) -> Option<usize> {
        self.all.iter().filter_map(|sample| sample.quorum.configured.as_ref()).map(BTreeSet::len).min()
    }

    /// Ids among these that had a vote after a moment, by the status or by ZooKeeper.
    pub(super) fn voted_since(&self, moment: Instant, ids: &BTreeSet<i32>) -> BTreeSet<i32> {
        let since = self.all.iter().filter(|sample| sample.at > moment).map(|sample| &sample.quorum);
        let voted = since.flat_map(|quorum| quorum.voters.iter().chain(quorum.configured.iter().flatten()));
        voted.filter(|id| ids.contains(id)).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(begun: Instant, second: u64, voters: &[i32], configured: Option<&[i32]>) -> Sample {
        let set = |ids: &[i32]| ids.iter().copied().collect::<BTreeSet<i32>>();
        let quorum = Quorum { voters: set(voters), configured: configured.map(set), ..Quorum::default() };
        Sample { at: begun + Duration::from_secs(second), quorum, listed: BTreeMap::new() }
    }

    #[test]
    fn samples_show_changes_the_lowest_number_and_old_votes() {
        let begun = Instant::now();
        let all = vec![
            sample(begun, 0, &[1, 2, 3], Some(&[1, 2, 3])),
            sample(begun, 1, &[1, 2, 3], Some(&[1, 2, 3])),
            sample(begun, 2, &[1, 2, 3], Some(&[2, 3])),
            sample(begun, 3, &[2, 3, 4], None),
        ];
        let samples = Samples { begun, all };
        let at: Vec<String> =
            samples.changes().iter().filter_map(|line| Some(line.split_once(':')?.0.to_owned())).collect();
        assert_eq!(at, ["0 s", "2 s", "3 s"]);
        assert_eq!(samples.lowest(), Some(2));
        let (second, third) = (begun + Duration::from_secs(1), begun + Duration::from_secs(2));
        assert_eq!(samples.voted_since(second, &[1].into()), [1].into());
        assert!(samples.voted_since(third, &[1].into()).is_empty());
    }
}
