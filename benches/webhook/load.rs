//! The load, from `wrk`.

use std::{fs, path::Path, time::Instant};

use anyhow::{Context, Result, ensure};
use e2e::programs::run;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    cases::{Case, Connections},
    report::Sample,
    servers::{Folder, Server},
};

/// Connections at the same time. Each waits for an answer before its next question.
pub(crate) const CONNECTIONS: u32 = 16;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/webhook/load.lua");

/// What the script prints. Times are in microseconds.
#[derive(Deserialize)]
struct Counted {
    requests: f64,
    errors: f64,
    duration: f64,
    p50: f64,
    p99: f64,
    p999: f64,
}

/// Asks a server as fast as it answers. Questions that are open at the end cost processor time and are not counted; they are
/// at most [`CONNECTIONS`].
///
/// # Errors
/// If a question is not answered with success.
pub(crate) async fn measure(server: &Server, case: &Case, seconds: u32, folder: &Folder) -> Result<Sample> {
    if case.connections == Connections::Full {
        return handshakes(server, case, seconds, folder).await;
    }
    let (what, question) = (format!("{}: {}", server.kind.name(), case.name), folder.file("question.json"));
    fs::write(&question, case.body(server.kind))?;
    check(server, &question, &folder.file("ca.crt")).await.with_context(|| what.clone())?;

    let (connections, time) = (format!("-c{CONNECTIONS}"), format!("-d{seconds}s"));
    let connection = if case.connections == Connections::Resumed { "close" } else { "keep-alive" };
    let arguments: [&str; 11] =
        ["-t1", &connections, &time, "--timeout", "10s", "-s", SCRIPT, &server.url, "--", &question, connection];
    let before = server.cpu()?;
    let output = run(Path::new("wrk"), &arguments).await.with_context(|| what.clone())?;
    let cpu = server.cpu()? - before;

    let line = output.lines().find(|line| line.starts_with('{')).context("the script of wrk prints nothing")?;
    let counted: Counted = serde_json::from_str(line)?;
    ensure!(counted.requests > 0.0 && counted.errors <= 0.0, "{what}: not every question is answered: {output}");
    Ok(Sample {
        case: case.name.clone(),
        kind: server.kind,
        rate: counted.requests / counted.duration * 1e6,
        cpu: cpu / counted.requests,
        p50: counted.p50 / 1000.0,
        p99: counted.p99 / 1000.0,
        p999: counted.p999 / 1000.0,
        resident: server.memory("VmRSS:")?,
    })
}

/// Connects as fast as one client can, with `openssl`: `wrk` resumes sessions.
async fn handshakes(server: &Server, case: &Case, seconds: u32, folder: &Folder) -> Result<Sample> {
    let (address, seconds, authority) = (server.address.to_string(), seconds.to_string(), folder.file("ca.crt"));
    let arguments = ["s_time", "-new", "-connect", &address, "-time", &seconds, "-CAfile", &authority];
    let (before, begin) = (server.cpu()?, Instant::now());
    let output = run(Path::new("openssl"), &arguments).await?;
    let (cpu, time) = (server.cpu()? - before, begin.elapsed().as_secs_f64());

    // For example: 1234 connections in 4 real seconds, 0 bytes read per connection
    let line = output.lines().find(|line| line.contains(" real seconds")).context("openssl prints no result")?;
    let (connections, _) = line.split_once(" connections in ").context("openssl prints no connections")?;
    let connections: f64 = connections.parse()?;
    ensure!(connections > 0.0, "{}: no handshake: {output}", server.kind.name());
    Ok(Sample {
        case: case.name.clone(),
        kind: server.kind,
        rate: connections / time,
        cpu: cpu / connections,
        p50: f64::NAN,
        p99: f64::NAN,
        p999: f64::NAN,
        resident: server.memory("VmRSS:")?,
    })
}

/// Asks once. `wrk` does not read what the answers say.
async fn check(server: &Server, question: &str, authority: &str) -> Result<()> {
    let data = format!("@{question}");
    // Without ALPN, as wrk connects: the example offers HTTP/2.
    let arguments: [[&str; 2]; 9] = [
        ["--silent", "--show-error"],
        ["--http1.1", "--no-alpn"],
        ["--max-time", "30"],
        ["--cacert", authority],
        ["--header", "Content-Type: application/json"],
        ["--header", "Expect:"],
        ["--data-binary", &data],
        ["--write-out", "\n%{http_code}"],
        ["--url", &server.url],
    ];
    let output = run(Path::new("curl"), arguments.as_flattened()).await?;
    let (answer, status) = output.rsplit_once('\n').context("curl prints no status")?;
    ensure!(status == "200", "the answer has the status {status}: {answer}");
    let json: Value = serde_json::from_str(answer).context("the answer is not JSON")?;
    ensure!(json.pointer("/response/successful") == Some(&Value::Bool(true)), "refused: {answer}");
    Ok(())
}
