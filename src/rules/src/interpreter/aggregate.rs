//! `AggregateStatus`: the template's status, from the statuses of the member clusters.
//!
//! It is for users who read the template; the controller reads the statuses of the member clusters itself. The result
//! depends only on the template and the set of items, not on their order, and not on the time while nothing changes:
//! every difference is a write to Karmada's API server.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use super::{
    equal::equal,
    object::{List, MapOnly, read},
    refusal::Refusal,
};
use mczk_api::{
    contract::conditions::{ConditionType, Reason},
    zookeeper::{ServerStatus, ZooKeeperStatus},
};

/// Bound of the status's lists in the schema. The API server would refuse a status with a longer one.
const MAX_SERVERS: usize = 254;
/// Largest number of items: Karmada sends one for each cluster.
const MAX_ITEMS: usize = 10_000;
/// Largest number of clusters that a message names. The schema bounds its length.
const MAX_NAMED: usize = 8;
/// Largest number of characters of a cluster's name in a message. Karmada allows 48, but an item may hold anything.
const MAX_NAME: usize = 63;

#[derive(Deserialize)]
#[serde(expecting = "a map")]
struct AggregateView<'a> {
    #[serde(default)]
    metadata: Option<TemplateMetadata>,
    #[serde(borrow, default)]
    status: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(expecting = "a map")]
struct TemplateMetadata {
    #[serde(default)]
    generation: Option<i64>,
}

/// The fields of an item that are needed. The controller evaluates whether it is applied and healthy.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(expecting = "a map")]
pub(super) struct Item<S> {
    cluster_name: Option<String>,
    status: Option<S>,
}

/// The fields of a cluster's status that are needed. The others may have any type, as in a later version.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(expecting = "a map")]
pub(super) struct ReportedStatus {
    replicas: Option<i32>,
    started_replicas: Option<i32>,
    ready_replicas: Option<i32>,
    #[serde(default)]
    servers: List<ServerStatus, MAX_SERVERS>,
    #[serde(default)]
    voting_members: List<i32, MAX_SERVERS>,
    config_version: Option<i64>,
    leader: Option<i32>,
    writable: Option<bool>,
}

/// The items of a question if every item can be read.
pub(super) type Items = List<Option<Item<MapOnly<ReportedStatus>>>, MAX_ITEMS>;

/// The items of a question.
#[derive(Debug)]
pub(super) enum Statuses<'a> {
    /// Each item can be read, if agents and Karmada have the versions that belong together.
    Read(Items),
    /// At least one item cannot be read.
    Text(&'a RawValue),
}

/// The change of the template's status: an operation of a JSON patch. `json_patch`'s operation holds a JSON value. To make
/// one costs about a third of what reading the question costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatusChange {
    op: &'static str,
    path: &'static str,
    value: ZooKeeperStatus,
}

/// Statuses of the member clusters.
#[derive(Default)]
struct Reports {
    readable: Vec<(String, ReportedStatus)>,
    /// The clusters whose status cannot be read. Empty if the name cannot be read either.
    unreadable: Vec<String>,
}

/// The change that makes the template's status the aggregate of the member clusters. `None` if it is. `now` is the time of
/// a new condition.
///
/// # Errors
/// If the template or the list of items cannot be read. A single item that cannot be read is left out, and a condition
/// names its cluster.
pub(super) fn aggregate(
    object: &RawValue,
    statuses: Option<Statuses<'_>>,
    now: Timestamp,
) -> Result<Option<StatusChange>, Refusal> {
    let AggregateView { metadata, status: old } = read("object", object)?;
    let Reports { readable, unreadable } = match statuses {
        None => Reports::default(),
        Some(Statuses::Read(List(items))) => {
            Reports { readable: items.into_iter().filter_map(reported).collect(), unreadable: vec![] }
        }
        Some(Statuses::Text(items)) => one_by_one(items)?,
    };
    let mut status = summary(sorted(readable));
    status.observed_generation = metadata.and_then(|metadata| metadata.generation);
    status.conditions = unreadable_condition(unreadable, old, now).into_iter().collect();
    if old.is_some_and(|old| holds(old, &status)) {
        return Ok(None);
    }
    Ok(Some(StatusChange { op: if old.is_some() { "replace" } else { "add" }, path: "/status", value: status }))
}

