//! Changes of ZooKeeper objects in member clusters, in the order in which their API servers reported them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    time::Instant,
};

use kube::ResourceExt;
use mczk_api::ZooKeeper;

use super::Key;

/// A change in a member cluster.
#[derive(Clone, Debug)]
pub struct Entry {
    /// When it was observed.
    pub at: Instant,
    /// The cluster.
    pub cluster: String,
    /// The object.
    pub key: Key,
    /// The change.
    pub what: What,
}

/// A kind of change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The object has this spec.
    Spec {
        /// Its generation.
        generation: i64,
        /// Its voters.
        replicas: i32,
        /// Its spec hash; absent while the cluster is held.
        spec_hash: Option<String>,
        /// Its image.
        image: String,
        /// Epoch of its server list.
        epoch: Option<i64>,
    },
    /// The agent reports this spec hash as completed.
    Completed(String),
    /// The object was deleted.
    Deleted,
}

/// All changes.
#[derive(Clone, Debug, Default)]
pub struct History {
    entries: Vec<Entry>,
    last: BTreeMap<(String, Key), Last>,
}

/// The last observation of an object in a cluster.
#[derive(Clone, Debug, Default)]
struct Last {
    uid: Option<String>,
    spec: Option<What>,
    completed: Option<String>,
}

impl History {
    fn push(&mut self, cluster: &str, key: &Key, what: What) {
        self.entries.push(Entry { at: Instant::now(), cluster: cluster.to_owned(), key: key.clone(), what });
    }

    /// Records what changed of an object.
    pub(super) fn observe(&mut self, cluster: &str, object: &ZooKeeper) {
        let key = Key::of(object);
        let place = (cluster.to_owned(), key.clone());
        if self.last.get(&place).is_some_and(|last| last.uid != object.uid()) {
            // It was deleted while the watch was down, and another object has its name.
            self.remove(cluster, &key);
        }
        let spec = What::Spec {
            generation: object.metadata.generation.unwrap_or(0),
            replicas: object.spec.replicas,
            spec_hash: object.spec.spec_hash.clone(),
            image: object.spec.template.image.clone(),
            epoch: object.spec.ensemble.epoch,
        };
        let completed = object.status.as_ref().and_then(|status| status.completed_spec_hash.clone());
        let last = self.last.entry(place).or_default();
        last.uid = object.uid();
        let has_new_spec = last.spec.as_ref() != Some(&spec);
        let has_completed = completed.is_some() && last.completed != completed;
        if has_new_spec {
            last.spec = Some(spec.clone());
        }
        if has_completed {
            last.completed.clone_from(&completed);
        }
        if has_new_spec {
            self.push(cluster, &key, spec);
        }
        if let Some(hash) = completed.filter(|_| has_completed) {
            self.push(cluster, &key, What::Completed(hash));
        }
    }

    /// Records that an object was deleted.
    pub(super) fn remove(&mut self, cluster: &str, key: &Key) {
        if self.last.remove(&(cluster.to_owned(), key.clone())).is_some() {
            self.push(cluster, key, What::Deleted);
        }
    }

    /// Records that all other objects of a cluster were deleted.
    pub(super) fn retain(&mut self, cluster: &str, existing: &BTreeSet<Key>) {
        let known = self.last.keys().filter(|(of, key)| of == cluster && !existing.contains(key));
        for (_, key) in known.cloned().collect::<Vec<_>>() {
            self.remove(cluster, &key);
        }
    }

