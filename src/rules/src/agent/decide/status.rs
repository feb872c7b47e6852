//! The status that the agent reports. It stays the same while nothing happens.
//!
//! The operator depends on it (`crate::rollout::report`): a completed spec hash stays completed, whatever happens to the
//! servers later. The condition `Progressing` says how they are now.

use std::collections::BTreeSet;

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use serde_json::Value;

use crate::agent::decide::{local_server::LocalServer, quorum::Quorum, volume_problems};
use mczk_api::{
    contract::{
        cause::Cause,
        conditions::{ConditionStatus, ConditionType, Reason},
        control_api::{Mode, Phase, ServerReport, UNKNOWN_EPOCH},
    },
    preflight::PreflightReport,
    quantity::Quantity,
    tls::EnsembleTls,
    zookeeper::{Ensemble, FirstStart, OtherIncarnation, Role, SUSPENDED, ServerStatus, UNKNOWN_MODE, ZooKeeperStatus},
};

/// Longest message of a condition, in characters.
const LONGEST_MESSAGE: usize = 1000;

/// What the status is made from.
#[derive(Clone, Debug)]
pub struct AgentStatusInputs<'a> {
    /// Generation of the object.
    pub generation: Option<i64>,
    /// Id of this cluster.
    pub cluster_id: Option<&'a str>,
    /// The status that was reported before.
    pub before: &'a ZooKeeperStatus,
    /// Hash of the spec, if it is accepted.
    pub spec_hash: Option<&'a str>,
    /// True if that spec is complete: every server is as it declares, and nothing is left to do.
    pub completed: bool,
    /// True if every server is as that spec declares.
    pub as_declared: bool,
    /// The accepted server list.
    pub list: Option<&'a Ensemble>,
    /// Servers of this cluster.
    pub servers: &'a [LocalServer],
    /// Reports of all servers that the agent could reach, in other clusters too.
    pub views: &'a [ServerReport],
    /// True if the incarnation is over and nothing of it remains here.
    pub decommissioned: bool,
    /// How the servers progress.
    pub progress: Option<Cause>,
    /// What needs the user's attention.
    pub obstacle: Option<Cause>,
    /// A server that has to leave its node.
    pub draining: Option<Cause>,
    /// A volume that a user wants replaced.
    pub replacing: Option<Cause>,
    /// Objects that another writer changes again and again.
    pub undone: Option<Cause>,
    /// Other incarnations that live here and that nothing declares over, and what users read of them.
    pub others: (Vec<OtherIncarnation>, Option<String>),
    /// Why the agent does not accept the newest certificates for clients.
    pub certificates: Option<String>,
    /// Certificates that expire soon.
    pub expiry: Option<Cause>,
    /// The newest epoch that the ensemble accepted from this cluster.
    pub published: Option<i64>,
    /// The certificates that all servers have loaded.
    pub loaded: Option<EnsembleTls>,
    /// Secrets that have not arrived in time.
    pub missing_secrets: Vec<String>,
    /// The result of the network check, while it is requested.
    pub preflight: Option<PreflightReport>,
    /// The record of first starts.
    pub first_starts: Vec<FirstStart>,
    /// Volumes that no server uses.
    pub unused_claims: Vec<String>,
    /// The size of the smallest volume of its servers.
    pub smallest_volume: Option<Quantity>,
    /// Voters that are missing, whatever their cluster is.
    pub missing_voters: BTreeSet<i32>,
    /// Whether this cluster would accept servers, if the object asks for that alone.
    pub spare: Option<Cause>,
    /// The time, for conditions that change.
    pub now: Timestamp,
}

/// Conditions in the order in which they are reported.
type Conditions = Vec<(ConditionType, Cause)>;

/// The status.
#[must_use]
pub fn report(inputs: &AgentStatusInputs<'_>) -> ZooKeeperStatus {
    let before = inputs.before;
    let mut status = ZooKeeperStatus {
        observed_generation: inputs.generation,
        cluster_id: inputs.cluster_id.map(str::to_owned),
        observed_spec_hash: inputs.spec_hash.map(str::to_owned).or_else(|| before.observed_spec_hash.clone()),
        volumes: inputs.unused_claims.clone(),
        smallest_volume: inputs.smallest_volume.clone(),
        preflight: inputs.preflight.clone(),
        first_starts: if inputs.decommissioned { Vec::new() } else { inputs.first_starts.clone() },
        other_incarnations: Some(inputs.others.0.clone()),
        ..ZooKeeperStatus::default()
    };
    let mut conditions = notices(inputs);
    if inputs.decommissioned {
        status.ensemble = inputs.list.cloned();
        (status.replicas, status.started_replicas, status.ready_replicas) = (Some(0), Some(0), Some(0));
        let cause = Cause::new(Reason::Decommissioned, "No server of this incarnation is left");
        conditions.push((ConditionType::Decommissioned, cause));
    } else if status.observed_spec_hash.is_some() {
        status.ensemble = inputs.list.cloned();
        report_servers(inputs, &mut status);
        let was_completed = before.completed_spec_hash == status.observed_spec_hash;
        // Otherwise the hash of the spec that was completed last.
        let completed = if inputs.completed { &status.observed_spec_hash } else { &before.completed_spec_hash };
        status.completed_spec_hash = completed.clone();
        // An obstacle keeps a spec from being complete, and says so itself.
        let is_complete = inputs.completed || was_completed && inputs.as_declared;
        let complete = is_complete.then(|| Cause::new(Reason::Complete, "Every server is as declared"));
        let progress = complete.or_else(|| inputs.progress.clone());
        conditions.extend(progress.map(|progress| (ConditionType::AgentProgressing, progress)));
    }
    let condition = |condition| as_condition(condition, &before.conditions, inputs.now);
    status.conditions = conditions.into_iter().map(condition).collect();
    status
}

