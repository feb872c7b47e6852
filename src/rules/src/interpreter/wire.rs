//! Questions and answers between Karmada and an interpreter webhook: `ResourceInterpreterContext` of
//! `config.karmada.io/v1alpha1` (`pkg/apis/config/v1alpha1/interpretercontext_types.go` in Karmada).

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use json_patch::PatchOperation;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    aggregate::StatusChange, dependency::DependentObjectReference, refusal::Refusal, replica::ReplicaRequirements,
};
use mczk_api::karmada::interpreter::API_VERSION;

/// `kind` of the context.
pub const KIND: &str = "ResourceInterpreterContext";

/// Outermost object of a question: `T` is the question, as text or as [`Request`].
#[derive(Debug, Deserialize)]
pub(crate) struct Envelope<T> {
    /// The question.
    #[serde(default = "Option::default")]
    pub(crate) request: Option<T>,
}

/// The only field of a question that an answer needs.
#[derive(Debug, Deserialize)]
pub(crate) struct Addressee {
    /// Id of the question, which the answer repeats.
    pub(crate) uid: String,
}

/// A question. The object stays text until it is needed, so that a large or hostile body costs only its own size.
/// Fields that no operation reads are left out. `replicas` is one of them: Karmada sends it with every operation, and the
/// answer is 0 for any value. `S` is the list of statuses, as text or as what is read of it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "S: Deserialize<'de>"))]
pub(crate) struct Request<'a, S = &'a RawValue> {
    /// Id of the question, which the answer repeats.
    pub(crate) uid: String,
    /// Kind of the object.
    pub(crate) kind: GroupVersionKind,
    /// Name of the object.
    #[serde(default)]
    pub(crate) name: String,
    /// Namespace of the object.
    #[serde(default)]
    pub(crate) namespace: String,
    pub(crate) operation: String,
    #[serde(borrow, default)]
    pub(crate) object: Option<&'a RawValue>,
    /// The object's status in each member cluster. Only with `AggregateStatus`.
    #[serde(default = "Option::default")]
    pub(crate) aggregated_status: Option<S>,
}

impl<'a, S> Request<'a, S> {
    /// The question with another form of its statuses.
    pub(crate) fn map_statuses<T>(self, form: impl FnOnce(S) -> T) -> Request<'a, T> {
        let Self { uid, kind, name, namespace, operation, object, aggregated_status } = self;
        Request { uid, kind, name, namespace, operation, object, aggregated_status: aggregated_status.map(form) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct GroupVersionKind {
    #[serde(default)]
    pub(crate) group: String,
    #[serde(default)]
    pub(crate) version: String,
    #[serde(default)]
    pub(crate) kind: String,
}

impl fmt::Display for GroupVersionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, kind {}", self.group, self.version, self.kind)
    }
}

/// An operation of Karmada's protocol that the webhook answers. An ensemble needs each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Number of replicas, and requirements of each
    InterpretReplica,
    /// The object with another number of replicas
    ReviseReplica,
    /// Status of the template, from those of the member clusters
    AggregateStatus,
    /// Health of the object in a member cluster
    InterpretHealth,
    /// Secrets and `ConfigMap`s that Karmada must propagate with the object
    InterpretDependency,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Operation {
    /// All operations, in the order of Karmada's documentation.
    pub const ALL: [Self; 5] = [
        Self::InterpretReplica,
        Self::ReviseReplica,
        Self::AggregateStatus,
        Self::InterpretHealth,
        Self::InterpretDependency,
    ];

    /// Karmada's name of the operation.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InterpretReplica => "InterpretReplica",
            Self::ReviseReplica => "ReviseReplica",
            Self::AggregateStatus => "AggregateStatus",
            Self::InterpretHealth => "InterpretHealth",
            Self::InterpretDependency => "InterpretDependency",
        }
    }

    /// The operation of that name, if the webhook answers it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.name() == name)
    }
}

/// Answer to an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Answer to `InterpretReplica`. The requirements are present for all but a survey. Without them Karmada treats an object
    /// with 0 replicas as no workload, skips `ReviseReplica`, and sends the template unchanged to every candidate
    /// cluster.
    Replicas(i32, Option<ReplicaRequirements>),
    /// Answer to `ReviseReplica`: the changes. Nothing changes if it is empty.
    Patch(Vec<PatchOperation>),
    /// Answer to `AggregateStatus`: the change of the status, if there is one.
    Status(Option<Box<StatusChange>>),
    /// Answer to `InterpretHealth`.
    Healthy(bool),
    /// Answer to `InterpretDependency`.
    Dependencies(Vec<DependentObjectReference>),
}

