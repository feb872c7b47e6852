//! What the operator knows of an ensemble before it decides: the one reading of everything that it observes.
//!
//! Every step of the plan reads [`Known`], and none derives anything of it a second time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp};
use kube_core::ResourceExt;
use serde_json::Value;

use crate::rollout::{
    certificates::Certificate,
    cluster_selection::{ClusterSelection, Survey},
    incarnation,
    live::Live,
    objects,
    observed::Observed,
    override_rules::{self, Overrides},
    placement,
    quorum::ReportedQuorum,
    recovery::{is_in_force, recover_records},
    report::{self, ClusterReport},
    reported_list::{clusters_of, is_outdated, lists_ending, newest_reported},
    stuck::{Stuck, stuck},
};
use mczk_api::{
    MultiClusterZooKeeper, ZooKeeper,
    contract::{
        former_incarnations::FormerIncarnations,
        labels::{RELEASED, TERM},
        naming::{Naming, policy_name},
    },
    karmada::{
        cluster::Cluster,
        policy::{OverridePolicy, PropagationPolicy},
        resource_binding::ResourceBinding,
        work::{Work, cluster_of},
    },
    multiclusterzookeeper::{
        ClusterStatus, EnsembleStatus, MultiClusterZooKeeperStatus, ObservedGenerations, Record, RecordStatus, Rollout,
    },
    mutation::broken,
    preflight::PreflightMode,
    zookeeper::{Ensemble, EnsemblePhase, ZooKeeperSpec},
};

/// What the operator knows of an ensemble before it decides.
pub struct Known<'a> {
    /// Time of the observation.
    pub now: Timestamp,
    /// The ensemble.
    pub object: &'a MultiClusterZooKeeper,
    /// Name of the ensemble.
    pub name: String,
    /// Namespace of the ensemble.
    pub namespace: String,
    /// Name of the PropagationPolicy and of the OverridePolicy.
    pub policy_name: String,
    /// How the user wants changes to travel.
    pub rollout: Rollout,
    /// The live objects of the operator's names. They may belong to another owner.
    pub template: Option<&'a Live<ZooKeeper>>,
    /// The live PropagationPolicy.
    pub policy: Option<&'a Live<PropagationPolicy>>,
    pub(in crate::rollout) override_policy: Option<&'a Live<OverridePolicy>>,
    /// The live objects beside the template, by `Kind/name`.
    pub services: &'a BTreeMap<String, Value>,
    /// The binding of the template.
    pub binding: Option<&'a ResourceBinding>,
    /// Karmada's Works of the binding, while the object is being deleted or a cluster that left may still have its object.
    pub works: &'a [Work],
    /// The member clusters of the federation.
    pub clusters: &'a [Cluster],
    /// The certificates of the incarnations.
    pub certificates: &'a [Certificate],
    /// The incarnations that ended: those with a tombstone, and those that the user declares over.
    pub ended: BTreeSet<String>,
    /// Those with a tombstone.
    pub(in crate::rollout) tombstones: &'a BTreeSet<String>,
    /// What the user says of incarnations that lived before the object.
    pub former_incarnations: FormerIncarnations<'a>,
    /// Image of servers whose template names none.
    pub server_image: &'a str,
    /// Time since this process last asked Karmada to schedule again.
    pub asked: Option<Duration>,
    /// Number of the term in which this operator acts.
    pub term: Option<i32>,
    /// The term that the OverridePolicy keeps: only a claim changes it. A new one gets the term of this operator.
    pub(in crate::rollout) kept_term: Option<String>,
    /// Why the last reconciles failed.
    pub failure: Option<&'a str>,

    /// Clusters that match `spec.placement`.
    pub(in crate::rollout) matching: Vec<String>,
    /// Clusters that the user has abandoned.
    pub abandoned: BTreeSet<&'a str>,
    /// The status before this plan.
    pub status: MultiClusterZooKeeperStatus,
    /// The clusters that an earlier plan selected.
    pub(in crate::rollout) selection: Option<ClusterSelection>,
    /// The incarnation that the plan is about.
    pub incarnation: Incarnation,
    /// The OverridePolicy's content; empty if it is lost, or of a former incarnation.
    pub overrides: Overrides,
    /// The records that travel, in order.
    pub records: Vec<Record>,
    /// What the agents report, by cluster.
    pub reports: BTreeMap<String, ClusterReport>,
    /// The newest server list of this incarnation that an agent reports.
    pub(in crate::rollout) reported_list: Option<Ensemble>,
    /// True if the list of the OverridePolicy is older than a reported one.
    pub(in crate::rollout) is_outdated: bool,
    /// What the agents of spares without voters report, by cluster.
    pub(in crate::rollout) spare_reports: BTreeMap<String, ClusterReport>,
    /// The quorum that the reports show.
    pub quorum: ReportedQuorum,
    /// Why the last record cannot move.
    pub stuck: Option<Stuck>,
    /// The end of the ensemble; `None` unless the object is being deleted.
    pub ending: Option<Ending>,
}

