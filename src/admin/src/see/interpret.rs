//! `mczk interpret`: the answer of the interpreter webhook for objects in files.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::{Args, builder::NonEmptyStringValueParser};
use jiff::Timestamp;
use json_patch::Patch;
use serde_json::{Value, json};

use crate::{
    install::operation::OperationWord,
    terminal::{
        documents::read_one,
        error::Error,
        output::{Format, print},
    },
};
use mczk_api::{API_VERSION, GROUP};
use mczk_rules::interpreter::{
    handler::{KIND, answer},
    wire::Operation,
};

/// Prints the webhook's answer to a question of Karmada about a ZooKeeper, without a server
///
/// It runs the code of the webhook on files. A patch of the answer is decoded, and the object after it is printed too.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 for an answer, 1 if the webhook refuses the question, 2 for a wrong command line \
                        or file."
)]
pub struct Interpret {
    /// Operation of Karmada's resource interpreter
    #[arg(value_enum, value_name = "OPERATION")]
    operation: OperationWord,
    /// File with the ZooKeeper, YAML or JSON; - is standard input
    #[arg(short, long, env = "MCZK_INTERPRET_FILENAME", value_name = "FILE")]
    filename: PathBuf,
    /// Cluster, and the file with the ZooKeeper as the cluster has it: CLUSTER=FILE. Repeat the flag for each cluster of
    /// `AggregateStatus`
    #[arg(long, env = "MCZK_INTERPRET_REPORT", value_name = "REPORT", value_parser = NonEmptyStringValueParser::new())]
    report: Vec<String>,
    /// Replicas with which Karmada asks: those of a cluster, for `ReviseReplica`
    #[arg(long, env = "MCZK_INTERPRET_REPLICAS", value_name = "NUMBER")]
    replicas: Option<i32>,
    /// Format of the output
    #[arg(short, long, env = "MCZK_INTERPRET_OUTPUT", value_enum, value_name = "FORMAT", default_value = "yaml")]
    output: Format,
}

impl Interpret {
    /// Prints the answer.
    ///
    /// # Errors
    /// [`Error::Usage`] if a file cannot be read; otherwise if the webhook refuses the question.
    pub fn run(self) -> Result<(), Error> {
        let object = read_one(&self.filename)?;
        if let Some(message) = other_kind(&object) {
            return Err(Error::Usage(format!("{}: {message}", self.filename.display())));
        }
        let reports = self.report.iter().map(|report| read_report(report)).collect::<Result<Vec<_>, _>>()?;
        let question = question(self.operation.0, &object, reports, self.replicas);
        let response = ask(&question, Timestamp::now())?;
        if response.get("successful") != Some(&Value::Bool(true)) {
            let message = response.pointer("/status/message").and_then(Value::as_str).unwrap_or("no reason given");
            return Err(anyhow!("the webhook refuses: {message}").into());
        }
        print(&self.output.text(&readable(response, object)?)?)
    }
}

/// What is wrong with an object about which Karmada does not ask.
fn other_kind(object: &Value) -> Option<String> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    (version != API_VERSION || kind != KIND).then(|| {
        format!(
            "apiVersion {version:?}, kind {kind:?}: Karmada asks about {API_VERSION}, kind {KIND}, which the operator makes of a \
             MultiClusterZooKeeper: kubectl get zookeepers.{GROUP} NAME --output yaml"
        )
    })
}

/// A report CLUSTER=FILE, as Karmada sends it.
fn read_report(report: &str) -> Result<Value, Error> {
    let (cluster, file) = report
        .split_once('=')
        .filter(|(cluster, file)| !cluster.is_empty() && !file.is_empty())
        .ok_or_else(|| Error::Usage(format!("--report {report}: write CLUSTER=FILE")))?;
    let mut object = read_one(&PathBuf::from(file))?;
    let status = object.get_mut("status").map(Value::take);
    Ok(json!({ "clusterName": cluster, "status": status, "applied": true, "health": "Healthy" }))
}

