//! Everything that a decision depends on.

use std::{collections::BTreeSet, time::Duration};

use serde_json::Value;

use crate::agent::{
    decide::{
        accept::{Acceptance, acceptance},
        client_certificates::AcceptedCertificates,
        lifetimes::Lifetimes,
        local_server::LocalServer,
        missing::MissingVoters,
        probe::Probe,
        volume_size::VolumeSize,
    },
    render::{material::Material, source::Source},
};
use mczk_api::{
    ZooKeeper,
    contract::{
        cause::Cause,
        control_api::{ServerConfig, ServerReport},
    },
    preflight::Preflight,
    tls::EnsembleTls,
    zookeeper::{Ensemble, Role},
};

/// A StatefulSet of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSet {
    /// Its name.
    pub name: String,
    /// Its incarnation of the ensemble.
    pub incarnation: String,
    /// Role of its servers.
    pub role: Role,
    /// Declared pods.
    pub replicas: i32,
    /// Revision of the pods that it creates. Absent while its controller has not seen its newest state.
    pub revision: Option<String>,
}

/// A volume of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// Name of the `PersistentVolumeClaim`.
    pub name: String,
    /// Its incarnation of the ensemble.
    pub incarnation: String,
    /// Its uid.
    pub uid: String,
    /// Its version. A deletion meets no claim that has changed since.
    pub version: Option<String>,
    /// True if it has a volume.
    pub bound: bool,
    /// Its size, and how its growth stands.
    pub size: VolumeSize,
    /// True if it is being deleted: it ends with its pod.
    pub ending: bool,
    /// True if the agent has removed its servers ([`mczk_api::contract::labels::SERVERS_REMOVED`]).
    pub servers_removed: bool,
}

/// A change of an object that the API server refuses, or that another writer undoes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedChange {
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// The words of the API server, or who changes what.
    pub why: String,
    /// True if another writer undoes it again and again.
    pub undone: bool,
}

/// The API server did not delete an object: a right is missing, an admission policy forbids it, or a webhook does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedDeletion {
    /// Uid of the claim or the pod.
    pub uid: String,
    /// Its answer.
    pub why: String,
    /// How long ago.
    pub ago: Duration,
}

impl RefusedDeletion {
    /// True if the agent does not try again yet. Policies and rights change rarely.
    #[must_use]
    pub fn is_recent(&self) -> bool {
        self.ago < Duration::from_secs(30)
    }
}

/// Everything that a decision depends on.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The object.
    pub object: ZooKeeper,
    /// Its spec as stored, with fields that this version does not know.
    pub stored: Value,
    /// Karmada's name of this cluster.
    pub cluster: Option<String>,
    /// Id of this cluster, if the agent may read it.
    pub cluster_id: Option<String>,
    /// Configurations of the servers of the declared incarnation.
    pub configurations: Vec<ServerConfig>,
    /// StatefulSets of this ensemble, of every incarnation.
    pub sets: Vec<ServerSet>,
    /// Pods of this ensemble, of every incarnation, with their incarnation.
    pub servers: Vec<(String, LocalServer)>,
    /// Probes of this ensemble, of every incarnation.
    pub probes: Vec<Probe>,
    /// What the API server refuses, and what another writer undoes.
    pub refusals: Vec<RefusedChange>,
    /// Claims of this ensemble, of every incarnation.
    pub claims: Vec<Claim>,
    /// The deletions of claims and pods that failed when they were last tried.
    pub refused_deletions: Vec<RefusedDeletion>,
    /// Uids of pods whose node exists no longer.
    pub gone: BTreeSet<String>,
    /// Why the agent may not read the nodes of pods, if it may not.
    pub unread_nodes: Option<String>,
    /// Incarnations that still have any object except claims.
    pub remaining: BTreeSet<String>,
    /// Incarnations with a tombstone ([`mczk_api::contract::tombstone`]).
    pub tombstones: BTreeSet<String>,
    /// Answers of servers, in this cluster and in others.
    pub views: Vec<ServerReport>,
    /// The quorum's newest certificates.
    pub quorum_certificates: Option<Material>,
    /// Secrets with the quorum's certificates that the server list names and that are not in this cluster.
    pub missing_secrets: Vec<String>,
    /// How long one of them has been missing.
    pub missing_for: Duration,
    /// The Secrets that hold the newest certificates.
    pub tls: Option<EnsembleTls>,
    /// The quorum's certificates that the pods of this incarnation mount.
    pub mounted_certificates: Option<Material>,
    /// How long the certificates are valid that servers mount.
    pub lifetimes: Lifetimes,
    /// Certificates for clients.
    pub client_certificates: AcceptedCertificates,
    /// Kinds and names of objects that the agent wants to write, and that belong to others.
    pub foreign: BTreeSet<(String, String)>,
    /// What else the agent found in its way while it observed.
    pub obstacles: Vec<Cause>,
    /// The newest epoch that the ensemble accepted through this agent, with the incarnation.
    pub published: Option<(String, i64)>,
    /// How long a membership step has been due.
    pub due_for: Duration,
    /// The voters that are missing, and since when.
    pub missing_voters: MissingVoters,
    /// How long this agent has held the restart lock.
    pub locked_for: Duration,
    /// Why no server gave this agent the restart lock, although no other agent holds it.
    pub lock_failure: Option<String>,
    /// Whether this cluster would accept servers, if the object asks for that alone.
    pub spare: Option<Cause>,
    /// This agent's name as holder of the restart lock.
    pub holder: String,
}