/// The incarnation of the ensemble.
pub struct Incarnation {
    /// Its identifier.
    pub id: String,
    /// True if OverridePolicy or status name one.
    pub recorded: bool,
    /// True if a tombstone ended the incarnation before it, and this one starts.
    pub(in crate::rollout) is_next: bool,
    /// True if status or OverridePolicy show that a quorum formed.
    pub formed: bool,
}

/// The end of an ensemble.
pub struct Ending {
    /// Every cluster that may have servers, or an object that names them.
    pub(in crate::rollout) concerned: BTreeSet<String>,
    /// The selection of the PropagationPolicy as it was. If another client deleted it: one of the clusters that may have servers.
    pub(in crate::rollout) selection: ClusterSelection,
    /// True once the operator has let Karmada delete the objects in the member clusters. A hand may do so earlier, while
    /// servers run.
    pub released: bool,
}

impl<'a> Known<'a> {
    /// Reads everything that the operator observes.
    #[must_use]
    pub fn of(observed: &'a Observed, now: Timestamp) -> Self {
        let object = &observed.object;
        let status = no_time_ahead(object.status.clone().unwrap_or_default(), now);
        let rollout = object.spec.rollout.clone().unwrap_or_default();
        let is_ending = object.metadata.deletion_timestamp.is_some();
        let template = observed.template.as_deref();
        let policy = observed.policy.as_deref();
        let selection = ClusterSelection::recover(observed.overrides.as_deref(), policy, template, object);
        let own = observed.overrides.as_deref().filter(|policy| !is_ending || is_ours(&policy.metadata, object));
        let content = own.map(|policy| override_rules::read(&policy.spec)).unwrap_or_default();
        let concerned = if is_ending { concerned(&content, &status) } else { BTreeSet::new() };
        let mut ending = is_ending.then(|| Ending {
            selection: selection.clone().unwrap_or_else(|| selection_of(&concerned, object)),
            concerned,
            released: observed.policy.as_deref().is_some_and(|policy| is_released(policy, object)),
        });
        let reports_of = |ending: Option<&Ending>| {
            let named = named(selection.as_ref(), &content, ending);
            report::cluster_reports(observed.binding.as_ref(), &observed.clusters, &named)
        };
        let mut reports = reports_of(ending.as_ref());
        let former_incarnations = FormerIncarnations::of(object.annotations());
        let ended = former_incarnations.ended(&observed.tombstones);
        let incarnation = incarnation(observed, &status, &content, &reports, (&former_incarnations, &ended));
        if let Some(ending) = &mut ending {
            ending.concerned.extend(joined_since_backup(&incarnation.id, &content, &status, &reports));
            reports = reports_of(Some(ending));
        }
        // What a policy says of a former incarnation does not hold for the next one.
        let is_of_former = content.ensemble.incarnation.as_ref().is_some_and(|own| *own != incarnation.id);
        let mut overrides = if incarnation.is_next || is_of_former { Overrides::default() } else { content };
        overrides.cluster_specs.retain(|cluster, spec| is_in_force(cluster, spec.spec_hash.as_deref(), &reports));
        let records = records(observed.overrides.as_deref(), &status, now);
        let stuck = records.last().and_then(|last| stuck(last, &reports, &overrides, &rollout, &status, now));
        let reported_list = newest_reported(&incarnation.id, &reports).cloned();
        let is_outdated = !is_ending && is_older(&overrides.ensemble, &incarnation.id, &reports);
        let list = reported_list.as_ref().filter(|_| is_outdated).unwrap_or(&overrides.ensemble);
        let quorum = ReportedQuorum::of(&incarnation.id, &reports, &list.servers, incarnation.formed);
        Self {
            now,
            object,
            name: object.name_any(),
            namespace: object.namespace().unwrap_or_default(),
            policy_name: policy_name(&object.name_any()),
            rollout,
            template: observed.template.as_ref(),
            policy: observed.policy.as_ref(),
            override_policy: observed.overrides.as_ref(),
            services: &observed.services,
            binding: observed.binding.as_ref(),
            works: &observed.works,
            clusters: &observed.clusters,
            certificates: &observed.certificates,
            ended,
            tombstones: &observed.tombstones,
            former_incarnations,
            server_image: &observed.server_image,
            asked: observed.asked,
            term: observed.term,
            kept_term: kept_term(observed.overrides.as_deref(), observed.term),
            failure: observed.failure.as_deref(),
            matching: placement::matching(object.spec.placement.as_ref(), spares(object), &observed.clusters),
            abandoned: objects::abandoned(object),
            selection,
            reported_list,
            is_outdated,
            overrides,
            records,
            reports,
            spare_reports: report::cluster_reports(observed.spares.as_ref(), &observed.clusters, &[]),
            quorum,
            stuck,
            status,
            incarnation,
            ending,
        }
    }
}