/// The status of an agent that cannot continue, as [`report`] makes it while the agent reaches no server: the last one must not
/// count for ever.
#[must_use]
pub(crate) fn halted(before: &ZooKeeperStatus, why: Cause, now: Timestamp) -> ZooKeeperStatus {
    let unknown = |server: &ServerStatus| ServerStatus {
        mode: Some(UNKNOWN_MODE.to_owned()),
        serving: false,
        synced: false,
        ..server.clone()
    };
    ZooKeeperStatus {
        conditions: vec![as_condition((ConditionType::Blocked, why), &before.conditions, now)],
        servers: before.servers.iter().map(unknown).collect(),
        started_replicas: before.started_replicas.map(|_| 0),
        ready_replicas: before.ready_replicas.map(|_| 0),
        writable: before.writable.map(|_| false),
        voting_members: Vec::new(),
        missing_voters: Vec::new(),
        config_version: None,
        leader: None,
        ..before.clone()
    }
}

/// [`halted`] in the words of the stored status, which a newer version of mczk may have written: what this version does not know
/// stays. `None` if this version cannot read it.
#[must_use]
pub fn halted_as_written(stored: &Value, why: Cause, now: Timestamp) -> Option<Value> {
    let before: ZooKeeperStatus = serde_json::from_value(stored.clone()).ok()?;
    let as_json = |status: &ZooKeeperStatus| serde_json::to_value(status).ok();
    let change = json_patch::diff(&as_json(&before)?, &as_json(&halted(&before, why, now))?);
    let mut status = stored.clone();
    json_patch::patch(&mut status, &change).ok()?;
    Some(status)
}

/// Conditions about what is unusual.
fn notices(inputs: &AgentStatusInputs<'_>) -> Conditions {
    let of = |type_: ConditionType, cause: Option<Cause>| cause.map(|cause| (type_, cause));
    let because = |reason: Reason, message: &Option<String>| Some(Cause::new(reason, message.as_ref()?));
    let all = [
        of(ConditionType::Blocked, inputs.obstacle.clone()),
        of(ConditionType::SpareFit, inputs.spare.clone()),
        of(ConditionType::Draining, inputs.draining.clone()),
        of(ConditionType::Replacing, inputs.replacing.clone()),
        of(ConditionType::Contested, inputs.undone.clone()),
        of(ConditionType::FormerIncarnation, because(Reason::ServersLeft, &inputs.others.1)),
        of(ConditionType::ClientCertificatesKept, because(Reason::SecretNotAccepted, &inputs.certificates)),
        of(ConditionType::AgentCertificatesExpire, inputs.expiry.clone()),
    ];
    let reports: Vec<&ServerReport> = inputs.servers.iter().filter_map(|server| server.view.as_ref()).collect();
    all.into_iter().flatten().chain(volume_problems::list(&reports, &inputs.before.conditions)).collect()
}

fn as_condition(
    (type_, Cause { reason, message }): (ConditionType, Cause),
    before: &[Condition],
    now: Timestamp,
) -> Condition {
    let status = reason.status_in(type_).unwrap_or(ConditionStatus::Unknown).as_str();
    let before = before.iter().find(|c| c.type_ == type_.as_str() && c.status == status);
    Condition {
        type_: type_.as_str().to_owned(),
        status: status.to_owned(),
        reason: reason.as_str().to_owned(),
        message: message.chars().take(LONGEST_MESSAGE).collect(),
        last_transition_time: before.map_or_else(|| seconds(now), |condition| condition.last_transition_time.clone()),
        observed_generation: None,
    }
}

/// The API server stores times in seconds.
fn seconds(now: Timestamp) -> Time {
    Time(Timestamp::new(now.as_second(), 0).unwrap_or(Timestamp::UNIX_EPOCH))
}

