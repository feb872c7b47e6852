//! The incarnation of the accepted server list, in this cluster.

use std::collections::{BTreeMap, BTreeSet};

use kube_core::ResourceExt;

use crate::agent::{
    decide::{
        accept::{self, Acceptance},
        first_start::{self, LocalServers},
        local_server::LocalServer,
        observation::{Claim, Observation, RefusedChange, RefusedDeletion, ServerSet},
        quorum::Quorum,
        replica_floor::Voters,
    },
    render::source,
};
use mczk_api::{
    contract::{
        labels::KARMADA_MANAGED_LABEL,
        naming::{Naming, claim_of},
    },
    zookeeper::{Ensemble, EnsemblePhase, Role, Server, ZooKeeperStatus},
};

/// Why a pod stays although its restart is due.
const VOLUME_ENDS: &str = "its volume is being deleted, and would end with the pod";

/// The incarnation of the accepted server list, in this cluster.
#[allow(clippy::struct_excessive_bools)] // independent facts
pub(super) struct LocalEnsemble<'a> {
    pub(super) observation: &'a Observation,
    pub(super) list: &'a Ensemble,
    pub(super) incarnation: &'a str,
    pub(super) cluster: &'a str,
    /// Its servers in this cluster.
    pub(super) servers: Vec<LocalServer>,
    pub(super) quorum: Option<Quorum>,
    /// Ids of the voters that the server list names, in all clusters.
    pub(super) listed_voters: BTreeSet<i32>,
    /// True if a quorum has ever formed.
    pub(super) formed: bool,
    /// True if the incarnation ends or has ended.
    pub(super) over: bool,
    /// True if the spec is accepted, the incarnation continues, and the object is not being deleted.
    pub(super) governed: bool,
    /// True if the membership follows the list: the declared list counts, the incarnation continues, and the object is not
    /// being deleted.
    pub(super) follows: bool,
    /// Name of the voters' StatefulSet.
    set: String,
}

impl<'a> LocalEnsemble<'a> {
    pub(super) fn new(observation: &'a Observation, list: &'a Ensemble, acceptance: &Acceptance) -> Self {
        let incarnation = list.incarnation.as_deref().unwrap_or_default();
        let object = &observation.object;
        let cluster = observation.cluster.as_deref().or(object.spec.cluster.as_deref()).unwrap_or_default();
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let naming = Naming { name, namespace: "", incarnation, names: None };
        let of_incarnation = observation.servers.iter().filter(|(of, _)| of == incarnation).map(|(_, server)| server);
        let servers = of_incarnation.map(|server| with_id(server, list, cluster, object.status.as_ref())).collect();
        let quorum = Quorum::of(&observation.views);
        let formed = !list.phase.is_bootstrap()
            || list.phase == EnsemblePhase::Formed
            || quorum.is_some()
            || observation.views.iter().any(|view| view.accepted_epoch > 0)
            || has_accepted(object.status.as_ref(), list);
        let over = list.phase.is_ending() || observation.tombstones.contains(incarnation);
        let deleting = object.metadata.deletion_timestamp.is_some();
        Self {
            over,
            follows: accept::list_counts(object, &observation.stored, acceptance) && !over && !deleting,
            governed: *acceptance == Acceptance::Accepted && !over && !deleting,
            set: naming.service(),
            observation,
            list,
            incarnation,
            cluster,
            servers,
            quorum,
            listed_voters: list.servers.iter().filter(|s| s.role == Role::Voter).map(|s| s.id).collect(),
            formed,
        }
    }

    /// True if Karmada manages the object.
    pub(super) fn is_managed(&self) -> bool {
        self.observation.object.labels().contains_key(KARMADA_MANAGED_LABEL)
    }

    /// True if the object is being deleted.
    pub(super) fn is_being_deleted(&self) -> bool {
        self.observation.object.metadata.deletion_timestamp.is_some()
    }

    /// True if pods or objects of this incarnation remain here.
    pub(super) fn remains(&self) -> bool {
        self.observation.remaining.contains(self.incarnation) || !self.servers.is_empty()
    }