impl Observation {
    /// Notes which voters the polled servers miss, at a time since the start of the agent.
    pub fn note_missing_voters(&mut self, now: Duration) {
        self.missing_voters = std::mem::take(&mut self.missing_voters).after(&self.views, now);
    }

    /// Whether the agent accepts the spec.
    pub(super) fn acceptance(&self) -> Acceptance {
        acceptance(&self.object, &self.stored, self.cluster.as_deref(), &self.configurations)
    }

    /// Why one of these objects was not deleted: the answer to the newest attempt. A claim may go after a refusal, and its pod
    /// be refused then.
    #[must_use]
    pub(crate) fn refused_deletion(&self, uids: &[&str]) -> Option<&RefusedDeletion> {
        let refused = self.refused_deletions.iter().filter(|refused| uids.contains(&refused.uid.as_str()));
        refused.min_by_key(|refused| refused.ago)
    }

    /// True if new pods could not start, because the certificates for clients that they mount are missing. Suspended servers
    /// do not mount them.
    #[must_use]
    pub fn lacks_client_certificates(&self, list: &Ensemble) -> bool {
        self.object.spec.tls.client.is_some() && !list.phase.is_suspended() && !self.client_certificates.copied
    }

    /// Incarnations that still have pods or any object except claims.
    #[must_use]
    pub fn incarnations(&self) -> BTreeSet<&str> {
        let probes = self.probes.iter().map(|probe| &probe.incarnation);
        self.remaining.iter().chain(self.servers.iter().map(|(of, _)| of)).chain(probes).map(String::as_str).collect()
    }

    /// True if anything of an incarnation is here that servers have.
    #[must_use]
    pub(crate) fn has_had_servers(&self, incarnation: &str) -> bool {
        self.servers.iter().any(|(of, _)| of == incarnation)
            || self.sets.iter().any(|set| set.incarnation == incarnation)
            || self.claims.iter().any(|claim| claim.incarnation == incarnation)
    }

    /// True if servers of an incarnation are here, or are about to be.
    pub(crate) fn has_servers(&self, incarnation: &str) -> bool {
        self.servers.iter().any(|(of, _)| of == incarnation)
            || self.sets.iter().any(|set| set.incarnation == incarnation && set.replicas > 0)
    }

    /// True if a voter here has, or is about to have, the name that a request of the network check has for this cluster.
    pub(crate) fn has_server_named_in(&self, request: &Preflight) -> bool {
        let own = request.names.iter().find(|name| self.cluster.as_ref() == Some(&name.cluster));
        let ordinal = own.and_then(|own| own.ordinal).unwrap_or(0);
        let of = |incarnation: &str, role: Role| incarnation == request.incarnation && role == Role::Voter;
        self.servers.iter().any(|(id, server)| of(id, server.role) && server.ordinal == ordinal)
            || self.sets.iter().any(|set| of(&set.incarnation, set.role) && set.replicas > ordinal)
    }

    /// The source of rendered objects, for these numbers of servers.
    #[must_use]
    pub fn source<'a>(&'a self, list: &'a Ensemble, (voters, observers): (i32, i32)) -> Source<'a> {
        Source {
            name: self.object.metadata.name.as_deref().unwrap_or_default(),
            namespace: self.object.metadata.namespace.as_deref().unwrap_or_default(),
            cluster: self.cluster.as_deref().unwrap_or_default(),
            spec: &self.object.spec,
            list,
            voters,
            observers,
            material: self.quorum_certificates.as_ref(),
            client: self.client_certificates.material.as_ref(),
            none_ready: self.none_ready(list.incarnation.as_deref().unwrap_or_default()),
        }
    }

    /// True if servers of an incarnation take part in the quorum here, or may, and the kubelet finds none of them ready.
    fn none_ready(&self, incarnation: &str) -> bool {
        let own = || self.servers.iter().filter(|(of, _)| of == incarnation).map(|(_, server)| server);
        let may_serve = |server: &LocalServer| !server.terminating && (server.takes_part() || server.doubt().is_some());
        own().any(may_serve) && !own().any(|server| server.ready && !server.terminating)
    }
}
