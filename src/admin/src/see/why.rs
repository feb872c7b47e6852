//! `mczk why`: what an ensemble waits for, and what the user can do.

use clap::Args;
use kube::{Client, ResourceExt, api::DynamicObject};

use serde::Serialize;

use super::plan::next_steps;
use crate::terminal::{
    connection::Connection,
    error::Error,
    findings_text,
    output::{Exit, Format, is_coloured, print},
    run::block_on,
    scope::{One, existing},
    steps_text,
};
use mczk_reading::read_only;
use mczk_rules::view::{
    steps::StepView,
    why::{WhyView, view},
};

/// What an ensemble waits for, with the steps of the operator's next plan.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation {
    #[serde(flatten)]
    why: WhyView,
    /// What each step reports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<StepView>,
    /// Why the steps cannot be computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_steps: Option<String>,
}

/// Prints what an ensemble waits for, and what you can do
///
/// It explains the conditions of the MultiClusterZooKeeper and those that agents report, with the action of the
/// reference page "Conditions" for each reason. With the right to list Secrets in the namespace it also prints the steps of
/// the operator's next plan: it calls the same rules, and writes nothing.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 if nothing waits, 1 for a failure, 2 for a wrong command line, 3 if something \
                        waits or needs you.")]
pub struct Why {
    #[command(flatten)]
    object: One,
    /// Format of the output [default: text]
    #[arg(short, long, env = "MCZK_WHY_OUTPUT", value_enum, value_name = "FORMAT")]
    output: Option<Format>,
    #[command(flatten)]
    connection: Connection,
}

impl Why {
    /// Prints the findings.
    ///
    /// # Errors
    /// If the API server refuses or does not answer, or no object has the name.
    pub fn run(self) -> Result<Exit, Error> {
        block_on(async {
            let (client, _) = self.connection.client().await?;
            let (namespace, name) = (self.object.namespace(&client), &self.object.name);
            let object = existing(&client, &namespace, name).await?;
            let explanation = read(&client, &object).await?;
            print(&match self.output {
                Some(format) => format.text(&explanation)?,
                None => text(&explanation, is_coloured()),
            })?;
            Ok(Exit::waits(explanation.why.waits))
        })
    }
}

async fn read(client: &Client, object: &DynamicObject) -> Result<Explanation, Error> {
    let namespace = object.namespace().unwrap_or_default();
    let binding = read_only::binding(client, &namespace, &object.name_any()).await.map_err(anyhow::Error::from)?;
    let why = view(object, binding.as_ref());
    // The findings explain the ensemble alone, too.
    let steps = next_steps(client, object).await;
    let no_steps = steps.as_ref().err().map(|error| format!("{error:#}"));
    Ok(Explanation { why, steps: steps.unwrap_or_default(), no_steps })
}

/// What an ensemble waits for, as text.
///
/// # Errors
/// If the API server refuses or does not answer.
pub(crate) async fn report(client: &Client, object: &DynamicObject) -> Result<String, Error> {
    Ok(text(&read(client, object).await?, false))
}

fn text(explanation: &Explanation, coloured: bool) -> String {
    let Explanation { why, steps, no_steps } = explanation;
    let steps = match no_steps {
        Some(error) => format!("The operator's steps cannot be computed: {error}\n"),
        None => steps_text::text(steps, coloured),
    };
    let gap = if steps.is_empty() { "" } else { "\n" };
    findings(why, coloured) + gap + &steps
}

