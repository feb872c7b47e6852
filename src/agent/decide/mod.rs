//! All decisions about one object, from what was observed: pure.

pub mod accept;
pub mod client_tls;
pub mod loaded;
pub mod local_server;
pub mod membership;
pub mod restart;
pub mod status;

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde_json::Value;

use crate::{
    agent::{
        decide::{
            accept::{Acceptance, ReplicaFloor, Told, Voters},
            client_tls::Taken,
            local_server::LocalServer,
            membership::Quorum,
            restart::Next,
            status::{Progress, Seen},
        },
        render::{self, Material, Source},
    },
    api::{
        ZooKeeper,
        tls::EnsembleTls,
        zookeeper::{Ensemble, EnsemblePhase, Role, ZooKeeperStatus},
    },
    contract::{
        control_api::{Mode, Phase, ServerReport},
        labels::{AGENT_FINALIZER, APPLIED_HASH, ENSEMBLE_LABEL, INCARNATION_LABEL, KARMADA_MANAGED_LABEL},
        naming::Naming,
        server_list,
    },
};

/// After how long a server that was taken out under the turn is no longer waited for.
pub const DEADLINE: Duration = Duration::from_secs(600);

/// How long a note may take that a life is over, after the object was deleted.
const NOTE_PATIENCE: SignedDuration = SignedDuration::from_secs(120);

/// A StatefulSet of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub name: String,
    /// The life of the ensemble that it belongs to.
    pub incarnation: String,
    /// Role of its servers.
    pub role: Role,
    /// How many pods it is to have.
    pub replicas: i32,
    /// Revision of the pods that it makes, if its controller has seen its newest state.
    pub revision: Option<String>,
}

/// A volume of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Name of the claim.
    pub name: String,
    /// The life of the ensemble that it belongs to.
    pub incarnation: String,
}

/// Everything that a decision rests on.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The object.
    pub object: ZooKeeper,
    /// Its spec as it is stored.
    pub stored: Value,
    /// Karmada's name of this cluster.
    pub cluster: Option<String>,
    /// StatefulSets of this ensemble, of every life.
    pub sets: Vec<Set>,
    /// Pods of this ensemble, of every life, by its name.
    pub own: Vec<(String, LocalServer)>,
    /// Claims of this ensemble, of every life.
    pub volumes: Vec<Volume>,
    /// Lives of which anything but claims is left.
    pub left: BTreeSet<String>,
    /// Lives that the control plane noted as over ([`crate::contract::tombstone`]), of those that are looked for.
    pub tombstones: BTreeSet<String>,
    /// What servers say, here and in other clusters.
    pub views: Vec<ServerReport>,
    /// Certificates of the quorum, if there are any.
    pub material: Option<Material>,
    /// The Secrets that these are from.
    pub tls: Option<EnsembleTls>,
    /// Those that this life's pods mount.
    pub mounted: Option<Material>,
    /// Certificates that clients are to see.
    pub client: Taken,
    /// What a person has to look at: reason and message.
    pub obstacles: Vec<(&'static str, String)>,
    /// The newest epoch that the ensemble was seen to take from this agent, with the life of the ensemble.
    pub published: Option<(String, i64)>,
    /// For how long a step of the membership has been due.
    pub due_for: Duration,
    /// For how long this agent has had the turn.
    pub turn_for: Duration,
    /// The name under which this agent asks for the turn.
    pub holder: String,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The list that is obeyed.
    pub list: Option<Ensemble>,
    /// Voters and observers to run, if objects are to be written.
    pub run: Option<(i32, i32)>,
    /// Lives whose servers are stopped and whose objects are removed.
    pub remove: BTreeSet<String>,
    /// The step of the membership that is due.
    pub membership: membership::Action,
    /// Whether this agent takes it.
    pub ours: bool,
    /// The server that is to be taken out.
    pub turn: Next,
    /// What is reported.
    pub status: ZooKeeperStatus,
    /// Whether the object carries the agent's finalizer.
    pub finalizer: bool,
    /// Whether the object is removed.
    pub remove_object: bool,
    /// When it is worth looking again.
    pub pace: Requeue,
}

