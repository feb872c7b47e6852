//! S12: no first server starts, and no cluster joins, before every cluster reaches every other one by name, on every port of a
//! server.
//!
//! The request follows from schedule, server list and names alone, so the operator keeps no state of the check. Its round
//! identifies it: reports of another round do not count.

use std::collections::BTreeSet;

use crate::{
    rollout::{
        advance::{inputs::Inputs, server_list::Target},
        override_rules::Overrides,
        report::ClusterReport,
        scheduled::Scheduled,
    },
    server::zoo_cfg,
};
use mczk_api::{
    contract::{cause::Cause, conditions::Reason, mesh, preflight},
    mutation::broken,
    preflight::{NetworkProblem, Preflight, PreflightReport, ProblemKind, RoundTrip, ServerName},
    zookeeper::{Ensemble, Role, Server},
};

/// Most problems that a message names.
const MAX_NAMED: usize = 3;
/// Most bytes per second that a check asks for: a probe has a tenth of a processor.
const MAX_RATE: f64 = 16.0 * 1_048_576.0;
/// What waits for the check.
const FIRST: &str = "No server starts";
const JOINS: &str = "No cluster joins, and no server moves";
/// What a user can do without mending the network.
const SKIP: &str = "or set spec.network.preflight to Skip";

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Checked {
    /// Every cluster reaches every other one.
    Passed,
    /// These clusters have no result yet, with the cause if it is known.
    Unreported(Vec<(String, Option<String>)>),
    /// Each problem with the cluster that reports it, the number of problems that reports only count, and the meshes that have
    /// proxies in pods.
    Broken(Vec<(String, NetworkProblem)>, usize, BTreeSet<String>),
    /// Every cluster reaches every other one, and these do so too slowly.
    TooFar(Vec<(String, RoundTrip)>),
}

/// The check of the network.
#[derive(Default)]
pub(super) struct NetworkCheck {
    /// The check that agents make.
    pub(super) request: Option<Preflight>,
    /// Why no server starts, or no cluster joins.
    pub(super) cause: Option<Cause>,
}