    /// Changes of an object, in all clusters.
    pub fn of(&self, key: &Key) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.key == *key)
    }

    /// Clusters with a cluster spec of this image, in the order in which they received it.
    #[must_use]
    pub fn order(&self, key: &Key, image: &str) -> Vec<String> {
        let mut order = Vec::new();
        for entry in self.of(key) {
            if let What::Spec { spec_hash: Some(_), image: received, .. } = &entry.what
                && received == image
                && !order.contains(&entry.cluster)
            {
                order.push(entry.cluster.clone());
            }
        }
        order
    }

    /// The invariant of every rollout: while a cluster has not completed its spec, no other cluster receives a new one, and
    /// a held cluster has no servers.
    ///
    /// # Errors
    /// What broke it, with all changes before.
    pub fn one_after_the_other(&self, key: &Key) -> Result<(), String> {
        let mut specs: BTreeMap<&str, (Option<&str>, bool)> = BTreeMap::new();
        for (index, entry) in self.of(key).enumerate() {
            let cluster = entry.cluster.as_str();
            let broken = match &entry.what {
                What::Deleted => {
                    specs.remove(cluster);
                    None
                }
                What::Completed(completed) => {
                    if let Some((hash, complete)) = specs.get_mut(cluster) {
                        *complete = *hash == Some(completed.as_str());
                    }
                    None
                }
                What::Spec { spec_hash: None, replicas, .. } => {
                    specs.insert(cluster, (None, true));
                    (*replicas != 0).then(|| format!("{cluster} has {replicas} replicas and no spec hash"))
                }
                What::Spec { spec_hash: Some(hash), .. } => {
                    let before = specs.get(cluster).copied().unwrap_or((None, true));
                    if before.0 == Some(hash) {
                        None
                    } else {
                        specs.insert(cluster, (Some(hash), false));
                        let busy = specs.iter().find(|(name, (_, complete))| **name != cluster && !complete);
                        busy.map(|(name, _)| format!("{cluster} received a new spec before {name} completed its own"))
                    }
                }
            };
            if let Some(broken) = broken {
                return Err(format!("{broken}; changes:\n{}", self.first_lines(key, index + 1)));
            }
        }
        Ok(())
    }

    /// Objects of a namespace with a change.
    #[must_use]
    pub fn keys(&self, namespace: &str) -> BTreeSet<Key> {
        self.entries.iter().map(|entry| &entry.key).filter(|key| key.namespace == namespace).cloned().collect()
    }

    /// The first changes of an object, one a line.
    #[must_use]
    pub fn first_lines(&self, key: &Key, count: usize) -> String {
        self.lines(key, self.of(key).take(count))
    }

    /// The last changes of an object, one a line.
    #[must_use]
    pub fn last_lines(&self, key: &Key, count: usize) -> String {
        self.lines(key, self.of(key).skip(self.of(key).count().saturating_sub(count)))
    }

    fn lines<'a>(&self, key: &Key, entries: impl Iterator<Item = &'a Entry>) -> String {
        let mut text = String::new();
        let start = self.of(key).next().map(|entry| entry.at);
        for entry in entries {
            let seconds = start.map_or(0.0, |start| (entry.at - start).as_secs_f64());
            let what = match &entry.what {
                What::Spec { generation, replicas, spec_hash, image, epoch } => {
                    let spec = spec_hash.as_deref().map_or("held", short);
                    let epoch = epoch.unwrap_or(0);
                    format!("generation {generation}: replicas {replicas}, {spec}, {image}, server list {epoch}")
                }
                What::Completed(hash) => format!("completed {}", short(hash)),
                What::Deleted => "deleted".to_owned(),
            };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {seconds:7.2} s  {}  {what}", entry.cluster);
        }
        text
    }
}

/// The beginning of a hash.
fn short(hash: &str) -> &str {
    hash.get(..8).unwrap_or(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(hash: Option<&str>, replicas: i32) -> What {
        What::Spec {
            generation: 1,
            replicas,
            spec_hash: hash.map(str::to_owned),
            image: "zk:1".to_owned(),
            epoch: None,
        }
    }

    fn check(changes: &[(&str, What)]) -> Result<(), String> {
        let key = Key { namespace: "n".to_owned(), name: "zoo".to_owned() };
        let mut history = History::default();
        for (cluster, what) in changes {
            history.push(cluster, &key, what.clone());
        }
        history.one_after_the_other(&key)
    }

    #[test]
    fn one_cluster_at_a_time_receives_a_new_spec() {
        let completed = |hash: &str| What::Completed(hash.to_owned());
        let held = [("a", spec(None, 0)), ("b", spec(None, 0))];
        let begun = [&held[..], &[("a", spec(Some("p"), 2))]].concat();
        assert!(check(&begun).is_ok());
        assert!(check(&[&begun[..], &[("b", spec(Some("q"), 1))]].concat()).is_err());
        assert!(check(&[&begun[..], &[("a", completed("other")), ("b", spec(Some("q"), 1))]].concat()).is_err());
        assert!(check(&[&begun[..], &[("a", completed("p")), ("b", spec(Some("q"), 1))]].concat()).is_ok());
        // The cluster that is stuck may get another spec.
        assert!(check(&[&begun[..], &[("a", spec(Some("r"), 2))]].concat()).is_ok());
        assert!(check(&[("a", spec(None, 2))]).is_err());
    }
}
