//! Karmada's autoscalers.

use anyhow::{Context, Result, ensure};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, PostParams},
};
use serde_json::{Value, json};

use super::changes::deployed;
use crate::{
    federation::Federation,
    patience::wait_for,
    scene::{PATIENCE, Scene},
};

const API_VERSION: &str = "autoscaling.karmada.io/v1alpha1";
/// The reason for which a `FederatedHPA` does not scale.
const REASON: &str = "FailedGetBinding";

/// Creates an autoscaler. Karmada's own webhook accepts it.
async fn create(scene: &Scene<'_>, kind: &str, spec: &Value) -> Result<Api<DynamicObject>> {
    let api = scene.untyped(API_VERSION, kind, &format!("{}s", kind.to_lowercase()));
    let object = json!({ "apiVersion": API_VERSION, "kind": kind, "metadata": { "name": "zoo" }, "spec": spec });
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(api)
}

/// Waits until the status of an autoscaler has what `find` returns.
async fn status(api: &Api<DynamicObject>, what: &str, find: impl Fn(&Value) -> Option<String>) -> Result<String> {
    wait_for(what, PATIENCE, || async {
        let object = api.get("zoo").await?;
        let status = object.data.get("status").context("it has no status")?;
        find(status).with_context(|| status.to_string())
    })
    .await
}

/// The last result of a rule in the status of a `CronFederatedHPA`: a field of its successes or failures.
fn last(status: &Value, rule: &str, list: &str, field: &str) -> Option<String> {
    let histories = status.get("executionHistories")?.as_array()?;
    let history = histories.iter().find(|history| history.get("ruleName") == Some(&json!(rule)))?;
    let value = history.get(list)?.get(0)?.get(field)?;
    Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

pub(super) async fn scaled_by_schedule(federation: &Federation) -> Result<()> {
    let scene = deployed(federation, "schedule", 3, json!({})).await?;
    let created = scene.get("zoo").await?.metadata.generation;
    let target = json!({ "apiVersion": "mczk.io/v1alpha1", "kind": "MultiClusterZooKeeper", "name": "zoo" });
    let spec = json!({ "scaleTargetRef": target, "minReplicas": 7, "maxReplicas": 9 });
    let by_load = create(&scene, "FederatedHPA", &spec).await?;
    let each_minute =
        |name: &str, replicas: i32| json!({ "name": name, "schedule": "* * * * *", "targetReplicas": replicas });
    let rules = [each_minute("five", 5), each_minute("none", 0)];
    let spec = json!({ "scaleTargetRef": target, "rules": rules });
    let schedule = create(&scene, "CronFederatedHPA", &spec).await?;
    let applied = |status: &Value| last(status, "five", "successfulExecutions", "appliedReplicas");
    ensure!(status(&schedule, "the schedule scales", applied).await? == "5", "another number was applied");
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    scene.one_after_the_other("zoo")?;
    let refused = |status: &Value| last(status, "none", "failedExecutions", "message");
    let message = status(&schedule, "the API server refuses 0", refused).await?;
    ensure!(message.contains("spec.replicas"), "{message}");
    let scales = |status: &Value| {
        let conditions = status.get("conditions")?.as_array()?;
        let able = conditions.iter().find(|condition| condition.get("type") == Some(&json!("AbleToScale")))?;
        Some(format!("{} {}", able.get("status")?.as_str()?, able.get("reason")?.as_str()?))
    };
    let able = status(&by_load, "the FederatedHPA says whether it scales", scales).await?;
    ensure!(able == format!("False {REASON}"), "the FederatedHPA says {able}");
    let object = scene.settled("zoo").await?;
    let changes = object.metadata.generation.zip(created).map(|(now, then)| now - then);
    ensure!(
        object.spec.replicas == 5 && changes == Some(1),
        "{} voters after {changes:?} changes",
        object.spec.replicas
    );
    schedule.delete("zoo", &DeleteParams::default()).await?;
    by_load.delete("zoo", &DeleteParams::default()).await?;
    Ok(())
}