impl Inputs<'_> {
    /// True if no server of the ensemble has started. With a cluster spec one may have.
    pub(super) fn is_first_start(&self, overrides: &Overrides) -> bool {
        overrides.ensemble.servers.is_empty() && overrides.cluster_specs.is_empty() && !self.quorum.formed
    }

    /// Requests the check of the clusters that the first servers start in, unless the user skips it.
    pub(super) fn check_network(&self, schedule: &[Scheduled]) -> serde_json::Result<NetworkCheck> {
        let names = schedule.iter().map(|scheduled| self.name(&scheduled.cluster, None)).collect();
        self.check(names, None, FIRST)
    }

    /// Requests the check before clusters join a running ensemble, and keeps its servers until the check has passed. The rest of
    /// the rollout goes on: certificates must not expire for a cluster that does not join.
    ///
    /// A cluster of the ensemble that Karmada does not reach takes no part: else its loss would hold up the one that replaces it.
    /// The request stays until the list has the new clusters, because the results end with it.
    pub(super) fn check_joining(
        &self,
        target: Target,
        overrides: &Overrides,
    ) -> serde_json::Result<(Target, NetworkCheck)> {
        let list = &overrides.ensemble;
        let joins = target.schedule.iter().any(|scheduled| !is_listed(list, &scheduled.cluster));
        if list.servers.is_empty() || !list.phase.admits_clusters() || !joins {
            return Ok((target, NetworkCheck::default()));
        }
        let takes_part = |cluster: &&String| !is_listed(list, cluster) || self.is_reachable(cluster);
        let clusters = target.schedule.iter().map(|scheduled| &scheduled.cluster).filter(takes_part);
        let name = |cluster: &String| {
            // No server of a cluster that joins runs yet: its first name is free.
            if !is_listed(list, cluster) {
                return self.name(cluster, None);
            }
            // Ordinals have no gaps. Servers that have left the list stay until the rollout reaches their cluster.
            let next = next_ordinal(cluster, list.servers.iter().chain(&target.servers))
                .max(self.existing_voters(cluster, overrides));
            self.name(cluster, Some(next).filter(|next| *next > 0))
        };
        let checked = self.check(clusters.map(name).collect(), self.needed_rate(), JOINS)?;
        let target = if checked.cause.is_some() { target.without_changes(list) } else { target };
        Ok((target, checked))
    }

    /// Bytes per second at which a server that joins must be able to copy a snapshot, so that it follows within `initLimit`.
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "at most MAX_RATE")]
    fn needed_rate(&self) -> Option<i64> {
        let reports = self.known.reports.values().filter_map(ClusterReport::fresh_status);
        let bytes = reports.filter_map(|status| status.snapshot_bytes).max()?;
        let rate = bytes as f64 / zoo_cfg::copy_limit(&self.template.template.zoo_cfg);
        Some(rate.ceil().clamp(1.0, MAX_RATE) as i64)
    }

    /// The name of a server in a cluster: of the first one without an ordinal.
    fn name(&self, cluster: &str, ordinal: Option<i32>) -> ServerName {
        let host = self.naming.host(cluster, Role::Voter, ordinal.unwrap_or(0));
        ServerName { cluster: cluster.to_owned(), host, ordinal }
    }

    fn check(&self, mut names: Vec<ServerName>, rate: Option<i64>, held: &str) -> serde_json::Result<NetworkCheck> {
        if !self.known.checks_network() {
            return Ok(NetworkCheck::default());
        }
        // Karmada's order is not stable, and another order would be another round.
        names.sort_by(|a, b| a.cluster.cmp(&b.cluster));
        let request = preflight::request(self.naming.incarnation, names, rate)?;
        let clusters = request.names.iter().map(|name| name.cluster.as_str());
        let cause = match checked(clusters, |cluster| self.result(cluster, &request.round)) {
            _ if broken!(SkipPreflight) => None,
            Checked::Passed => None,
            Checked::Unreported(clusters) => {
                Some(Cause::new(Reason::NetworkUnchecked, unreported(&self.with_causes(clusters), held)))
            }
            Checked::Broken(problems, unnamed, meshes) => {
                Some(Cause::new(Reason::NetworkBroken, describe(&problems, unnamed, &meshes, (held, rate))))
            }
            Checked::TooFar(pairs) => Some(Cause::new(Reason::NetworkBroken, too_far(&pairs, held))),
        };
        Ok(NetworkCheck { request: Some(request), cause })
    }

    /// The clusters without a result, with what the control plane knows of the cause.
    fn with_causes(&self, mut clusters: Vec<(String, Option<String>)>) -> Vec<(String, Option<String>)> {
        for (cluster, cause) in &mut clusters {
            if cause.is_none() && !self.is_reachable(cluster) {
                let absence = ClusterReport::absence(self.known.reports.get(cluster)).message;
                *cause = Some(format!("{absence}: restore it. If it is lost for good, remove it from spec.placement"));
            }
        }
        clusters
    }

    /// The result of a cluster for a round, if the rules may rely on it (S8).
    fn result(&self, cluster: &str, round: &str) -> Option<&PreflightReport> {
        self.fresh_status(cluster)?.preflight.as_ref().filter(|report| report.round == round)
    }
}

/// The ordinal after those of these voters in a cluster.
fn next_ordinal<'a>(cluster: &str, servers: impl Iterator<Item = &'a Server>) -> i32 {
    let voters = servers.filter(|server| server.cluster == cluster && server.role == Role::Voter);
    voters.map(|server| server.ordinal + 1).max().unwrap_or(0)
}

/// True if a server list has servers in a cluster.
fn is_listed(list: &Ensemble, cluster: &str) -> bool {
    list.servers.iter().any(|server| server.cluster == cluster)
}

/// The result of all clusters.
fn checked<'a>(
    clusters: impl Iterator<Item = &'a str>,
    result: impl Fn(&str) -> Option<&'a PreflightReport>,
) -> Checked {
    let (mut unreported, mut problems, mut unnamed, mut meshes) = (Vec::new(), Vec::new(), 0, BTreeSet::new());
    let mut far = Vec::new();
    for cluster in clusters {
        match result(cluster) {
            None => unreported.push((cluster.to_owned(), None)),
            Some(PreflightReport { failure: Some(failure), .. }) => {
                unreported.push((cluster.to_owned(), Some(failure.clone())));
            }
            Some(report) => {
                problems.extend(report.problems.iter().map(|problem| (cluster.to_owned(), problem.clone())));
                meshes.extend(report.mesh.clone());
                unnamed += report.more.and_then(|more| usize::try_from(more).ok()).unwrap_or(0);
                // Absent if the probe is older.
                let is_far = |longest: &&RoundTrip| i64::from(longest.milliseconds) > zoo_cfg::LONGEST_ROUND_TRIP;
                let longest = report.round_trip.iter().filter(is_far);
                far.extend(longest.map(|longest| (cluster.to_owned(), longest.clone())));
            }
        }
    }
    // Problems may only come from a probe that has not started.
    if !unreported.is_empty() {
        Checked::Unreported(unreported)
    } else if !problems.is_empty() || unnamed > 0 {
        Checked::Broken(problems, unnamed, meshes)
    } else if !far.is_empty() {
        Checked::TooFar(far)
    } else {
        Checked::Passed
    }
}

