//! The webhook: it answers each question as [`super::oracle`] expects, and its answers follow Karmada's protocol.

use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::jiff::Timestamp;
use mczk_rules::interpreter::handler;
use serde_json::{Value, json, value::RawValue};

use super::oracle::{self, Answer};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// The webhook's answer to a body, as text. `None` if the body is no question.
fn answer(body: &[u8]) -> Option<Vec<u8>> {
    let answered = handler::answer(body, NOW).ok()?;
    serde_json::to_vec(&answered.reply).ok()
}

/// Any body.
pub fn question(data: &[u8]) {
    let answer = answer(data).map(|answer| response(&answer));
    let Ok(body) = serde_json::from_slice::<Value>(data) else {
        // A field that is not read may hold a number beyond those of `Value`, or be nested deeper.
        let has_grammar = serde_json::from_slice::<&RawValue>(data).is_ok();
        assert!(has_grammar || answer.is_none_or(|answer| answer["successful"] == false), "the body is not JSON");
        return;
    };
    let Some(answer) = answer else { return };
    follows_protocol(&answer);
    if let Some(expected) = oracle::answer(&body, NOW).filter(|_| body == roundtrip(data, &body)) {
        agrees(&body, &answer, &expected);
    }
}

/// The body again, if no object in the text has a field twice: such a text is longer than its value.
fn roundtrip(data: &[u8], body: &Value) -> Value {
    let fields = |text: &[u8]| text.iter().filter(|byte| **byte == b':').count();
    if fields(data) == fields(body.to_string().as_bytes()) { body.clone() } else { Value::Null }
}

/// A question about any object: the text of one, or of a list of the object and the statuses of clusters.
pub fn operation(operation: &str, data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(data) else { return };
    let (object, statuses) = match value {
        Value::Array(mut both) if both.len() == 2 => (both.remove(0), both.remove(0)),
        object => (object, Value::Null),
    };
    let body = json!({ "request": {
        "uid": "u-1", "kind": { "group": "mczk.io", "version": "v1alpha1", "kind": "ZooKeeper" }, "name": "zk",
        "namespace": "n", "operation": operation, "object": object, "aggregatedStatus": statuses,
    } });
    let answer = answer(body.to_string().as_bytes()).expect("the body is a question");
    let answer = response(&answer);
    follows_protocol(&answer);
    if let Some(expected) = oracle::answer(&body, NOW) {
        agrees(&body, &answer, &expected);
    }
}

fn response(answer: &[u8]) -> Value {
    let mut answer: Value = serde_json::from_slice(answer).expect("the answer is JSON");
    assert_eq!(answer["apiVersion"], "config.karmada.io/v1alpha1");
    assert_eq!(answer["kind"], "ResourceInterpreterContext");
    answer["response"].take()
}

/// What Karmada demands of every answer (`pkg/resourceinterpreter/customized/webhook/request/attributes.go`).
fn follows_protocol(answer: &Value) {
    assert!(answer["uid"].is_string(), "{answer}");
    assert_eq!(answer.get("patch").is_some(), answer.get("patchType").is_some(), "{answer}");
    if answer["successful"] == true {
        assert!(answer.get("status").is_none(), "{answer}");
    } else {
        assert_eq!(answer["successful"], false, "{answer}");
        let code = answer["status"]["code"].as_u64().expect("a code");
        assert!([400, 422].contains(&code), "{answer}");
        let message = answer["status"]["message"].as_str().expect("a message");
        assert!(!message.is_empty() && message.chars().count() <= 515, "{answer}");
        assert!(answer.get("patch").is_none(), "{answer}");
    }
    for dependency in answer["dependencies"].as_array().into_iter().flatten() {
        for field in ["apiVersion", "kind", "namespace", "name"] {
            assert!(dependency[field].as_str().is_some_and(|text| !text.is_empty()), "{answer}");
        }
    }
}

/// The answer is the expected one. A patch counts by the object that it makes.
fn agrees(body: &Value, answer: &Value, expected: &Answer) {
    let request = &body["request"];
    assert_eq!(answer["uid"], request["uid"], "{body}");
    let successful = answer["successful"] == true;
    match expected {
        Answer::Refused => assert!(!successful, "{answer} to {body}"),
        Answer::Fields(fields) => {
            assert!(successful, "{answer} to {body}");
            for (name, value) in fields {
                assert_eq!(&answer[name], value, "{name} of {answer} to {body}");
            }
        }
        Answer::Object(expected) => {
            assert!(successful, "{answer} to {body}");
            let mut object = request["object"].clone();
            if let Some(patch) = answer["patch"].as_str() {
                let patch = STANDARD.decode(patch).expect("base64");
                let patch: json_patch::Patch = serde_json::from_slice(&patch).expect("a patch");
                assert!(!patch.0.is_empty(), "{answer}");
                json_patch::patch(&mut object, &patch).expect("a patch of this object");
                assert_ne!(object, request["object"], "the patch changes nothing: {answer}");
            }
            assert_eq!(&object, expected, "{answer} to {body}");
        }
    }
}
