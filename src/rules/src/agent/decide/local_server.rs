//! A server of this cluster: its pod, and its own report.

use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;

use crate::agent::decide::drain::{Drain, Stay};
use mczk_api::{
    contract::control_api::{Mode, Phase, ServerReport},
    mutation::broken,
    zookeeper::Role,
};

const UNREACHED: &str = "it runs, and the agent does not reach its port 8443";

/// How long the end of a pod may take beyond its grace period.
pub const ENDS_IN: SignedDuration = SignedDuration::from_secs(60);

/// A server of this cluster.
#[allow(clippy::struct_excessive_bools)] // independent facts
#[derive(Clone, Debug, PartialEq)]
pub struct LocalServer {
    /// Name of its pod.
    pub pod: String,
    /// Uid of its pod.
    pub uid: String,
    /// Declared role.
    pub role: Role,
    /// Its number in its StatefulSet.
    pub ordinal: i32,
    /// Its id: reported by the server, else listed, else reported before.
    pub id: Option<i32>,
    /// Revision of its pod.
    pub revision: String,
    /// True if the kubelet finds the pod ready. The server then serves, even if the agent cannot reach it.
    pub ready: bool,
    /// True if its container runs, as far as the kubelet has reported. `ZooKeeper` may then serve, whether the pod is ready or
    /// not: readiness needs a session, and clients can use up all connections.
    pub runs: bool,
    /// True if the pod is being deleted.
    pub terminating: bool,
    /// True if no StatefulSet owns the pod: it was deleted without its pods.
    pub orphaned: bool,
    /// True if the pod should have ended [`ENDS_IN`] ago.
    pub overdue: bool,
    /// The drain of its node, if its node is being drained.
    pub drain: Option<Drain>,
    /// True if its file system has to grow, and does so only when its volume is mounted again.
    pub needs_mount: bool,
    /// Why it does not start, if the agent knows.
    pub failure: Option<String>,
    /// Its own report, if the agent could reach it.
    pub view: Option<ServerReport>,
    /// How long it has not served.
    pub unready_for: Duration,
}

impl LocalServer {
    /// True if it must restart: for another revision, on another node, or for its file system.
    #[must_use]
    pub(crate) fn outdated(&self, revision: &str) -> bool {
        let leaves = self.drain.as_ref().is_some_and(|drain| drain.stays.is_none());
        self.revision != revision || leaves || self.needs_mount
    }

    /// Why no new pod of it could start: its node is being drained, and no other node fits it.
    #[must_use]
    pub(crate) fn cannot_leave(&self) -> Option<String> {
        let drain = self.drain.as_ref()?;
        match drain.stays.as_ref()? {
            Stay::NoOtherNode(why) => Some(format!("it cannot leave node {}: {why}", drain.node)),
            Stay::TooFewVoters => None,
        }
    }

    /// True if it has started `ZooKeeper`.
    #[must_use]
    pub fn started(&self) -> bool {
        !self.terminating && self.view.as_ref().is_some_and(|view| view.phase == Phase::Running)
    }

    /// True if it reports that it serves.
    #[must_use]
    pub fn serving(&self) -> bool {
        !self.terminating && self.view.as_ref().is_some_and(|view| view.serving)
    }

    /// True if it serves or may serve. The restart of a voter then needs the restart lock. A voter on a slow disk follows, and
    /// counts for the quorum, although it is too slow to serve.
    #[must_use]
    pub fn may_serve(&self) -> bool {
        let answers_late = self.takes_part() && !broken!(StopSlowVoter);
        self.serving() || answers_late || self.doubt().is_some()
    }

    /// Why nothing says whether it takes part in the quorum, although it runs. Only its parent process and the kubelet know that
    /// a server is down: a silent one is not.
    #[must_use]
    pub(crate) fn doubt(&self) -> Option<&'static str> {
        match &self.view {
            _ if self.terminating => None,
            None if self.ready => Some(UNREACHED),
            _ if broken!(StopUnasked) => None,
            None => self.runs.then_some(UNREACHED),
            Some(view) => {
                let runs = matches!(view.phase, Phase::Running | Phase::Unknown);
                (runs && view.mode.is_none() && !view.serving).then_some("its ZooKeeper does not answer")
            }
        }
    }

    /// True if it takes part in the quorum: it leads or follows.
    #[must_use]
    pub(crate) fn takes_part(&self) -> bool {
        !self.terminating && self.view.as_ref().is_some_and(ServerReport::takes_part)
    }

    /// Why it turns away every client with TLS, if it does.
    #[must_use]
    pub(crate) fn turns_away(&self) -> Option<&str> {
        self.view.as_ref().filter(|_| !self.terminating)?.turned_away.as_deref()
    }

    /// True if it leads.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.view.as_ref().and_then(|view| view.mode) == Some(Mode::Leader)
    }
}