/// When it is worth looking again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// Soon: something is on its way.
    Busy,
    /// Now and then.
    AtRest,
}

/// The list that is obeyed before any server was asked: whose servers are worth asking.
#[must_use]
pub fn list_here<'a>(object: &'a ZooKeeper, stored: &Value, obey: &Acceptance) -> Vec<&'a Ensemble> {
    let own = &object.spec.ensemble;
    let managed = object.labels().contains_key(KARMADA_MANAGED_LABEL);
    let counts = *obey == Acceptance::Yes || own.phase.is_ending() && managed && accept::list_is_whole(stored);
    let obeyed = object.status.as_ref().and_then(|status| status.ensemble.as_ref());
    let whole = |list: &&Ensemble| server_list::with_hash((*list).clone()).is_ok_and(|sealed| sealed.hash == list.hash);
    Some(own).filter(|_| counts).into_iter().chain(obeyed.filter(whole)).collect()
}

/// Whether the object's spec is obeyed.
#[must_use]
pub fn obey(object: &ZooKeeper, stored: &Value, cluster: Option<&str>) -> Acceptance {
    accept::obey(Told {
        spec: &object.spec,
        stored,
        cluster,
        managed: object.labels().contains_key(KARMADA_MANAGED_LABEL),
        observed_spec_hash: object.status.as_ref().and_then(|status| status.observed_spec_hash.as_deref()),
    })
}

/// Volumes that no server uses: those of other lives than the one that runs, if one does, and of ordinals that left it.
fn unused_volumes(observed: &Observed, runs: Option<&str>) -> Vec<String> {
    let mounted = |volume: &Volume| {
        let sets = observed.sets.iter().filter(|set| set.incarnation == volume.incarnation);
        let wanted = |set: &Set| (0..set.replicas).any(|n| volume.name.ends_with(&format!("-{}-{n}", set.name)));
        sets.into_iter().any(wanted)
            || observed.own.iter().any(|(_, own)| volume.name.ends_with(&format!("-{}", own.pod)))
    };
    let unused = |volume: &&Volume| runs != Some(volume.incarnation.as_str()) || !mounted(volume);
    let mut names: Vec<String> = observed.volumes.iter().filter(unused).map(|v| v.name.clone()).collect();
    names.sort();
    names.truncate(254);
    names
}

