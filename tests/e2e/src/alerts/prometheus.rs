//! A real Prometheus that scrapes the programs of the rig each second.

use std::{fmt::Write as _, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::rules;
use crate::{metrics, patience::wait_for, programs::Process};

/// The variable that names the program.
const PROGRAM: &str = "MCZK_PROMETHEUS";
/// The time of a start.
const START: Duration = Duration::from_secs(60);

/// A running Prometheus. It ends with this value.
#[derive(Debug)]
pub struct Prometheus {
    process: Process,
    port: u16,
}

/// What Prometheus scrapes: the job, and the ports of its programs on loopback. A port may have no program.
pub type Job<'a> = (&'a str, &'a [u16]);

impl Prometheus {
    /// Starts Prometheus on a port, with its files in a folder, and waits until it answers.
    ///
    /// # Errors
    /// If `MCZK_PROMETHEUS` names no program, or it does not answer.
    pub async fn start(folder: &Path, port: u16, jobs: &[Job<'_>]) -> Result<Self> {
        let program = std::env::var_os(PROGRAM)
            .with_context(|| format!("{PROGRAM} names no program: run `make test-alerts-rig`"))?;
        let folder = folder.join("prometheus");
        std::fs::create_dir_all(&folder)?;
        let mut files = Vec::new();
        for (nth, file) in rules::FILES.into_iter().enumerate() {
            let path = folder.join(format!("rules-{nth}.yaml"));
            // JSON is YAML.
            std::fs::write(&path, rules::faster(rules::read(file)?).to_string())?;
            files.push(path.display().to_string());
        }
        let file = folder.join("prometheus.yaml");
        std::fs::write(&file, configuration(&files, jobs).to_string())?;
        let arguments = [
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", folder.join("data").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
        ];
        let process = Process::start(Path::new(&program), &arguments, &folder.join("prometheus.log"))?;
        let mut prometheus = Self { process, port };
        // It listens before it has opened its storage, and until then it refuses each request.
        let answered = wait_for("Prometheus answers", START, || metrics::get(port, "/-/ready")).await;
        prometheus.process.alive()?;
        answered.map(|_| prometheus)
    }

    /// The number of series of an alert in a state, `pending` or `firing`.
    ///
    /// # Errors
    /// If Prometheus does not answer.
    pub async fn alerts(&self, alert: &str, state: &str) -> Result<usize> {
        // A count keeps the answer short: Prometheus cuts long answers into chunks, which the reader does not know.
        let query = format!("count(ALERTS{{alertname=\"{alert}\",alertstate=\"{state}\"}})");
        let body = metrics::get(self.port, &format!("/api/v1/query?query={}", coded(&query))).await?;
        let answer: Value = serde_json::from_str(&body).with_context(|| body.clone())?;
        ensure!(answer.pointer("/status").and_then(Value::as_str) == Some("success"), "{body}");
        let value = answer.pointer("/data/result/0/value/1").and_then(Value::as_str);
        value.map_or(Ok(0), |count| count.parse().with_context(|| body.clone()))
    }
}

/// The labels of a target are those that the monitors of the charts give: see docs/how-to/monitor.md.
fn configuration(rules: &[String], jobs: &[Job<'_>]) -> Value {
    let targets = |(name, ports): &Job<'_>| {
        let target = |port: &u16| {
            json!({
                "targets": [format!("127.0.0.1:{port}")],
                "labels": { "namespace": "mczk-system", "pod": format!("{name}-{port}") },
            })
        };
        json!({
            "job_name": name,
            "honor_labels": *name == "mczk",
            "static_configs": ports.iter().map(target).collect::<Vec<_>>(),
        })
    };
    json!({
        "global": { "scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s" },
        "rule_files": rules,
        "scrape_configs": jobs.iter().map(targets).collect::<Vec<_>>(),
    })
}

/// A part of a URL.
fn coded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut coded, byte| {
        // Writing to a String cannot fail.
        let _ = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => write!(coded, "{}", char::from(byte)),
            _ => write!(coded, "%{byte:02X}"),
        };
        coded
    })
}
