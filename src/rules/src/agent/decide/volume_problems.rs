//! Step: what is wrong with the servers' volumes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use mczk_api::contract::{
    cause::Cause,
    conditions::{ConditionStatus, ConditionType, Reason, find},
    control_api::{DISK_PRESSURE, Phase, ServerReport},
    naming::claim_of,
};

/// Percent by which a volume must become emptier before the condition ends. A purge must not end it for a moment.
const HYSTERESIS: u64 = 5;

/// The conditions about volumes, each with the pods and claims that it concerns.
pub(super) fn list(reports: &[&ServerReport], before: &[Condition]) -> Vec<(ConditionType, Cause)> {
    let full = fills_up(reports, before);
    let corrupt = reports.iter().filter(|report| report.corrupt).map(|report| corrupt(report));
    let lost = reports.iter().filter(|report| report.lost).map(|report| lost(report));
    let unmarked = reports.iter().filter_map(|report| unmarked(report));
    // One condition has one message: a server that does not start comes first.
    let unusable = corrupt.chain(lost).chain(unmarked).next();
    let unusable = unusable.map(|cause| (ConditionType::VolumeUnusable, cause));
    let full = full.map(|message| (ConditionType::DiskPressure, Cause::new(Reason::DiskFillsUp, message)));
    unusable.into_iter().chain(full).collect()
}

fn fills_up(reports: &[&ServerReport], before: &[Condition]) -> Option<String> {
    let was = find(before, ConditionType::DiskPressure, ConditionStatus::True).map_or("", |before| &before.message);
    let is_full = |report: &&&ServerReport| {
        let limit = if was.contains(&claim_of(&report.pod)) { DISK_PRESSURE - HYSTERESIS } else { DISK_PRESSURE };
        report.disk.as_ref().is_some_and(|disk| disk.used_percent() >= limit)
    };
    let full: Vec<String> = reports.iter().filter(is_full).map(|report| claim_of(&report.pod)).collect();
    (!full.is_empty()).then(|| {
        format!(
            "These volumes are more than {DISK_PRESSURE} % full: {}. The servers remove old snapshots. Raise \
             template.storage.size, write less, or remove folders aside-* that you do not need. Remove nothing else on a \
             volume",
            full.join(", ")
        )
    })
}

fn corrupt(report: &ServerReport) -> Cause {
    let pod = &report.pod;
    let server = report.id.map_or_else(|| pod.clone(), |id| id.to_string());
    let message = format!(
        "ZooKeeper cannot read its files on {}. If the other voters serve, replace the volume of server {server} with mczk \
         replace. The server returns under a new id and copies the data",
        claim_of(pod)
    );
    Cause::new(Reason::VolumeCorrupt, message)
}

fn lost(report: &ServerReport) -> Cause {
    let why = match &report.phase {
        Phase::Waiting { reason } => reason.as_str(),
        Phase::Running | Phase::Suspended | Phase::Exited { .. } | Phase::Unknown => "its volume is lost",
    };
    Cause::new(Reason::VolumeLost, format!("{} does not start: {why}", report.pod))
}

fn unmarked(report: &ServerReport) -> Option<Cause> {
    let (claim, why) = (claim_of(&report.pod), report.unraised.as_ref()?);
    let message = format!(
        "{} cannot note on {claim} how new it is: {why}. A copy of the volume that is made now would not be recognized as \
         old",
        report.pod
    );
    Some(Cause::new(Reason::VolumeNotMarked, message))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::agent::decide::fixtures::report;
    use mczk_api::contract::control_api::{Disk, Mode};

    fn on_disk(available: u64) -> ServerReport {
        let disk = Some(Disk { size: 100, available, set_aside: Vec::new() });
        ServerReport { disk, ..report(1, Mode::Follower, true) }
    }

    fn condition(message: &str) -> Condition {
        serde_json::from_value(serde_json::json!({
            "type": "DiskPressure", "status": "True", "reason": "DiskFillsUp", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }))
        .unwrap()
    }

    #[test]
    fn a_volume_fills_up_at_80_percent_until_75() {
        let problems = |available, before: &[Condition]| list(&[&on_disk(available)], before);
        assert_eq!(problems(21, &[]), []);
        let full = problems(20, &[]);
        assert_eq!((full[0].0, full[0].1.reason), (ConditionType::DiskPressure, Reason::DiskFillsUp));
        let before = [condition(&full[0].1.message)];
        assert_eq!(problems(25, &before), full);
        assert_eq!(problems(26, &before), []);
    }

    #[test]
    fn an_unusable_volume_has_a_cause_and_a_remedy() {
        let corrupt = ServerReport { corrupt: true, ..report(1, Mode::Looking, false) };
        let phase = Phase::Waiting { reason: "the volume went back in time".into() };
        let lost = ServerReport { lost: true, phase, ..report(1, Mode::Looking, false) };
        let (_, Cause { reason, message }) = list(&[&corrupt, &lost], &[]).remove(0);
        assert_eq!(reason, Reason::VolumeCorrupt);
        assert!(message.contains("data-zk-1") && message.contains("server 1 with mczk replace"), "{message}");
        let (_, Cause { reason, message }) = list(&[&lost], &[]).remove(0);
        assert_eq!(
            (reason, message.as_str()),
            (Reason::VolumeLost, "zk-1 does not start: the volume went back in time")
        );
    }

    /// Only the log of the server said so.
    #[test]
    fn a_volume_whose_copy_would_pass_is_reported() {
        let unraised = Some("No space left on device".to_owned());
        let unmarked = ServerReport { unraised, ..report(2, Mode::Follower, true) };
        let (type_, Cause { reason, message }) = list(&[&unmarked], &[]).remove(0);
        assert_eq!((type_, reason), (ConditionType::VolumeUnusable, Reason::VolumeNotMarked));
        assert_eq!(reason.status_in(type_), Some(ConditionStatus::Unknown), "the server serves");
        assert!(message.starts_with("zk-2 cannot note on data-zk-2 how new it is: No space left on device. A copy"));
        let corrupt = ServerReport { corrupt: true, ..report(1, Mode::Looking, false) };
        assert_eq!(list(&[&unmarked, &corrupt], &[])[0].1.reason, Reason::VolumeCorrupt);
    }
}
