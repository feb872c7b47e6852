//! What was seen in the members' API servers, in the order in which it was seen there.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    time::Instant,
};

use kube::ResourceExt;
use mczk::api::{ZooKeeper, zookeeper::ZooKeeperStatus};

use super::Key;

/// One thing that happened in a member.
#[derive(Clone, Debug)]
pub struct Entry {
    /// When it was seen.
    pub at: Instant,
    /// In which cluster.
    pub cluster: String,
    /// Which object.
    pub key: Key,
    /// What.
    pub what: What,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The object has this spec now.
    Spec {
        /// Its generation.
        generation: i64,
        /// Its servers.
        replicas: i32,
        /// Its pin.
        pin: Option<String>,
        /// Its image.
        image: String,
        /// Epoch of its list of servers.
        epoch: Option<i64>,
    },
    /// The agent reports this pin as done.
    Completed(String),
    /// The object went.
    Gone,
}

/// Everything that happened.
#[derive(Clone, Debug, Default)]
pub struct History {
    entries: Vec<Entry>,
    last: BTreeMap<(String, Key), Last>,
}

/// What was seen last of one object in one cluster.
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

    pub(super) fn seen(&mut self, cluster: &str, object: &ZooKeeper) {
        let key = Key::of(object);
        let what = What::Spec {
            generation: object.metadata.generation.unwrap_or(0),
            replicas: object.spec.replicas,
            pin: object.spec.spec_hash.clone(),
            image: object.spec.template.image.clone(),
            epoch: object.spec.ensemble.epoch,
        };
        let last = self.last.entry((cluster.to_owned(), key.clone())).or_default();
        last.uid = object.uid();
        if last.spec.as_ref() != Some(&what) {
            last.spec = Some(what.clone());
            self.push(cluster, &key, what);
        }
    }

    /// A report of an object that is gone counts for nothing: another one may have its name by now.
    pub(super) fn reporting(&mut self, cluster: &str, object: &ZooKeeper, status: &ZooKeeperStatus) {
        let Some(pin) = &status.completed_spec_hash else { return };
        let key = Key::of(object);
        let Some(last) = self.last.get_mut(&(cluster.to_owned(), key.clone())) else { return };
        if last.uid == object.uid() && last.completed.as_ref() != Some(pin) {
            last.completed = Some(pin.clone());
            self.push(cluster, &key, What::Completed(pin.clone()));
        }
    }

    pub(super) fn gone(&mut self, cluster: &str, key: &Key) {
        self.last.remove(&(cluster.to_owned(), key.clone()));
        self.push(cluster, key, What::Gone);
    }

    /// What happened to one object, in all clusters.
    pub fn of(&self, key: &Key) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.key == *key)
    }

    /// The clusters in which a pin with this image was seen, in the order of the first sight.
    #[must_use]
    pub fn order(&self, key: &Key, image: &str) -> Vec<String> {
        let mut order = Vec::new();
        for entry in self.of(key) {
            if let What::Spec { pin: Some(_), image: seen, .. } = &entry.what
                && seen == image
                && !order.contains(&entry.cluster)
            {
                order.push(entry.cluster.clone());
            }
        }
        order
    }

    /// The law of every rollout: while a cluster has not completed its pin, no other cluster gets a new one, and one
    /// without a pin has no servers.
    ///
    /// # Errors
    /// What broke it, with everything that happened before.
    pub fn one_after_the_other(&self, key: &Key) -> Result<(), String> {
        let mut pins: BTreeMap<&str, (Option<&str>, bool)> = BTreeMap::new();
        for (index, entry) in self.of(key).enumerate() {
            let cluster = entry.cluster.as_str();
            let broken = match &entry.what {
                What::Gone => {
                    pins.remove(cluster);
                    None
                }
                What::Completed(done) => {
                    if let Some((pin, complete)) = pins.get_mut(cluster) {
                        *complete = *pin == Some(done.as_str());
                    }
                    None
                }
                What::Spec { pin: None, replicas, .. } => {
                    pins.insert(cluster, (None, true));
                    (*replicas != 0).then(|| format!("{cluster} has {replicas} replicas and no pin"))
                }
                What::Spec { pin: Some(pin), .. } => {
                    let before = pins.get(cluster).copied().unwrap_or((None, true));
                    if before.0 == Some(pin) {
                        None
                    } else {
                        pins.insert(cluster, (Some(pin), false));
                        let busy = pins.iter().find(|(name, (_, complete))| **name != cluster && !complete);
                        busy.map(|(name, _)| format!("{cluster} got a new spec while {name} was not complete"))
                    }
                }
            };
            if let Some(broken) = broken {
                return Err(format!("{broken}; what happened:\n{}", self.story(key, index + 1)));
            }
        }
        Ok(())
    }

    /// The objects of a namespace of which anything was seen.
    #[must_use]
    pub fn keys(&self, namespace: &str) -> BTreeSet<Key> {
        self.entries.iter().map(|entry| &entry.key).filter(|key| key.namespace == namespace).cloned().collect()
    }

    /// The first happenings of an object, one a line.
    #[must_use]
    pub fn story(&self, key: &Key, count: usize) -> String {
        self.lines(key, self.of(key).take(count))
    }

    /// The last happenings of an object, one a line.
    #[must_use]
    pub fn end_of_story(&self, key: &Key, count: usize) -> String {
        self.lines(key, self.of(key).skip(self.of(key).count().saturating_sub(count)))
    }

    fn lines<'a>(&self, key: &Key, entries: impl Iterator<Item = &'a Entry>) -> String {
        let mut text = String::new();
        let start = self.of(key).next().map(|entry| entry.at);
        for entry in entries {
            let seconds = start.map_or(0.0, |start| (entry.at - start).as_secs_f64());
            let what = match &entry.what {
                What::Spec { generation, replicas, pin, image, epoch } => {
                    let pin = pin.as_deref().map_or("no pin", |pin| pin.get(..8).unwrap_or(pin));
                    let epoch = epoch.unwrap_or(0);
                    format!("generation {generation}: replicas {replicas}, {pin}, {image}, list {epoch}")
                }
                What::Completed(pin) => format!("completed {}", pin.get(..8).unwrap_or(pin)),
                What::Gone => "gone".to_owned(),
            };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {seconds:7.2} s  {}  {what}", entry.cluster);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(pin: Option<&str>, replicas: i32) -> What {
        What::Spec { generation: 1, replicas, pin: pin.map(str::to_owned), image: "zk:1".to_owned(), epoch: None }
    }

    fn law(happened: &[(&str, What)]) -> Result<(), String> {
        let key = Key { namespace: "n".to_owned(), name: "zoo".to_owned() };
        let mut history = History::default();
        for (cluster, what) in happened {
            history.push(cluster, &key, what.clone());
        }
        history.one_after_the_other(&key)
    }

    #[test]
    fn the_law_is_kept_by_turns_and_broken_by_haste() {
        let done = |pin: &str| What::Completed(pin.to_owned());
        let held = [("a", spec(None, 0)), ("b", spec(None, 0))];
        let begun = [&held[..], &[("a", spec(Some("p"), 2))]].concat();
        assert!(law(&begun).is_ok());
        assert!(law(&[&begun[..], &[("b", spec(Some("q"), 1))]].concat()).is_err());
        assert!(law(&[&begun[..], &[("a", done("other")), ("b", spec(Some("q"), 1))]].concat()).is_err());
        assert!(law(&[&begun[..], &[("a", done("p")), ("b", spec(Some("q"), 1))]].concat()).is_ok());
        // The cluster that is stuck may get another spec.
        assert!(law(&[&begun[..], &[("a", spec(Some("r"), 2))]].concat()).is_ok());
        assert!(law(&[("a", spec(None, 2))]).is_err());
    }
}
