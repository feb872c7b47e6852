//! What the server reports to agents, to other servers and to the kubelet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::{
    admin_server::{self, Answers},
    supervisor::{State, Supervisor, TlsClients, newer},
    volume::Volume,
};
use mczk_api::contract::control_api::{Configuration, Disk, Mode, Phase, SETTLED, ServerReport, UNKNOWN_EPOCH};
use mczk_rules::server::{start::Recorded, volume_age::VolumeMark};

/// Time of failing starts after which the process is not alive. A restart of the pod hardly helps, so the time is long.
const DEAD_AFTER: Duration = Duration::from_secs(600);

/// What the report tells of the volume.
struct OnVolume {
    identity: String,
    accepted_epoch: i64,
    has_vote: bool,
    generations: BTreeMap<i32, i64>,
    configuration: Option<Configuration>,
    disk: Option<Disk>,
}

impl OnVolume {
    fn read(volume: &Volume, written: Option<&VolumeMark>) -> Self {
        // Without its generations the server must not count as one that answered.
        let Ok(generations) = volume.known_generations() else {
            return Self { disk: volume.disk().ok(), ..Self::default() };
        };
        Self {
            identity: volume.identity().unwrap_or_default(),
            accepted_epoch: volume.accepted_epoch(),
            has_vote: volume.has_vote(written).unwrap_or(false),
            generations,
            configuration: volume.dynamic().ok().flatten().map(|(_, configuration)| configuration),
            disk: volume.disk().ok(),
        }
    }
}

impl Default for OnVolume {
    fn default() -> Self {
        let (identity, generations) = (String::new(), BTreeMap::new());
        Self { identity, accepted_epoch: UNKNOWN_EPOCH, has_vote: false, generations, configuration: None, disk: None }
    }
}

impl Supervisor {
    /// Liveness: false if `ZooKeeper` could not be started for a long time.
    pub(crate) fn is_alive(&self) -> bool {
        self.with_state(|state| match (state.failing_since, &state.phase) {
            (Some(since), Phase::Exited { .. }) => since.elapsed() <= DEAD_AFTER,
            _ => true,
        })
    }

    /// Readiness: `ZooKeeper` serves a session. An observation costs the leader a round trip, so all callers of a second
    /// share one.
    pub(crate) async fn is_ready(self: &Arc<Self>) -> bool {
        let server = self.clone();
        let observe = async move {
            match server.sessions() {
                Some(sessions) => sessions.observe().await.is_ok(),
                None => false,
            }
        };
        self.readiness.get(observe).await
    }

    /// The state of the server, observed now.
    pub async fn report(&self) -> ServerReport {
        let state = self.with_state(State::clone);
        let (volume, written) = (self.volume.clone(), state.written.clone());
        let read = tokio::task::spawn_blocking(move || OnVolume::read(&volume, written.as_ref())).await;
        let OnVolume { identity, accepted_epoch, has_vote, generations, configuration: stored_configuration, disk } =
            read.unwrap_or_default();
        let is_first = state.first_start.as_ref().is_some_and(|first| first.record() == Recorded::This);
        let (answers, observation) = match &state.sessions {
            None => (Answers::default(), None),
            Some(sessions) => {
                let answers = admin_server::ask(self.options.paths.own_address());
                let (answers, observation) = tokio::join!(answers, sessions.observe());
                (answers, observation.ok())
            }
        };
        let serving = observation.is_some();
        let short_for = (answers.mode == Some(Mode::Leader)).then(|| self.short_for());
        let client_address_current = observation.as_ref().is_none_or(|seen| seen.client_address_current);
        let (configuration, published, restart_lock) =
            observation.map_or((None, None, None), |seen| (Some(seen.configuration), seen.list, seen.restart_lock));
        ServerReport {
            id: state.id,
            pod: self.options.pod.clone(),
            incarnation: state.incarnation,
            phase: state.phase,
            revision: state.revision,
            mode: answers.mode,
            serving,
            // A round trip to the leader returns only after all earlier transactions arrived here. A server with an outdated
            // client address, or whose clients may be turned away, is not done: agents must not stop the next one meanwhile.
            synced: serving && client_address_current && state.tls_clients != TlsClients::Unknown,
            settled: serving && state.serving_since.is_some_and(|since| since.elapsed() >= SETTLED),
            zxid: answers.zxid,
            synced_voters: answers.synced_voters,
            snapshot_bytes: answers.snapshot_bytes,
            short_seconds: short_for.and_then(|short_for| i64::try_from(short_for.as_secs()).ok()),
            version: answers.version,
            configuration,
            stored_configuration,
            accepted_epoch,
            volume: identity,
            first_start: state.first_start.map(|first| first.identity),
            acknowledged_nothing: accepted_epoch == 0 && (is_first || has_vote),
            generations,
            unraised: state.unraised.filter(|_| serving),
            turned_away: match state.tls_clients {
                TlsClients::TurnedAway(why) => Some(why).filter(|_| serving),
                TlsClients::Unknown | TlsClients::Served => None,
            },
            disk,
            lost: state.lost,
            corrupt: state.corrupt,
            server_list: newer(published, state.list),
            restart_lock,
            loaded: self.quorum_certificates.loaded(),
        }
    }
}
