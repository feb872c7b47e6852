//! What the webhook must answer, in the plainest way: every value is parsed whole, and read field by field.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use mczk_api::{
    pod::{Resources, Scheduling},
    zookeeper::{ServerStatus, ZooKeeperStatus},
};
use mczk_rules::agent::render::amount::thousandths;
use serde_json::{Map, Value, json};

/// The expected answer.
#[derive(Debug)]
pub enum Answer {
    /// The question is refused.
    Refused,
    /// These fields of the answer have these values. A field that must be absent has the value null.
    Fields(Vec<(&'static str, Value)>),
    /// The object after the patch.
    Object(Value),
}

/// A field that is read has another type.
struct Refused;

type Read<T> = Result<T, Refused>;

/// The expected answer to a question. `None` where several are right: a list in place of an object.
pub fn answer(body: &Value, now: Timestamp) -> Option<Answer> {
    let request = body.get("request")?;
    let object = request.get("object").filter(|object| !object.is_null());
    if has_list_for_object(request) || object.is_some_and(|object| !object.is_object()) {
        return None;
    }
    let of = |field: &str| request["kind"].get(field).and_then(Value::as_str);
    let known = (of("group"), of("version"), of("kind")) == (Some("mczk.io"), Some("v1alpha1"), Some("ZooKeeper"));
    let statuses = request.get("aggregatedStatus").unwrap_or(&Value::Null);
    let namespace = request.get("namespace").and_then(Value::as_str).unwrap_or_default();
    let (true, Some(object)) = (known && has_types(request), object) else { return Some(Answer::Refused) };
    let answer = match request["operation"].as_str() {
        Some("InterpretReplica") => replica(object),
        Some("ReviseReplica") => revise(object),
        Some("AggregateStatus") => aggregate(object, statuses, now)?,
        Some("InterpretHealth") => health(object),
        Some("InterpretDependency") => dependency(object, namespace),
        _ => Err(Refused),
    };
    Some(answer.unwrap_or(Answer::Refused))
}

fn has_types(request: &Value) -> bool {
    request["uid"].is_string()
        && ["name", "namespace"].iter().all(|field| request.get(*field).is_none_or(Value::is_string))
}

/// True if a field is a list that should be an object. serde then reads the elements as the fields in order.
fn has_list_for_object(value: &Value) -> bool {
    const OBJECTS: [&str; 14] = [
        "request",
        "kind",
        "object",
        "metadata",
        "spec",
        "status",
        "template",
        "resources",
        "scheduling",
        "tls",
        "client",
        "ensemble",
        "preflight",
        "tolerations",
    ];
    match value {
        Value::Object(fields) => fields.iter().any(|(name, field)| {
            let list = match name.as_str() {
                "tolerations" | "dependencies" | "aggregatedStatus" | "servers" | "conditions" => {
                    field.as_array().is_some_and(|list| list.iter().any(Value::is_array))
                }
                name => OBJECTS.contains(&name) && field.is_array(),
            };
            list || has_list_for_object(field)
        }),
        Value::Array(elements) => elements.iter().any(has_list_for_object),
        _ => false,
    }
}

/// A field that must be there.
fn required<'a>(object: &'a Value, field: &str) -> Read<&'a Value> {
    object.as_object().and_then(|object| object.get(field)).ok_or(Refused)
}

/// A field that may be absent or null.
fn optional<'a>(object: &'a Value, field: &str) -> Read<Option<&'a Value>> {
    let object = object.as_object().ok_or(Refused)?;
    Ok(object.get(field).filter(|value| !value.is_null()))
}

fn number(value: &Value) -> Read<i32> {
    value.as_i64().and_then(|number| i32::try_from(number).ok()).ok_or(Refused)
}

fn text(value: &Value) -> Read<String> {
    value.as_str().map(str::to_owned).ok_or(Refused)
}

