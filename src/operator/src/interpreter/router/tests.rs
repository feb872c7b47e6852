//! The id of a request in the answer and in the log, and the memory of bodies.

use std::{
    io,
    sync::{Arc, Mutex},
};

use axum::http::StatusCode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tower::ServiceExt as _;
use tracing::Level;

use super::*;

/// The lines of a log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Asks, and returns the answer with the fields of every line that the log got.
async fn ask(level: Level, id: Option<&str>, body: &Value) -> (StatusCode, String, Value, Vec<Value>) {
    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt().json().flatten_event(true).with_max_level(level);
    let _log = tracing::subscriber::set_default(log.with_writer(move || writer.clone()).finish());
    let router = router("/", RequestLimits::default(), Metrics::new(&mut Registry::default()));
    let mut request = Request::post("/").header(header::CONTENT_TYPE, "application/json");
    if let Some(id) = id {
        request = request.header("x-request-id", id);
    }
    let response = router.oneshot(request.body(Body::from(body.to_string())).unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    let body = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (head.status, head.headers["x-request-id"].to_str().unwrap().to_owned(), body, lines)
}

fn question(operation: &str) -> Value {
    let kind = json!({"group": "mczk.io", "version": "v1alpha1", "kind": "ZooKeeper"});
    let object = json!({ "metadata": { "namespace": "n" }, "spec": { "replicas": 3 } });
    json!({ "request": { "uid": "u-1", "kind": kind, "operation": operation, "name": "zk", "object": object } })
}

#[tokio::test]
async fn a_refusal_has_the_id_in_header_message_and_log() {
    let (status, id, body, lines) = ask(Level::INFO, Some("abc-1"), &question("Retain")).await;
    assert_eq!((status, id.as_str()), (StatusCode::OK, "abc-1"));
    let message = body["response"]["status"]["message"].as_str().unwrap();
    assert!(message.ends_with("InterpretDependency, request abc-1"), "{message}");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!((&lines[0]["request_id"], &lines[0]["uid"]), (&json!("abc-1"), &json!("u-1")));
}

#[tokio::test]
async fn an_invalid_request_has_the_id_in_header_message_and_log() {
    let (status, id, body, lines) = ask(Level::INFO, None, &json!([])).await;
    assert_eq!((status, id.len()), (StatusCode::BAD_REQUEST, 16));
    assert!(body["message"].as_str().unwrap().ends_with(&format!(", request {id}")), "{body}");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["request_id"], id.as_str());
}

#[tokio::test]
async fn an_answer_has_the_id_in_the_log_of_debug_alone() {
    let health = question("InterpretHealth");
    let (status, id, body, lines) = ask(Level::DEBUG, Some("x"), &health).await;
    assert_eq!((status, id.as_str(), &body["response"]["successful"]), (StatusCode::OK, "x", &json!(true)));
    let own: Vec<_> = lines.iter().filter(|line| line["message"] == "Question answered").collect();
    assert_eq!(own.len(), 1, "{lines:?}");
    assert_eq!((&own[0]["request_id"], &own[0]["uid"]), (&json!("x"), &json!("u-1")));
    assert!(ask(Level::INFO, Some("x"), &health).await.3.is_empty(), "no line at the default level");
}

#[tokio::test]
async fn bodies_take_no_more_than_their_memory() {
    let limits =
        RequestLimits { max_body_bytes: BODIES, body_timeout: Duration::from_secs(60), ..RequestLimits::default() };
    let router = router("/", limits, Metrics::new(&mut Registry::default()));
    let ask = |body: Body| {
        let request = Request::post("/").header(header::CONTENT_TYPE, "application/json").body(body).unwrap();
        router.clone().oneshot(request)
    };
    let large = || Bytes::from(vec![b' '; BODIES / 2 + 1]);
    let (sender, receiver) = futures::channel::mpsc::unbounded::<io::Result<Bytes>>();
    sender.unbounded_send(Ok(large())).unwrap();
    let slow = tokio::spawn(ask(Body::from_stream(receiver)));
    while !sender.is_empty() {
        tokio::task::yield_now().await;
    }
    // A small request leaves the slow one its memory, and a large one takes it.
    assert_eq!(ask(Body::from(question("InterpretReplica").to_string())).await.unwrap().status(), StatusCode::OK);
    assert!(!slow.is_finished());
    assert_eq!(ask(Body::from(large())).await.unwrap().status(), StatusCode::BAD_REQUEST);
    let ended = slow.await.unwrap().unwrap();
    assert_eq!(
        (ended.status(), &ended.headers()[header::RETRY_AFTER]),
        (StatusCode::TOO_MANY_REQUESTS, &"1".parse().unwrap())
    );
}
