//! From the body of a question to its answer.

use jiff::Timestamp;
use mczk_api::{API_VERSION, GROUP, VERSION};
use serde_json::value::RawValue;

use super::{
    aggregate::{self, Items, Statuses},
    dependency, health,
    object::{MapOnly, read},
    refusal::Refusal,
    replica, revise,
    wire::{Addressee, Answer, Envelope, Operation, Reply, Request},
};

/// The kind that the webhook answers for.
pub const KIND: &str = "ZooKeeper";
/// Largest number of characters of a foreign text in a message.
const MAX_ECHO: usize = 64;
/// Largest number of characters of a message: it becomes an event.
const MAX_MESSAGE: usize = 512;

/// What [`unreadable`] says of a question that can be read.
const READABLE: &str = "request: it cannot be read";

/// The body is not a question, so there is no uid to answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is not a ResourceInterpreterContext: {0}")]
pub struct Malformed(String);

/// An answer, with details for logs and metrics.
#[derive(Debug)]
pub struct Answered {
    /// The operation, if the webhook answers it.
    pub operation: Option<Operation>,
    /// Namespace and name of the object.
    pub object: (String, String),
    /// Why the question was refused.
    pub refusal: Option<Refusal>,
    /// The reply to Karmada.
    pub reply: Reply,
}

/// Answers the question in `body`, at the time `now`.
///
/// # Errors
/// If the body is not JSON, or holds no question with a `uid`. The reply reports any other error.
pub fn answer(body: &[u8], now: Timestamp) -> Result<Answered, Malformed> {
    let (uid, operation, object, mut outcome) = if let Some(mut request) = parse(body) {
        let operation = operation(&request);
        let outcome = operation.clone().and_then(|operation| interpret(operation, &mut request, now));
        (request.uid, operation.ok(), (request.namespace, request.name), outcome)
    } else {
        let (uid, refusal) = unreadable(body)?;
        (uid, None, <(String, String)>::default(), Err(refusal))
    };
    if let Err(refusal) = &mut outcome {
        refusal.message = shortened(&refusal.message, MAX_MESSAGE);
    }
    let refusal = outcome.as_ref().err().cloned();
    let reply = Reply::new(uid, outcome).map_err(|error| Malformed(error.to_string()))?;
    Ok(Answered { operation, object, refusal, reply })
}

/// The question in a body; `None` if [`unreadable`] says why there is none. One pass reads the statuses too, if each of
/// them can be read.
fn parse(body: &[u8]) -> Option<Request<'_, Statuses<'_>>> {
    let text = str::from_utf8(body).ok()?;
    if !text.trim_ascii_start().starts_with('{') {
        return None;
    }
    if let Ok(Envelope { request }) = serde_json::from_str::<Envelope<MapOnly<Request<'_, Items>>>>(text) {
        return request.map(|MapOnly(request)| request.map_statuses(Statuses::Read));
    }
    let Envelope { request } = serde_json::from_str::<Envelope<MapOnly<Request<'_>>>>(text).ok()?;
    request.map(|MapOnly(request)| request.map_statuses(Statuses::Text))
}

/// Why [`parse`] finds no question. Only a question with a uid can be answered.
fn unreadable(body: &[u8]) -> Result<(String, Refusal), Malformed> {
    let envelope: Envelope<&RawValue> = serde_json::from_slice(body).map_err(|error| Malformed(error.to_string()))?;
    let request = envelope.request.ok_or_else(|| Malformed("request is missing".to_owned()))?;
    if !(body.trim_ascii_start().starts_with(b"{") && request.get().starts_with('{')) {
        return Err(Malformed("the body and its request must be objects".to_owned()));
    }
    let Addressee { uid } =
        serde_json::from_str(request.get()).map_err(|error| Malformed(format!("request.uid: {error}")))?;
    let refusal = read::<Request<'_>>("request", request).err();
    Ok((uid, refusal.unwrap_or_else(|| Refusal::unreadable(READABLE))))
}

/// The operation of a question about our kind.
fn operation<S>(request: &Request<'_, S>) -> Result<Operation, Refusal> {
    let kind = &request.kind;
    if (kind.group.as_str(), kind.version.as_str(), kind.kind.as_str()) != (GROUP, VERSION, KIND) {
        return Err(Refusal::misdirected(format!(
            "mczk interprets only {}, kind {KIND}, but was asked about {}: narrow the rules of the ResourceInterpreterWebhookConfiguration",
            API_VERSION,
            shortened(&kind.to_string(), 3 * MAX_ECHO),
        )));
    }
    Operation::named(&request.operation).ok_or_else(|| {
        Refusal::misdirected(format!(
            "mczk does not answer the operation {:?}: remove it from the ResourceInterpreterWebhookConfiguration, and keep {}",
            shortened(&request.operation, MAX_ECHO),
            Operation::ALL.map(Operation::name).join(", "),
        ))
    })
}

fn interpret(operation: Operation, request: &mut Request<'_, Statuses<'_>>, now: Timestamp) -> Result<Answer, Refusal> {
    let object = request.object.ok_or_else(|| Refusal::unreadable("request.object is missing"))?;
    Ok(match operation {
        Operation::InterpretReplica => {
            let (replicas, requirements) = replica::interpret(object)?;
            Answer::Replicas(replicas, requirements)
        }
        Operation::ReviseReplica => Answer::Patch(revise::revise(object)?),
        Operation::AggregateStatus => {
            Answer::Status(aggregate::aggregate(object, request.aggregated_status.take(), now)?.map(Box::new))
        }
        Operation::InterpretHealth => Answer::Healthy(health::interpret(object)?),
        Operation::InterpretDependency => Answer::Dependencies(dependency::interpret(object, &request.namespace)?),
    })
}