/// Outermost object of an answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reply {
    api_version: &'static str,
    kind: &'static str,
    response: Response,
}

/// An answer, as Karmada reads it.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: String,
    successful: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<RequestStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replica_requirements: Option<ReplicaRequirements>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dependencies: Option<Vec<DependentObjectReference>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    healthy: Option<bool>,
}

impl Response {
    /// Sets the operations of a JSON patch, if there are any. Karmada refuses a patch without a type, and a type without a
    /// patch.
    fn set_patch(&mut self, operations: &[impl Serialize]) -> serde_json::Result<()> {
        if !operations.is_empty() {
            self.patch = Some(STANDARD.encode(serde_json::to_vec(operations)?));
            self.patch_type = Some("JSONPatch");
        }
        Ok(())
    }
}

#[derive(Debug, Serialize)]
struct RequestStatus {
    message: String,
    code: u16,
}

impl Reply {
    /// The reply to the question `uid`.
    ///
    /// # Errors
    /// If a patch cannot be serialized, which no patch of ours can cause.
    pub fn new(uid: String, outcome: Result<Answer, Refusal>) -> serde_json::Result<Self> {
        let mut response = Response { uid, successful: outcome.is_ok(), ..Response::default() };
        match outcome {
            Ok(Answer::Replicas(replicas, requirements)) => {
                response.replicas = Some(replicas);
                response.replica_requirements = requirements;
            }
            Ok(Answer::Patch(operations)) => response.set_patch(&operations)?,
            Ok(Answer::Status(change)) => response.set_patch(change.as_slice())?,
            Ok(Answer::Healthy(healthy)) => response.healthy = Some(healthy),
            Ok(Answer::Dependencies(dependencies)) => response.dependencies = Some(dependencies),
            Err(Refusal { code, message }) => response.status = Some(RequestStatus { message, code }),
        }
        Ok(Self { api_version: API_VERSION, kind: KIND, response })
    }

    /// Id of the question for the log: at most the first 64 bytes.
    #[must_use]
    pub fn uid(&self) -> &str {
        let uid = &self.response.uid;
        let end = (0..=uid.len().min(64)).rev().find(|at| uid.is_char_boundary(*at)).unwrap_or(0);
        uid.get(..end).unwrap_or_default()
    }

    /// Changes the message of a refusal.
    pub fn extend_message(&mut self, extend: impl FnOnce(&str) -> String) {
        if let Some(status) = &mut self.response.status {
            status.message = extend(&status.message);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use json_patch::{ReplaceOperation, jsonptr::PointerBuf};
    use serde_json::{json, to_string};

    use super::*;

    #[test]
    fn an_operation_has_one_name_everywhere() {
        for operation in Operation::ALL {
            assert_eq!(Operation::named(operation.name()), Some(operation));
            assert_eq!(operation.to_string(), operation.name());
        }
    }

    #[test]
    fn a_patch_and_its_type_come_together_or_not_at_all() {
        let none = Reply::new("u".into(), Ok(Answer::Patch(vec![]))).unwrap();
        assert_eq!(
            to_string(&none).unwrap(),
            r#"{"apiVersion":"config.karmada.io/v1alpha1","kind":"ResourceInterpreterContext","response":{"uid":"u","successful":true}}"#
        );
        let operation = PatchOperation::Replace(ReplaceOperation {
            path: PointerBuf::from_tokens(["spec", "replicas"]),
            value: json!(0),
        });
        let some = serde_json::to_value(Reply::new("u".into(), Ok(Answer::Patch(vec![operation]))).unwrap()).unwrap();
        assert_eq!(some["response"]["patchType"], "JSONPatch");
        assert_eq!(
            STANDARD.decode(some["response"]["patch"].as_str().unwrap()).unwrap(),
            br#"[{"op":"replace","path":"/spec/replicas","value":0}]"#
        );
    }

    #[test]
    fn a_refusal_has_a_status() {
        let reply = Reply::new("u".into(), Err(Refusal::unreadable("object.spec: no"))).unwrap();
        assert_eq!(
            serde_json::to_value(reply).unwrap()["response"],
            json!({"uid": "u", "successful": false, "status": {"message": "object.spec: no", "code": 422}})
        );
    }

    #[test]
    fn requirements_are_there_even_if_empty() {
        let reply = Reply::new("u".into(), Ok(Answer::Replicas(0, Some(ReplicaRequirements::default())))).unwrap();
        assert_eq!(
            serde_json::to_value(reply).unwrap()["response"],
            json!({"uid": "u", "successful": true, "replicas": 0, "replicaRequirements": {}})
        );
    }
}