/// Decides.
#[must_use]
pub fn decide(observed: &Observed, now: Timestamp) -> Decision {
    let object = &observed.object;
    let none = ZooKeeperStatus::default();
    let old = object.status.as_ref().unwrap_or(&none);
    let obey = obey(object, &observed.stored, observed.cluster.as_deref());
    let list = accept::newest(list_here(object, &observed.stored, &obey), &observed.views).cloned();
    let mut blocked = match &obey {
        Acceptance::Refused(why) => Some(("SpecRefused", why.clone())),
        Acceptance::Yes | Acceptance::Held => None,
    };
    let Some(list) = list else { return without_a_list(observed, blocked, unused_volumes(observed, None), now) };
    let life = Life::new(observed, &list, &obey);
    let mut remove = life.removed();
    let leaves = life.leaves();
    if leaves {
        remove.insert(life.id.to_owned());
    }
    let left = observed.left.contains(life.id) || !life.own.is_empty();
    let dissolved = life.over && !left;
    let acts = life.acts && !leaves;
    let (voters, observers) = life.kept();
    if let Some(why) = &voters.blocked
        && acts
    {
        blocked.get_or_insert(("StillVotes", why.clone()));
    }
    if let Some(obstacle) = observed.obstacles.first().filter(|_| acts) {
        blocked.get_or_insert(obstacle.clone());
    }
    // Once every server has what is declared, what comes of the Secret is told, and is no reason to call that undone.
    let complete = old.completed_spec_hash.is_some() && old.completed_spec_hash == object.spec.spec_hash;
    let client = life.client_trouble(complete).filter(|_| acts);
    if let Some(why) = client.as_ref().filter(|_| !complete) {
        blocked.get_or_insert(("ClientCertificates", why.clone()));
    }
    let deleting = object.metadata.deletion_timestamp.is_some();
    let stays = deleting && left && !leaves && !life.over;
    // Karmada makes it anew, and it is taken up as it was: nothing has it for its owner, so nothing goes with it. But not where
    // the cluster was given up, and the ensemble has ended elsewhere: then nobody would.
    let made_anew = stays && life.is_managed() && life.is_needed(now);
    if stays && !made_anew {
        let why = "the object is being deleted, but its servers belong to the ensemble: they run on";
        blocked.get_or_insert(("Deleted", why.to_owned()));
    }
    let former = life.unexplained(&remove);
    if let Some(why) = former.as_ref().filter(|_| deleting) {
        blocked.get_or_insert(("FormerIncarnation", why.clone()));
    }
    let published = published(observed, &list, old);
    let membership = if acts && !list.phase.is_suspended() {
        membership::step(&list, &observed.views, published)
    } else {
        membership::Action::Done
    };
    let turn = if acts { life.turn(&voters, &observers) } else { Next::Nothing };
    let done = acts && blocked.is_none() && life.done(&turn);
    let progress = acts.then(|| life.progress(&voters, &observers, &turn));
    let leaving = life.leaves_node(&turn).filter(|_| acts);
    let still = membership == membership::Action::Done && turn == Next::Nothing;
    let going = remove.iter().any(|id| observed.lives().contains(id.as_str()));
    let rests = still && (done || !acts) && !going;
    let status = status::report(&Seen {
        generation: object.metadata.generation,
        old,
        pin: object.spec.spec_hash.as_deref().filter(|_| obey == Acceptance::Yes),
        done,
        list: Some(&list),
        own: &life.own,
        views: &observed.views,
        dissolved,
        progress,
        leaving,
        former,
        client,
        blocked,
        published,
        tls: loaded::by_all(
            // Of a list that came from the ensemble itself they may not be here yet.
            list.tls.as_ref().filter(|tls| observed.tls.as_ref() == Some(tls)),
            observed.material.as_ref(),
            observed.mounted.as_ref(),
            &life.own,
        ),
        volumes: unused_volumes(observed, (!dissolved).then_some(life.id)),
        now,
    });
    let run = acts.then_some((voters.replicas, observers.replicas));
    let has_servers = left || run.is_some_and(|(voters, observers)| voters + observers > 0);
    Decision {
        ours: membership::is_ours(life.cluster, life.leaders_cluster(), observed.due_for),
        run,
        finalizer: if deleting {
            has_finalizer(object) && !observed.lives().is_empty() && !made_anew
        } else {
            has_finalizer(object) || has_servers
        },
        remove_object: (leaves || life.over && !life.is_managed()) && observed.lives().is_empty() && !deleting,
        membership,
        turn,
        remove,
        status,
        pace: if rests { Requeue::AtRest } else { Requeue::Busy },
        list: Some(list),
    }
}

/// The newest epoch that this life of the ensemble is known to have taken: what it once took it has.
fn published(observed: &Observed, list: &Ensemble, old: &ZooKeeperStatus) -> Option<i64> {
    let seen =
        observed.published.as_ref().filter(|(id, _)| Some(id) == list.incarnation.as_ref()).map(|(_, epoch)| *epoch);
    let same_life =
        old.ensemble.as_ref().is_some_and(|told| told.incarnation.is_some() && told.incarnation == list.incarnation);
    seen.max(old.published_epoch.filter(|_| same_life))
}

