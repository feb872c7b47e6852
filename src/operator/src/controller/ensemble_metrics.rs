//! Gauges of each ensemble, as of its last reconcile. A scrape encodes what is stored, so no series outlives its ensemble.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Bound,
    sync::{Arc, OnceLock},
};

use k8s_openapi::jiff::Timestamp;
use kube::{ResourceExt, api::DynamicObject, runtime::reflector::Store};
use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
};

use mczk_api::contract::conditions::{ConditionStatus, ConditionType, Reason};
use mczk_rules::rollout::measures::{Measures, VoterMeasures};
use mczk_runtime::{election::Leadership, reconcile::ObjectKey};

/// Ensembles whose samples a scrape takes together.
const BLOCK: usize = 200;

/// Label and value.
type Label<'a> = (&'static str, &'a str);

/// Labels besides namespace and name, and the value.
type Sample = (Vec<Label<'static>>, i64);

struct Gauge {
    name: &'static str,
    help: &'static str,
    samples: fn(&Measures) -> Vec<Sample>,
}

const GAUGES: [Gauge; 11] = [
    Gauge {
        name: "mczk_ensemble_condition",
        help: "Condition of an ensemble, by type and reason: 1 if `True`, 0 if `False`, -1 if `Unknown`.",
        samples: conditions,
    },
    Gauge {
        name: "mczk_ensemble_cluster_conditions",
        help: "Clusters of an ensemble whose agent reports a condition as `True`, by type.",
        samples: |all| {
            all.cluster_conditions.iter().map(|(type_, n)| (vec![("type", type_.as_str())], count(*n))).collect()
        },
    },
    Gauge {
        name: "mczk_ensemble_desired_voters",
        help: "Voters in the server list of an ensemble.",
        samples: |all| of_voters(all, |voters| voters.desired),
    },
    Gauge {
        name: "mczk_ensemble_votes",
        help: "Servers of an ensemble with a vote in ZooKeeper's own configuration; listed voters while no report shows it.",
        samples: |all| of_voters(all, |voters| voters.votes),
    },
    Gauge {
        name: "mczk_ensemble_serving_voters",
        help: "Servers of an ensemble with a vote that serve, as the reports of reachable clusters show, or that left the schedule and are not missed.",
        samples: |all| of_voters(all, |voters| voters.serving),
    },
    Gauge {
        name: "mczk_ensemble_tolerated_voter_losses",
        help: "Voters of an ensemble that may be lost before no majority is left.",
        samples: |all| of_voters(all, |voters| voters.tolerated_voters),
    },
    Gauge {
        name: "mczk_ensemble_tolerated_cluster_losses",
        help: "Clusters of an ensemble, whichever they are, that may be lost before no majority is left.",
        samples: |all| of_voters(all, |voters| voters.tolerated_clusters),
    },
    Gauge {
        name: "mczk_ensemble_moved_clusters",
        help: "Clusters of an ensemble whose voters are at a spare, or move there.",
        samples: |all| of_voters(all, |voters| voters.moved_clusters),
    },
    Gauge {
        name: "mczk_ensemble_record_clusters",
        help: "Clusters in the current record of an ensemble, by state: `pending`, `deploying` or `completed`.",
        samples: record_clusters,
    },
    Gauge {
        name: "mczk_ensemble_record_transition_timestamp_seconds",
        help: "Time of the last change of the current record of an ensemble, in seconds since 1970.",
        samples: |all| all.record.iter().map(|record| (Vec::new(), record.transition.as_second())).collect(),
    },
    Gauge {
        name: "mczk_ensemble_certificate_not_after_timestamp_seconds",
        help: "End of the validity of the quorum's certificates, in seconds since 1970, by certificate: `identity` or `authority`.",
        samples: certificates,
    },
];

/// The numbers of every ensemble. Clones share them.
#[derive(Clone, Default)]
pub struct EnsembleMetrics {
    numbers: Arc<Mutex<BTreeMap<ObjectKey, Measures>>>,
    limits: Arc<OnceLock<EnsembleLimits>>,
}

/// What limits the ensembles that a scrape shows.
struct EnsembleLimits {
    objects: Store<DynamicObject>,
    leadership: Leadership,
}

impl fmt::Debug for EnsembleMetrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("EnsembleMetrics").field(&self.numbers).finish()
    }
}

impl EnsembleMetrics {
    /// Shows ensembles only while this process acts, and only those that the store holds. Numbers of a former leader are
    /// old, and an object whose finalizer another client removes disappears without a reconcile.
    pub(super) fn limit_to(&self, objects: Store<DynamicObject>, leadership: Leadership) {
        // A second store would be one of the same kind.
        let _ = self.limits.set(EnsembleLimits { objects, leadership });
    }

