//! `mczk certs` and `mczk operator --controller=false` as a user runs them: the program, its files, its signals.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod patience;
mod program;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use patience::{PATIENCE, until};
use rstest::rstest;
use serde_json::Value;
use tempfile::TempDir;

/// The program, without flags from the environment of this process.
fn mczk() -> Command {
    let mut command = Command::new(program::mczk());
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command
}

/// A folder with certificates, which is deleted after the test.
struct Certs(TempDir);

impl Certs {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let made = mczk().args(["certs", "--dns", "localhost", "--dir"]).arg(dir.path()).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        Self(dir)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// A running operator, its ports and its log.
struct Operator {
    child: Child,
    webhook: SocketAddr,
    probes: SocketAddr,
    log: Receiver<Value>,
}

impl Operator {
    fn start(certs: &Certs, flags: &[&str]) -> Self {
        let operator = Self::listening(certs, &[&["--controller=false"], flags].concat());
        operator.until_probe("/readyz", 200, "ok");
        operator
    }

    /// Starts an operator that listens, and may not be ready.
    fn listening(certs: &Certs, flags: &[&str]) -> Self {
        let mut child = mczk()
            .args(["operator", "--log-format", "json", "--shutdown-delay-seconds", "0"])
            .args(["--webhook-address", "127.0.0.1:0", "--probe-address", "127.0.0.1:0"])
            .arg("--tls-cert-file")
            .arg(certs.file("tls.crt"))
            .arg("--tls-private-key-file")
            .arg(certs.file("tls.key"))
            .args(flags)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, log) = channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let address = |flag: &str| -> SocketAddr {
            loop {
                let line = log.recv_timeout(PATIENCE).expect("it listens");
                if line["message"] == "Listening" && line["flag"] == flag {
                    return line["address"].as_str().unwrap().parse().unwrap();
                }
            }
        };
        let (webhook, probes) = (address("--webhook-address"), address("--probe-address"));
        Self { child, webhook, probes, log }
    }

