//! The service of the webhook without a network: exact requests and exact answers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::time::Duration;

use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, Request, StatusCode, header},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use http_body_util::BodyExt;
use mczk_operator::interpreter::{Metrics, RequestLimits, router};
use prometheus_client::registry::Registry;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};
use tower::ServiceExt;

const PATH: &str = "/interpreter";

fn service(limits: RequestLimits) -> (Router, Registry) {
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    (router(PATH, limits, metrics), registry)
}

async fn send(router: &Router, mut request: Request<Body>) -> (StatusCode, HeaderMap, String) {
    request.headers_mut().insert("x-request-id", HeaderValue::from_static("t-1"));
    let response = router.clone().oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    assert_eq!(head.headers["x-request-id"], "t-1");
    let body = body.collect().await.unwrap().to_bytes();
    (head.status, head.headers, String::from_utf8(body.to_vec()).unwrap())
}

fn post(body: impl Into<Body>) -> Request<Body> {
    Request::post(PATH).header(header::CONTENT_TYPE, "application/json").body(body.into()).unwrap()
}

async fn ask(body: &[u8]) -> (StatusCode, String) {
    let (router, _) = service(RequestLimits::default());
    let (status, _, body) = send(&router, post(body.to_vec())).await;
    (status, body)
}

fn question(operation: &str, object: &Value, more: &Value) -> Value {
    let mut request = json!({
        "uid": "6c7e1d5e-0001", "kind": {"group": "mczk.io", "version": "v1alpha1", "kind": "ZooKeeper"},
        "name": "zk", "namespace": "prod", "operation": operation, "object": object, "replicas": 0
    });
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterContext", "request": request})
}

/// The text of the answer, with the patch decoded from base64.
async fn answer(operation: &str, object: Value, more: Value) -> String {
    let (status, body) = ask(&serde_json::to_vec(&question(operation, &object, &more)).unwrap()).await;
    assert_eq!(status, StatusCode::OK);
    match serde_json::from_str::<Value>(&body).unwrap()["response"]["patch"].as_str() {
        Some(patch) => {
            body.replace(&format!("\"{patch}\""), &String::from_utf8(STANDARD.decode(patch).unwrap()).unwrap())
        }
        None => body,
    }
}

fn template() -> Value {
    json!({
        "apiVersion": "mczk.io/v1alpha1", "kind": "ZooKeeper",
        "metadata": {"name": "zk", "namespace": "prod", "generation": 3},
        "spec": {
            "replicas": 5, "renderVersion": 1, "serverImage": "mczk:1", "revision": "r", "ensemble": {},
            "tls": {"quorum": true, "client": {"mode": "Required", "secretName": "zk-client"}},
            "dependencies": [{"kind": "Secret", "name": "zk-quorum"}],
            "template": {
                "image": "zookeeper:3.9.4", "storage": {"size": "10Gi"}, "imagePullSecrets": ["registry"],
                "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}},
                "scheduling": {"nodeSelector": {"disk": "ssd"}}
            }
        }
    })
}

fn envelope(response: &str) -> String {
    format!(
        r#"{{"apiVersion":"config.karmada.io/v1alpha1","kind":"ResourceInterpreterContext","response":{{"uid":"6c7e1d5e-0001",{response}}}}}"#
    )
}

#[tokio::test]
async fn interpret_replica() {
    assert_eq!(
        answer("InterpretReplica", template(), json!({})).await,
        envelope(
            r#""successful":true,"replicaRequirements":{"nodeClaim":{"nodeSelector":{"disk":"ssd"}},"resourceRequest":{"cpu":"500m","memory":"1Gi"}},"replicas":5"#
        )
    );
}

