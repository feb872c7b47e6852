//! What the agent reports: pure, and the same while nothing happens. The control plane rests on it
//! (`crate::rollout::report`): a pin that was done stays done, whatever becomes of the servers later.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};

use crate::{
    agent::decide::{local_server::LocalServer, membership::Quorum},
    api::{
        tls::EnsembleTls,
        zookeeper::{Ensemble, Role, SUSPENDED, ServerStatus, ZooKeeperStatus},
    },
    contract::control_api::{Mode, Phase, ServerReport, UNKNOWN_EPOCH},
};

/// Longest message of a condition, in characters.
const MESSAGE: usize = 1000;

/// How the servers come along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// `false` if nothing will change by itself: another spec is needed.
    pub goes_on: bool,
    /// One word.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
}

/// Condition: the newest certificates for clients are not taken, and servers go on with what they have.
pub const CLIENT_CERTIFICATES_KEPT: &str = "ClientCertificatesKept";

impl Progress {
    /// It goes on.
    #[must_use]
    pub fn on(reason: &'static str, message: impl Into<String>) -> Self {
        Self { goes_on: true, reason, message: message.into() }
    }
}

/// What a report is made from.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// Generation of the object.
    pub generation: Option<i64>,
    /// What was reported before.
    pub old: &'a ZooKeeperStatus,
    /// Pin of the spec, if it is obeyed.
    pub pin: Option<&'a str>,
    /// Whether every server is as that pin says.
    pub done: bool,
    /// The list that is obeyed.
    pub list: Option<&'a Ensemble>,
    /// Servers of this cluster.
    pub own: &'a [LocalServer],
    /// What every server says that could be asked, also those of other clusters.
    pub views: &'a [ServerReport],
    /// Whether nothing is left here, as the list says.
    pub dissolved: bool,
    /// How it comes along.
    pub progress: Option<Progress>,
    /// Reason and message of what a person has to look at.
    pub blocked: Option<(&'static str, String)>,
    /// A server that is to leave its node.
    pub leaving: Option<String>,
    /// Lives that somebody has to look at.
    pub former: Option<String>,
    /// Why the newest certificates for clients are not taken.
    pub client: Option<String>,
    /// The newest epoch that the ensemble was seen to take from here.
    pub published: Option<i64>,
    /// The certificates that all servers have loaded.
    pub tls: Option<EnsembleTls>,
    /// Volumes that no server uses.
    pub volumes: Vec<String>,
    /// The time, for conditions that change.
    pub now: Timestamp,
}

/// The report.
#[must_use]
pub fn report(seen: &Seen<'_>) -> ZooKeeperStatus {
    let old = seen.old;
    let mut status = ZooKeeperStatus {
        observed_generation: seen.generation,
        observed_spec_hash: seen.pin.map(str::to_owned).or_else(|| old.observed_spec_hash.clone()),
        volumes: seen.volumes.clone(),
        ..ZooKeeperStatus::default()
    };
    let mut conditions: Vec<(&str, &str, &str, &str)> = Vec::new();
    if let Some((reason, message)) = &seen.blocked {
        conditions.push(("Blocked", "True", reason, message));
    }
    if let Some(message) = &seen.leaving {
        conditions.push(("Draining", "True", "NodeCordoned", message));
    }
    if let Some(message) = &seen.former {
        conditions.push(("FormerIncarnation", "True", "ServersLeft", message));
    }
    if let Some(message) = &seen.client {
        conditions.push((CLIENT_CERTIFICATES_KEPT, "True", "SecretNotTaken", message));
    }
    if seen.dissolved {
        status.ensemble = seen.list.cloned();
        (status.replicas, status.started_replicas, status.ready_replicas) = (Some(0), Some(0), Some(0));
        conditions.push(("Decommissioned", "True", "Decommissioned", "no server is left here"));
    } else if status.observed_spec_hash.is_some() {
        status.ensemble = seen.list.cloned();
        numbers(seen, &mut status);
        let before = old.completed_spec_hash.clone().filter(|_| old.completed_spec_hash == status.observed_spec_hash);
        status.completed_spec_hash = if seen.done { status.observed_spec_hash.clone() } else { before };
        if status.completed_spec_hash.is_some() {
            conditions.push(("Progressing", "False", "Complete", "every server is as declared"));
        } else if let Some(progress) = &seen.progress {
            let state = if progress.goes_on { "True" } else { "False" };
            conditions.push(("Progressing", state, progress.reason, &progress.message));
        }
        // Of another pin: it tells what was done last.
        if status.completed_spec_hash.is_none() {
            status.completed_spec_hash.clone_from(&old.completed_spec_hash);
        }
    }
    status.conditions = conditions
        .into_iter()
        .map(|(type_, state, reason, message)| {
            let before = old.conditions.iter().find(|c| c.type_ == type_ && c.status == state);
            Condition {
                type_: type_.to_owned(),
                status: state.to_owned(),
                reason: reason.to_owned(),
                message: message.chars().take(MESSAGE).collect(),
                last_transition_time: before
                    .map_or_else(|| seconds(seen.now), |condition| condition.last_transition_time.clone()),
                observed_generation: None,
            }
        })
        .collect();
    status
}

