//! S12: no first server starts where servers of this incarnation have been. Their server list is lost, and with a new
//! one the ensemble could form without their data.
//!
//! No mode of the network check lifts this rule: the volumes are the only proof left.

use crate::rollout::advance::inputs::Inputs;
use mczk_api::contract::{cause::Cause, conditions::Reason};

/// Most volumes that a message names.
const MAX_NAMED: usize = 3;

impl Inputs<'_> {
    /// Why no first server starts: agents report volumes of this incarnation. A stale report counts too.
    pub(super) fn lost_list(&self) -> Option<Cause> {
        let prefix = format!("data-{}-", self.naming.service());
        let reports = self.known.reports.values().filter_map(|report| Some((report, report.status.as_ref()?)));
        let volumes: Vec<String> = reports
            .flat_map(|(report, status)| status.volumes.iter().map(move |volume| (volume, &report.cluster)))
            .filter(|(volume, _)| volume.starts_with(&prefix))
            .map(|(volume, cluster)| format!("{volume} in cluster {cluster}"))
            .collect();
        let named = volumes.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = match volumes.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!volumes.is_empty()).then(|| Cause {
            reason: Reason::ServerListUnknown,
            message: format!(
                "Servers have run here before, but their server list is lost: status and OverridePolicy are gone, no \
                 agent reports it, and volumes of this incarnation are left: {named}{more}. No server starts, since the \
                 ensemble could form without their data, and skipping the network check changes nothing. Restore status.ensemble \
                 of the ZooKeeper object in one of these clusters from a backup. If the data has no use any more, run \
                 `mczk declare-over {} {}`, which deletes no volume",
                self.naming.name, self.naming.incarnation
            ),
        })
    }
}