fn shortened(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use proptest::{prelude::*, sample::Index};
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn ask(request: &Value) -> Value {
        let body = serde_json::to_vec(&json!({ "request": request })).unwrap();
        serde_json::to_value(answer(&body, Timestamp::UNIX_EPOCH).unwrap().reply).unwrap()["response"].clone()
    }

    fn kind() -> Value {
        json!({"group": "mczk.io", "version": "v1alpha1", "kind": "ZooKeeper"})
    }

    #[rstest]
    #[case(b"", "EOF while parsing a value")]
    #[case(b"{", "EOF while parsing an object")]
    #[case(b"[]", "request is missing")]
    #[case(br#"[{"uid":"u"}]"#, "must be objects")]
    #[case(br#"{"request":["u"]}"#, "must be objects")]
    #[case(b"7", "invalid type")]
    #[case(b"{}", "request is missing")]
    #[case(br#"{"request":{}}"#, "request.uid: missing field `uid`")]
    #[case(br#"{"request":{"uid":7}}"#, "request.uid: invalid type")]
    #[case(b"{\"request\":{\"uid\":\"\xff\"}}", "")]
    fn a_body_without_a_question_is_malformed(#[case] body: &[u8], #[case] reason: &str) {
        let error = answer(body, Timestamp::UNIX_EPOCH).unwrap_err().to_string();
        assert!(
            error.starts_with("the body is not a ResourceInterpreterContext: ") && error.contains(reason),
            "{error}"
        );
    }

    #[rstest]
    #[case::type_of_a_field(json!({"uid": "u", "kind": {"group": 1}, "operation": "ReviseReplica"}), 422, "request.kind.group: invalid type")]
    #[case::no_operation(json!({"uid": "u", "kind": kind()}), 422, "request: missing field `operation`")]
    #[case::operation(json!({"uid": "u", "kind": kind(), "operation": "Retain", "object": {}}), 400, "does not answer the operation \"Retain\"")]
    #[case::long_operation(json!({"uid": "u", "kind": kind(), "operation": "x".repeat(9999)}), 400, "xxx...\": remove it")]
    #[case::kind(json!({"uid": "u", "kind": {"group": "apps", "version": "v1", "kind": "Deployment"}, "operation": "ReviseReplica"}), 400, "asked about apps/v1, kind Deployment")]
    #[case::our_other_kind(json!({"uid": "u", "kind": {"group": "mczk.io", "version": "v1alpha1", "kind": "MultiClusterZooKeeper"}, "operation": "ReviseReplica"}), 400, "kind MultiClusterZooKeeper")]
    #[case::version(json!({"uid": "u", "kind": {"group": "mczk.io", "version": "v9", "kind": "ZooKeeper"}, "operation": "ReviseReplica"}), 400, "asked about mczk.io/v9")]
    #[case::no_object(json!({"uid": "u", "kind": kind(), "operation": "InterpretHealth"}), 422, "request.object is missing")]
    #[case::null_object(json!({"uid": "u", "kind": kind(), "operation": "InterpretHealth", "object": null}), 422, "request.object is missing")]
    fn a_question_is_refused(#[case] request: Value, #[case] code: u16, #[case] message: &str) {
        let response = ask(&request);
        assert_eq!(response["uid"], "u");
        assert_eq!(response["successful"], false);
        assert_eq!(response["status"]["code"], code);
        let text = response["status"]["message"].as_str().unwrap();
        assert!(text.contains(message) && text.len() < 600, "{text}");
    }

    proptest! {
        /// One pass reads what several passes with exact errors read.
        #[test]
        fn both_ways_to_read_agree(
            mut body in Just(ask_text()), at in any::<Index>(), end in any::<Index>(),
            new in prop_oneof![Just(""), Just("["), Just("{"), Just("]"), Just("}"), Just(","), Just("null"), Just("7"),
                               Just("\"uid\":\"v\","), Just("\"request\":{},"), Just("\\u00"), Just("\u{e9}"), Just(" ")],
        ) {
            let at = at.index(body.len());
            let end = (at + end.index(4)).min(body.len());
            body.replace_range(at..end, new);
            match (parse(body.as_bytes()), unreadable(body.as_bytes())) {
                (Some(request), Ok((uid, refusal))) => {
                    prop_assert_eq!((request.uid, refusal.message.as_str()), (uid, READABLE));
                }
                (None, Ok((_, refusal))) => prop_assert_ne!(refusal.message.as_str(), READABLE),
                (read, refused) => prop_assert!(read.is_none() && refused.is_err(), "{}", body),
            }
        }
    }

    fn ask_text() -> String {
        json!({ "request": { "uid": "u", "kind": kind(), "name": "z", "operation": "ReviseReplica", "object": { "spec": {} } } })
            .to_string()
    }

    #[rstest]
    #[case("InterpretReplica", json!({"replicas": 3, "replicaRequirements": {"resourceRequest": {"cpu": "10m", "memory": "1Gi"}}}))]
    #[case("InterpretHealth", json!({"healthy": false}))]
    #[case("InterpretDependency", json!({"dependencies": []}))]
    #[case("ReviseReplica", json!({"patch": "W3sib3AiOiJyZXBsYWNlIiwicGF0aCI6Ii9zcGVjL3JlcGxpY2FzIiwidmFsdWUiOjB9XQ==", "patchType": "JSONPatch"}))]
    fn a_question_is_answered(#[case] operation: &str, #[case] mut expected: Value) {
        expected["uid"] = json!("u");
        expected["successful"] = json!(true);
        let object = json!({"metadata": {"namespace": "n"}, "spec": {"replicas": 3}});
        assert_eq!(
            ask(&json!({"uid": "u", "kind": kind(), "operation": operation, "object": object, "replicas": 0})),
            expected
        );
    }
}
