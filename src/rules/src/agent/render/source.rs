//! What objects are rendered from, and their names and labels.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::agent::render::{
    material::Material,
    object::{Kind, Object},
    resources,
};
use mczk_api::{
    contract::{
        labels::{ENSEMBLE_LABEL, INCARNATION_LABEL, MANAGED_BY_AGENT, MANAGED_BY_LABEL, ROLE_LABEL},
        naming::Naming,
    },
    pod::Resources,
    zookeeper::{Ensemble, Role, ZooKeeperSpec},
};

/// What objects are rendered from.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Name of the ZooKeeper object.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Karmada's name of this cluster.
    pub cluster: &'a str,
    /// Its spec.
    pub spec: &'a ZooKeeperSpec,
    /// The accepted server list.
    pub list: &'a Ensemble,
    /// Voters to run: the declared number, or more while some must not stop.
    pub voters: i32,
    /// Observers to run.
    pub observers: i32,
    /// Certificates of the quorum.
    pub material: Option<&'a Material>,
    /// Certificates for clients.
    pub client: Option<&'a Material>,
    /// True if no server here is ready: all may be slow together. The Service for clients then names them all the same.
    pub(crate) none_ready: bool,
}

/// Name of the ConfigMap that applications read.
pub(crate) fn client_config(name: &str) -> String {
    format!("{name}-client")
}

impl<'a> Source<'a> {
    /// The incarnation of the ensemble.
    #[must_use]
    pub fn incarnation(&self) -> &'a str {
        self.list.incarnation.as_deref().unwrap_or_default()
    }

    /// Name of objects that exist once in an incarnation, such as the headless Service and the voters' StatefulSet.
    #[must_use]
    pub fn base(&self) -> String {
        let incarnation = self.incarnation();
        Naming { name: self.name, namespace: self.namespace, incarnation, names: None }.service()
    }

    /// Name of the StatefulSet of a role.
    #[must_use]
    pub fn set(&self, role: Role) -> String {
        match role {
            Role::Voter => self.base(),
            Role::Observer => format!("{}-o", self.base()),
        }
    }

    /// Revision of the pods. Pods of suspended servers differ, and have another revision than the spec's.
    #[must_use]
    pub fn revision(&self) -> String {
        revision(self.spec, self.list)
    }

    /// Name of the ConfigMap with the server configuration of a role. It contains the revision: a server that has not been
    /// restarted keeps its configuration, even if its container restarts.
    #[must_use]
    pub fn server_config(&self, role: Role) -> String {
        format!("{}-{}", self.set(role), self.spec.revision)
    }

    /// True if applications use an object to reach the ensemble. It has the same name in every incarnation.
    #[must_use]
    pub fn is_for_clients(&self, object: &Object) -> bool {
        match object.kind {
            Kind::Service => object.name == self.name,
            Kind::ConfigMap => object.name == self.clients(),
            _ => false,
        }
    }

    /// Name of the ConfigMap for applications. No object of the agent depends on it.
    #[must_use]
    pub fn clients(&self) -> String {
        client_config(self.name)
    }

    /// Resources of a server.
    #[must_use]
    pub fn resources(&self) -> Resources {
        resources::of_server(self.spec.template.resources.as_ref())
    }

    pub(super) fn selector(&self) -> BTreeMap<&'static str, String> {
        BTreeMap::from([(ENSEMBLE_LABEL, self.name.to_owned()), (INCARNATION_LABEL, self.incarnation().to_owned())])
    }

    pub(super) fn role_selector(&self, role: Role) -> BTreeMap<&'static str, String> {
        let mut labels = self.selector();
        labels.insert(ROLE_LABEL, role_name(role).to_owned());
        labels
    }

    /// Labels of every object.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<&'static str, String> {
        let mut labels = self.selector();
        labels.insert(MANAGED_BY_LABEL, MANAGED_BY_AGENT.to_owned());
        labels
    }

    /// An object of this ensemble.
    #[must_use]
    pub fn object(&self, kind: Kind, name: String, labels: &BTreeMap<&'static str, String>, rest: Value) -> Object {
        let mut value = json!({
            "apiVersion": kind.api_version(),
            "kind": kind.name(),
            "metadata": { "name": name, "namespace": self.namespace, "labels": labels },
        });
        if let (Some(members), Value::Object(rest)) = (value.as_object_mut(), rest) {
            members.extend(rest);
        }
        Object { kind, name, value }
    }
}

/// Revision of the pods of a spec under a server list.
#[must_use]
pub fn revision(spec: &ZooKeeperSpec, list: &Ensemble) -> String {
    if list.phase.is_suspended() { format!("{}.suspended", spec.revision) } else { spec.revision.clone() }
}

/// The text of a role in labels.
#[must_use]
pub const fn role_name(role: Role) -> &'static str {
    match role {
        Role::Voter => "voter",
        Role::Observer => "observer",
    }
}