/// True if a server list of the OverridePolicy is older than a reported one. A lost list has no age.
fn is_older(list: &Ensemble, incarnation: &str, reports: &BTreeMap<String, ClusterReport>) -> bool {
    !list.servers.is_empty() && is_outdated((list.epoch, list.hash.as_ref()), incarnation, reports)
}

/// True if an object belongs to the MultiClusterZooKeeper.
fn is_ours(meta: &ObjectMeta, object: &MultiClusterZooKeeper) -> bool {
    objects::is_ours(meta, object) || broken!(AdoptForeign)
}

/// The status without a time that is yet to come: the clock was ahead and is right again. Holds and deadlines then start
/// again instead of waiting for that time.
fn no_time_ahead(mut status: MultiClusterZooKeeperStatus, now: Timestamp) -> MultiClusterZooKeeperStatus {
    for since in status.clusters.iter_mut().filter_map(|cluster| cluster.complete_since.as_mut()) {
        since.0 = since.0.min(now);
    }
    status
}

fn kept_term(live: Option<&OverridePolicy>, own: Option<i32>) -> Option<String> {
    let live = live.map(|live| live.annotations().get(TERM).cloned());
    live.unwrap_or_else(|| own.map(|term| term.to_string()))
}

/// The records, without a time that is yet to come.
fn records(policy: Option<&OverridePolicy>, status: &MultiClusterZooKeeperStatus, now: Timestamp) -> Vec<Record> {
    let mut records = if broken!(ForgetRecords) { status.records.clone() } else { recover_records(policy, status) };
    for record in &mut records {
        record.last_transition_time.0 = record.last_transition_time.0.min(now);
    }
    records
}

/// Every cluster that may have servers, or an object that names them.
fn concerned(content: &Overrides, status: &MultiClusterZooKeeperStatus) -> BTreeSet<String> {
    let recorded = status.clusters.iter().filter(|cluster| !cluster.voters.is_empty() || cluster.desired > 0);
    let listed = content.ensemble.servers.iter().map(|server| &server.cluster);
    content.cluster_specs.keys().chain(listed).chain(recorded.map(|cluster| &cluster.name)).cloned().collect()
}

/// The clusters of a reported server list that is newer than what OverridePolicy and status know: the control plane was restored
/// from an older copy, and knows nothing of clusters that joined since.
fn joined_since_backup(
    incarnation: &str,
    content: &Overrides,
    status: &MultiClusterZooKeeperStatus,
    reports: &BTreeMap<String, ClusterReport>,
) -> BTreeSet<String> {
    let in_status = status.ensemble.as_ref().filter(|ensemble| ensemble.incarnation == incarnation);
    let known = content.ensemble.epoch.max(in_status.map(|ensemble| ensemble.epoch));
    let newer = newest_reported(incarnation, reports).filter(|list| list.epoch > known);
    newer.map(|list| clusters_of([list], incarnation, reports)).unwrap_or_default()
}

fn selection_of(concerned: &BTreeSet<String>, object: &MultiClusterZooKeeper) -> ClusterSelection {
    let clusters: Vec<(String, i32)> = concerned.iter().map(|cluster| (cluster.clone(), 1)).collect();
    let declared = object.spec.placement.as_ref();
    let placement = placement::for_karmada(declared, &clusters, placement::operator_divides(declared));
    ClusterSelection {
        hash: String::new(),
        placement,
        divided: false,
        survey: Survey::Pending,
        moved: BTreeMap::new(),
        outdated_request: None,
    }
}

fn is_released(policy: &PropagationPolicy, object: &MultiClusterZooKeeper) -> bool {
    let by_operator = policy.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(RELEASED));
    is_ours(&policy.metadata, object)
        && policy.spec.preserve_resources_on_deletion == Some(false)
        && (by_operator || broken!(BelieveReleased))
}

