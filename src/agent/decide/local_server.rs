//! A server of this cluster: its pod, and what it says of itself.

use std::time::Duration;

use crate::{
    api::zookeeper::Role,
    contract::control_api::{Mode, Phase, ServerReport},
};

/// A server of this cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalServer {
    /// Name of its pod.
    pub pod: String,
    /// The pod's uid.
    pub uid: String,
    /// Whether it is to vote.
    pub role: Role,
    /// Its number in its StatefulSet.
    pub ordinal: i32,
    /// Its id, as it says itself, as the list says, or as was last known.
    pub id: Option<i32>,
    /// Revision of its pod.
    pub revision: String,
    /// Whether the kubelet finds it ready: it serves, also when the agent cannot ask it.
    pub ready: bool,
    /// Whether the pod is being deleted.
    pub terminating: bool,
    /// The node that it is to leave, since that is cordoned and another one could take it.
    pub drain_from: Option<String>,
    /// Why it does not start, if that is known.
    pub failure: Option<String>,
    /// What it says of itself, if it could be asked.
    pub view: Option<ServerReport>,
    /// For how long it has not served.
    pub unready_for: Duration,
}

impl LocalServer {
    /// Whether it is to come back otherwise than it is: with this revision, or on another node.
    #[must_use]
    pub fn outdated(&self, revision: &str) -> bool {
        self.revision != revision || self.drain_from.is_some()
    }

    /// Whether `ZooKeeper` was started in it.
    #[must_use]
    pub fn started(&self) -> bool {
        !self.terminating && self.view.as_ref().is_some_and(|view| view.phase == Phase::Running)
    }

    /// Whether it serves, as far as it says itself.
    #[must_use]
    pub fn serving(&self) -> bool {
        !self.terminating && self.view.as_ref().is_some_and(|view| view.serving)
    }

    /// Whether it serves or may serve: then it is not taken out without the turn.
    #[must_use]
    pub fn may_serve(&self) -> bool {
        self.serving() || self.ready && !self.terminating && self.view.is_none()
    }

    /// Whether it leads.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.view.as_ref().and_then(|view| view.mode) == Some(Mode::Leader)
    }
}