    /// Removes the numbers that this process does not know any more.
    fn remove_gone(&self) {
        let Some(EnsembleLimits { objects, leadership }) = self.limits.get() else { return };
        if leadership.term().is_none() {
            self.numbers.lock().clear();
            return;
        }
        let key = |object: &Arc<DynamicObject>| (object.namespace().unwrap_or_default(), object.name_any());
        let live: BTreeSet<ObjectKey> = objects.state().iter().map(key).collect();
        self.numbers.lock().retain(|key, _| live.contains(key));
    }

    /// The samples of the next ensembles after this one, or of the first ones.
    fn samples_after(&self, last: Option<&ObjectKey>, gauge: &Gauge) -> Vec<(ObjectKey, Vec<Sample>)> {
        let begin = last.map_or(Bound::Unbounded, Bound::Excluded);
        let all = self.numbers.lock();
        let next = all.range((begin, Bound::Unbounded)).take(BLOCK);
        next.map(|(key, measures)| (key.clone(), (gauge.samples)(measures))).collect()
    }

    /// Replaces the numbers of an ensemble.
    pub fn set(&self, key: &ObjectKey, measures: Measures) {
        self.numbers.lock().insert(key.clone(), measures);
    }

    /// Shows a failure that prevents new numbers.
    pub fn fail(&self, key: &ObjectKey, reason: Reason) {
        self.numbers.lock().entry(key.clone()).or_default().fail(reason);
    }

    /// Removes every series of an ensemble that is gone.
    pub fn forget(&self, key: &ObjectKey) {
        self.numbers.lock().remove(key);
    }
}