fn parse<T: serde::de::DeserializeOwned>(value: &Value) -> Read<T> {
    serde_json::from_value(value.clone()).map_err(|_| Refused)
}

fn replica(object: &Value) -> Read<Answer> {
    let spec = required(object, "spec")?;
    let replicas = number(required(spec, "replicas")?)?;
    let (mut resources, mut scheduling) = (None, None);
    if let Some(template) = optional(spec, "template")? {
        resources = optional(template, "resources")?.map(parse::<Resources>).transpose()?;
        scheduling = optional(template, "scheduling")?.map(parse::<Scheduling>).transpose()?;
    }
    if replicas < 0 {
        return Err(Refused);
    }
    let scheduling = serde_json::to_value(scheduling).map_err(|_| Refused)?;
    let mut claim = Map::new();
    let terms = scheduling.pointer("/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution");
    if let Some(terms) = terms.filter(|terms| terms.is_object()) {
        claim.insert("hardNodeAffinity".to_owned(), terms.clone());
    }
    for field in ["nodeSelector", "tolerations"] {
        if let Some(value) = scheduling.get(field) {
            claim.insert(field.to_owned(), value.clone());
        }
    }
    let mut requirements = Map::new();
    if !claim.is_empty() {
        requirements.insert("nodeClaim".to_owned(), claim.into());
    }
    let resources = serde_json::to_value(resources).map_err(|_| Refused)?;
    let mut requests = resources.get("limits").and_then(Value::as_object).cloned().unwrap_or_default();
    requests.extend(resources.get("requests").and_then(Value::as_object).cloned().unwrap_or_default());
    if resources.is_null() {
        requests.insert("memory".to_owned(), json!("1Gi"));
    }
    // The init container may need more than the server.
    for (name, least) in [("cpu", "10m"), ("memory", "32Mi")] {
        let parsed = |amount: &Value| amount.as_str().and_then(thousandths);
        let own = requests.entry(name).or_insert_with(|| json!(least));
        if parsed(own).is_some_and(|own| Some(own) < thousandths(least)) {
            *own = json!(least);
        }
    }
    requirements.insert("resourceRequest".to_owned(), requests.into());
    if let Some(class) = scheduling.get("priorityClassName") {
        requirements.insert("priorityClassName".to_owned(), class.clone());
    }
    Ok(Answer::Fields(vec![("replicas", json!(replicas)), ("replicaRequirements", requirements.into())]))
}

fn revise(object: &Value) -> Read<Answer> {
    let mut revised = object.clone();
    let spec = revised.get_mut("spec").and_then(Value::as_object_mut).ok_or(Refused)?;
    spec.insert("replicas".to_owned(), json!(0));
    Ok(Answer::Object(revised))
}

fn health(object: &Value) -> Read<Answer> {
    let spec = required(object, "spec")?;
    let replicas = number(required(spec, "replicas")?)?;
    let hash = optional(spec, "specHash")?.map(text).transpose()?;
    let mut bootstrap = false;
    if let Some(ensemble) = optional(spec, "ensemble")? {
        // Without the other fields that a list must have.
        let fields = ensemble.as_object().ok_or(Refused)?;
        if let Some(phase) = fields.get("phase") {
            const PHASES: [&str; 6] =
                ["Bootstrapping", "Formed", "Running", "Suspended", "Abandoned", "Decommissioning"];
            let phase = text(phase)?;
            if !PHASES.contains(&phase.as_str()) {
                return Err(Refused);
            }
            bootstrap = phase == "Bootstrapping";
        }
    }
    let mut healthy = false;
    if let Some(status) = optional(object, "status")? {
        let hash_of = |field| optional(status, field)?.map(text).transpose();
        let number_of = |field| optional(status, field)?.map(number).transpose();
        let (observed, completed) = (hash_of("observedSpecHash")?, hash_of("completedSpecHash")?);
        let (started, ready) = (number_of("startedReplicas")?, number_of("readyReplicas")?);
        let complete = hash.is_some() && observed == hash && completed == hash;
        let enough = |number: Option<i32>| number.unwrap_or(0) >= replicas;
        healthy = complete && (enough(ready) || bootstrap && enough(started));
    }
    Ok(Answer::Fields(vec![("healthy", json!(healthy))]))
}