/// The clusters that count as reporting even without a Work.
fn named(selection: Option<&ClusterSelection>, content: &Overrides, ending: Option<&Ending>) -> Vec<String> {
    if let Some(ending) = ending {
        return ending.concerned.iter().cloned().collect();
    }
    let selected = selection.map(ClusterSelection::clusters).unwrap_or_default();
    selected.iter().chain(content.cluster_specs.keys()).cloned().collect()
}

/// The current incarnation, or the next one if a tombstone ended it before a quorum formed. An ensemble that is being deleted
/// ends in the recorded one, even if a tombstone names it.
fn incarnation(
    observed: &Observed,
    status: &MultiClusterZooKeeperStatus,
    policy: &Overrides,
    reports: &BTreeMap<String, ClusterReport>,
    (former_incarnations, ended): (&FormerIncarnations<'_>, &BTreeSet<String>),
) -> Incarnation {
    let in_status = status.ensemble.as_ref().filter(|ensemble| !ensemble.incarnation.is_empty());
    let known = policy.ensemble.incarnation.as_ref().or_else(|| Some(&in_status?.incarnation));
    let formed_in_status =
        status.ensemble.as_ref().is_some_and(|ensemble| ensemble.formed && Some(&ensemble.incarnation) == known);
    let phase = policy.ensemble.phase;
    let formed = formed_in_status
        || (policy.ensemble.incarnation.is_some() && !phase.is_bootstrap())
        || phase == EnsemblePhase::Formed;
    let is_deleted = observed.object.metadata.deletion_timestamp.is_some();
    let is_ending = is_deleted && known.is_some();
    let uid = observed.object.uid().unwrap_or_default();
    let recorded = known.map(String::as_str);
    let is_listed = policy.ensemble.incarnation.is_some() || formed_in_status;
    // The end of an object that waits for an adoption is no end of the former incarnation.
    let may_adopt = |id: &str| {
        let is_over = || recorded.is_some_and(|own| lists_ending(own, reports).any(|(_, ends)| ends == id));
        (!is_listed || is_over()) && !is_deleted && !ended.contains(id)
    };
    if let Some(id) = former_incarnations.adopted.filter(|id| may_adopt(id)) {
        return Incarnation { recorded: false, is_next: false, id: id.to_owned(), formed: false };
    }
    let id = incarnation::current(&uid, recorded, formed || is_ending, ended, reports.values());
    Incarnation { recorded: known.is_some(), is_next: known.is_some_and(|known| *known != id), id, formed }
}

/// The spares that the user declares.
fn spares(object: &MultiClusterZooKeeper) -> &[String] {
    object.spec.failover.as_ref().map(|failover| failover.spares.as_slice()).unwrap_or_default()
}

impl Known<'_> {
    /// The spares that the user declares, in order.
    pub(in crate::rollout) fn spares(&self) -> &[String] {
        spares(self.object)
    }

    /// True if an object belongs to the MultiClusterZooKeeper.
    pub(in crate::rollout) fn is_ours(&self, meta: &ObjectMeta) -> bool {
        is_ours(meta, self.object)
    }

    /// The live PropagationPolicy, if it belongs to the MultiClusterZooKeeper.
    pub(in crate::rollout) fn own_policy(&self) -> Option<&PropagationPolicy> {
        self.policy.map(|policy| &**policy).filter(|policy| self.is_ours(&policy.metadata))
    }

    /// The live OverridePolicy, if it belongs to the MultiClusterZooKeeper.
    pub(in crate::rollout) fn own_override_policy(&self) -> Option<&OverridePolicy> {
        self.override_policy.map(|policy| &**policy).filter(|policy| self.is_ours(&policy.metadata))
    }

    /// True if the ensemble continues a former incarnation, whose server list the operator does not know yet.
    pub(in crate::rollout) fn is_adopting(&self) -> bool {
        self.former_incarnations.adopted == Some(&self.incarnation.id) && self.overrides.ensemble.servers.is_empty()
    }

    /// True if the control plane was restored from an older copy: an agent reports a newer server list than status and
    /// OverridePolicy know.
    pub(in crate::rollout) fn is_restored(&self) -> bool {
        let in_status = |known: &EnsembleStatus| {
            is_outdated((Some(known.epoch), known.hash.as_ref()), &known.incarnation, &self.reports)
        };
        let has_list = !self.overrides.ensemble.servers.is_empty();
        let known = [has_list.then_some(self.is_outdated), self.status_ensemble().map(in_status)];
        let known: Vec<bool> = known.into_iter().flatten().collect();
        // No incarnation is reported before the control plane knows it. A first pass leaves nothing of the former one.
        let is_unknown = known.is_empty() && !self.is_adopting();
        let is_later = |list: &Ensemble| self.incarnation.is_next || is_unknown && !list.former_incarnations.is_empty();
        let next_lives = self.reported_list.as_ref().is_some_and(is_later);
        next_lives || !known.is_empty() && known.iter().all(|is_outdated| *is_outdated)
    }

    /// The list of the OverridePolicy, or the reported one if that is newer.
    pub(in crate::rollout) fn newest_list(&self) -> &Ensemble {
        self.reported_list.as_ref().filter(|_| self.is_outdated).unwrap_or(&self.overrides.ensemble)
    }

    /// The newest list, or the reported one if the operator has lost its own.
    pub(in crate::rollout) fn list_or_reported(&self) -> &Ensemble {
        let newest = self.newest_list();
        Some(newest).filter(|list| !list.servers.is_empty()).or(self.reported_list.as_ref()).unwrap_or(newest)
    }

    /// The incarnation in which the object waited before its user let it continue a former one. It never had a server.
    pub(in crate::rollout) fn before_adoption(&self) -> Option<String> {
        let uid = self.object.metadata.uid.as_deref().unwrap_or_default();
        let waited = self.former_incarnations.adopted.map(|_| incarnation::first(uid, &self.ended));
        waited.filter(|waited| *waited != self.incarnation.id)
    }

    /// True if Karmada's schedule may lead to a report of a cluster: it has a Work there.
    pub(in crate::rollout) fn has_work(&self, cluster: &str) -> bool {
        let items = self.binding.iter().flat_map(|binding| &binding.status.aggregated_status);
        items.into_iter().any(|item| item.cluster_name == cluster)
    }

    /// True if a cluster left the ensemble, and Karmada has not removed its object yet: up to 1000 s after it reaches the cluster
    /// again. No report names such a cluster.
    pub(in crate::rollout) fn is_left_behind(&self, cluster: &ClusterStatus) -> bool {
        let ends = |work: &&Work| work.metadata.deletion_timestamp.is_some();
        let mut ending = self.works.iter().filter(ends).filter_map(|work| cluster_of(&work.metadata));
        cluster.reported && ending.any(|of| of == cluster.name) && !self.has_work(&cluster.name)
    }

    /// True if Karmada reaches a cluster.
    #[must_use]
    pub fn is_ready(&self, name: &str) -> bool {
        self.clusters.iter().any(|cluster| cluster.name() == name && cluster.ready())
    }

    /// The ensemble in the status, if it is of this incarnation.
    pub(in crate::rollout) fn status_ensemble(&self) -> Option<&EnsembleStatus> {
        self.status.ensemble.as_ref().filter(|ensemble| ensemble.incarnation == self.incarnation.id)
    }

    /// What the names of objects depend on.
    #[must_use]
    pub fn naming<'n>(&'n self, template: &'n ZooKeeperSpec) -> Naming<'n> {
        Naming {
            name: &self.name,
            namespace: &self.namespace,
            incarnation: &self.incarnation.id,
            names: template.source.as_ref().and_then(|source| source.names.as_ref()),
        }
    }

    /// The generations that a plan has seen.
    #[must_use]
    pub fn generations(&self) -> ObservedGenerations {
        ObservedGenerations {
            multiclusterzookeeper: self.object.metadata.generation.unwrap_or(0),
            zookeeper: self.template.and_then(|template| template.metadata.generation).unwrap_or(0),
        }
    }

    /// True if the network is checked before the first server starts.
    pub(in crate::rollout) fn checks_network(&self) -> bool {
        let network = self.object.spec.network.as_ref();
        network.and_then(|network| network.preflight).unwrap_or_default() == PreflightMode::Required
    }

    /// S6: true if no record is deploying, or the one that is cannot finish, is of an older copy of the control plane, or was
    /// recovered during a survey, which rolls none out. Only then selection and template change.
    pub(in crate::rollout) fn record_allows_change(&self) -> bool {
        let surveys = self.selection.as_ref().is_some_and(|selection| selection.survey == Survey::Open);
        let is_over = self.stuck.is_some() || self.incarnation.is_next || self.is_restored() || surveys;
        !self.is_deploying() || is_over || broken!(TemplateDuringRecord)
    }

    /// True if the last record is deploying. One of a former incarnation, which has no server list, does not count.
    pub(in crate::rollout) fn is_deploying(&self) -> bool {
        let has_list = self.overrides.ensemble.incarnation.is_some()
            || self.status_ensemble().is_some()
            || self.reported_list.is_some();
        has_list && self.records.last().is_some_and(|record| record.status == RecordStatus::Deploying)
    }
}
