//! The member clusters of the federation, kept from a watch.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use futures::{StreamExt, channel::mpsc, stream::BoxStream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, ListParams},
};
use parking_lot::{Mutex, RwLock};
use serde::Deserialize;
use tokio::sync::{Notify, watch};
use tracing::{debug, warn};

use super::{
    kinds,
    versions::{Sighting, hash, version},
};
use mczk_api::{
    API_VERSION,
    karmada::cluster::{self, ApiEnablement, Cluster, NodeSummary},
};
use mczk_rules::rollout::services::{MCS_API_VERSION, NEWER_MCS_API_VERSION};
use mczk_runtime::failure::{During, Error};

/// A change of a member cluster, in a field that decisions use. It is absent before it joins, and after it leaves.
#[derive(Debug)]
pub struct ClusterChange {
    /// The cluster before the change.
    pub before: Option<Cluster>,
    /// The cluster after it.
    pub after: Option<Cluster>,
}

/// How old the known clusters may be in a decision. They are compared with the API server's when a decision needs it.
const VERIFIED_FOR: Duration = Duration::from_secs(5);
/// The age at which they are compared again in the background, if decisions use them. The API server may take 100 ms for its
/// list, and no decision waits for that then.
const RENEWED_AFTER: Duration = Duration::from_secs(2);
/// How old they may be while the API server does not list its clusters.
const VERIFIED_AT_MOST: Duration = Duration::from_secs(30);
/// How long an attempt waits until all clusters are listed.
const LISTED_IN: Duration = Duration::from_secs(5);

/// The version of a Cluster. After a restore of the API server's storage, another content may have the same number. Its
/// metadata differ: they hold the time of the last write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterVersion {
    /// `None` if the API server does not number its versions.
    number: Option<u64>,
    metadata: u64,
}

impl ClusterVersion {
    /// The version of an object with this metadata.
    #[must_use]
    pub fn of(meta: &ObjectMeta) -> Self {
        Self { number: version(meta), metadata: hash(&serde_json::to_string(meta).unwrap_or_default()) }
    }
}

/// All known clusters by name, with the version of each.
type KnownClusters = BTreeMap<String, (Cluster, ClusterVersion)>;

/// All member clusters, reduced to the fields that decisions use: Karmada's list of the kinds that a cluster serves is
/// long.
#[derive(Debug)]
pub struct Clusters {
    all: RwLock<KnownClusters>,
    listed: watch::Sender<bool>,
    /// Begin of the last read that showed that all known clusters are those of the API server.
    verified: tokio::sync::Mutex<Option<Instant>>,
    /// A decision has used a comparison that is old enough to renew.
    used: Notify,
    changes: mpsc::UnboundedSender<ClusterChange>,
    unread: Mutex<Option<mpsc::UnboundedReceiver<ClusterChange>>>,
}

impl Default for Clusters {
    fn default() -> Self {
        let (changes, unread) = mpsc::unbounded();
        Self {
            all: RwLock::default(),
            listed: watch::Sender::new(false),
            verified: tokio::sync::Mutex::default(),
            used: Notify::new(),
            changes,
            unread: Mutex::new(Some(unread)),
        }
    }
}

impl Clusters {
    /// These clusters, as the API server has just listed them.
    pub(super) fn just_listed(all: impl IntoIterator<Item = Cluster>) -> Self {
        let all = all.into_iter().map(|cluster| (cluster.name().to_owned(), (cluster, ClusterVersion::default())));
        let verified = tokio::sync::Mutex::new(Some(Instant::now()));
        Self { all: RwLock::new(all.collect()), verified, ..Self::default() }
    }

    /// Resolves once all clusters are listed. No decision may rest on a part of a federation.
    pub async fn listed(&self) {
        // The sender lives as long as `self`, so there is no error.
        let _ = self.listed.subscribe().wait_for(|listed| *listed).await;
    }

    /// The same, for an attempt.
    ///
    /// # Errors
    /// If they are not listed in time.
    pub async fn listed_in_time(&self) -> Result<(), Error> {
        tokio::time::timeout(LISTED_IN, self.listed()).await.map_err(|_| Error::Other {
            category: "clusters",
            message: "The operator cannot list the Clusters of Karmada: its log has the reason".to_owned(),
        })
    }