    /// Status and body; `None` without an answer.
    fn probe(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.probes).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    fn until_probe(&self, path: &str, code: u16, text: &str) {
        let expected = Some((code, format!("{text}\n")));
        until(&format!("{path} answers {code}: {text}"), expected, || self.probe(path));
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    fn code(&mut self) -> Option<i32> {
        let mut status = None;
        until("the operator ends", true, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status?.code()
    }

    /// `tests/curl/run.sh`
    fn curl(&self, certs: &Certs) -> Output {
        let script = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tests/curl/run.sh");
        let url = format!("https://localhost:{}/interpreter", self.webhook.port());
        Command::new(script).arg(url).arg(certs.file("ca.crt")).output().unwrap()
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_curl_case_is_answered_as_expected() {
    let certs = Certs::new();
    let mut operator = Operator::start(&certs, &[]);
    let output = operator.curl(&certs);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.lines().count() > 30, "{text}");

    let (status, metrics) = operator.probe("/metrics").unwrap();
    assert_eq!(status, 200);
    for operation in ["InterpretReplica", "ReviseReplica", "AggregateStatus", "InterpretHealth", "InterpretDependency"]
    {
        let line = format!(r#"mczk_webhook_requests_total{{operation="{operation}",result="answered"}}"#);
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
    assert!(metrics.contains("mczk_webhook_certificate_not_after_timestamp_seconds 1"), "{metrics}");

    operator.signal("TERM");
    assert_eq!(operator.code(), Some(0));
}

#[test]
fn the_curl_script_reports_a_difference() {
    let certs = Certs::new();
    let operator = Operator::start(&certs, &["--max-body-bytes", "100000"]);
    let output = operator.curl(&certs);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("+{\"apiVersion\":\"v1\",\"code\":413"));
}

#[test]
fn a_renewed_certificate_is_served_without_a_restart() {
    let certs = Certs::new();
    let operator = Operator::start(&certs, &["--certificate-poll-seconds", "1"]);
    assert!(mczk().args(["certs", "--renew", "--dir"]).arg(certs.0.path()).output().unwrap().status.success());
    loop {
        let line = operator.log.recv_timeout(PATIENCE).expect("the new certificate is served");
        if line["message"] == "New certificate of the webhook" {
            break;
        }
    }
    assert!(operator.curl(&certs).status.success());
}

/// Holds a request open, for which the shutdown waits.
fn busy(operator: &Operator, certs: &Certs) -> Child {
    let url = format!("https://localhost:{}/interpreter", operator.webhook.port());
    let mut curl = Command::new("curl")
        .args([
            "--silent",
            "--no-progress-meter",
            "--http1.1",
            "--header",
            "Content-Type: application/json",
            "--header",
            "Expect:",
        ])
        // A dot: available bytes are sent at once, without waiting for more.
        .args(["--header", "Transfer-Encoding: chunked", "--upload-file", ".", "--request", "POST"])
        .arg("--cacert")
        .arg(certs.file("ca.crt"))
        .arg(url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    curl.stdin.as_mut().unwrap().write_all(b"{").unwrap();
    let arrived = || operator.probe("/metrics").unwrap().1.contains("mczk_webhook_requests_in_flight 1");
    until("the request arrives", true, arrived);
    curl
}

#[test]
fn the_first_signal_waits_and_the_second_does_not() {
    let certs = Certs::new();
    let flags = ["--drain-seconds", "600", "--body-timeout-seconds", "600"];
    let mut operator = Operator::start(&certs, &flags);
    let mut curl = busy(&operator, &certs);
    operator.signal("TERM");
    operator.until_probe("/readyz", 503, "not ready: the process is shutting down");
    assert_eq!(operator.probe("/livez"), Some((200, "ok\n".to_owned())));
    until("it accepts no connection", true, || TcpStream::connect(operator.webhook).is_err());
    assert!(operator.child.try_wait().unwrap().is_none());
    operator.signal("INT");
    assert_eq!(operator.code(), Some(1));
    assert!(operator.log.iter().any(|line| line == "mczk: a second signal came: ended at once"));
    let _ = curl.wait();
}

#[test]
fn a_request_before_the_signal_is_answered() {
    let certs = Certs::new();
    let mut operator = Operator::start(&certs, &[]);
    let mut curl = busy(&operator, &certs);
    operator.signal("TERM");
    thread::sleep(Duration::from_millis(200));
    assert!(operator.child.try_wait().unwrap().is_none());
    let mut stdin = curl.stdin.take().unwrap();
    stdin.write_all(br#""request":{"uid":"late","operation":"x","kind":{}}}"#).unwrap();
    drop(stdin);
    let output = curl.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains(r#""uid":"late""#), "{output:?}");
    assert_eq!(operator.code(), Some(0));
}

/// A collector: it answers every request, and hands on its head and body.
fn collector() -> (SocketAddr, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, requests) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream);
            let (mut head, mut length) = (String::new(), 0);
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap() > 0 {}
            for line in head.lines() {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
            if sender.send((head, body)).is_err() {
                return;
            }
        }
    });
    (address, requests)
}

#[test]
fn a_collector_receives_the_span_of_a_request() {
    let certs = Certs::new();
    let (address, requests) = collector();
    let mut operator = Operator::start(&certs, &["--otlp-endpoint", &format!("http://{address}")]);
    let curl = Command::new("curl")
        .args(["--silent", "--header", "Content-Type: application/json", "--header", "x-request-id: trace-me-7"])
        .args(["--data", r#"{"request":{"uid":"u","operation":"x","kind":{}}}"#, "--cacert"])
        .arg(certs.file("ca.crt"))
        .arg(format!("https://localhost:{}/interpreter", operator.webhook.port()))
        .output()
        .unwrap();
    assert!(curl.status.success(), "{curl:?}");
    // The last spans are sent at the end, long before the time of a batch is over on a slow machine.
    operator.signal("TERM");
    assert_eq!(operator.code(), Some(0));
    // Strings are plain text in protobuf.
    let contains = |body: &[u8], text: &str| body.windows(text.len()).any(|part| part == text.as_bytes());
    let (head, body) = requests.recv_timeout(PATIENCE).expect("the spans arrive");
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    for text in ["mczk-operator", "webhook", "request_id", "trace-me-7"] {
        assert!(contains(&body, text), "{text} is missing in {}", String::from_utf8_lossy(&body));
    }
}

#[test]
fn a_collector_that_refuses_delays_nothing() {
    let certs = Certs::new();
    let mut operator = Operator::start(&certs, &["--otlp-endpoint", "http://127.0.0.1:1"]);
    assert!(operator.curl(&certs).status.success());
    operator.signal("TERM");
    assert_eq!(operator.code(), Some(0));
}

/// With an API server that refuses connections, or accepts them and never answers.
#[rstest]
#[case::refuses(false)]
#[case::is_silent(true)]
fn the_operator_ends_soon_without_an_api_server(#[case] silent: bool) {
    let certs = Certs::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("https://{}", listener.local_addr().unwrap());
    let listener = silent.then_some(listener);
    let kubeconfig = certs.file("kubeconfig");
    let text = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "k", "users": [{ "name": "u", "user": {} }],
        "clusters": [{ "name": "k", "cluster": { "server": server } }],
        "contexts": [{ "name": "k", "context": { "cluster": "k", "user": "u" } }]
    });
    fs::write(&kubeconfig, text.to_string()).unwrap();
    let mut operator = Operator::listening(&certs, &["--kubeconfig", kubeconfig.to_str().unwrap()]);
    operator.until_probe("/readyz", 503, "not ready: the controller has not listed its objects");
    operator.signal("INT");
    let signalled = Instant::now();
    assert_eq!(operator.code(), Some(0));
    // 2 s, and a margin for a busy machine.
    assert!(signalled.elapsed() < Duration::from_secs(4), "{:?}", signalled.elapsed());
    assert!(
        operator
            .log
            .iter()
            .any(|line| line["message"].as_str().is_some_and(|m| m.starts_with("The controller was stopped")))
    );
    drop(listener);
}

#[rstest]
#[case::no_certificate(&["--controller=false"], &["/etc/mczk/tls/tls.crt", "--tls-cert-file", "mczk certs"])]
#[case::no_kubeconfig(&["CERTS", "--kubeconfig", "/nowhere"], &["--kubeconfig", "/nowhere"])]
#[case::no_number(&["CERTS", "--controller=false", "--drain-seconds", "soon"], &["--drain-seconds", "soon"])]
#[case::out_of_range(&["CERTS", "--controller=false", "--concurrency", "0"], &["--concurrency", "0 is not in 1.."])]
#[case::no_address(&["CERTS", "--controller=false", "--webhook-address", ":8443"], &["--webhook-address", ":8443"])]
#[case::port_taken(&["CERTS", "--controller=false", "--webhook-address", "TAKEN"], &["cannot listen on", "--webhook-address"])]
#[case::no_path(&["CERTS", "--controller=false", "--webhook-path", "{a}"], &["--webhook-path", "begins with /"])]
#[case::no_level(&["CERTS", "--controller=false", "--log-level", "inf"],
    &["--log-level", "\"inf\"", "error, warn, info, debug, trace or off"])]
#[case::no_level_of_a_target(&["CERTS", "--controller=false", "--log-level", "info,mczk=dbg"], &["--log-level", "\"mczk=dbg\""])]
#[case::no_level_in_the_variable(&["CERTS", "--controller=false", "MCZK_LOG_LEVEL=verbose"],
    &["--log-level", "\"verbose\"", "error, warn, info, debug, trace or off"])]