/// True if the text holds exactly this status. The known fields come first: most differences are there, and one of them saves
/// a JSON value.
fn holds(text: &RawValue, status: &ZooKeeperStatus) -> bool {
    let known = |old: ReportedStatus| {
        (old.replicas, old.started_replicas, old.ready_replicas)
            == (status.replicas, status.started_replicas, status.ready_replicas)
            && (old.config_version, old.leader, old.writable) == (status.config_version, status.leader, status.writable)
            && old.servers.0 == status.servers
            && old.voting_members.0 == status.voting_members
    };
    serde_json::from_str::<MapOnly<ReportedStatus>>(text.get()).is_ok_and(|MapOnly(old)| known(old))
        && serde_json::to_value(status).is_ok_and(|value| equal(text, &value))
}

/// Cluster and status. `None` if there is no status yet.
fn reported(item: Option<Item<MapOnly<ReportedStatus>>>) -> Option<(String, ReportedStatus)> {
    let Item { cluster_name, status } = item?;
    Some((cluster_name.unwrap_or_default(), status?.0))
}

/// Reads each item by itself: one that cannot be read must not hide the others.
fn one_by_one(items: &RawValue) -> Result<Reports, Refusal> {
    let items: Option<List<&RawValue, MAX_ITEMS>> = read("request.aggregatedStatus", items)?;
    let mut reports = Reports::default();
    for item in items.unwrap_or_default().0 {
        match without_nulls(item) {
            Ok(item) => reports.readable.extend(reported(item)),
            Err(cluster) => reports.unreadable.push(cluster),
        }
    }
    Ok(reports)
}

/// An item whose status may have fields that are null. The error is the cluster that cannot be read.
fn without_nulls(item: &RawValue) -> Result<Option<Item<MapOnly<ReportedStatus>>>, String> {
    let item: Option<Item<Value>> = serde_json::from_str(item.get()).map_err(|_| String::new())?;
    let Some(Item { cluster_name, status: Some(mut status) }) = item else { return Ok(None) };
    drop_nulls(&mut status);
    match serde_json::from_value(status) {
        Ok(status) => Ok(Some(Item { cluster_name, status: Some(status) })),
        Err(_) => Err(cluster_name.unwrap_or_default()),
    }
}

/// The statuses in the order of their clusters. Karmada does not send two items of one cluster, but they must not make the
/// answer depend on their order: then their content decides.
fn sorted(mut reports: Vec<(String, ReportedStatus)>) -> Vec<ReportedStatus> {
    reports.sort_by(|(a, _), (b, _)| a.cmp(b));
    if reports.windows(2).any(|pair| matches!(pair, [(a, _), (b, _)] if a == b)) {
        reports.sort_by_cached_key(|(cluster, status)| (cluster.clone(), format!("{status:?}")));
    }
    reports.into_iter().map(|(_, status)| status).collect()
}

/// Removes fields that are null: they mean the same as absent ones.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(elements) => {
            elements.retain(|element| !element.is_null());
            elements.iter_mut().for_each(drop_nulls);
        }
        _ => {}
    }
}

/// Numbers of all member clusters, which are sorted.
fn summary(mut reports: Vec<ReportedStatus>) -> ZooKeeperStatus {
    let sum = |number: fn(&ReportedStatus) -> Option<i32>| {
        let sum: i64 = reports.iter().filter_map(number).map(i64::from).sum();
        Some(i32::try_from(sum.max(0)).unwrap_or(i32::MAX))
    };
    // The newest configuration of a writable cluster is that of the ensemble. Older ones, and those of disconnected clusters,
    // are outdated. Of equal ones, that of the first cluster by name counts.
    let writable = reports.iter().filter(|report| report.writable == Some(true));
    let newest = writable.fold(None, |newest, report| match (newest, report.config_version) {
        (_, None) => newest,
        (Some((version, _)), Some(other)) if other <= version => newest,
        (_, Some(version)) => Some((version, report)),
    });
    let mut voting_members = newest.map(|(_, status)| status.voting_members.0.clone()).unwrap_or_default();
    voting_members.sort_unstable();
    voting_members.dedup();
    ZooKeeperStatus {
        replicas: sum(|status| status.replicas),
        started_replicas: sum(|status| status.started_replicas),
        ready_replicas: sum(|status| status.ready_replicas),
        voting_members,
        config_version: newest.map(|(version, _)| version),
        leader: newest.and_then(|(_, status)| status.leader),
        writable: reports.iter().filter_map(|report| report.writable).reduce(|a, b| a || b),
        servers: servers(&mut reports),
        ..ZooKeeperStatus::default()
    }
}

