//! The memory of `mczk dashboard` with ten open pages of 10,000 ensembles. The API server is one of this test, so the figure
//! has no part of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod program;
#[path = "dashboard/scenes.rs"]
#[allow(dead_code, reason = "written for the page in a browser")]
mod scenes;

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use axum::{
    Router,
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};

const ENSEMBLES: usize = 10_000;
/// Most resident memory of the program in MiB. Without debug information it takes less.
const MOST: u64 = 128;
const VOTERS: [(&str, &[i32]); 3] = [("berlin", &[1, 2]), ("paris", &[3, 4]), ("rome", &[5])];

/// An object with what a real API server adds.
fn stored(mut object: Value, number: usize) -> Value {
    let fields: Vec<Value> = (0..4)
        .map(|manager| json!({ "manager": format!("m{manager}"), "operation": "Update", "apiVersion": "v1", "fieldsV1": { "f:status": "x".repeat(1024) } }))
        .collect();
    object["metadata"]["namespace"] = json!(format!("scale-{:02}", number / 100));
    object["metadata"]["uid"] = json!(format!("00000000-0000-0000-0000-{number:012}"));
    object["metadata"]["managedFields"] = json!(fields);
    object
}

/// Every read has other texts than the one before, and each page gets all of them again.
static READS: AtomicUsize = AtomicUsize::new(0);

fn ensemble(number: usize) -> Value {
    let mut object = scenes::ensemble(&format!("zoo-{number:04}"), 5);
    let message = READS.fetch_add(1, Ordering::Relaxed).to_string();
    object["status"] = scenes::status(&VOTERS, 3, None, &message);
    stored(object, number)
}

fn binding(number: usize) -> Value {
    stored(scenes::binding(&format!("zoo-{number:04}"), &VOTERS, None), number)
}

/// The part of a list that the query names, or all.
fn list(uri: &Uri, object: fn(usize) -> Value) -> Value {
    let parameter = |name: &str| {
        let value = uri.query()?.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        value.and_then(|value| value.parse::<usize>().ok())
    };
    let from = parameter("continue").unwrap_or(0);
    let until = (from + parameter("limit").unwrap_or(ENSEMBLES)).min(ENSEMBLES);
    let more = json!({ "continue": until.to_string(), "remainingItemCount": ENSEMBLES - until });
    let items: Vec<Value> = (from..until).map(object).collect();
    json!({ "metadata": if until < ENSEMBLES { more } else { json!({}) }, "items": items })
}

async fn answer(uri: Uri) -> Response {
    let (_, last) = uri.path().rsplit_once('/').unwrap();
    let object = match last {
        "multiclusterzookeepers" => list(&uri, ensemble),
        "resourcebindings" => list(&uri, binding),
        "clusters" => json!({ "metadata": {}, "items": VOTERS.map(|(name, _)| scenes::cluster(name, true)) }),
        name => match name.strip_prefix("zoo-").and_then(|rest| rest.strip_suffix("-zookeeper")?.parse().ok()) {
            Some(number) => binding(number),
            None => return StatusCode::NOT_FOUND.into_response(),
        },
    };
    ([("Content-Type", "application/json")], object.to_string()).into_response()
}

/// The program, its address and its token.
struct Dashboard(Child, String, String);

impl Drop for Dashboard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn dashboard(server: &str) -> Dashboard {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("config");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": server } }],
        "users": [{ "name": "c", "user": { "token": "t" } }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "c" } }],
    });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let mut command = Command::new(program::mczk());
    command.args(["dashboard", "-A", "--poll-seconds", "1", "--kubeconfig"]).arg(&kubeconfig).env_clear();
    let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut url = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let (address, token) = url.trim().trim_start_matches("http://").split_once("/#token=").unwrap();
    Dashboard(process, address.to_owned(), token.to_owned())
}

/// Opens a page, and reads until it shows ensembles.
async fn open(Dashboard(_, address, token): &Dashboard) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("GET /api/v1/events HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut text, mut part) = (String::new(), vec![0; 64 << 10]);
    while !text.contains("]\n\n") {
        let read = timeout(Duration::from_secs(120), stream.read(&mut part)).await.expect("no ensembles").unwrap();
        assert!(read > 0, "the page ended: {text}");
        text.push_str(&String::from_utf8_lossy(&part[..read]));
    }
    (stream, text)
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_pages_of_ten_thousand_ensembles() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    let dashboard = dashboard(&server);
    let pages = futures::future::join_all((0..10).map(|_| open(&dashboard))).await;
    for (_, text) in &pages {
        assert!(text.contains("Only 256 of 10000 ensembles are shown"), "{}", &text[..300]);
    }
    // Some more reads.
    sleep(Duration::from_secs(5)).await;
    let status = std::fs::read_to_string(format!("/proc/{}/status", dashboard.0.id())).unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")).unwrap();
    let most = most.parse::<u64>().unwrap() >> 10;
    println!("VmHWM with 10 open pages of {ENSEMBLES} ensembles: {most} MiB");
    assert!(most < MOST, "{most} MiB");
    serving.abort();
}