#[case::no_number_in_the_variable(&["CERTS", "MCZK_DRAIN_SECONDS=20s"], &["--drain-seconds", "20s"])]
#[case::no_image(&["CERTS", "MCZK_SERVER_IMAGE="], &["--server-image", "a value is required"])]
#[case::no_context(&["CERTS", "--context", "nowhere"], &["--context"])]
#[case::no_format(&["CERTS", "--controller=false", "--log-format", "xml"], &["--log-format", "json"])]
#[case::no_flag(&["--controler=false"], &["--controler", "tip:", "--controller"])]
fn a_wrong_configuration_is_one_line_and_code_2(#[case] flags: &[&str], #[case] words: &[&str]) {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let certs = Certs::new();
    let mut command = mczk();
    command.args(["operator", "--probe-address", "127.0.0.1:0"]);
    // Other tests may have the default port.
    if !flags.contains(&"--webhook-address") {
        command.args(["--webhook-address", "127.0.0.1:0"]);
    }
    for flag in flags {
        match *flag {
            "CERTS" => {
                command.arg("--tls-cert-file").arg(certs.file("tls.crt"));
                command.arg("--tls-private-key-file").arg(certs.file("tls.key"))
            }
            "TAKEN" => command.arg(&address),
            variable if variable.starts_with("MCZK_") => {
                let (name, value) = variable.split_once('=').unwrap();
                command.env(name, value)
            }
            flag => command.arg(flag),
        };
    }
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    for word in words {
        assert!(text.contains(word), "{word} is not in: {text}");
    }
}