fn report_servers(inputs: &AgentStatusInputs<'_>, status: &mut ZooKeeperStatus) {
    let count = |n: usize| i32::try_from(n).ok();
    let voters = || inputs.servers.iter().filter(|server| server.role == Role::Voter);
    // As `spec.replicas`: the scale subresource compares both.
    status.replicas = count(voters().count());
    status.started_replicas = count(voters().filter(|server| server.started()).count());
    status.ready_replicas = count(voters().filter(|server| server.serving()).count());
    status.servers = inputs.servers.iter().filter_map(|server| report_server(server, inputs)).collect();
    let reads = |view: &&ServerReport| view.serving && view.configuration.is_some();
    let local = inputs.servers.iter().filter(|server| !server.terminating).filter_map(|server| server.view.as_ref());
    // A cluster without servers reports the quorum of other clusters. Karmada drops the reports of clusters that the schedule
    // no longer names. If all servers move, no other cluster would report that a quorum exists.
    let through: Vec<ServerReport> = if inputs.servers.is_empty() {
        inputs.views.iter().filter(reads).cloned().collect()
    } else {
        local.filter(reads).cloned().collect()
    };
    if let Some(quorum) = Quorum::of(&through) {
        status.voting_members = quorum.voters().into_iter().collect();
        status.config_version = Some(quorum.configuration.version);
        status.leader = Quorum::of(inputs.views).and_then(|all| all.leader).or(quorum.leader);
    }
    let of_data = inputs.servers.iter().filter_map(|server| server.view.as_ref()?.snapshot_bytes).max();
    let of_data = of_data.and_then(|bytes| u64::try_from(bytes).ok());
    status.snapshot_bytes = of_data.map(|bytes| rounded(bytes, inputs.before.snapshot_bytes));
    status.published_epoch = inputs.published;
    status.missing_voters = inputs.missing_voters.iter().copied().collect();
    status.ensemble_tls.clone_from(&inputs.loaded);
    status.missing_secrets.clone_from(&inputs.missing_secrets);
    if !inputs.servers.is_empty() || !through.is_empty() {
        status.writable = Some(!through.is_empty());
    }
}

/// The next power of 2, of a MiB at least: a status that changes with every write would never rest. What was reported before stays
/// down to more than a quarter of it: data may vary around a power of 2.
fn rounded(bytes: u64, before: Option<i64>) -> i64 {
    let covers = |before: i64| u64::try_from(before).is_ok_and(|before| bytes <= before && bytes > before / 4);
    if let Some(before) = before.filter(|before| covers(*before)) {
        return before;
    }
    bytes.max(1 << 20).checked_next_power_of_two().and_then(|bytes| i64::try_from(bytes).ok()).unwrap_or(i64::MAX)
}

/// One server; nothing while it has no id. What its volume holds stays reported while the agent cannot reach it.
fn report_server(server: &LocalServer, inputs: &AgentStatusInputs<'_>) -> Option<ServerStatus> {
    let id = server.id?;
    let before = inputs.before.servers.iter().find(|s| s.id == id && s.pod.as_ref() == Some(&server.pod));
    let view = server.view.as_ref().filter(|_| !server.terminating);
    let suspended = view.is_some_and(|view| is_suspended_under(view, inputs.list));
    let mode = match view.and_then(|view| view.mode) {
        _ if suspended => SUSPENDED,
        _ if server.doubt().is_some() => UNKNOWN_MODE,
        Some(Mode::Leader) => "leader",
        Some(Mode::Follower) => "follower",
        Some(Mode::Observer) => "observer",
        Some(Mode::Looking) | None => "looking",
    };
    Some(ServerStatus {
        id,
        pod: Some(server.pod.clone()),
        mode: Some(mode.to_owned()),
        version: view.and_then(|view| view.version.clone()),
        serving: server.serving(),
        synced: server.serving() && view.is_some_and(|view| view.synced),
        accepted_epoch: view
            .map(|view| view.accepted_epoch)
            .filter(|epoch| *epoch != UNKNOWN_EPOCH)
            .or_else(|| before.and_then(|s| s.accepted_epoch).filter(|_| !suspended)),
        volume: view.map_or_else(|| before.and_then(|s| s.volume.clone()), |view| Some(view.volume.clone())),
        lost: view.map_or_else(|| before.is_some_and(|s| s.lost), |view| view.lost),
        set_aside: view.and_then(|view| view.disk.as_ref()).map(|disk| disk.set_aside.clone()).unwrap_or_default(),
    })
}

/// True if a server is suspended under this very list. A server that another list suspended may be about to start.
fn is_suspended_under(view: &ServerReport, list: Option<&Ensemble>) -> bool {
    let hash = view.server_list.as_ref().and_then(|list| list.hash.as_ref());
    view.phase == Phase::Suspended && hash.is_some() && hash == list.and_then(|list| list.hash.as_ref())
}
