//! The webhook over real TLS: versions, slow clients, changed certificates, and the shutdown.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};
use std::time::{Duration, Instant};

use mczk_operator::interpreter;
use mczk_runtime::{
    http_server::{self, Drained, Transport},
    shutdown::{self, Trigger},
    telemetry, tls,
};
use prometheus_client::registry::Registry;
use rcgen::{CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
    version::{TLS12, TLS13},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

const QUESTION: &str = r#"{"request":{"uid":"u","kind":{"group":"mczk.io","version":"v1alpha1","kind":"ZooKeeper"},"operation":"ReviseReplica","object":{"spec":{"replicas":0}}}}"#;
const ANSWER: &str = r#"{"apiVersion":"config.karmada.io/v1alpha1","kind":"ResourceInterpreterContext","response":{"uid":"u","successful":true}}"#;

/// A time limit that a test waits for.
const SHORT: Duration = Duration::from_millis(400);
/// A time limit that no test reaches.
const LONG: Duration = Duration::from_secs(30);

fn limits() -> http_server::Limits {
    http_server::Limits {
        max_per_address: 1024,
        max_connections: 64,
        handshake_timeout: LONG,
        header_timeout: LONG,
        idle_timeout: LONG,
        linger: SHORT,
        drain: LONG,
    }
}

/// A pair of files, as `mczk certs` writes them, with an authority of its own.
struct Pair {
    authority: CertificateDer<'static>,
    certificate: String,
    key: String,
}

impl Pair {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        Self {
            authority: CertificateDer::from_pem_slice(issuer.pem().as_bytes()).unwrap(),
            certificate: leaf.pem(),
            key: key.serialize_pem(),
        }
    }

    /// Writes the files like the volume of a Secret: into a new folder, to which a link then points.
    fn write(&self, dir: &Path) {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let folder = dir.join(format!("..{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("tls.crt"), &self.certificate).unwrap();
        fs::write(folder.join("tls.key"), &self.key).unwrap();
        std::os::unix::fs::symlink(&folder, dir.join("..new")).unwrap();
        fs::rename(dir.join("..new"), dir.join("..data")).unwrap();
        for name in ["tls.crt", "tls.key"] {
            let _ = std::os::unix::fs::symlink(Path::new("..data").join(name), dir.join(name));
        }
    }
}

/// A server of the webhook.
struct Served {
    address: SocketAddr,
    dir: TempDir,
    registry: Registry,
    trigger: Trigger,
    server: JoinHandle<Drained>,
}

impl Served {
    async fn new(pair: &Pair, limits: http_server::Limits, inner: interpreter::RequestLimits) -> Self {
        let dir = TempDir::new().unwrap();
        pair.write(dir.path());
        let mut registry = Registry::default();
        let router = interpreter::router("/interpreter", inner, interpreter::Metrics::new(&mut registry));
        let files = tls::CertificateFiles { certificate: dir.path().join("tls.crt"), key: dir.path().join("tls.key") };
        let certificates = Arc::new(tls::Certificates::load(files, tls::Metrics::new(&mut registry)).await.unwrap());
        let (trigger, shutdown) = shutdown::channel();
        tokio::spawn(certificates.clone().follow(Duration::from_millis(20), shutdown.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let metrics = http_server::Metrics::new(&mut registry);
        let server =
            tokio::spawn(http_server::serve(listener, Transport::Tls(certificates), router, limits, metrics, shutdown));
        Self { address, dir, registry, trigger, server }
    }

    async fn connect(&self, pair: &Pair) -> TlsStream<TcpStream> {
        connect(self.address, client(&[pair], &[&TLS13], &["http/1.1"])).await.unwrap()
    }

    async fn until_metric(&self, line: &str) {
        let until = Instant::now() + LONG;
        loop {
            let text = telemetry::exposition(&self.registry).unwrap();
            if text.lines().any(|other| other == line) {
                return;
            }
            assert!(Instant::now() < until, "no {line} in\n{text}");
            sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.trigger.request_shutdown();
    }
}

fn client(trusted: &[&Pair], versions: &[&'static SupportedProtocolVersion], alpn: &[&str]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for pair in trusted {
        roots.add(pair.authority.clone()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

async fn connect(address: SocketAddr, config: Arc<ClientConfig>) -> std::io::Result<TlsStream<TcpStream>> {
    handshaken(TcpStream::connect(address).await?, config).await
}

async fn handshaken(stream: TcpStream, config: Arc<ClientConfig>) -> std::io::Result<TlsStream<TcpStream>> {
    TlsConnector::from(config).connect(ServerName::try_from("localhost").unwrap(), stream).await
}

/// A connection from an address that has read no answer.
async fn stranger(address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    socket.connect(address).await.unwrap()
}

fn head(length: usize) -> String {
    format!(
        "POST /interpreter HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
}

/// One answer: its status and its body.
async fn answer(stream: &mut TlsStream<TcpStream>) -> std::io::Result<(u16, String)> {
    let (mut bytes, mut chunk) = (vec![], [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length: usize =
                head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()).unwrap().parse().unwrap();
            if body.len() >= length {
                return Ok((head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned()));
            }
        }
        match stream.read(&mut chunk).await? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => bytes.extend_from_slice(&chunk[..read]),
        }
    }
}

async fn ask(stream: &mut TlsStream<TcpStream>) -> std::io::Result<()> {
    stream.write_all((head(QUESTION.len()) + QUESTION).as_bytes()).await?;
    assert_eq!(answer(stream).await?, (200, ANSWER.to_owned()));
    Ok(())
}

/// How long it takes until the server closes the connection.
async fn closed(stream: &mut TlsStream<TcpStream>) -> Duration {
    let started = Instant::now();
    let read = timeout(LONG / 2, stream.read(&mut [0; 64])).await.expect("it stays open");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    started.elapsed()
}

#[tokio::test]
async fn tls_1_3_and_http_1_1_only() {
    let pair = Pair::new("one");
    let served = Served::new(&pair, limits(), interpreter::RequestLimits::default()).await;
    assert!(connect(served.address, client(&[&pair], &[&TLS12], &["http/1.1"])).await.is_err());
    assert!(connect(served.address, client(&[&pair], &[&TLS13], &["h2"])).await.is_err());
    for offered in [&["h2", "http/1.1"][..], &["http/1.1"]] {
        let mut stream = connect(served.address, client(&[&pair], &[&TLS12, &TLS13], offered)).await.unwrap();
        let (_, session) = stream.get_ref();
        assert_eq!(session.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
        assert_eq!(session.alpn_protocol(), Some(&b"http/1.1"[..]));
        ask(&mut stream).await.unwrap();
        ask(&mut stream).await.unwrap();
    }
    // A client that offers no protocol is served too.
    ask(&mut connect(served.address, client(&[&pair], &[&TLS13], &[])).await.unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_handshake_has_a_time_limit() {
    let pair = Pair::new("one");
    let limits = http_server::Limits { handshake_timeout: SHORT, ..limits() };
    let served = Served::new(&pair, limits, interpreter::RequestLimits::default()).await;
    let mut silent = TcpStream::connect(served.address).await.unwrap();
    let started = Instant::now();
    assert_eq!(timeout(LONG, silent.read(&mut [0; 8])).await.unwrap().unwrap_or(0), 0);
    assert!(started.elapsed() >= SHORT / 2);
    served.until_metric("mczk_webhook_tls_handshake_failures_total 1").await;
}

#[tokio::test]
async fn a_handshake_that_stalls_keeps_no_other_waiting() {
    let pair = Pair::new("one");
    let served = Served::new(&pair, limits(), interpreter::RequestLimits::default()).await;
    let mut stalled = Vec::new();
    for _ in 0..20 {
        let name = ServerName::try_from("localhost").unwrap();
        let mut handshake = ClientConnection::new(client(&[&pair], &[&TLS13], &[]), name).unwrap();
        let mut hello = Vec::new();
        handshake.write_tls(&mut hello).unwrap();
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        stream.write_all(&hello).await.unwrap();
        // The server has computed its part, and now waits for the end.
        timeout(LONG, stream.read_u8()).await.expect("its part").unwrap();
        stalled.push(stream);
    }
    ask(&mut timeout(LONG / 2, served.connect(&pair)).await.expect("a handshake")).await.unwrap();
}

#[tokio::test]
async fn a_head_has_a_time_limit_and_a_pause_a_longer_one() {
    let pair = Pair::new("one");
    let limits = http_server::Limits { header_timeout: SHORT, idle_timeout: 4 * SHORT, ..limits() };
    let served = Served::new(&pair, limits, interpreter::RequestLimits::default()).await;

    // Single bytes do not extend the limit.
    let mut slow = served.connect(&pair).await;
    let drip = async {
        for byte in "POST /interpreter HTTP/1.1\r\nX: ".bytes().chain(std::iter::repeat(b'a')) {
            if slow.write_all(&[byte]).await.is_err() || slow.flush().await.is_err() {
                return;
            }
            if timeout(Duration::from_millis(20), slow.read(&mut [0; 8])).await.is_ok() {
                return;
            }
        }
    };
    let started = Instant::now();
    timeout(LONG, drip).await.expect("it stays open");
    assert!(started.elapsed() >= SHORT / 2 && started.elapsed() < 3 * SHORT, "{:?}", started.elapsed());

    // Also after a complete request.
    let mut second = served.connect(&pair).await;
    ask(&mut second).await.unwrap();
    second.write_all(b"POST /inter").await.unwrap();
    assert!(closed(&mut second).await < 3 * SHORT);

    // A pause between requests has its own limit.
    let mut idle = served.connect(&pair).await;
    for _ in 0..3 {
        ask(&mut idle).await.unwrap();
        sleep(2 * SHORT).await;
    }
    ask(&mut idle).await.unwrap();
    assert!(closed(&mut idle).await >= 3 * SHORT);
}

#[tokio::test]
async fn a_body_has_limits_on_time_and_size() {
    let pair = Pair::new("one");
    let inner = interpreter::RequestLimits {
        body_timeout: SHORT,
        max_body_bytes: 100_000,
        ..interpreter::RequestLimits::default()
    };
    let served = Served::new(&pair, limits(), inner).await;

    let mut slow = served.connect(&pair).await;
    slow.write_all(head(1000).as_bytes()).await.unwrap();
    slow.write_all(b"{\"request\":").await.unwrap();
    let (status, body) = timeout(LONG, answer(&mut slow)).await.unwrap().unwrap();
    assert!(status == 408 && body.contains("did not arrive in time"), "{status} {body}");
    closed(&mut slow).await;

    // A client that writes everything before it reads receives its answer too.
    let mut large = served.connect(&pair).await;
    large.write_all(head(4 << 20).as_bytes()).await.unwrap();
    large.write_all(&vec![b' '; 4 << 20]).await.unwrap();
    let (status, body) = timeout(LONG, answer(&mut large)).await.unwrap().unwrap();
    assert!(status == 413 && body.contains("larger than 100000 bytes"), "{status} {body}");

    // A body without an announced length has the same limit.
    let mut chunked = served.connect(&pair).await;
    let chunked_head =
        head(0).replace("Content-Length: 0", "Transfer-Encoding: chunked") + &format!("{:x}\r\n", 200_000);
    chunked.write_all(chunked_head.as_bytes()).await.unwrap();
    chunked.write_all(&vec![b' '; 200_000]).await.unwrap();
    chunked.write_all(b"\r\n0\r\n\r\n").await.unwrap();
    assert_eq!(timeout(LONG, answer(&mut chunked)).await.unwrap().unwrap().0, 413);

    // And the server still serves.
    ask(&mut served.connect(&pair).await).await.unwrap();
}

#[tokio::test]
async fn a_new_connection_ends_the_slowest() {
    let pair = Pair::new("one");
    let limits = http_server::Limits { max_connections: 3, ..limits() };
    let served = Served::new(&pair, limits, interpreter::RequestLimits::default()).await;
    let mut idle = served.connect(&pair).await;
    ask(&mut idle).await.unwrap();
    let mut handshake = stranger(served.address).await;
    let config = client(&[&pair], &[&TLS13], &["http/1.1"]);
    let mut body = handshaken(stranger(served.address).await, config.clone()).await.unwrap();
    body.write_all(head(1000).as_bytes()).await.unwrap();

    // A stalled handshake ends first, then an incomplete request, then a silent client: their address has read no answer.
    let mut first = served.connect(&pair).await;
    ask(&mut first).await.unwrap();
    assert_eq!(timeout(LONG, handshake.read(&mut [0; 8])).await.unwrap().unwrap_or(0), 0);
    let mut silent = handshaken(stranger(served.address).await, config).await.unwrap();
    closed(&mut body).await;
    let mut second = served.connect(&pair).await;
    ask(&mut second).await.unwrap();
    closed(&mut silent).await;
    // Of idle connections, the one that was used last stays.
    ask(&mut idle).await.unwrap();
    ask(&mut served.connect(&pair).await).await.unwrap();
    closed(&mut first).await;
    ask(&mut idle).await.unwrap();
    served.until_metric(r#"mczk_webhook_connections_evicted_total{limit="total"} 4"#).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_lost_when_the_certificate_changes() {
    let (old, new) = (Pair::new("old"), Pair::new("new"));
    let served = Served::new(&old, limits(), interpreter::RequestLimits::default()).await;
    let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let both = client(&[&old, &new], &[&TLS13], &["http/1.1"]);
    let clients: Vec<JoinHandle<std::io::Result<()>>> = (0..6)
        .map(|number| {
            let (stop, answers, both, address) = (stop.clone(), answers.clone(), both.clone(), served.address);
            tokio::spawn(async move {
                let mut kept = connect(address, both.clone()).await?;
                while !stop.load(Ordering::Relaxed) {
                    // Half of them keep their connection, half make a new one for each request.
                    if number % 2 == 0 {
                        kept = connect(address, both.clone()).await?;
                    }
                    ask(&mut kept).await?;
                    answers.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })
        })
        .collect();
    let more_answers = async || {
        let before = answers.load(Ordering::Relaxed);
        while answers.load(Ordering::Relaxed) < before + 50 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let trusts = async |pair: &Pair| connect(served.address, client(&[pair], &[&TLS13], &[])).await.is_ok();

    more_answers().await;
    assert!(trusts(&old).await && !trusts(&new).await);
    let refused = |number: u32| format!(r#"mczk_webhook_certificate_reloads_total{{result="refused"}} {number}"#);

    // A key of another certificate, then no certificate: the old pair stays. A read during a change may be
    // one more refusal.
    let broken = Pair { key: new.key.clone(), certificate: old.certificate.clone(), authority: old.authority.clone() };
    broken.write(served.dir.path());
    served.until_metric(&refused(1)).await;
    Pair { certificate: "nothing".to_owned(), ..Pair::new("x") }.write(served.dir.path());
    served.until_metric(&refused(2)).await;
    fs::remove_file(served.dir.path().join("..data")).unwrap();
    served.until_metric(&refused(3)).await;
    more_answers().await;
    assert!(trusts(&old).await && !trusts(&new).await);

    // The old pair again is no change.
    old.write(served.dir.path());
    more_answers().await;

    new.write(served.dir.path());
    served.until_metric(r#"mczk_webhook_certificate_reloads_total{result="swapped"} 1"#).await;
    more_answers().await;
    assert!(!trusts(&old).await && trusts(&new).await);
    let refusals = || {
        let text = telemetry::exposition(&served.registry).unwrap();
        (3..=5).find(|number| text.lines().any(|line| line == refused(*number)))
    };
    let before = refusals();
    more_answers().await;
    assert!(before.is_some() && refusals() == before, "{before:?}, then {:?}", refusals());

    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn an_expired_certificate_is_refused() {
    let old = Pair::new("old");
    let served = Served::new(&old, limits(), interpreter::RequestLimits::default()).await;
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let key = KeyPair::generate().unwrap();
    let ended = params.self_signed(&key).unwrap();
    Pair { certificate: ended.pem(), key: key.serialize_pem(), authority: old.authority.clone() }
        .write(served.dir.path());
    served.until_metric(r#"mczk_webhook_certificate_reloads_total{result="refused"} 1"#).await;
    ask(&mut served.connect(&old).await).await.unwrap();
}

#[tokio::test]
async fn the_shutdown_waits_for_open_requests() {
    let pair = Pair::new("one");
    let mut served = Served::new(&pair, limits(), interpreter::RequestLimits::default()).await;
    let (mut idle, mut fresh, mut busy) =
        (served.connect(&pair).await, served.connect(&pair).await, served.connect(&pair).await);
    ask(&mut idle).await.unwrap();
    let (first, rest) = QUESTION.split_at(20);
    busy.write_all((head(QUESTION.len()) + first).as_bytes()).await.unwrap();
    served.until_metric("mczk_webhook_requests_in_flight 1").await;

    served.trigger.request_shutdown();
    closed(&mut idle).await;
    closed(&mut fresh).await;
    assert!(TcpStream::connect(served.address).await.is_err());
    assert!(timeout(SHORT, &mut served.server).await.is_err());

    busy.write_all(rest.as_bytes()).await.unwrap();
    assert_eq!(answer(&mut busy).await.unwrap(), (200, ANSWER.to_owned()));
    closed(&mut busy).await;
    assert_eq!(timeout(LONG, &mut served.server).await.unwrap().unwrap(), Drained { cut: 0 });
}

#[tokio::test]
async fn a_client_that_has_just_connected_is_answered_during_the_shutdown() {
    let pair = Pair::new("one");
    let served = Served::new(&pair, limits(), interpreter::RequestLimits::default()).await;
    let mut fresh = served.connect(&pair).await;
    served.trigger.request_shutdown();
    sleep(SHORT / 4).await;
    fresh.write_all((head(QUESTION.len()) + QUESTION).as_bytes()).await.unwrap();
    assert_eq!(answer(&mut fresh).await.unwrap(), (200, ANSWER.to_owned()));
    closed(&mut fresh).await;
}

#[tokio::test]
async fn the_shutdown_has_a_time_limit() {
    let pair = Pair::new("one");
    let limits = http_server::Limits { drain: SHORT, ..limits() };
    let mut served = Served::new(&pair, limits, interpreter::RequestLimits::default()).await;
    let mut busy = served.connect(&pair).await;
    busy.write_all((head(QUESTION.len()) + "{").as_bytes()).await.unwrap();
    served.until_metric("mczk_webhook_requests_in_flight 1").await;
    let silent = TcpStream::connect(served.address).await.unwrap();
    sleep(Duration::from_millis(50)).await;
    served.trigger.request_shutdown();
    assert_eq!(timeout(LONG, &mut served.server).await.unwrap().unwrap(), Drained { cut: 2 });
    served.until_metric("mczk_webhook_requests_in_flight 0").await;
    drop(silent);
}