#[tokio::test]
async fn revise_replica_is_zero_for_every_request() {
    let expected = envelope(
        r#""successful":true,"patch":[{"op":"replace","path":"/spec/replicas","value":0}],"patchType":"JSONPatch""#,
    );
    for replicas in [json!(0), json!(3), json!(null), json!("x")] {
        assert_eq!(answer("ReviseReplica", template(), json!({ "replicas": replicas })).await, expected);
    }
    let mut held = template();
    held["spec"]["replicas"] = json!(0);
    assert_eq!(answer("ReviseReplica", held, json!({"replicas": 3})).await, envelope(r#""successful":true"#));
}

#[tokio::test]
async fn aggregate_status() {
    let items = json!([
        {"clusterName": "m2", "applied": true, "health": "Unhealthy", "status": {"replicas": 2, "startedReplicas": 1}},
        {"clusterName": "m1", "applied": true, "status": {
            "replicas": 3, "startedReplicas": 3, "readyReplicas": 3, "writable": true, "configVersion": 4_294_967_296_u64,
            "leader": 2, "votingMembers": [1, 2, 3], "servers": [{"id": 2, "pod": "zk-1", "mode": "leader", "serving": true, "synced": true}]
        }},
        {"clusterName": "m3", "applied": false, "appliedMessage": "no"}
    ]);
    let expected = envelope(
        r#""successful":true,"patch":[{"op":"add","path":"/status","value":{"observedGeneration":3,"replicas":5,"startedReplicas":4,"readyReplicas":3,"servers":[{"id":2,"pod":"zk-1","mode":"leader","serving":true,"synced":true,"lost":false}],"votingMembers":[1,2,3],"configVersion":4294967296,"leader":2,"writable":true}}],"patchType":"JSONPatch""#,
    );
    assert_eq!(answer("AggregateStatus", template(), json!({ "aggregatedStatus": items })).await, expected);
}

#[tokio::test]
async fn interpret_health() {
    let mut member = template();
    assert_eq!(
        answer("InterpretHealth", member.clone(), json!({})).await,
        envelope(r#""successful":true,"healthy":false"#)
    );
    member["spec"]["specHash"] = json!("p");
    member["status"] = json!({"observedSpecHash": "p", "completedSpecHash": "p", "readyReplicas": 5});
    assert_eq!(answer("InterpretHealth", member, json!({})).await, envelope(r#""successful":true,"healthy":true"#));
}

#[tokio::test]
async fn interpret_dependency() {
    assert_eq!(
        answer("InterpretDependency", template(), json!({})).await,
        envelope(
            r#""successful":true,"dependencies":[{"apiVersion":"v1","kind":"Secret","namespace":"prod","name":"registry"},{"apiVersion":"v1","kind":"Secret","namespace":"prod","name":"zk-client"},{"apiVersion":"v1","kind":"Secret","namespace":"prod","name":"zk-quorum"}]"#
        )
    );
}

#[tokio::test]
async fn foreign_kinds_and_operations_are_refused() {
    assert_eq!(
        answer("Retain", template(), json!({})).await,
        envelope(
            r#""successful":false,"status":{"message":"mczk does not answer the operation \"Retain\": remove it from the ResourceInterpreterWebhookConfiguration, and keep InterpretReplica, ReviseReplica, AggregateStatus, InterpretHealth, InterpretDependency, request t-1","code":400}"#
        )
    );
    assert_eq!(
        answer("ReviseReplica", template(), json!({"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}}))
            .await,
        envelope(
            r#""successful":false,"status":{"message":"mczk interprets only mczk.io/v1alpha1, kind ZooKeeper, but was asked about apps/v1, kind Deployment: narrow the rules of the ResourceInterpreterWebhookConfiguration, request t-1","code":400}"#
        )
    );
    assert_eq!(
        answer("InterpretReplica", json!({"spec": {"replicas": "3"}}), json!({})).await,
        envelope(
            r#""successful":false,"status":{"message":"object.spec.replicas: invalid type: string \"3\", expected i32, request t-1","code":422}"#
        )
    );
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": code, "reason": reason, "message": format!("{message}, request t-1")})
}

#[rstest]
#[case::malformed(
    post("{"),
    400,
    "BadRequest",
    "the body is not a ResourceInterpreterContext: EOF while parsing an object at line 1 column 1"
)]
#[case::no_body(
    post(""),
    400,
    "BadRequest",
    "the body is not a ResourceInterpreterContext: EOF while parsing a value at line 1 column 0"
)]
#[case::no_type(Request::post(PATH).body(Body::from("{}")).unwrap(), 415, "UnsupportedMediaType", "the Content-Type must be application/json")]
#[case::other_type(Request::post(PATH).header("content-type", "application/yaml").body(Body::from("{}")).unwrap(), 415, "UnsupportedMediaType", "the Content-Type must be application/json")]
#[case::method(Request::put(PATH).body(Body::empty()).unwrap(), 405, "MethodNotAllowed", "only POST is allowed")]
#[case::path(Request::post("/interpreter/").body(Body::empty()).unwrap(), 404, "NotFound", "nothing is served at this path: check the path of the registered URL")]
#[case::too_large(post(vec![b' '; 2000]), 413, "RequestEntityTooLarge", "the body is larger than 1000 bytes: raise --max-body-bytes if Karmada sent it")]
#[tokio::test]
async fn an_invalid_request_is_answered_in_json(
    #[case] request: Request<Body>,
    #[case] code: u16,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let (router, _) = service(RequestLimits { max_body_bytes: 1000, ..RequestLimits::default() });
    let (got, headers, body) = send(&router, request).await;
    assert_eq!(got, code);
    assert_eq!(headers[header::CONTENT_TYPE], "application/json");
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), status(code, reason, message));
    assert_eq!(headers.get(header::ALLOW).is_some(), code == 405);
}

#[rstest]
#[case("application/json")]
#[case("application/json; charset=utf-8")]
#[case("Application/JSON")]
#[tokio::test]
async fn every_spelling_of_the_json_type_is_accepted(#[case] content_type: &str) {
    let (router, _) = service(RequestLimits::default());
    let body = question("InterpretHealth", &template(), &json!({})).to_string();
    let request = Request::post(PATH).header("content-type", content_type).body(Body::from(body)).unwrap();
    assert_eq!(send(&router, request).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_body_of_the_largest_size_is_accepted() {
    let body = question("InterpretHealth", &template(), &json!({})).to_string();
    let (router, _) = service(RequestLimits { max_body_bytes: body.len(), ..RequestLimits::default() });
    assert_eq!(send(&router, post(body.clone())).await.0, StatusCode::OK);
    assert_eq!(send(&router, post(body + " ")).await.0, StatusCode::PAYLOAD_TOO_LARGE);
}

/// A body that never arrives.
fn stuck() -> Body {
    Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>())
}

#[tokio::test(start_paused = true)]
async fn slow_bodies_end_for_new_requests() {
    let limits = RequestLimits { concurrency: 2, body_timeout: Duration::from_secs(5), ..RequestLimits::default() };
    let (router, registry) = service(limits);
    let body = question("InterpretHealth", &template(), &json!({})).to_string();
    let slow: Vec<_> = (0..4)
        .map(|_| {
            let router = router.clone();
            tokio::spawn(async move { send(&router, post(stuck())).await })
        })
        .collect();
    tokio::task::yield_now().await;
    assert_eq!(send(&router, post(body.clone())).await.0, StatusCode::OK);
    let mut statuses = Vec::new();
    for slow in slow {
        let (status, headers, text) = slow.await.unwrap();
        if status == StatusCode::TOO_MANY_REQUESTS {
            assert_eq!(headers[header::RETRY_AFTER], "1");
            assert!(text.contains("the body arrives slowly"), "{text}");
        }
        statuses.push(status.as_u16());
    }
    // A body that arrives with its head takes no place, and ends none.
    assert_eq!(statuses, [429, 429, 408, 408]);

    // A client that disconnects returns its place too.
    for _ in 0..10 {
        let disconnected = tokio::time::timeout(Duration::from_millis(1), send(&router, post(stuck()))).await;
        assert!(disconnected.is_err());
    }
    assert_eq!(send(&router, post(body)).await.0, StatusCode::OK);

    let text = mczk_runtime::telemetry::exposition(&registry).unwrap();
    for line in [
        r#"mczk_webhook_requests_total{operation="none",result="evicted"} 2"#,
        r#"mczk_webhook_requests_total{operation="none",result="too_slow"} 2"#,
        r#"mczk_webhook_requests_total{operation="InterpretHealth",result="answered"} 2"#,
        "mczk_webhook_requests_in_flight 0",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
}

/// Any JSON, in which relevant field names are likely.
fn any_json() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        4 => prop::sample::select(vec![
            "request", "uid", "kind", "group", "version", "operation", "object", "aggregatedStatus", "metadata", "generation",
            "namespace", "spec", "status", "replicas", "template", "resources", "scheduling", "specHash", "ensemble", "servers",
            "id", "clusterName", "conditions", "dependencies", "tls",
        ]).prop_map(str::to_owned),
        1 => ".{0,8}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (-2..9_i64).prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        prop::sample::select(vec!["mczk.io", "v1alpha1", "ZooKeeper", "Unreadable", "True", "InterpretReplica"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// A question about anything that passes the first checks.
fn any_question() -> impl Strategy<Value = Value> {
    let operation = prop::sample::select(vec![
        "InterpretReplica",
        "ReviseReplica",
        "AggregateStatus",
        "InterpretHealth",
        "InterpretDependency",
        "Prune",
        "",
    ]);
    let object = prop_oneof![
        any_json(),
        (any_json(), any_json())
            .prop_map(|(spec, status)| json!({"metadata": {"generation": 1}, "spec": spec, "status": status})),
    ];
    (operation, object, any_json())
        .prop_map(|(operation, object, items)| question(operation, &object, &json!({ "aggregatedStatus": items })))
}

/// An item of a member cluster: usually valid, sometimes not.
fn any_item() -> impl Strategy<Value = Value> {
    let server = (0..6_i32, any::<bool>(), any::<bool>())
        .prop_map(|(id, serving, synced)| json!({"id": id, "serving": serving, "synced": synced}));
    let status = (
        prop::option::of(-1..5_i32),
        prop::option::of(0..3_i64),
        prop::option::of(any::<bool>()),
        prop::option::of(1..5_i32),
        prop::collection::vec(server, 0..4),
        prop::collection::vec(0..5_i32, 0..4),
    )
        .prop_map(|(replicas, version, writable, leader, servers, voters)| {
            json!({
                "replicas": replicas, "startedReplicas": replicas, "readyReplicas": replicas, "configVersion": version,
                "writable": writable, "leader": leader, "servers": servers, "votingMembers": voters
            })
        });
    let name = prop::sample::select(vec!["m1", "m2", "m3", ""]);
    prop_oneof![
        6 => (name.clone(), status).prop_map(|(name, status)| json!({"clusterName": name, "status": status})),
        1 => (name, any_json()).prop_map(|(name, status)| json!({"clusterName": name, "status": status})),
        1 => any_json(),
    ]
}

fn blocking<T>(task: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(task)
}

/// The patch in the answer to a question about `object`.
fn patch(object: &Value, items: &[Value]) -> Vec<json_patch::PatchOperation> {
    let question = question("AggregateStatus", object, &json!({ "aggregatedStatus": items }));
    let (status, body) = blocking(ask(&serde_json::to_vec(&question).unwrap()));
    assert_eq!(status, StatusCode::OK);
    let response = &serde_json::from_str::<Value>(&body).unwrap()["response"];
    assert_eq!(response["successful"], true, "{response}");
    assert_eq!(response.get("patch").is_some(), response.get("patchType").is_some());
    response.get("patch").map_or_else(Vec::new, |patch| {
        serde_json::from_slice(&STANDARD.decode(patch.as_str().unwrap()).unwrap()).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_json_is_answered(body in prop_oneof![any_json(), any_question()]) {
        let (status, text) = blocking(ask(&serde_json::to_vec(&body).unwrap()));
        prop_assert!(status == StatusCode::OK || status == StatusCode::BAD_REQUEST, "{status}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        if status == StatusCode::OK {
            prop_assert_eq!(&answer["response"]["uid"], &body["request"]["uid"]);
            let failed = answer["response"]["successful"] == false;
            prop_assert_eq!(failed, answer["response"].get("status").is_some());
        } else {
            prop_assert!(!answer["message"].as_str().unwrap().is_empty());
        }
    }

    #[test]
    fn any_bytes_are_answered(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let (status, text) = blocking(ask(&body));
        prop_assert_eq!(status, StatusCode::BAD_REQUEST);
        prop_assert!(!text.is_empty());
    }

    #[test]
    fn aggregation_does_not_depend_on_order(
        (items, shuffled) in prop::collection::vec(any_item(), 0..6)
            .prop_flat_map(|items| (Just(items.clone()), Just(items).prop_shuffle()))
    ) {
        // With an existing condition, so that the answers do not contain the current time.
        let object = json!({"metadata": {"generation": 2}, "status": {"conditions": [
            {"type": "Unreadable", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ]}});
        prop_assert_eq!(patch(&object, &items), patch(&object, &shuffled));
    }

    #[test]
    fn aggregation_is_stable_after_one_write(
        status in any_json(), items in prop::collection::vec(any_item(), 0..6)
    ) {
        let mut object = json!({"metadata": {"generation": 2}, "status": status});
        let first = patch(&object, &items);
        json_patch::patch(&mut object, &first).unwrap();
        prop_assert_eq!(patch(&object, &items), vec![]);
    }
}