impl Collector for EnsembleMetrics {
    /// Writing may block until a client reads. The numbers are not locked then, so no reconcile waits.
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        self.remove_gone();
        for gauge in GAUGES {
            let mut family = encoder.encode_descriptor(gauge.name, gauge.help, None, MetricType::Gauge)?;
            let mut block = self.samples_after(None, &gauge);
            while let Some((last, _)) = block.last() {
                for ((namespace, name), samples) in &block {
                    for (more, value) in samples {
                        let own = [("namespace", namespace.as_str()), ("name", name.as_str())];
                        let labels: Vec<Label> = own.into_iter().chain(more.iter().copied()).collect();
                        ConstGauge::new(*value).encode(family.encode_family(&labels)?)?;
                    }
                }
                block = self.samples_after(Some(last), &gauge);
            }
        }
        Ok(())
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn of_voters(all: &Measures, number: fn(VoterMeasures) -> usize) -> Vec<Sample> {
    all.voters.iter().map(|voters| (Vec::new(), count(number(*voters)))).collect()
}

fn conditions(all: &Measures) -> Vec<Sample> {
    let value = |status: ConditionStatus| match status {
        ConditionStatus::True => 1,
        ConditionStatus::False => 0,
        ConditionStatus::Unknown => -1,
    };
    let sample = |(type_, (status, reason)): (&ConditionType, &(ConditionStatus, Reason))| {
        (vec![("type", type_.as_str()), ("reason", reason.as_str())], value(*status))
    };
    all.conditions.iter().map(sample).collect()
}

fn record_clusters(all: &Measures) -> Vec<Sample> {
    let Some(record) = all.record else { return Vec::new() };
    let states = [("pending", record.pending), ("deploying", record.deploying), ("completed", record.completed)];
    states.into_iter().map(|(state, number)| (vec![("state", state)], count(number))).collect()
}

fn certificates(all: &Measures) -> Vec<Sample> {
    let ends = [("identity", all.identity_not_after), ("authority", all.authority_not_after)];
    let sample = |(name, end): (_, Option<Timestamp>)| Some((vec![("certificate", name)], end?.as_second()));
    ends.into_iter().filter_map(sample).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use kube::runtime::{reflector::store::Writer, watcher::Event};
    use prometheus_client::{encoding::text, registry::Registry};
    use tokio::sync::watch;

    use super::*;
    use mczk_reading::kinds;
    use mczk_rules::rollout::measures::RecordMeasures;
    use mczk_runtime::telemetry::exposition;

    fn measures() -> Measures {
        Measures {
            conditions: [(ConditionType::Ready, (ConditionStatus::True, Reason::Serving))].into(),
            cluster_conditions: [(ConditionType::DiskPressure, 2)].into(),
            voters: Some(VoterMeasures {
                desired: 5,
                votes: 5,
                serving: 4,
                tolerated_voters: 1,
                tolerated_clusters: 0,
                moved_clusters: 1,
            }),
            record: Some(RecordMeasures {
                transition: Timestamp::from_second(1_800_000_000).unwrap(),
                pending: 1,
                deploying: 1,
                completed: 0,
            }),
            identity_not_after: Some(Timestamp::from_second(1_900_000_000).unwrap()),
            authority_not_after: None,
        }
    }

    /// The samples without the descriptions.
    fn samples(metrics: &EnsembleMetrics) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(metrics.clone()));
        let text = exposition(&registry).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_scrape_shows_the_newest_numbers_of_each_ensemble() {
        let metrics = EnsembleMetrics::default();
        let key = ("n".to_owned(), "zk".to_owned());
        metrics.set(&key, measures());
        insta::assert_snapshot!(samples(&metrics), @r#"
        mczk_ensemble_condition{namespace="n",name="zk",type="Ready",reason="Serving"} 1
        mczk_ensemble_cluster_conditions{namespace="n",name="zk",type="DiskPressure"} 2
        mczk_ensemble_desired_voters{namespace="n",name="zk"} 5
        mczk_ensemble_votes{namespace="n",name="zk"} 5
        mczk_ensemble_serving_voters{namespace="n",name="zk"} 4
        mczk_ensemble_tolerated_voter_losses{namespace="n",name="zk"} 1
        mczk_ensemble_tolerated_cluster_losses{namespace="n",name="zk"} 0
        mczk_ensemble_moved_clusters{namespace="n",name="zk"} 1
        mczk_ensemble_record_clusters{namespace="n",name="zk",state="pending"} 1
        mczk_ensemble_record_clusters{namespace="n",name="zk",state="deploying"} 1
        mczk_ensemble_record_clusters{namespace="n",name="zk",state="completed"} 0
        mczk_ensemble_record_transition_timestamp_seconds{namespace="n",name="zk"} 1800000000
        mczk_ensemble_certificate_not_after_timestamp_seconds{namespace="n",name="zk",certificate="identity"} 1900000000
        "#);
        // A series of the former reason would contradict the new one.
        metrics.fail(&key, Reason::UnsupportedSpec);
        let conditions = samples(&metrics);
        let conditions: Vec<_> = conditions.lines().filter(|line| line.contains("_condition{")).collect();
        insta::assert_snapshot!(conditions.join("\n"), @r#"
        mczk_ensemble_condition{namespace="n",name="zk",type="Ready",reason="UnsupportedSpec"} 0
        mczk_ensemble_condition{namespace="n",name="zk",type="Progressing",reason="UnsupportedSpec"} 0
        "#);
    }

    /// A client that reads slowly: ensembles are reconciled while the page is written.
    struct Slow<'a> {
        page: String,
        metrics: &'a EnsembleMetrics,
    }

    impl fmt::Write for Slow<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.page.push_str(text);
            self.metrics.set(&("n".to_owned(), "zk0".to_owned()), measures());
            Ok(())
        }
    }

    #[test]
    fn a_scrape_shows_every_ensemble_once() {
        let (metrics, number, mut registry) = (EnsembleMetrics::default(), 2 * BLOCK + 1, Registry::default());
        for ensemble in 0..number {
            metrics.set(&("n".to_owned(), format!("zk{ensemble}")), measures());
        }
        registry.register_collector(Box::new(metrics.clone()));
        let mut slow = Slow { page: String::new(), metrics: &metrics };
        text::encode(&mut slow, &registry).unwrap();
        let shown: Vec<&str> =
            slow.page.lines().filter(|line| line.starts_with("mczk_ensemble_desired_voters")).collect();
        assert_eq!((shown.len(), shown.iter().collect::<BTreeSet<_>>().len()), (number, number));
    }

    #[test]
    fn no_series_of_a_deleted_ensemble_is_left() {
        let metrics = EnsembleMetrics::default();
        let (gone, stays) = (("n".to_owned(), "gone".to_owned()), ("n".to_owned(), "stays".to_owned()));
        metrics.set(&gone, measures());
        metrics.set(&stays, measures());
        metrics.forget(&gone);
        let samples = samples(&metrics);
        assert!(!samples.contains("gone") && samples.contains("stays"), "{samples}");
        metrics.forget(&stays);
        assert_eq!(self::samples(&metrics), "");
    }

    #[test]
    fn an_ensemble_that_disappears_without_a_reconcile_has_no_series() {
        let metrics = EnsembleMetrics::default();
        metrics.set(&("n".to_owned(), "zk".to_owned()), measures());
        let mut objects = Writer::new(kinds::multiclusterzookeeper());
        metrics.limit_to(objects.as_reader(), Leadership::without_election());
        let object = DynamicObject::new("zk", &kinds::multiclusterzookeeper()).within("n");
        objects.apply_watcher_event(&Event::Apply(object.clone()));
        assert!(samples(&metrics).contains(r#"name="zk""#));
        objects.apply_watcher_event(&Event::Delete(object));
        assert_eq!(samples(&metrics), "");
    }

    /// Another operator shows newer numbers.
    #[test]
    fn a_former_leader_shows_no_ensemble() {
        let metrics = EnsembleMetrics::default();
        metrics.set(&("n".to_owned(), "zk".to_owned()), measures());
        let mut objects = Writer::new(kinds::multiclusterzookeeper());
        metrics.limit_to(objects.as_reader(), Leadership::new(watch::channel(None).1, watch::Sender::new(0)));
        objects
            .apply_watcher_event(&Event::Apply(DynamicObject::new("zk", &kinds::multiclusterzookeeper()).within("n")));
        assert_eq!(samples(&metrics), "");
    }
}