#[rstest]
#[case("operator", 20)]
#[case("certs", 7)]
#[case("crds", 1)]
#[case("register", 11)]
#[case("unregister", 4)]
fn every_flag_has_a_variable_a_default_and_its_unit(#[case] subcommand: &str, #[case] count: usize) {
    let help = String::from_utf8(mczk().args([subcommand, "--help"]).output().unwrap().stdout).unwrap();
    let flags: Vec<String> = help
        .split("\n      --")
        .skip(1)
        .map(|flag| flag.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|flag| !flag.starts_with("help"))
        .collect();
    assert!(flags.len() >= count, "{help}");
    for flag in flags {
        let name = flag.split([' ', '[', '=']).next().unwrap();
        let variable = flag.split("[env: ").nth(1).and_then(|rest| rest.split('=').next()).unwrap_or_default();
        assert!(variable.starts_with("MCZK_"), "{flag}");
        assert!(variable.ends_with(&name.to_uppercase().replace('-', "_")), "{flag}");
        // A switch is off by default. A required flag has no default.
        let takes_value = flag.split_whitespace().nth(1).is_some_and(|word| word.starts_with('<'));
        let required =
            flag.contains("required with") || flag.contains("is required") || name == "service" || name == "dir";
        assert!(!takes_value || required || flag.contains("[default: "), "{flag}");
        assert_eq!(name.ends_with("-seconds"), flag.contains("<SECONDS>") && flag.contains("Seconds"), "{flag}");
        assert_eq!(name.ends_with("-days"), flag.contains("<DAYS>") && flag.contains("Days"), "{flag}");
    }
}

#[test]
fn the_help_of_register_names_required_flags() {
    let help = String::from_utf8(mczk().args(["register", "--help"]).output().unwrap().stdout).unwrap();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for text in [
        "mczk register [OPTIONS] --url <URL> --ca-file <FILE>",
        "mczk register [OPTIONS] --service <SERVICE> --ca-file <FILE>",
        "Either this or --service is required",
        "required with --url and with --service",
    ] {
        assert!(help.contains(text), "{text} is not in: {help}");
    }
    for no_more in ["lease", "leader"] {
        assert!(!help.contains(no_more), "{help}");
    }
}

#[test]
fn a_switch_can_be_a_variable() {
    let output = mczk().args(["register", "--only", "rbac"]).env("MCZK_REGISTER_DRY_RUN", "true").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("kind: ClusterRoleBinding"));
    let output = mczk().args(["register", "--only", "rbac"]).env("MCZK_REGISTER_DRY_RUN", "maybe").output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
    assert!(text.contains("--dry-run") && text.contains("true, false"), "{text}");
}