fn findings(view: &WhyView, coloured: bool) -> String {
    let WhyView { namespace, name, waits, rollout, findings } = view;
    let rollout = rollout.as_ref().map(|rollout| format!(" Rollout: {rollout}.")).unwrap_or_default();
    let head = match (waits, findings.is_empty()) {
        (true, _) => format!("{namespace}/{name} waits, or needs you.{rollout}\n\n"),
        (false, false) => format!("{namespace}/{name} waits for nothing. Advice:\n\n"),
        (false, true) => format!("{namespace}/{name} waits for nothing: every cluster is complete and serves.\n"),
    };
    head + &findings_text::text(findings, coloured)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use kube::api::DynamicObject;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::multi_cluster_zookeeper;
    use mczk_api::{
        contract::{cause::Cause, conditions::Reason},
        karmada::resource_binding::ResourceBinding,
    };
    use mczk_rules::{
        rollout::steps::{PlanStep, StepReport, Steps},
        view::steps,
    };

    fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({ "type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z" })
    }

    fn object(conditions: &[Value], clusters: &Value) -> DynamicObject {
        multi_cluster_zookeeper(json!({
            "metadata": { "generation": 2 },
            "status": { "observedGeneration": 2, "rollout": "Deploying m2 (1/3)", "conditions": conditions, "clusters": clusters },
        }))
    }

    fn binding(items: &Value) -> ResourceBinding {
        serde_json::from_value(json!({ "status": { "aggregatedStatus": items } })).unwrap()
    }

    #[test]
    fn a_rollout_that_waits_for_a_cluster() {
        let conditions = [
            condition("Ready", "False", "RollingOut", "Deploying m2 (1/3)"),
            condition("Progressing", "False", "ClusterFailed", "Cluster m2: ImagePullBackOff"),
            condition("QuorumSafe", "True", "EvenVoters", "Any cluster can be lost"),
        ];
        let clusters = json!([
            { "name": "m1", "voters": [1], "ready": true },
            { "name": "m2", "voters": [2], "ready": false, "message": "Server 2 has not started" },
            { "name": "m3", "ready": false, "message": "The cluster has no servers" },
        ]);
        let blocked = condition("Blocked", "True", "SpecRefused", "The spec has render version 4");
        let items = json!([
            { "clusterName": "m2", "applied": true, "status": { "conditions": [blocked] } },
            { "clusterName": "m3", "applied": false, "appliedMessage": "no such namespace" },
            { "clusterName": "m4", "applied": true, "status": { "servers": 7 } },
        ]);
        let view = view(&object(&conditions, &clusters), Some(&binding(&items)));
        assert!(view.waits);
        insta::assert_snapshot!(findings(&view, false), @r"
        n/zk waits, or needs you. Rollout: Deploying m2 (1/3).

        ensemble  Progressing=False ClusterFailed  Cluster m2: ImagePullBackOff
                                                   -> The message comes from the cluster. Correct the spec: the correction starts in that cluster
        ensemble  QuorumSafe=True EvenVoters       Any cluster can be lost
                                                   -> Declare an odd number of voters
        m2                                         Server 2 has not started
        m2        Blocked=True SpecRefused         The spec has render version 4
                                                   -> Correct the cause that the message names. Usually the agent is older than the operator: upgrade it
        m3        NotApplied                       no such namespace
                                                   -> Correct what Karmada's message names, in the cluster that it names
        m4        OtherVersion                     An agent of another version wrote the status, and this version cannot read it
                                                   -> Bring the operator and the agents to one version
        ");
    }

    #[test]
    fn the_steps_follow_the_findings() {
        let why = view(&object(&[condition("Ready", "True", "Serving", "")], &json!([])), None);
        let waits = Cause::new(Reason::NoQuorum, "Bring servers back");
        let reports = Steps::default().with(PlanStep::Names, StepReport::Done);
        let steps = steps::view(&reports.with(PlanStep::Clusters, StepReport::Waits(waits)));
        let explanation = Explanation { why, steps, no_steps: None };
        insta::assert_snapshot!(text(&explanation, false), @r"
        n/zk waits for nothing: every cluster is complete and serves.

        The operator's steps:
        names     done
        clusters  waits  NoQuorum  Bring servers back
        ");
        let refused = Explanation { steps: Vec::new(), no_steps: Some("no right".to_owned()), ..explanation };
        assert!(text(&refused, false).ends_with("\nThe operator's steps cannot be computed: no right\n"));
    }

    #[test]
    fn nothing_waits() {
        let conditions = [condition("Ready", "True", "Serving", "Every cluster is complete and serves")];
        let view = view(&object(&conditions, &json!([])), None);
        assert!(!view.waits);
        insta::assert_snapshot!(findings(&view, false), @r"
        n/zk waits for nothing: every cluster is complete and serves.
        ");
    }

    #[test]
    fn the_operator_is_silent() {
        let view = view(&multi_cluster_zookeeper(json!({})), None);
        assert!(view.waits);
        insta::assert_snapshot!(findings(&view, false), @r"
        n/zk waits, or needs you.

        ensemble     The operator has not written a status
                     -> Check that the operator runs and reaches karmada-apiserver: /readyz says what is missing
        ");
    }

    #[test]
    fn a_status_of_another_version_is_not_a_missing_one() {
        let view = view(&multi_cluster_zookeeper(json!({ "status": { "clusters": 7 } })), None);
        assert!(view.waits);
        let finding = &view.findings[0];
        assert!(finding.message.starts_with("This version of mczk cannot parse the status: "), "{finding:?}");
        assert_eq!(view.findings.len(), 1);
    }

    #[test]
    fn the_status_is_old() {
        let mut object = object(&[condition("Ready", "True", "Serving", "")], &json!([]));
        object.metadata.generation = Some(7);
        let view = view(&object, None);
        assert!(view.waits);
        assert!(view.findings[0].message.contains("generation 7"), "{:?}", view.findings);
    }
}