    /// The changes that [`Clusters::verify`] finds before the watch does. The first caller gets them.
    pub fn take_changes(&self) -> BoxStream<'static, ClusterChange> {
        let unread = self.unread.lock().take();
        unread.map_or_else(|| futures::stream::empty().boxed(), StreamExt::boxed)
    }

    /// Compares the known clusters with the versions that the API server has now, unless this was done a moment ago. A watch
    /// that hangs may be minutes old.
    ///
    /// # Errors
    /// If the API server cannot be asked.
    pub async fn verify(&self, client: &Client) -> Result<(), Error> {
        let mut verified = self.verified.lock().await;
        if let Some(age) = verified.as_ref().map(Instant::elapsed).filter(|age| *age < VERIFIED_FOR) {
            if age >= RENEWED_AFTER {
                self.used.notify_one();
            }
            return Ok(());
        }
        let begin = Instant::now();
        match Box::pin(self.compare(client)).await {
            Ok(()) => *verified = Some(begin),
            Err(error) if verified.is_some_and(|at| at.elapsed() < VERIFIED_AT_MOST) => {
                warn!(%error, "Cannot verify the Clusters");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Renews comparisons that decisions use, before they are too old. Never returns.
    pub async fn renew(&self, client: &Client) {
        loop {
            self.used.notified().await;
            // A decision during the last comparison asks once more.
            if self.verified.lock().await.is_some_and(|at| at.elapsed() < RENEWED_AFTER) {
                continue;
            }
            let begin = Instant::now();
            match self.compare(client).await {
                Ok(()) => *self.verified.lock().await = Some(begin),
                // The next decision compares again, and reports a failure.
                Err(error) => debug!(%error, "Cannot compare the Clusters in the background"),
            }
        }
    }

    async fn compare(&self, client: &Client) -> Result<(), Error> {
        let mut differ = self.versions();
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &kinds::resource(cluster::API_VERSION, "Cluster"));
        let list = api.list_metadata(&ListParams::default()).await.during(|| "listing Clusters".to_owned())?;
        for found in list.items {
            let (name, stored) = (found.name_any(), ClusterVersion::of(&found.metadata));
            if stored.number.is_some() && differ.get(&name) == Some(&stored) {
                differ.remove(&name);
            } else {
                differ.insert(name, stored);
            }
        }
        for name in differ.into_keys() {
            if let Some(change) = self.read(&api, &name).await? {
                // Only commands have no receiver.
                let _ = self.changes.unbounded_send(change);
            }
        }
        Ok(())
    }

    /// Reads a cluster, again if it changes meanwhile. What is read replaces what is known: after a restore of the API
    /// server's storage its version may be lower.
    async fn read(&self, api: &Api<DynamicObject>, name: &str) -> Result<Option<ClusterChange>, Error> {
        // The operator may list Clusters, and not get one.
        let only = ListParams::default().fields(&format!("metadata.name={name}"));
        loop {
            let before = self.versions().remove(name);
            let found = api.list(&only).await.during(|| format!("reading Cluster {name}"))?.items.into_iter().next();
            let mut all = self.all.write();
            if all.get(name).map(|(_, known)| *known) == before {
                return Ok(match found {
                    None => remove(&mut all, name),
                    Some(found) => reduced(&found)
                        .and_then(|cluster| replace(&mut all, cluster, ClusterVersion::of(&found.metadata))),
                });
            }
        }
    }

    /// Versions by name.
    fn versions(&self) -> BTreeMap<String, ClusterVersion> {
        let all = self.all.read();
        all.iter().map(|(name, (_, version))| (name.clone(), *version)).collect()
    }

    /// All clusters, by name.
    pub fn all(&self) -> Vec<Cluster> {
        let all = self.all.read();
        all.values().map(|(cluster, _)| cluster.clone()).collect()
    }

    /// Stores a cluster. `None` if no field changed that decisions use, or a later version is known.
    pub fn put(&self, cluster: Cluster, version: ClusterVersion, sighting: Sighting) -> Option<ClusterChange> {
        let mut all = self.all.write();
        let is_older = |(_, known): &(_, ClusterVersion)| version.number.is_some() && known.number > version.number;
        if sighting == Sighting::Changed && all.get(cluster.name()).is_some_and(is_older) {
            return None;
        }
        replace(&mut all, cluster, version)
    }

    /// Removes a cluster. `None` if it was not stored.
    pub fn remove(&self, name: &str) -> Option<ClusterChange> {
        remove(&mut self.all.write(), name)
    }

    /// Ends a list: removes the clusters that it does not name.
    pub fn end_list(&self, names: &[String]) -> Vec<ClusterChange> {
        let mut all = self.all.write();
        let gone: Vec<String> = all.keys().filter(|name| !names.contains(name)).cloned().collect();
        let gone = gone.iter().filter_map(|name| remove(&mut all, name)).collect();
        self.listed.send_replace(true);
        gone
    }
}

fn replace(all: &mut KnownClusters, cluster: Cluster, version: ClusterVersion) -> Option<ClusterChange> {
    let before = all.insert(cluster.name().to_owned(), (cluster.clone(), version)).map(|(before, _)| before);
    let changed = before.as_ref() != Some(&cluster);
    changed.then_some(ClusterChange { before, after: Some(cluster) })
}

fn remove(all: &mut KnownClusters, name: &str) -> Option<ClusterChange> {
    let (before, _) = all.remove(name)?;
    Some(ClusterChange { before: Some(before), after: None })
}

/// The cluster with only the fields that decisions use. `None` if it does not parse.
pub fn reduced(object: &DynamicObject) -> Option<Cluster> {
    let part = |field: &str| object.data.get(field);
    let mut cluster = Cluster {
        metadata: ObjectMeta {
            name: object.metadata.name.clone(),
            labels: object.metadata.labels.clone(),
            deletion_timestamp: object.metadata.deletion_timestamp.clone(),
            ..ObjectMeta::default()
        },
        spec: part("spec").map(Deserialize::deserialize).transpose().ok()?.unwrap_or_default(),
        status: part("status").map(Deserialize::deserialize).transpose().ok()?.unwrap_or_default(),
    };
    cluster.status.conditions.retain(|c| c.type_ == "Ready");
    // Other numbers change often, and decide nothing.
    cluster.status.node_summary = cluster.has_no_ready_node().then_some(NodeSummary { total_num: 1, ready_num: 0 });
    cluster.status.api_enablements = cluster
        .status
        .api_enablements
        .into_iter()
        .filter(|e| [API_VERSION, MCS_API_VERSION, NEWER_MCS_API_VERSION].contains(&e.group_version.as_str()))
        .map(|mut e: ApiEnablement| {
            e.resources.sort_by(|a, b| a.kind.cmp(&b.kind));
            e
        })
        .collect();
    Some(cluster)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use http::{Request, Response};
    use kube::client::Body;
    use rstest::rstest;
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;

    /// Karmada notes when it writes the status.
    fn object(name: &str, version: u64, ready: &str) -> Value {
        let time = if ready == "True" { "2026-01-01T00:00:00Z" } else { "2026-01-01T00:01:00Z" };
        let managers = json!([{ "manager": "karmada", "operation": "Update", "subresource": "status", "time": time }]);
        json!({
            "apiVersion": cluster::API_VERSION, "kind": "Cluster", "spec": {},
            "metadata": { "name": name, "resourceVersion": version.to_string(), "managedFields": managers },
            "status": { "conditions": [{ "type": "Ready", "status": ready }] },
        })
    }

    fn put(clusters: &Clusters, name: &str, stored: u64, ready: &str, sighting: Sighting) -> Option<ClusterChange> {
        let object: DynamicObject = serde_json::from_value(object(name, stored, ready)).unwrap();
        clusters.put(reduced(&object).unwrap(), ClusterVersion::of(&object.metadata), sighting)
    }

    /// An API server with m1 at version 8, which is not Ready, and no other cluster. The operator may only list them.
    fn client() -> Client {
        let service = service_fn(|request: Request<Body>| async move {
            let is_other = request.uri().query().is_some_and(|query| query.contains("metadata.name%3Dm2"));
            let items = if is_other { vec![] } else { vec![object("m1", 8, "False")] };
            let (status, body) = if request.uri().path().ends_with("/clusters") {
                (200, json!({ "metadata": {}, "items": items }))
            } else {
                (403, json!({ "status": "Failure", "message": "", "reason": "Forbidden", "code": 403 }))
            };
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, tower::BoxError>(Response::builder().status(status).body(body)?)
        });
        Client::new(service, "n")
    }

    #[test]
    fn a_watch_that_lags_does_not_replace_a_later_version() {
        let clusters = Clusters::default();
        assert!(put(&clusters, "m1", 8, "False", Sighting::Changed).is_some());
        assert!(put(&clusters, "m1", 7, "True", Sighting::Changed).is_none());
        assert!(put(&clusters, "m1", 9, "False", Sighting::Changed).is_none(), "no field changed that decisions use");
        // An API server whose storage was restored counts from an older version.
        assert!(put(&clusters, "m1", 5, "True", Sighting::Listed).is_some());
    }

    /// C16: a watch that hangs may be minutes old.
    #[tokio::test]
    async fn a_cluster_that_the_watch_missed_is_found_before_a_decision() {
        let clusters = Clusters::default();
        put(&clusters, "m1", 7, "True", Sighting::Listed);
        put(&clusters, "m2", 3, "True", Sighting::Listed);
        clusters.verify(&client()).await.unwrap();
        let all = clusters.all();
        assert_eq!(all.iter().map(|cluster| (cluster.name(), cluster.ready())).collect::<Vec<_>>(), [("m1", false)]);
        let changes: Vec<ClusterChange> = clusters.take_changes().take(2).collect().await;
        assert!(changes.iter().any(|change| change.after.is_none()), "m2 has left: {changes:?}");
        // Just verified: no request follows, which the next client would refuse.
        let refusing = Client::new(
            service_fn(|_: Request<Body>| async { Err::<Response<Body>, tower::BoxError>("refused".into()) }),
            "n",
        );
        clusters.verify(&refusing).await.unwrap();
        assert!(Clusters::default().verify(&refusing).await.is_err());
    }

    /// The API server's storage was restored from a backup, and the watch hangs: versions count from an older one.
    #[rstest]
    #[case::the_version_is_lower(20)]
    #[case::another_change_has_the_same_version(8)]
    #[tokio::test]
    async fn a_comparison_replaces_what_a_restore_has_undone(#[case] known: u64) {
        let clusters = Clusters::default();
        put(&clusters, "m1", known, "True", Sighting::Listed);
        clusters.verify(&client()).await.unwrap();
        assert!(!clusters.all().iter().any(Cluster::ready), "a stale Ready is confirmed");
        let change = clusters.take_changes().next().await.unwrap();
        assert!(change.before.is_some_and(|before| before.ready()) && !change.after.unwrap().ready());
    }

    /// The watch sees m1 become Ready while the comparison reads the version before.
    #[tokio::test]
    async fn a_change_during_a_comparison_stays() {
        let clusters = Arc::new(Clusters::default());
        put(&clusters, "m1", 7, "True", Sighting::Listed);
        let (watched, reads) = (clusters.clone(), AtomicUsize::new(0));
        let service = service_fn(move |request: Request<Body>| {
            let is_read = request.uri().query().is_some_and(|query| query.contains("metadata.name%3Dm1"));
            let first = is_read && reads.fetch_add(1, Ordering::Relaxed) == 0;
            let item = if is_read && !first { object("m1", 9, "True") } else { object("m1", 8, "False") };
            if first {
                put(&watched, "m1", 9, "True", Sighting::Changed);
            }
            let body = Body::from(json!({ "metadata": {}, "items": [item] }).to_string().into_bytes());
            std::future::ready(Ok::<_, tower::BoxError>(Response::new(body)))
        });
        clusters.verify(&Client::new(service, "n")).await.unwrap();
        assert!(clusters.all().iter().all(Cluster::ready));
    }

    #[tokio::test]
    async fn a_comparison_is_renewed_before_a_decision_waits_for_it() {
        let (clusters, client) = (Clusters::default(), client());
        let second = RENEWED_AFTER + Duration::from_secs(1);
        for (age, renews) in [(Duration::ZERO, false), (second, true)] {
            let old = Instant::now().checked_sub(age).unwrap();
            *clusters.verified.lock().await = Some(old);
            clusters.verify(&client).await.unwrap();
            let _ = tokio::time::timeout(Duration::from_millis(100), clusters.renew(&client)).await;
            assert_eq!(*clusters.verified.lock().await > Some(old), renews, "{age:?}");
        }
        let renewed = *clusters.verified.lock().await;
        clusters.used.notify_one();
        let _ = tokio::time::timeout(Duration::from_millis(100), clusters.renew(&client)).await;
        assert_eq!(*clusters.verified.lock().await, renewed, "a decision has asked during the comparison");
    }
}