/// All servers by id. An id that two clusters report, while one replaces the other, appears once: as the server that
/// serves, or else as that of the first cluster by name.
fn servers(reports: &mut [ReportedStatus]) -> Vec<ServerStatus> {
    let mut servers: Vec<ServerStatus> = reports.iter_mut().flat_map(|report| report.servers.0.drain(..)).collect();
    // The sort is stable, and the reports are sorted.
    servers.sort_by_key(|server| (server.id, !server.serving, !server.synced));
    servers.dedup_by_key(|server| server.id);
    servers.truncate(MAX_SERVERS);
    servers
}

/// A condition that names the clusters whose status is not counted, if there are any. It keeps the time of an existing
/// one.
fn unreadable_condition(mut clusters: Vec<String>, old: Option<&RawValue>, now: Timestamp) -> Option<Condition> {
    if clusters.is_empty() {
        return None;
    }
    clusters.sort();
    clusters.dedup();
    let named: Vec<String> =
        clusters
            .iter()
            .take(MAX_NAMED)
            .map(|cluster| {
                if cluster.is_empty() { "an unnamed cluster".into() } else { cluster.chars().take(MAX_NAME).collect() }
            })
            .collect();
    let more = match clusters.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more clusters"),
    };
    Some(Condition {
        type_: ConditionType::Unreadable.as_str().to_owned(),
        status: "True".to_owned(),
        reason: Reason::OtherVersion.as_str().to_owned(),
        message: format!(
            "This version of mczk cannot read the status of {}{more}, and does not count it. Bring the operator and the agents to one version.",
            named.join(", ")
        ),
        last_transition_time: Time(since(old).unwrap_or(now)),
        observed_generation: None,
    })
}

