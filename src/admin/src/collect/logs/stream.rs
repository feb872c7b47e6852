//! Reads logs of pods through the cluster proxy.

use std::{collections::BTreeMap, pin::Pin, time::Duration};

use futures::{AsyncBufReadExt, io::AsyncBufRead};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, LogParams},
};
use tokio::{sync::mpsc::Sender, task::JoinSet, time::sleep};

use super::position::{Position, Timed};
use crate::terminal::{proxy::answer, server_list::ListedServer, server_name::ServerName};
use mczk_api::contract::labels::ENSEMBLE_LABEL;

/// The container of ZooKeeper.
pub(super) const CONTAINER: &str = "zookeeper";
/// Time between two looks for new pods and restarted containers.
const INTERVAL: Duration = Duration::from_secs(3);

/// The servers that the user wants.
#[derive(Clone, Debug)]
pub(super) struct LogServers {
    /// Namespace of the ensemble.
    pub(super) namespace: String,
    /// Name of the ensemble.
    pub(super) ensemble: String,
    /// One server; all if absent.
    pub(super) wanted: Option<ServerName>,
    /// The server list, which maps ids to pods.
    pub(super) listed: Vec<ListedServer>,
}

/// A pod with a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogSource {
    /// Name of the pod.
    pub(super) pod: String,
    pub(super) uid: String,
    /// How often its container has restarted.
    pub(super) restarts: i32,
    /// True if its container has a log.
    pub(super) started: bool,
    /// True if its container runs.
    pub(super) running: bool,
}

/// A run of a container: uid of the pod, and number of restarts.
type Run = (String, i32);

impl LogServers {
    /// The pods of a cluster that the user wants, by name.
    pub(super) async fn find(&self, client: &Client, cluster: &str) -> kube::Result<Vec<LogSource>> {
        let api: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
        let pods = api.list(&ListParams::default().labels(&format!("{ENSEMBLE_LABEL}={}", self.ensemble))).await?;
        let mut sources: Vec<LogSource> =
            pods.iter().filter(|pod| self.is_wanted(cluster, &pod.name_any())).map(source).collect();
        sources.sort_by(|a, b| a.pod.cmp(&b.pod));
        Ok(sources)
    }

    fn is_wanted(&self, cluster: &str, pod: &str) -> bool {
        let listed = self.listed.iter().find(|server| server.cluster == cluster && server.pod == pod);
        self.wanted.as_ref().is_none_or(|name| name.is(cluster, pod, listed.map(|server| server.id)))
    }
}

fn source(pod: &Pod) -> LogSource {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let status = statuses.iter().find(|status| status.name == CONTAINER);
    let state = status.and_then(|status| status.state.as_ref());
    let running = state.is_some_and(|state| state.running.is_some());
    let restarts = status.map_or(0, |status| status.restart_count);
    LogSource {
        pod: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        restarts,
        started: running || restarts > 0 || state.is_some_and(|state| state.terminated.is_some()),
        running,
    }
}

/// An open log.
pub(super) type LogStream = Pin<Box<dyn AsyncBufRead + Send>>;

/// Opens a log.
///
/// # Errors
/// If the cluster refuses or does not answer: why, as the part of a sentence.
pub(super) async fn open(
    client: &Client,
    namespace: &str,
    source: &LogSource,
    params: &LogParams,
) -> Result<LogStream, String> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let stream = answer(api.log_stream(&source.pod, params)).await?;
    Ok(Box::pin(stream))
}

/// The next line with its line break; `None` at the end of the log.
///
/// # Errors
/// If the connection breaks: why, as the part of a sentence.
pub(super) async fn next_line(log: &mut LogStream) -> Result<Option<Vec<u8>>, String> {
    let mut line = Vec::new();
    let length = log.read_until(b'\n', &mut line).await.map_err(|error| format!("the log broke off: {error}"))?;
    Ok((length > 0).then_some(line))
}

/// What a follower finds.
pub(super) enum Output {
    /// A line of a log.
    Line {
        /// Karmada's name of the cluster.
        cluster: String,
        /// Name of the pod.
        pod: String,
        /// Number of the cluster.
        index: usize,
        line: Vec<u8>,
    },
    /// Something could not be read: a line for standard error.
    Failure(String),
}

/// Follows the logs of one cluster.
pub(super) struct Follower {
    /// Client of the cluster.
    pub(super) client: Client,
    /// Karmada's name of the cluster.
    pub(super) cluster: String,
    /// Number of the cluster.
    pub(super) index: usize,
    pub(super) servers: LogServers,
    /// Which lines of the pods that run now. Lines have their times.
    pub(super) params: LogParams,
    /// True if the user wants the times.
    pub(super) timestamps: bool,
    /// Where lines and failures go.
    pub(super) sender: Sender<Output>,
}