/// A question, as Karmada sends it.
fn question(operation: Operation, object: &Value, reports: Vec<Value>, replicas: Option<i32>) -> Value {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("/apiVersion").split_once('/').unwrap_or(("", text("/apiVersion")));
    let mut request = json!({
        "uid": "mczk-interpret", "operation": operation.name(), "name": text("/metadata/name"),
        "namespace": text("/metadata/namespace"), "kind": { "group": group, "version": version, "kind": text("/kind") },
        "object": object, "replicas": replicas.unwrap_or(0),
    });
    if let Some(request) = request.as_object_mut().filter(|_| !reports.is_empty()) {
        request.insert("aggregatedStatus".to_owned(), Value::Array(reports));
    }
    json!({ "request": request })
}

/// The response of the webhook.
fn ask(question: &Value, now: Timestamp) -> anyhow::Result<Value> {
    let answered = answer(&serde_json::to_vec(question)?, now)?;
    let mut reply = serde_json::to_value(answered.reply)?;
    Ok(reply.get_mut("response").map(Value::take).unwrap_or_default())
}

/// The response without the fields of the protocol, with its patch as JSON, and the object after the patch.
fn readable(mut response: Value, mut object: Value) -> anyhow::Result<Value> {
    let Some(fields) = response.as_object_mut() else { return Ok(response) };
    for field in ["uid", "successful", "patchType"] {
        fields.remove(field);
    }
    let encoded = fields.get("patch").and_then(Value::as_str).map(ToOwned::to_owned);
    if let Some(encoded) = encoded {
        let patch: Patch = serde_json::from_slice(&STANDARD.decode(encoded)?)?;
        json_patch::patch(&mut object, &patch).context("the patch does not fit the object")?;
        fields.insert("patch".to_owned(), json!(patch));
        fields.insert("patchedObject".to_owned(), object);
    }
    Ok(response)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::fixtures::zookeeper;

    fn ask_about(operation: Operation, object: &Value, reports: Vec<Value>) -> Value {
        let response = ask(&question(operation, object, reports, Some(2)), Timestamp::UNIX_EPOCH).unwrap();
        readable(response, object.clone()).unwrap()
    }

    #[rstest]
    #[case(Operation::InterpretHealth, json!({ "healthy": false }))]
    #[case(Operation::InterpretDependency, json!({ "dependencies": [] }))]
    fn an_answer_without_a_patch(#[case] operation: Operation, #[case] expected: Value) {
        assert_eq!(ask_about(operation, &zookeeper(json!({})), Vec::new()), expected);
    }

    #[test]
    fn a_patch_is_applied() {
        let object: Value = zookeeper(json!({ "spec": { "replicas": 3 } }));
        let answer = ask_about(Operation::ReviseReplica, &object, Vec::new());
        assert_eq!(answer["patch"][0]["path"], "/spec/replicas");
        assert_eq!(answer["patchedObject"]["spec"]["replicas"], 0);
    }

    #[test]
    fn reports_are_aggregated() {
        let report = json!({ "clusterName": "m1", "status": { "replicas": 2, "readyReplicas": 1 } });
        let answer = ask_about(Operation::AggregateStatus, &zookeeper(json!({})), vec![report]);
        assert_eq!(answer["patchedObject"]["status"]["replicas"], 2);
    }

    #[test]
    fn another_kind_is_refused_with_the_kind_to_take() {
        assert_eq!(other_kind(&zookeeper(json!({}))), None);
        let of = |version: &str, kind: &str| json!({ "apiVersion": version, "kind": kind });
        for object in [json!({}), of("mczk.io/v1alpha1", "MultiClusterZooKeeper"), of("apps/v1", "Deployment")] {
            let question = question(Operation::InterpretHealth, &object, Vec::new(), None);
            assert_eq!(ask(&question, Timestamp::UNIX_EPOCH).unwrap()["successful"], false);
            assert!(other_kind(&object).is_some_and(|message| message.contains("kubectl get zookeepers.mczk.io")));
        }
    }

    #[test]
    fn a_report_names_cluster_and_file() {
        for report in ["m1", "=file", "m1="] {
            assert!(matches!(read_report(report), Err(Error::Usage(_))), "{report}");
        }
    }
}
