//! The agent's finalizer on the ZooKeeper object, and the deletion of that object.

use kube::{
    ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions},
};
use serde_json::json;

use crate::{
    context::{AgentContext, FIELD_MANAGER},
    observe::snapshot::MemberSnapshot,
    write_history::ObjectVerb,
};
use mczk_api::contract::labels::{AGENT_FINALIZER, CLUSTER_ANNOTATION};
use mczk_rules::agent::decide::Decision;
use mczk_runtime::failure::{During, Error, is_not_found};

/// Adds or removes the finalizer, and stores the cluster's name together with the finalizer. Returns true if it wrote. `None` if
/// the API server refuses it.
pub(crate) async fn write(
    snapshot: &MemberSnapshot,
    decision: &Decision,
    context: &AgentContext,
) -> Result<Option<bool>, Error> {
    let object = &snapshot.observation.object;
    let has = object.finalizers().iter().any(|f| f == AGENT_FINALIZER);
    if has == decision.finalizer {
        return Ok(Some(false));
    }
    let mut finalizers = object.finalizers().to_vec();
    finalizers.retain(|f| f != AGENT_FINALIZER);
    let cluster = decision.finalizer.then(|| snapshot.observation.cluster.clone()).flatten();
    if decision.finalizer {
        finalizers.push(AGENT_FINALIZER.to_owned());
    }
    let mut patch = json!({
        "metadata": { "finalizers": finalizers, "resourceVersion": object.resource_version() },
    });
    if let Some(cluster) = cluster {
        json_patch::merge(&mut patch, &json!({ "metadata": { "annotations": { CLUSTER_ANNOTATION: cluster } } }));
    }
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let key = snapshot.key();
    let write = async {
        match context.zookeepers(&key.0).patch(&key.1, &params, &Patch::Merge(&patch)).await {
            // The API server deletes an object with its last finalizer.
            Err(error) if is_not_found(&error) => {}
            other => check_stored(&other.during(action)?, decision.finalizer)?,
        }
        context.metrics.wrote("ZooKeeper", "patch");
        Ok(true)
    };
    let fingerprint = if decision.finalizer { "with finalizer" } else { "without finalizer" };
    context.attempt(&key, ("ZooKeeper", &key.1, ObjectVerb::Write), fingerprint, write).await
}

fn action() -> String {
    "writing the finalizer".to_owned()
}

/// Whether the API server has stored the finalizer, if the object needs one.
fn check_stored(stored: &DynamicObject, needed: bool) -> Result<(), Error> {
    if !needed || stored.finalizers().iter().any(|finalizer| finalizer == AGENT_FINALIZER) {
        return Ok(());
    }
    let why = format!("a webhook or a policy of the cluster removes the finalizer {AGENT_FINALIZER}");
    Err(Error::Altered { action: action(), why })
}

/// Deletes the object, if Karmada no longer manages it. False if the API server refuses.
pub(crate) async fn remove_object(snapshot: &MemberSnapshot, context: &AgentContext) -> Result<bool, Error> {
    let object = &snapshot.observation.object;
    let preconditions = Preconditions { uid: object.uid(), resource_version: object.resource_version() };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let key = snapshot.key();
    context.delete(&key, &context.zookeepers(&key.0), ("ZooKeeper", &key.1), &params).await
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// It was written again in every pass, for ever.
    #[rstest]
    #[case::stored(json!([AGENT_FINALIZER]), true, None)]
    #[case::removed(json!(["other"]), true, Some("a webhook or a policy of the cluster removes the finalizer mczk.io/agent"))]
    #[case::not_needed(json!([]), false, None)]
    fn a_finalizer_that_is_removed_is_a_refusal(
        #[case] finalizers: serde_json::Value,
        #[case] needed: bool,
        #[case] expected: Option<&str>,
    ) {
        let object = json!({ "metadata": { "name": "zk", "finalizers": finalizers } });
        let answer = check_stored(&serde_json::from_value(object).unwrap(), needed);
        assert_eq!(answer.as_ref().err().and_then(Error::refusal), expected);
    }
}
