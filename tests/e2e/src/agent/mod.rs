//! The stand-in for the member agent: it watches ZooKeeper objects in each member's API server and reports as the agent
//! to come will. No server really runs; [`world`] says what would.

mod history;
mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Display, Formatter},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Result;
use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, Preconditions},
    runtime::watcher::{self, Event},
};
use mczk::api::{ZooKeeper, zookeeper::ZooKeeperStatus};
use serde_json::json;
use tokio::{sync::watch, task::JoinHandle};

pub use history::What;
pub use history::{Entry, History};
pub use world::{BROKEN, SILENT, World};

/// Finalizer of the agent on a member's object that has servers.
pub const FINALIZER: &str = "mczk.io/agent";
/// Between two attempts after a failure.
const PAUSE: Duration = Duration::from_millis(300);

/// Which object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Key {
    /// Of an object.
    #[must_use]
    pub fn of(object: &ZooKeeper) -> Self {
        Self { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
    }
}

impl Display for Key {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// How an agent behaves towards the objects of one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// How long servers take to start or to be dissolved.
    pub start: Duration,
    /// How long one server takes to restart.
    pub restart: Duration,
    /// Whether nothing is reported any more.
    pub mute: bool,
}

/// The agents of all clusters.
#[derive(Debug)]
pub struct Agents {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    world: Mutex<World>,
    history: Mutex<History>,
    /// By cluster and namespace; a namespace's own under the cluster "".
    behaviours: Mutex<BTreeMap<(String, String), Behaviour>>,
    usual: Behaviour,
    changed: watch::Sender<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Agents {
    /// Starts one agent for each member.
    #[must_use]
    pub fn start(members: &BTreeMap<String, Client>, usual: Behaviour) -> Self {
        let shared = Arc::new(Shared {
            world: Mutex::default(),
            history: Mutex::default(),
            behaviours: Mutex::default(),
            usual,
            changed: watch::Sender::new(0),
        });
        let tasks = members
            .iter()
            .map(|(name, client)| tokio::spawn(cluster(name.clone(), client.clone(), Arc::clone(&shared))))
            .collect();
        Self { shared, tasks }
    }

    /// Sets how the agent of a cluster, or of every cluster if none is named, behaves towards a namespace.
    pub fn behave(&self, cluster: Option<&str>, namespace: &str, how: Behaviour) {
        let key = (cluster.unwrap_or_default().to_owned(), namespace.to_owned());
        lock(&self.shared.behaviours).insert(key, how);
        self.shared.changed.send_modify(|n| *n += 1);
    }

    /// What was seen in members and reported there.
    #[must_use]
    pub fn history(&self) -> History {
        lock(&self.shared.history).clone()
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Ends a task when it is dropped, so that the agents of a cluster end with their watch. It may run on for a moment on
/// another thread: what it does then must harm nothing.
struct Owned {
    uid: String,
    object: watch::Sender<Option<ZooKeeper>>,
    task: JoinHandle<()>,
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn cluster(name: String, client: Client, shared: Arc<Shared>) {
    let mut objects: BTreeMap<Key, Owned> = BTreeMap::new();
    let mut listed = BTreeSet::new();
    let config = watcher::Config::default().timeout(60);
    let mut events = watcher::watcher(Api::<ZooKeeper>::all(client.clone()), config).boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                listed.insert(Key::of(&object));
                seen(&name, &client, &shared, &mut objects, object);
            }
            Ok(Event::InitDone) => {
                let gone: Vec<Key> = objects.keys().filter(|key| !listed.contains(key)).cloned().collect();
                for key in gone {
                    forget(&name, &shared, &mut objects, &key);
                }
            }
            Ok(Event::Apply(object)) => seen(&name, &client, &shared, &mut objects, object),
            Ok(Event::Delete(object)) => forget(&name, &shared, &mut objects, &Key::of(&object)),
            // The CRD is not there yet, or the API server is away.
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn seen(name: &str, client: &Client, shared: &Arc<Shared>, objects: &mut BTreeMap<Key, Owned>, object: ZooKeeper) {
    let key = Key::of(&object);
    let uid = object.uid().unwrap_or_default();
    if objects.get(&key).is_some_and(|owned| owned.uid != uid) {
        // It went while the watch was away, and another one has its name now.
        forget(name, shared, objects, &key);
    }
    lock(&shared.history).seen(name, &object);
    if let Some(owned) = objects.get(&key) {
        owned.object.send_replace(Some(object));
        return;
    }
    let (sender, receiver) = watch::channel(Some(object));
    let task = tokio::spawn(tend(name.to_owned(), client.clone(), Arc::clone(shared), receiver));
    objects.insert(key, Owned { uid, object: sender, task });
}

fn forget(name: &str, shared: &Shared, objects: &mut BTreeMap<Key, Owned>, key: &Key) {
    if let Some(owned) = objects.remove(key) {
        lock(&shared.history).gone(name, key);
        lock(&shared.world).forget(name, key, &owned.uid);
        shared.changed.send_modify(|n| *n += 1);
    }
}

/// Tends one object of one cluster until its task is ended.
async fn tend(cluster: String, client: Client, shared: Arc<Shared>, mut object: watch::Receiver<Option<ZooKeeper>>) {
    let mut changed = shared.changed.subscribe();
    let mut written: Option<ZooKeeperStatus> = None;
    loop {
        changed.mark_unchanged();
        let Some(now) = object.borrow_and_update().clone() else { return };
        let wake = match once(&cluster, &client, &shared, &now, &mut written).await {
            Ok(wake) => wake,
            Err(_) => Some(Instant::now() + PAUSE),
        };
        let timer = async {
            match wake {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            result = object.changed() => {
                if result.is_err() {
                    return;
                }
                // What came may tell of another status than the one that was written.
                written = None;
            }
            result = changed.changed() => if result.is_err() { return },
            () = timer => {}
        }
    }
}

async fn once(
    cluster: &str,
    client: &Client,
    shared: &Shared,
    object: &ZooKeeper,
    written: &mut Option<ZooKeeperStatus>,
) -> Result<Option<Instant>> {
    let key = Key::of(object);
    let how = {
        let all = lock(&shared.behaviours);
        let find = |cluster: &str| all.get(&(cluster.to_owned(), key.namespace.clone())).copied();
        find(cluster).or_else(|| find("")).unwrap_or(shared.usual)
    };
    let old = written.clone().or_else(|| object.status.clone()).unwrap_or_default();
    let Some(step) = lock(&shared.world).step(cluster, object, &old, &how, Instant::now())? else { return Ok(None) };
    if step.changed {
        shared.changed.send_modify(|n| *n += 1);
    }
    let api: Api<ZooKeeper> = Api::namespaced(client.clone(), &key.namespace);
    if step.finalizer != object.finalizers().iter().any(|f| f == FINALIZER) {
        let mut finalizers = object.finalizers().to_vec();
        finalizers.retain(|f| f != FINALIZER);
        if step.finalizer {
            finalizers.push(FINALIZER.to_owned());
        }
        let patch = json!({ "metadata": { "finalizers": finalizers, "resourceVersion": object.resource_version() } });
        api.patch(&key.name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        return Ok(step.wake);
    }
    if step.remove && object.metadata.deletion_timestamp.is_none() {
        let preconditions = Preconditions { uid: object.uid(), resource_version: object.resource_version() };
        let params = kube::api::DeleteParams { preconditions: Some(preconditions), ..Default::default() };
        api.delete(&key.name, &params).await?;
        return Ok(step.wake);
    }
    let same = object.status.as_ref() == Some(&step.status) || written.as_ref() == Some(&step.status);
    if !how.mute && !same {
        // As a whole: a merge would leave fields that are no longer reported. And never of an object that took the place of
        // this one.
        let patch = json!([
            { "op": "test", "path": "/metadata/uid", "value": object.uid() },
            { "op": "add", "path": "/status", "value": step.status },
        ]);
        let patch: Patch<()> = Patch::Json(serde_json::from_value(patch)?);
        // Noted before it is sent: what follows from it may be seen before the answer comes.
        lock(&shared.history).reporting(cluster, object, &step.status);
        api.patch_status(&key.name, &PatchParams::default(), &patch).await?;
        *written = Some(step.status);
    }
    Ok(step.wake)
}