fn unreported(clusters: &[(String, Option<String>)], held: &str) -> String {
    let name = |(cluster, failure): &(String, Option<String>)| match failure {
        Some(failure) => format!("{cluster} ({failure})"),
        None => cluster.clone(),
    };
    let named: Vec<String> = clusters.iter().take(MAX_NAMED).map(name).collect();
    format!(
        "Waiting for the network check of these clusters: {}{}. {held} before it. If it lasts, run `mczk install` of this version again, or upgrade their agents after `mczk register --only crds,propagation`, {SKIP}",
        named.join(", "),
        more(clusters.len())
    )
}

/// What helps against kinds of problems, beside names and routes.
const fn remedy(kind: ProblemKind) -> Option<&'static str> {
    match kind {
        ProblemKind::LargePacketsLost => Some(
            "Large packets are lost: lower the MTU of the pods or of the tunnel between these clusters to the path MTU",
        ),
        ProblemKind::AnyNameResolves => Some(
            "DNS has an address for a name that no server has: remove the wildcard record, also from search domains",
        ),
        ProblemKind::TooSlow => Some(
            "A server there could not copy a snapshot within initLimit ticks: raise initLimit in spec.template.zooCfg, or \
             widen the path",
        ),
        _ => None,
    }
}

fn describe(
    problems: &[(String, NetworkProblem)],
    unnamed: usize,
    meshes: &BTreeSet<String>,
    (held, needed): (&str, Option<i64>),
) -> String {
    let name = |(from, problem): &(String, NetworkProblem)| {
        let port = problem.port.map(|port| format!(" port {port}")).unwrap_or_default();
        let answered = problem.answered.as_ref().map(|cluster| format!(" (cluster {cluster} answers)"));
        let rate = problem.bytes_per_second.zip(needed);
        let rate = rate.map(|(has, needs)| format!(" ({} KiB/s, and it needs {} KiB/s)", has >> 10, (needs >> 10) + 1));
        format!(
            "{from} to {}: {}{port}: {}{}{}",
            problem.to,
            problem.host,
            problem.problem.as_str(),
            answered.unwrap_or_default(),
            rate.unwrap_or_default()
        )
    };
    let named: Vec<String> = problems.iter().take(MAX_NAMED).map(name).collect();
    let kinds: BTreeSet<ProblemKind> = problems.iter().map(|(_, problem)| problem.problem).collect();
    let remedies =
        kinds.into_iter().filter_map(remedy).map(str::to_owned).chain(meshes.iter().map(|own| mesh::remedy(own)));
    let mut sentences = vec![format!(
        "{held}. Clusters do not reach each other: {}{}",
        named.join("; "),
        more(problems.len() + unnamed)
    )];
    sentences.extend(remedies);
    sentences.push(format!("Mend names and routes between the clusters, {SKIP}"));
    sentences.join(". ")
}

fn too_far(pairs: &[(String, RoundTrip)], held: &str) -> String {
    let name = |(from, longest): &(String, RoundTrip)| format!("{from} to {}: {} ms", longest.to, longest.milliseconds);
    let named: Vec<String> = pairs.iter().take(MAX_NAMED).map(name).collect();
    format!(
        "{held}. Round trips between clusters take too long: {}{}. mczk allows {} ms: beyond it a server follows, and its \
         parent process never sees it serve. Choose nearer clusters in spec.placement, {SKIP}",
        named.join("; "),
        more(pairs.len()),
        zoo_cfg::LONGEST_ROUND_TRIP
    )
}

/// How many are not named.
fn more(all: usize) -> String {
    match all.saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    }
}
