//! How clusters move through the current record.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    api::multiclusterzookeeper::{Record, RecordStatus},
    mutation::broken,
    rollout::{advance::pass::Pass, binding::Scheduled, override_rules::Overrides, record},
};

impl Pass<'_> {
    /// Moves clusters through the current record, as far as they can go now.
    pub(super) fn move_clusters(
        &mut self,
        records: &mut [Record],
        schedule: &[Scheduled],
        overrides: &mut Overrides,
    ) -> serde_json::Result<()> {
        let Some(last) = records.last_mut() else { return Ok(()) };
        if broken!(AssignEveryCluster) {
            for (cluster, spec) in &self.desired {
                if overrides.cluster_specs.contains_key(cluster) {
                    overrides.cluster_specs.insert(cluster.clone(), spec.clone());
                }
            }
        }
        let mut yielded = BTreeSet::new();
        while last.status == RecordStatus::Deploying {
            if last.current_state.completed.len() == last.order.len() {
                last.status = RecordStatus::Ready;
                last.last_transition_time = Time(self.now);
                break;
            }
            let moved = match last.current_state.deploying.first().cloned() {
                None => self.start_next(last, overrides)?,
                Some(cluster) => self.move_cluster(&cluster, last, schedule, overrides, &mut yielded)?,
            };
            if !moved {
                break;
            }
        }
        Ok(())
    }

    /// Finishes the deploying cluster, or lets another one start before it. Returns false if the record has to wait.
    fn move_cluster(
        &mut self,
        cluster: &str,
        last: &mut Record,
        schedule: &[Scheduled],
        overrides: &mut Overrides,
        yielded: &mut BTreeSet<String>,
    ) -> serde_json::Result<bool> {
        if self.yields(cluster, last, schedule, overrides)? {
            record::put_back(last, cluster);
            // A cluster yields once: its inputs do not change within a pass.
            return Ok(yielded.insert(cluster.to_owned()) && self.start_next(last, overrides)?);
        }
        if self.deploy(cluster, last, schedule, overrides)? {
            record::finish(last, cluster, self.now);
            return Ok(true);
        }
        let waits = self.restarts_wait_for_joiners(cluster, overrides) || self.waits_for_joiners(cluster, overrides);
        if waits
            && let Some(joiner) = self.next_joiner(last, overrides)
            && yielded.insert(cluster.to_owned())
        {
            record::put_back(last, cluster);
            self.start_cluster(last, &joiner);
            return Ok(true);
        }
        if waits {
            self.grow_pending(last, overrides)?;
        }
        if broken!(NextBeforeComplete) && !last.current_state.pending.is_empty() {
            record::finish(last, cluster, self.now);
            return Ok(true);
        }
        Ok(false)
    }
}