/// Time of the condition in the existing status.
fn since(old: Option<&RawValue>) -> Option<Timestamp> {
    let old: Value = serde_json::from_str(old?.get()).ok()?;
    let conditions = old.get("conditions")?.as_array()?;
    let is = |condition: &Value, field: &str, text: &str| condition.get(field).and_then(Value::as_str) == Some(text);
    let condition = conditions.iter().find(|condition| {
        is(condition, "type", ConditionType::Unreadable.as_str()) && is(condition, "status", "True")
    })?;
    condition.get("lastTransitionTime")?.as_str()?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn raw(value: &Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(value).unwrap()
    }

    fn now() -> Timestamp {
        "2026-11-21T08:00:00Z".parse().unwrap()
    }

    /// The answer, after both ways to read the items.
    fn ask(object: &Value, items: &Value) -> Value {
        let (object, items) = (raw(object), raw(items));
        let answer = aggregate(&object, Some(Statuses::Text(&items)), now()).unwrap();
        if let Ok(items) = serde_json::from_str(items.get()) {
            assert_eq!(aggregate(&object, Some(Statuses::Read(items)), now()).unwrap(), answer);
        }
        serde_json::to_value(answer.as_slice()).unwrap()
    }

    fn status(items: &Value) -> Value {
        ask(&json!({"metadata": {"generation": 4}}), items)[0]["value"].clone()
    }

    #[test]
    fn numbers_of_all_clusters_are_summed() {
        let one = json!({"clusterName": "m1", "status": {
            "replicas": 2, "startedReplicas": 2, "readyReplicas": 2, "writable": true, "configVersion": 7, "leader": 1,
            "votingMembers": [3, 1, 2], "observedSpecHash": "p", "volumes": ["v"],
            "servers": [{"id": 2, "serving": true, "synced": true}, {"id": 1, "serving": true, "synced": true}]
        }});
        let two = json!({"clusterName": "m2", "status": {
            "replicas": 1, "startedReplicas": 1, "readyReplicas": 0, "writable": false, "configVersion": 9, "leader": 3,
            "votingMembers": [3], "servers": [{"id": 3, "mode": "looking"}]
        }});
        let expected = json!({
            "observedGeneration": 4, "replicas": 3, "startedReplicas": 3, "readyReplicas": 2, "writable": true,
            "configVersion": 7, "leader": 1, "votingMembers": [1, 2, 3],
            "servers": [
                {"id": 1, "serving": true, "synced": true, "lost": false},
                {"id": 2, "serving": true, "synced": true, "lost": false},
                {"id": 3, "mode": "looking", "serving": false, "synced": false, "lost": false}
            ]
        });
        assert_eq!(status(&json!([one, two])), expected);
        assert_eq!(status(&json!([two, one])), expected);
    }

    #[rstest]
    #[case::none(json!([]))]
    #[case::null(json!(null))]
    #[case::null_items(json!([null, {"clusterName": "m1"}, {"clusterName": "m2", "status": null}, {}]))]
    fn no_report_counts_as_zero(#[case] items: Value) {
        assert_eq!(
            status(&items),
            json!({"observedGeneration": 4, "replicas": 0, "startedReplicas": 0, "readyReplicas": 0})
        );
    }

    #[rstest]
    #[case::absent(json!({}), "add")]
    #[case::null(json!({"status": null}), "add")]
    #[case::other(json!({"status": {"replicas": 2}}), "replace")]
    #[case::not_an_object(json!({"status": 7}), "replace")]
    fn a_status_is_added_or_replaced(#[case] object: Value, #[case] operation: &str) {
        let patch = ask(&object, &json!([]));
        assert_eq!(patch[0]["op"], operation);
        assert_eq!(patch[0]["path"], "/status");
    }

    #[test]
    fn an_equal_status_needs_no_patch() {
        let mut object = json!({"metadata": {"generation": 4}});
        let items = json!([{"clusterName": "m1", "status": {"replicas": 1, "servers": "later"}}]);
        let items = raw(&items);
        let answer = |object: &Value, now| aggregate(&raw(object), Some(Statuses::Text(&items)), now).unwrap();
        let change = answer(&object, now()).unwrap();
        object["status"] = json!(change.value);
        assert_eq!(answer(&object, "2027-01-01T00:00:00Z".parse().unwrap()), None);
        object["status"]["news"] = json!([]);
        assert_eq!(answer(&object, now()), Some(StatusChange { op: "replace", ..change }));
    }

    #[test]
    fn a_status_of_a_later_version_is_left_out_and_its_cluster_named() {
        let items = json!([
            {"clusterName": "m2", "status": {"replicas": {"voters": 1}}},
            {"clusterName": "m1", "status": {"replicas": 1, "news": {"a": [1]}, "servers": null}},
            7
        ]);
        let status = status(&items);
        assert_eq!(status["replicas"], 1);
        assert_eq!(status["conditions"][0]["type"], "Unreadable");
        assert_eq!(status["conditions"][0]["lastTransitionTime"], "2026-11-21T08:00:00Z");
        let message = status["conditions"][0]["message"].as_str().unwrap();
        assert!(
            message.contains("cannot read the status of an unnamed cluster, m2, and does not count it"),
            "{message}"
        );
    }

    #[test]
    fn the_condition_stays_within_the_schema() {
        let items: Vec<Value> =
            (0..300).map(|i| json!({"clusterName": format!("{i:0>500}"), "status": {"leader": "x"}})).collect();
        let message = status(&json!(items))["conditions"][0]["message"].as_str().unwrap().to_owned();
        assert!(message.len() <= 1024 && message.contains("and 292 more clusters"), "{message}");
    }

    #[test]
    fn an_id_in_two_reports_appears_once() {
        let m = |name: &str, serving: bool| json!({"clusterName": name, "status": {"servers": [{"id": 1, "pod": name, "serving": serving}]}});
        assert_eq!(status(&json!([m("a", false), m("b", true)]))["servers"][0]["pod"], "b");
        assert_eq!(status(&json!([m("b", false), m("a", false)]))["servers"][0]["pod"], "a");
        let [one, two] =
            ["x", "y"].map(|pod| json!({"clusterName": "a", "status": {"servers": [{"id": 1, "pod": pod}]}}));
        assert_eq!(status(&json!([one, two])), status(&json!([two, one])), "two items of one cluster");
    }

    #[test]
    fn sums_stay_in_range() {
        let m = |n: i64| json!({"clusterName": "m", "status": {"replicas": n}});
        assert_eq!(status(&json!([m(i64::from(i32::MAX)), m(1)]))["replicas"], i32::MAX);
        assert_eq!(status(&json!([m(-5)]))["replicas"], 0);
    }

    #[test]
    fn items_that_are_not_a_list_are_refused() {
        let refused =
            |items: &Value| aggregate(&raw(&json!({})), Some(Statuses::Text(&raw(items))), now()).unwrap_err().message;
        assert_eq!(refused(&json!({"a": 1})), "request.aggregatedStatus: invalid type: map, expected a sequence");
        let many = refused(&json!(vec![0; MAX_ITEMS + 1]));
        assert!(many.ends_with("more than 10000 items"), "{many}");
    }
}