/// What the follower knows of a container's run.
enum KnownRun {
    /// Its log is being followed.
    Following,
    /// Its log ended. It goes on if the container runs.
    Ended(StreamPosition),
    /// The connection broke off. There may be more lines, also if the container has ended.
    Broken(StreamPosition),
}

/// Which lines of a log were asked for, and how far they have been read.
#[derive(Clone)]
struct StreamPosition {
    params: LogParams,
    position: Position,
}

impl StreamPosition {
    fn beginning(params: LogParams) -> Self {
        Self { params, position: Position::default() }
    }

    /// What comes after the last line. The lines of the same time come again, and are left out.
    fn rest(&self) -> Self {
        let params = match self.position.since() {
            Some(time) => {
                LogParams { since_seconds: None, tail_lines: None, since_time: Some(time), ..self.params.clone() }
            }
            None => self.params.clone(),
        };
        Self { params, position: self.position.clone().again() }
    }
}

impl Follower {
    /// Follows until the receiver is gone. Logs of later pods and of restarted containers are new from their beginning.
    pub(super) async fn run(self) {
        let mut known: BTreeMap<Run, KnownRun> = BTreeMap::new();
        let mut logs = JoinSet::new();
        let (mut is_first, mut failure) = (true, String::new());
        while !self.sender.is_closed() {
            match answer(self.servers.find(&self.client, &self.cluster)).await {
                Ok(sources) => {
                    failure.clear();
                    for source in sources.into_iter().filter(|source| source.started) {
                        let run = (source.uid.clone(), source.restarts);
                        if let Some(place) = next_place(&self.params, known.get(&run), is_first, source.running) {
                            known.insert(run.clone(), KnownRun::Following);
                            logs.spawn(self.follow_one(source, run, place));
                        }
                    }
                    is_first = false;
                }
                Err(why) if why != failure => {
                    self.fail(format!("cluster {}: {why}: trying again", self.cluster)).await;
                    failure = why;
                }
                Err(_) => {}
            }
            sleep(INTERVAL).await;
            while let Some(ended) = logs.try_join_next() {
                if let Ok((run, end)) = ended {
                    known.insert(run, end);
                }
            }
        }
    }

    /// Follows one log until it ends.
    fn follow_one(
        &self,
        source: LogSource,
        run: Run,
        mut place: StreamPosition,
    ) -> impl Future<Output = (Run, KnownRun)> + Send + use<> {
        let (client, namespace, cluster) = (self.client.clone(), self.servers.namespace.clone(), self.cluster.clone());
        let (sender, index, timestamps) = (self.sender.clone(), self.index, self.timestamps);
        async move {
            let StreamPosition { params, position } = &mut place;
            let copied = async {
                let mut log = open(&client, &namespace, &source, params).await?;
                while let Some(line) = next_line(&mut log).await? {
                    let timed = Timed::of(&line);
                    if !position.is_new(timed) {
                        continue;
                    }
                    let line = if timestamps { line.clone() } else { timed.text.to_vec() };
                    let (cluster, pod) = (cluster.clone(), source.pod.clone());
                    if sender.send(Output::Line { cluster, pod, index, line }).await.is_err() {
                        break;
                    }
                }
                Ok::<_, String>(())
            };
            let result = copied.await;
            let Err(why) = result else { return (run, KnownRun::Ended(place)) };
            let text = format!("{cluster}/{}: {why}: trying again", source.pod);
            // The receiver may be gone: then the process ends.
            let _ = sender.send(Output::Failure(text)).await;
            (run, KnownRun::Broken(place))
        }
    }

    async fn fail(&self, text: String) {
        // The receiver may be gone: then the process ends.
        let _ = self.sender.send(Output::Failure(text)).await;
    }
}

/// Which lines of a run to ask for; `None` if its log is being followed, or has ended with its container.
fn next_place(first: &LogParams, known: Option<&KnownRun>, is_first: bool, running: bool) -> Option<StreamPosition> {
    match known {
        None if is_first => Some(StreamPosition::beginning(first.clone())),
        None => Some(StreamPosition::beginning(LogParams { since_seconds: None, tail_lines: None, ..first.clone() })),
        Some(KnownRun::Broken(place)) => Some(place.rest()),
        Some(KnownRun::Ended(place)) if running => Some(place.rest()),
        Some(_) => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests;
