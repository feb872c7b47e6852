//! A Prometheus that scrapes an [`Exporter`].

use std::{
    collections::BTreeSet,
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    thread,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{exporter::Exporter, patience::until};

/// A running Prometheus. It ends, and its folder disappears, when this is dropped.
pub struct Prometheus {
    process: Child,
    _folder: TempDir,
    address: String,
}

impl Prometheus {
    /// Starts Prometheus with these rules, and waits until it answers.
    pub fn start(exporter: &Exporter, rules: &[String]) -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("prometheus.yml");
        fs::write(&file, configuration(exporter, rules).to_string()).unwrap();
        let program =
            env::var_os("MCZK_PROMETHEUS").expect("MCZK_PROMETHEUS names the program: run `make test-alerts`");
        let mut process = Command::new(program)
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut said = Vec::new();
        let address = log.by_ref().find_map(|line| {
            let address = line.contains("Listening on").then(|| line.split("address=").nth(1)?.split(' ').next());
            let address = address.flatten().map(ToOwned::to_owned);
            said.push(line);
            address
        });
        let address = address.unwrap_or_else(|| panic!("Prometheus does not listen: {}", said.join("\n")));
        // A full pipe would stop it.
        thread::spawn(move || log.for_each(drop));
        let prometheus = Self { process, _folder: folder, address };
        // It listens before it has opened its storage, and until then it refuses each request with a page of text.
        until("Prometheus answers", true, || prometheus.get("query", &[("query", "1")]).is_ok());
        prometheus
    }

    /// `data` of an answer of the API, or the error.
    pub fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value, String> {
        let query: Vec<String> =
            parameters.iter().map(|(name, value)| format!("{}={}", coded(name), coded(value))).collect();
        let mut stream = TcpStream::connect(&self.address).map_err(|error| error.to_string())?;
        write!(stream, "GET /api/v1/{path}?{} HTTP/1.0\r\nHost: localhost\r\n\r\n", query.join("&")).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(|error| error.to_string())?;
        let (_, body) = answer.split_once("\r\n\r\n").ok_or("no HTTP answer")?;
        let body: Value = serde_json::from_str(body).map_err(|error| format!("{error}: {body}"))?;
        if body["status"] == "success" { Ok(body["data"].clone()) } else { Err(body["error"].to_string()) }
    }

    /// Names of the samples that the scraped programs serve, also of those without a sample yet.
    pub fn served(&self) -> BTreeSet<String> {
        let metadata = self.get("metadata", &[]).unwrap();
        let names = metadata.as_object().unwrap().iter().flat_map(|(name, all)| {
            let suffixes: &[&str] = match all[0]["type"].as_str().unwrap() {
                "counter" => &["_total"],
                "info" => &["_info"],
                "histogram" => &["_bucket", "_count", "_sum"],
                _ => &[""],
            };
            suffixes.iter().map(move |suffix| format!("{name}{suffix}"))
        });
        names.collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The labels of the target are those that the monitors of the charts give: see docs/how-to/monitor.md.
fn configuration(exporter: &Exporter, rules: &[String]) -> Value {
    let job = |name: &str, honor_labels: bool| {
        json!({
            "job_name": name,
            "honor_labels": honor_labels,
            "metrics_path": format!("/{name}"),
            "static_configs": [{
                "targets": [exporter.address.to_string()],
                "labels": { "namespace": "mczk-system", "pod": format!("{name}-0") },
            }],
        })
    };
    // JSON is YAML.
    json!({
        "global": { "scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s" },
        "rule_files": rules,
        "scrape_configs": [job("mczk", true), job("mczk-agent", false), job("server", false)],
    })
}

/// A part of a URL.
fn coded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}