fn dependency(object: &Value, namespace: &str) -> Read<Answer> {
    let mut namespace = namespace.to_owned();
    if let Some(metadata) = optional(object, "metadata")?
        && let Some(own) = optional(metadata, "namespace")?
    {
        namespace = text(own)?;
    }
    let spec = required(object, "spec")?;
    let list = |value: Option<&Value>| match value {
        None => Ok(Vec::new()),
        Some(value) => value.as_array().cloned().ok_or(Refused),
    };
    let mut named = BTreeSet::new();
    for dependency in list(optional(spec, "dependencies")?)? {
        let kind = text(required(&dependency, "kind")?)?;
        if !["ConfigMap", "Secret"].contains(&kind.as_str()) {
            return Err(Refused);
        }
        named.insert((kind, text(required(&dependency, "name")?)?));
    }
    if let Some(template) = optional(spec, "template")? {
        for secret in list(optional(template, "imagePullSecrets")?)? {
            named.insert(("Secret".to_owned(), text(&secret)?));
        }
    }
    if let Some(tls) = optional(spec, "tls")?
        && let Some(client) = optional(tls, "client")?
    {
        named.insert(("Secret".to_owned(), text(required(client, "secretName")?)?));
    }
    if namespace.is_empty() || named.iter().any(|(_, name)| name.is_empty()) {
        return Err(Refused);
    }
    let reference = |(kind, name): &(String, String)| json!({ "apiVersion": "v1", "kind": kind, "namespace": namespace, "name": name });
    Ok(Answer::Fields(vec![("dependencies", named.iter().map(reference).collect())]))
}

/// `None` where the text of an item decides, which depends on the order of its fields.
fn aggregate(object: &Value, items: &Value, now: Timestamp) -> Option<Read<Answer>> {
    let read = || -> Read<(Option<i64>, Vec<Value>)> {
        let generation = match optional(object, "metadata")? {
            Some(metadata) => {
                optional(metadata, "generation")?.map(|value| value.as_i64().ok_or(Refused)).transpose()?
            }
            None => None,
        };
        let items = if items.is_null() { Vec::new() } else { items.as_array().cloned().ok_or(Refused)? };
        Ok((generation, items))
    };
    let Ok((generation, items)) = read() else { return Some(Err(Refused)) };
    let (mut reports, mut unreadable) = (BTreeMap::new(), BTreeSet::new());
    for item in items {
        match report(item) {
            Ok(None) => {}
            Ok(Some((cluster, status))) => {
                if reports.insert(cluster, status).is_some() {
                    return None;
                }
            }
            Err(cluster) => {
                unreadable.insert(cluster);
            }
        }
    }
    let mut status = serde_json::to_value(summary(&reports, generation)).expect("a status");
    if !unreadable.is_empty() {
        status["conditions"] = json!([condition(&unreadable, object, now)]);
    }
    let mut aggregated = object.clone();
    aggregated["status"] = status;
    Some(Ok(Answer::Object(aggregated)))
}

/// The fields of a cluster's status that are read. The others may have any type.
const READ: [&str; 8] =
    ["replicas", "startedReplicas", "readyReplicas", "servers", "votingMembers", "configVersion", "leader", "writable"];