    /// What the record of first starts depends on.
    pub(super) fn local(&self) -> LocalServers<'_> {
        LocalServers { cluster: self.cluster, servers: &self.servers }
    }

    /// True if the server list names servers of this cluster.
    pub(super) fn is_listed(&self) -> bool {
        self.list.servers.iter().any(|server| server.cluster == self.cluster)
    }

    pub(super) fn voters(&self) -> Voters<'_> {
        Voters { cluster: self.cluster, set: &self.set, list: self.list, quorum: self.quorum.as_ref() }
    }

    /// Servers of a role that run, by the highest ordinal.
    pub(super) fn live(&self, role: Role) -> i32 {
        let sets = self.observation.sets.iter().filter(|set| set.incarnation == self.incarnation && set.role == role);
        let servers = self.servers.iter().filter(|server| server.role == role);
        let pods = servers.map(|server| server.ordinal + 1).max().unwrap_or(0);
        sets.map(|set| set.replicas).max().unwrap_or(0).max(pods)
    }

    /// Id of the voter with this ordinal.
    pub(super) fn id_of(&self, ordinal: i32) -> Option<i32> {
        let voters = self.servers.iter().filter(|server| server.role == Role::Voter);
        voters.into_iter().find(|server| server.ordinal == ordinal).and_then(|server| server.id)
    }

    /// Revision that its pods must have.
    pub(super) fn revision(&self) -> String {
        source::revision(&self.observation.object.spec, self.list)
    }

    /// True if the StatefulSets create pods of the current revision. A pod that is deleted before comes back unchanged, as does
    /// one whose StatefulSet has lost its labels: the agent does not see it, and cannot change it. A pod without an owner does not
    /// come back.
    pub(super) fn sets_are_current(&self) -> bool {
        let revision = &self.revision();
        let of_incarnation = |set: &&ServerSet| set.incarnation == self.incarnation;
        let mut sets = self.observation.sets.iter().filter(of_incarnation);
        let is_seen = |role: Role| self.observation.sets.iter().filter(of_incarnation).any(|set| set.role == role);
        let all_seen = self.servers.iter().all(|server| server.orphaned || is_seen(server.role));
        all_seen && sets.all(|set| set.replicas == 0 || set.revision.as_ref() == Some(revision))
    }

    /// Pods of its servers that must stay, and why.
    pub(super) fn kept_pods(&self) -> BTreeMap<&str, &str> {
        let why = |server: &LocalServer| {
            let refused = self.observation.refused_deletion(&[&server.uid]).filter(|refused| refused.is_recent());
            let ends = self.claim_of(server).is_some_and(|claim| claim.ending);
            refused.map(|refused| refused.why.as_str()).or_else(|| ends.then_some(VOLUME_ENDS))
        };
        self.servers.iter().filter_map(|server| Some((server.pod.as_str(), why(server)?))).collect()
    }

    /// True if the API server has just refused to delete the pod of a server, or its claim.
    pub(super) fn is_refused(&self, id: i32) -> bool {
        let Some(server) = self.servers.iter().find(|server| server.id == Some(id)) else { return false };
        let claim = self.claim_of(server).map_or("", |claim| &claim.uid);
        self.observation.refused_deletion(&[&server.uid, claim]).is_some_and(RefusedDeletion::is_recent)
    }

    fn claim_of(&self, server: &LocalServer) -> Option<&Claim> {
        self.observation.claims.iter().find(|claim| claim.name == claim_of(&server.pod))
    }

    pub(super) fn lacks_client_certificates(&self) -> bool {
        self.observation.lacks_client_certificates(self.list)
    }

    /// What a new pod needs to start, and does not find. A dry run accepts the pod nevertheless.
    pub(super) fn missing_mount(&self) -> Option<String> {
        let is_mounted =
            |refusal: &&RefusedChange| ["ConfigMap", "Secret", "ServiceAccount"].contains(&refusal.kind.as_str());
        let clients = source::client_config(&self.observation.object.name_any());
        let counts = |refusal: &&RefusedChange| !refusal.undone && refusal.name != clients;
        let mut refused = self.observation.refusals.iter().filter(counts);
        let refused = refused.find(is_mounted).map(|RefusedChange { kind, name, .. }| format!("{kind} {name}"));
        self.lacks_client_certificates().then(|| "certificates for clients".to_owned()).or(refused)
    }
}

/// True if a server of this incarnation has reported before that a quorum formed with it.
fn has_accepted(status: Option<&ZooKeeperStatus>, list: &Ensemble) -> bool {
    let same = status.filter(|status| first_start::knows(status, list));
    same.is_some_and(|status| status.servers.iter().any(|server| server.accepted_epoch > Some(0)))
}

/// A server with its id: reported by the server itself, else listed, else reported before.
fn with_id(server: &LocalServer, list: &Ensemble, cluster: &str, status: Option<&ZooKeeperStatus>) -> LocalServer {
    let same = |s: &&Server| s.cluster == cluster && s.role == server.role && s.ordinal == server.ordinal;
    let listed = || list.servers.iter().find(same).map(|s| s.id);
    let before = || status?.servers.iter().find(|s| s.pod.as_ref() == Some(&server.pod)).map(|s| s.id);
    let id = server.view.as_ref().and_then(|view| view.id).or_else(listed).or_else(before);
    LocalServer { id, ..server.clone() }
}