/// No list was ever obeyed, so there is nothing here.
fn without_a_list(
    observed: &Observed,
    blocked: Option<(&'static str, String)>,
    volumes: Vec<String>,
    now: Timestamp,
) -> Decision {
    let object = &observed.object;
    let none = ZooKeeperStatus::default();
    let seen = Seen {
        generation: object.metadata.generation,
        old: object.status.as_ref().unwrap_or(&none),
        pin: None,
        done: false,
        list: None,
        own: &[],
        views: &[],
        dissolved: false,
        progress: None,
        leaving: None,
        former: None,
        client: None,
        blocked,
        published: None,
        tls: None,
        volumes,
        now,
    };
    Decision {
        list: None,
        run: None,
        remove: observed.tombstones.clone(),
        membership: membership::Action::Done,
        ours: false,
        turn: Next::Nothing,
        status: status::report(&seen),
        finalizer: has_finalizer(object)
            && (object.metadata.deletion_timestamp.is_none() || !observed.lives().is_empty()),
        remove_object: is_left(observed),
        pace: Requeue::AtRest,
    }
}

/// Whether the control plane made the object, Karmada let go of it, and nothing ever came of it here: nobody else would remove
/// it, and where the cluster is chosen again Karmada would take it for somebody else's.
fn is_left(observed: &Observed) -> bool {
    let object = &observed.object;
    let made = object.labels().contains_key(ENSEMBLE_LABEL) && object.annotations().contains_key(APPLIED_HASH);
    let obeyed = object.status.as_ref().is_some_and(|status| status.observed_spec_hash.is_some());
    made && !object.labels().contains_key(KARMADA_MANAGED_LABEL)
        && !obeyed
        && object.metadata.deletion_timestamp.is_none()
        && observed.lives().is_empty()
}

fn has_finalizer(object: &ZooKeeper) -> bool {
    object.finalizers().iter().any(|finalizer| finalizer == AGENT_FINALIZER)
}

/// The life that the obeyed list belongs to, in this cluster.
struct Life<'a> {
    observed: &'a Observed,
    list: &'a Ensemble,
    id: &'a str,
    cluster: &'a str,
    set: String,
    own: Vec<LocalServer>,
    quorum: Option<Quorum>,
    formed: bool,
    /// Whether it ends, or has ended.
    over: bool,
    /// Whether anything is done besides what ends something.
    acts: bool,
}

impl<'a> Life<'a> {
    fn new(observed: &'a Observed, list: &'a Ensemble, obey: &Acceptance) -> Self {
        let id = list.incarnation.as_deref().unwrap_or_default();
        let object = &observed.object;
        let cluster = observed.cluster.as_deref().or(object.spec.cluster.as_deref()).unwrap_or_default();
        let naming = Naming {
            name: object.metadata.name.as_deref().unwrap_or_default(),
            namespace: "",
            incarnation: id,
            names: None,
        };
        let old = object.status.as_ref();
        let own = observed.own.iter().filter(|(incarnation, _)| incarnation == id).map(|(_, own)| own.clone());
        let own = own.map(|mut own| {
            let listed = || {
                let same = |s: &&crate::api::zookeeper::Server| {
                    s.cluster == cluster && s.role == own.role && s.ordinal == own.ordinal
                };
                list.servers.iter().find(same).map(|s| s.id)
            };
            let reported = || old?.servers.iter().find(|s| s.pod.as_ref() == Some(&own.pod)).map(|s| s.id);
            own.id = own.view.as_ref().and_then(|view| view.id).or_else(listed).or_else(reported);
            own
        });
        let quorum = Quorum::of(&observed.views);
        let formed = !list.phase.is_bootstrap()
            || list.phase == EnsemblePhase::Formed
            || quorum.is_some()
            || observed.views.iter().any(|view| view.accepted_epoch > 0);
        let deleting = object.metadata.deletion_timestamp.is_some();
        let over = list.phase.is_ending() || observed.tombstones.contains(id);
        Self {
            over,
            acts: *obey == Acceptance::Yes && !over && !deleting,
            own: own.collect(),
            set: naming.service(),
            observed,
            list,
            id,
            cluster,
            quorum,
            formed,
        }
    }

    /// Lives that are over: this one, if it is to end, and those that were given up.
    fn removed(&self) -> BTreeSet<String> {
        let former = self.list.former_incarnations.iter().filter(|id| *id != self.id).cloned();
        former.chain(self.observed.tombstones.iter().cloned()).chain(self.over.then(|| self.id.to_owned())).collect()
    }