/// The API server keeps times in seconds.
fn seconds(now: Timestamp) -> Time {
    Time(Timestamp::new(now.as_second(), 0).unwrap_or(Timestamp::UNIX_EPOCH))
}

fn numbers(seen: &Seen<'_>, status: &mut ZooKeeperStatus) {
    let count = |n: usize| i32::try_from(n).ok();
    let voters = || seen.own.iter().filter(|own| own.role == Role::Voter);
    status.replicas = count(seen.own.len());
    status.started_replicas = count(voters().filter(|own| own.started()).count());
    status.ready_replicas = count(voters().filter(|own| own.serving()).count());
    status.servers = seen.own.iter().filter_map(|own| server(own, seen)).collect();
    let reads = |view: &&ServerReport| view.serving && view.configuration.is_some();
    let own = seen.own.iter().filter(|own| !own.terminating).filter_map(|own| own.view.as_ref());
    // Where no server is yet, those of other clusters are told of: Karmada forgets what clusters report that the schedule
    // does not name any more, and where all servers move nobody else would tell that there is a quorum.
    let through: Vec<ServerReport> = if seen.own.is_empty() {
        seen.views.iter().filter(reads).cloned().collect()
    } else {
        own.filter(reads).cloned().collect()
    };
    if let Some(quorum) = Quorum::of(&through) {
        status.voting_members = quorum.voters().into_iter().collect();
        status.config_version = Some(quorum.configuration.version);
        status.leader = Quorum::of(seen.views).and_then(|all| all.leader).or(quorum.leader);
    }
    status.published_epoch = seen.published;
    status.ensemble_tls.clone_from(&seen.tls);
    if !seen.own.is_empty() || !through.is_empty() {
        status.writable = Some(!through.is_empty());
    }
}

/// A server without an id is none yet. What its volume holds stays known while it cannot be asked.
fn server(own: &LocalServer, seen: &Seen<'_>) -> Option<ServerStatus> {
    let id = own.id?;
    let before = seen.old.servers.iter().find(|server| server.id == id && server.pod.as_ref() == Some(&own.pod));
    let view = own.view.as_ref().filter(|_| !own.terminating);
    // Under this very list: one that was parked under another one may be about to start.
    let list = |view: &ServerReport| view.server_list.as_ref().and_then(|list| list.hash.clone());
    let parked = view.is_some_and(|view| {
        view.phase == Phase::Suspended
            && list(view).is_some()
            && list(view) == seen.list.and_then(|list| list.hash.clone())
    });
    let mode = match view.and_then(|view| view.mode) {
        _ if parked => SUSPENDED,
        Some(Mode::Leader) => "leader",
        Some(Mode::Follower) => "follower",
        Some(Mode::Observer) => "observer",
        Some(Mode::Looking) | None => "looking",
    };
    Some(ServerStatus {
        id,
        pod: Some(own.pod.clone()),
        mode: Some(mode.to_owned()),
        serving: own.serving(),
        synced: own.serving() && view.is_some_and(|view| view.synced),
        accepted_epoch: view
            .map(|view| view.accepted_epoch)
            .filter(|epoch| *epoch != UNKNOWN_EPOCH)
            .or_else(|| before.and_then(|s| s.accepted_epoch).filter(|_| !parked)),
        volume: view.map_or_else(|| before.and_then(|s| s.volume.clone()), |view| Some(view.volume.clone())),
        lost: view.map_or_else(|| before.is_some_and(|s| s.lost), |view| view.lost),
    })
}