/// Cluster and status of an item, or the cluster that cannot be read.
fn report(item: Value) -> Result<Option<(String, ZooKeeperStatus)>, String> {
    if item.is_null() {
        return Ok(None);
    }
    let unnamed = |Refused| String::new();
    let cluster = optional(&item, "clusterName").map_err(unnamed)?.map(text).transpose().map_err(unnamed)?;
    let cluster = cluster.unwrap_or_default();
    let Some(status) = optional(&item, "status").map_err(unnamed)? else { return Ok(None) };
    let Value::Object(mut fields) = without_nulls(status.clone()) else { return Err(cluster) };
    fields.retain(|name, _| READ.contains(&name.as_str()));
    let too_long = ["servers", "votingMembers"]
        .iter()
        .any(|list| fields.get(*list).and_then(Value::as_array).is_some_and(|list| list.len() > 254));
    match serde_json::from_value(fields.into()) {
        Ok(read) if !too_long => Ok(Some((cluster, read))),
        _ => Err(cluster),
    }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, field)| !field.is_null());
            Value::Object(kept.map(|(name, field)| (name, without_nulls(field))).collect())
        }
        Value::Array(elements) => {
            elements.into_iter().filter(|element| !element.is_null()).map(without_nulls).collect()
        }
        other => other,
    }
}

fn summary(reports: &BTreeMap<String, ZooKeeperStatus>, generation: Option<i64>) -> ZooKeeperStatus {
    let sum = |of: fn(&ZooKeeperStatus) -> Option<i32>| {
        let sum = reports.values().filter_map(of).map(i64::from).sum::<i64>();
        Some(i32::try_from(sum.clamp(0, i32::MAX.into())).expect("a number in the range"))
    };
    let mut servers: BTreeMap<i32, &ServerStatus> = BTreeMap::new();
    for server in reports.values().flat_map(|report| &report.servers) {
        let rank = |server: &ServerStatus| (server.serving, server.synced);
        if servers.get(&server.id).is_none_or(|known| rank(server) > rank(known)) {
            servers.insert(server.id, server);
        }
    }
    let mut newest: Option<&ZooKeeperStatus> = None;
    for report in reports.values().filter(|report| report.writable == Some(true) && report.config_version.is_some()) {
        if newest.is_none_or(|newest| report.config_version > newest.config_version) {
            newest = Some(report);
        }
    }
    let voters: BTreeSet<i32> = newest.into_iter().flat_map(|newest| newest.voting_members.iter().copied()).collect();
    let writable: BTreeSet<bool> = reports.values().filter_map(|report| report.writable).collect();
    ZooKeeperStatus {
        observed_generation: generation,
        replicas: sum(|report| report.replicas),
        started_replicas: sum(|report| report.started_replicas),
        ready_replicas: sum(|report| report.ready_replicas),
        servers: servers.into_values().take(254).cloned().collect(),
        voting_members: voters.into_iter().take(254).collect(),
        config_version: newest.and_then(|newest| newest.config_version),
        leader: newest.and_then(|newest| newest.leader),
        writable: writable.last().copied(),
        ..ZooKeeperStatus::default()
    }
}

fn condition(unreadable: &BTreeSet<String>, object: &Value, now: Timestamp) -> Value {
    let named: Vec<String> = unreadable
        .iter()
        .take(8)
        .map(|name| if name.is_empty() { "an unnamed cluster".to_owned() } else { name.chars().take(63).collect() })
        .collect();
    let more =
        if unreadable.len() > 8 { format!(" and {} more clusters", unreadable.len() - 8) } else { String::new() };
    let old = object.pointer("/status/conditions").and_then(Value::as_array).and_then(|conditions| {
        conditions.iter().find(|condition| condition["type"] == "Unreadable" && condition["status"] == "True")
    });
    let since = old.and_then(|old| old["lastTransitionTime"].as_str()?.parse::<Timestamp>().ok()).unwrap_or(now);
    json!({
        "type": "Unreadable", "status": "True", "reason": "OtherVersion", "lastTransitionTime": Time(since),
        "message": format!(
            "This version of mczk cannot read the status of {}{more}, and does not count it. Bring the operator and the agents to one version.",
            named.join(", ")
        ),
    })
}