    /// Lives that are left here and that nothing says are over: they are not stopped, but must not go unseen.
    fn unexplained(&self, remove: &BTreeSet<String>) -> Option<String> {
        let unknown = self.observed.lives().into_iter().filter(|id| *id != self.id && !remove.contains(*id));
        let unknown: Vec<&str> = unknown.collect();
        (!unknown.is_empty()).then(|| {
            format!(
                "servers of former lives of the ensemble are left here, and nothing says that these are over: {}. Remove what has the label {INCARNATION_LABEL} with these values, if nobody needs it",
                unknown.join(", ")
            )
        })
    }

    /// Whether Karmada keeps the object.
    fn is_managed(&self) -> bool {
        self.observed.object.labels().contains_key(KARMADA_MANAGED_LABEL)
    }

    fn voters(&self) -> Voters<'_> {
        Voters { cluster: self.cluster, set: &self.set, list: self.list, quorum: self.quorum.as_ref() }
    }

    fn live(&self, role: Role) -> i32 {
        let sets = self.observed.sets.iter().filter(|set| set.incarnation == self.id && set.role == role);
        let pods = self.own.iter().filter(|own| own.role == role).map(|own| own.ordinal + 1).max().unwrap_or(0);
        sets.map(|set| set.replicas).max().unwrap_or(0).max(pods)
    }

    fn id_of(&self, ordinal: i32) -> Option<i32> {
        self.own.iter().find(|own| own.role == Role::Voter && own.ordinal == ordinal).and_then(|own| own.id)
    }

    /// How many voters and observers there are to be.
    fn kept(&self) -> (ReplicaFloor, ReplicaFloor) {
        let spec = &self.observed.object.spec;
        let voters = self.voters().keep(spec.replicas, self.live(Role::Voter), |ordinal| self.id_of(ordinal));
        let (wanted, live) = (spec.observers.unwrap_or(0), self.live(Role::Observer));
        // Observers count in no majority: they go when they are not wanted.
        let observers = self.voters().raise(Role::Observer, wanted, live.min(wanted));
        (voters, observers)
    }

    /// Whether Karmada let go of the object, and the ensemble of its servers: by a configuration that was read.
    fn leaves(&self) -> bool {
        let object = &self.observed.object;
        let managed = self.is_managed();
        let deleting = object.metadata.deletion_timestamp.is_some();
        let known = object.status.as_ref().is_some_and(|status| status.observed_spec_hash.is_some());
        let listed = self.list.servers.iter().any(|s| s.cluster == self.cluster);
        let Some(quorum) = self.quorum.as_ref().filter(|quorum| quorum.holds()) else {
            // Nothing runs and nothing is left: there is nobody to ask, and nothing to lose.
            let nothing = !self.observed.left.contains(self.id) && self.own.is_empty();
            return nothing && !managed && known && !listed && !self.over;
        };
        let votes = |ordinal: i32| {
            let id = self.id_of(ordinal);
            Voters { quorum: Some(quorum), ..self.voters() }.keep(ordinal, ordinal + 1, |_| id).replicas > ordinal
        };
        let voting = (0..self.live(Role::Voter)).any(votes);
        (!managed || deleting) && known && !listed && !voting && !self.over
    }

    /// Whether a quorum is seen, whose list has servers here. Where it is seen in this cluster alone, the ensemble may have
    /// ended in all others while this one was away: the note that says so then follows on the heels of the deletion.
    fn is_needed(&self, now: Timestamp) -> bool {
        let here = |id: &i32| self.own.iter().any(|own| own.id == Some(*id));
        let elsewhere =
            self.observed.views.iter().filter(|view| view.serving).filter_map(|view| view.id).any(|id| !here(&id));
        let deleted = self.observed.object.metadata.deletion_timestamp.as_ref().map_or(now, |t| t.0);
        self.quorum.as_ref().is_some_and(Quorum::holds)
            && self.list.servers.iter().any(|s| s.cluster == self.cluster)
            && (elsewhere || now.duration_since(deleted) >= NOTE_PATIENCE)
    }

    fn leaders_cluster(&self) -> Option<&str> {
        let id = self.quorum.as_ref()?.leader?;
        if self.own.iter().any(|own| own.id == Some(id)) {
            return Some(self.cluster);
        }
        self.list.servers.iter().find(|server| server.id == id).map(|server| server.cluster.as_str())
    }

    /// Whether the StatefulSets make pods as they are wanted: what is deleted before would come back as it was.
    fn settled(&self) -> bool {
        let revision = &self.revision();
        let sets = || self.observed.sets.iter().filter(|set| set.incarnation == self.id && set.replicas > 0);
        sets().all(|set| set.revision.as_ref() == Some(revision))
    }

    /// Revision that its pods are to have.
    fn revision(&self) -> String {
        render::revision(&self.observed.object.spec, self.list)
    }

    fn turn(&self, voters: &ReplicaFloor, observers: &ReplicaFloor) -> Next {
        if self.list.phase.is_suspended() {
            return match restart::parked(&self.revision(), &self.own) {
                Next::Take { .. } if !self.settled() => Next::Wait("the StatefulSet is being changed".to_owned()),
                next => next,
            };
        }
        let ours = |view: &&ServerReport| view.restart_lock.is_some();
        let turn = self
            .observed
            .views
            .iter()
            .filter(|view| view.serving)
            .find(ours)
            .and_then(|view| view.restart_lock.as_ref());
        let leads = |view: &&ServerReport| view.mode == Some(Mode::Leader) && view.serving;
        let leader = self.observed.views.iter().filter(leads).max_by_key(|view| view.zxid);
        let expected = usize::try_from(voters.replicas.saturating_add(observers.replicas)).unwrap_or(0);
        let next = restart::next(restart::RestartInputs {
            revision: &self.observed.object.spec.revision,
            own: &self.own,
            expected,
            listed: self.list.servers.iter().filter(|server| server.role == Role::Voter).count(),
            quorum: self.quorum.as_ref(),
            formed: self.formed,
            synced_voters: leader.and_then(|view| view.synced_voters),
            lock: turn,
            holder: &self.observed.holder,
        });
        match next {
            Next::TakeServing { held: true, .. } if self.lacks_client_certificates() => {
                turn.cloned().map_or(Next::Nothing, Next::Release)
            }
            Next::Take { .. } | Next::TakeServing { .. } if self.lacks_client_certificates() => {
                Next::Wait("the certificates that clients are to see are not here".to_owned())
            }
            Next::Take { .. } | Next::TakeServing { .. } if !self.settled() => {
                Next::Wait("the StatefulSet is being changed".to_owned())
            }
            Next::Wait(why) => match turn.filter(|turn| turn.holder == self.observed.holder) {
                // It does not come back: others may have their turn.
                Some(turn) if self.observed.turn_for >= DEADLINE => Next::Release(turn.clone()),
                _ => Next::Wait(why),
            },
            other => other,
        }
    }

    fn lacks_client_certificates(&self) -> bool {
        self.observed.lacks_client_certificates(self.list)
    }

    /// Why the newest certificates for clients are not taken, or will not be, or that there are none any more.
    fn client_trouble(&self, complete: bool) -> Option<String> {
        let lost = || {
            let secret = &self.observed.object.spec.tls.client.as_ref()?.secret_name;
            Some(format!(
                "Secret {secret} is not here, nor is the copy of it: no server could start again. Mend it in the control plane"
            ))
        };
        let told = self.observed.client.trouble.clone();
        told.or_else(|| if complete && self.lacks_client_certificates() { lost() } else { None })
    }

    /// Whether every server is as declared: started, and serving if the ensemble ever did.
    fn done(&self, turn: &Next) -> bool {
        let spec = &self.observed.object.spec;
        let count = |role: Role| self.own.iter().filter(|own| own.role == role).count();
        let wanted = |number: i32| usize::try_from(number).unwrap_or(0);
        *turn == Next::Nothing
            && self.settled()
            && self.live(Role::Voter) == spec.replicas
            && count(Role::Voter) == wanted(spec.replicas)
            && count(Role::Observer) == wanted(spec.observers.unwrap_or(0))
            && self
                .own
                .iter()
                .all(|own| own.started() && !own.outdated(&spec.revision) && (!self.formed || own.serving()))
    }

    /// Which server is to leave its node, and what it waits for.
    fn leaves_node(&self, turn: &Next) -> Option<String> {
        let (own, node) = self.own.iter().find_map(|own| Some((own, own.drain_from.as_ref()?)))?;
        let why = match turn {
            Next::Wait(why) => format!(": {why}"),
            _ => String::new(),
        };
        Some(format!("{} is to leave node {node}, which is cordoned{why}", own.pod))
    }

    fn progress(&self, voters: &ReplicaFloor, observers: &ReplicaFloor, turn: &Next) -> Progress {
        let spec = &self.observed.object.spec;
        if let Some((own, trouble)) =
            self.own.iter().filter(|own| !own.started()).find_map(|own| Some((own, own.failure.as_ref()?)))
        {
            let message = format!("{} does not start: {trouble}", own.pod);
            return Progress { goes_on: false, reason: "ServerFailed", message };
        }
        if spec.tls.quorum && self.observed.material.is_none() {
            let why = "the list of servers names no certificates of the quorum that are here: servers wait for them";
            return Progress::on("WaitsForCertificates", why);
        }
        if let Some(client) = spec.tls.client.as_ref().filter(|_| self.lacks_client_certificates()) {
            let why = format!(
                "the certificates that clients are to see, of Secret {}, are not here yet: servers wait for them",
                client.secret_name
            );
            return Progress::on("WaitsForCertificates", why);
        }
        if let Some(why) = voters.waits.as_ref().or(observers.waits.as_ref()) {
            return Progress::on("Waiting", why.clone());
        }
        let ended = self.own.iter().find_map(|own| match &own.view.as_ref()?.phase {
            Phase::Exited { reason } => Some(format!("{} does not start: {reason}", own.pod)),
            _ => None,
        });
        if let Some(message) = ended {
            // It is tried again, but what ended it is most likely in the spec: what a person changes is to be taken up.
            return Progress { goes_on: false, reason: "ServerFailed", message };
        }
        let phase = self.own.iter().find_map(|own| match &own.view.as_ref()?.phase {
            Phase::Waiting { reason } => Some(format!("{} waits: {reason}", own.pod)),
            Phase::Suspended => Some(format!("{} is parked", own.pod)),
            Phase::Running | Phase::Exited { .. } => None,
        });
        if let Some(message) = phase {
            return Progress::on("Starting", message);
        }
        match turn {
            Next::Wait(why) => Progress::on("Waiting", why.clone()),
            Next::Take { pod, .. } | Next::TakeServing { pod, .. } => {
                Progress::on("Restarting", format!("{pod} is to be restarted"))
            }
            Next::Release(_) | Next::Nothing => match self.own.iter().find(|own| self.formed && !own.serving()) {
                Some(own) => Progress::on("Starting", format!("{} does not serve yet", own.pod)),
                None => Progress::on("Starting", "servers are being started"),
            },
        }
    }
}

impl Observed {
    /// Whether pods that are made now could not start, since the certificates that clients are to see are not there to be
    /// mounted. Parked ones do without.
    #[must_use]
    pub fn lacks_client_certificates(&self, list: &Ensemble) -> bool {
        render::copied_client(&self.object.spec).is_some() && !list.phase.is_suspended() && !self.client.copied
    }

    /// Lives of which anything but claims is left here.
    fn lives(&self) -> BTreeSet<&str> {
        self.left.iter().chain(self.own.iter().map(|(life, _)| life)).map(String::as_str).collect()
    }

    /// What objects are rendered from, for these numbers of servers.
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
            material: self.material.as_ref(),
            client: self.client.material.as_ref(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests;
