//! Thousands of slow clients at once, or polite ones that take all places, while calls like Karmada's continue.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use e2e::table::table;
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs, pki_types::CertificateDer, pki_types::pem::PemObject};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    runtime::{Builder, Runtime},
    task::JoinSet,
    time::{sleep, sleep_until, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    cases,
    report::number,
    servers::{Folder, Kind, Server},
};

/// Callers like Karmada's controllers. Each has one connection.
const CALLERS: u32 = 16;
/// Pause of a caller between two calls.
const CALL_PAUSE: Duration = Duration::from_millis(20);
/// A caller connects again after so many calls.
const CALLS_OF_A_CONNECTION: u32 = 50;
/// Time of a call, after which it has failed. Karmada waits longer.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two bytes of a slow client.
const BYTE_PAUSE: Duration = Duration::from_secs(1);
/// Time until a slow client that was cut off connects again.
const RETURN_PAUSE: Duration = Duration::from_secs(10);
/// Polite clients that are idle when the calls begin. With Karmada's they take all places.
const POLITE: usize = 766;
/// Time between two further polite clients.
const POLITE_PAUSE: Duration = Duration::from_millis(50);
/// Time between the halves of a question beside polite clients, as over a slow network: a request is in flight nearly always.
const HALF_PAUSE: Duration = Duration::from_millis(50);
/// Time until all polite clients are idle.
const POLITE_IN: Duration = Duration::from_secs(60);
/// Nice value of the threads of slow clients: the lowest priority. Real slow clients take no processor time from the server.
const SLOW_NICE: i32 = 19;

/// What a slow client does.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// It connects, and sends nothing.
    HalfOpen,
    /// It sends its handshake byte by byte.
    Handshake,
    /// It sends a head byte by byte.
    Head,
    /// It sends a body byte by byte.
    Body,
    /// It asks again and again, and reads no answer.
    Unread,
}

impl Way {
    const ALL: [Self; 5] = [Self::HalfOpen, Self::Handshake, Self::Head, Self::Body, Self::Unread];
}

/// Hostile clients beside the calls.
#[derive(Clone, Copy, Debug)]
enum Attack {
    None,
    /// So many clients that are slow in every [`Way`].
    Slow(usize),
    /// [`POLITE`] clients that ask, read the answer and stay. Every [`POLITE_PAUSE`] one more connects.
    Polite,
}

impl Attack {
    /// Number of clients at the begin of the calls.
    const fn clients(self) -> usize {
        match self {
            Self::None => 0,
            Self::Slow(clients) => clients,
            Self::Polite => POLITE,
        }
    }

    /// Time between the halves of a question.
    const fn half_pause(self) -> Option<Duration> {
        match self {
            Self::None | Self::Slow(_) => None,
            Self::Polite => Some(HALF_PAUSE),
        }
    }
}

/// From where the hostile clients connect.
#[derive(Clone, Copy, Debug)]
enum Origin {
    OneAddress,
    /// The polite clients that are idle have two, and further ones have another.
    ThreeAddresses,
    ManyAddresses,
}

impl Origin {
    fn address(self, client: usize) -> IpAddr {
        let [.., high, low] = client.to_be_bytes();
        match self {
            Self::OneAddress => Ipv4Addr::new(127, 0, 1, 1).into(),
            Self::ThreeAddresses if client >= POLITE => Ipv4Addr::new(127, 0, 1, 3).into(),
            Self::ThreeAddresses => Ipv4Addr::new(127, 0, 1, 1 + (low & 1)).into(),
            Self::ManyAddresses => Ipv4Addr::new(127, 1, high, low).into(),
        }
    }
}

/// Runs mczk alone, then with slow clients of one address and of many, then with polite ones, and returns the table.
///
/// # Errors
/// If mczk does not start, or a call is answered wrongly.
pub(crate) async fn run(clients: usize, seconds: u32) -> Result<String> {
    let mut rows = Vec::new();
    for (name, origin, attack) in [
        ("none", Origin::OneAddress, Attack::None),
        ("one", Origin::OneAddress, Attack::Slow(clients)),
        ("one for each client", Origin::ManyAddresses, Attack::Slow(clients)),
        ("three, polite", Origin::ThreeAddresses, Attack::Polite),
        ("one for each, polite", Origin::ManyAddresses, Attack::Polite),
    ] {
        eprintln!("hostile clients: {}, addresses: {name}", attack.clients());
        let folder = Folder::new()?;
        let server = Server::mczk(&folder).await?;
        rows.push(measure(name, origin, attack, seconds, &server, &folder).await?);
        server.end().await?;
    }
    let head = [
        "addresses",
        "clients",
        "open at once",
        "ended",
        "calls",
        "failed",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "CPU s",
        "VmHWM MiB",
    ];
    Ok(table(1, &head, &rows))
}

async fn measure(
    name: &str,
    origin: Origin,
    attack: Attack,
    seconds: u32,
    server: &Server,
    folder: &Folder,
) -> Result<Vec<String>> {
    let (target, target_of_callers) = (Arc::new(Target::new(server, folder)?), Target::new(server, folder)?);
    let counts = Arc::<Counts>::default();
    let cpu = server.cpu()?;
    let hostile = hostile_runtime()?;
    match attack {
        Attack::None => {}
        Attack::Slow(clients) => slow(&hostile, clients, origin, &target, &counts),
        Attack::Polite => {
            hostile.spawn(polite(0..POLITE, Duration::ZERO, origin, target.clone(), counts.clone()));
            if let Err(late) = idle(&counts).await {
                hostile.shutdown_background();
                return Err(late);
            }
            hostile.spawn(polite(POLITE..usize::MAX, POLITE_PAUSE, origin, target, counts.clone()));
        }
    }
    let end = Instant::now() + Duration::from_secs(seconds.into());
    // No `?` before the shutdown: tokio panics if async code drops a runtime.
    let calls = calls_apart(target_of_callers, attack.half_pause(), end).await;
    let ended = counts.ended.load(Ordering::Relaxed);
    hostile.shutdown_background();
    let (cpu, Calls { mut times, failed }) = (server.cpu()? - cpu, calls?);
    times.sort();
    let percentile = |part: usize| {
        let time = times.get((times.len() * part / 1000).min(times.len().saturating_sub(1))).copied();
        number(time.unwrap_or_default().as_secs_f64() * 1000.0, 1)
    };
    Ok(vec![
        name.to_owned(),
        attack.clients().to_string(),
        counts.most.load(Ordering::Relaxed).to_string(),
        ended.to_string(),
        times.len().to_string(),
        failed.to_string(),
        percentile(500),
        percentile(990),
        percentile(999),
        number(cpu / 1_000_000.0, 1),
        number(server.memory("VmHWM:")?, 1),
    ])
}

/// Connects slow clients, each again and again.
fn slow(runtime: &Runtime, clients: usize, origin: Origin, target: &Arc<Target>, counts: &Arc<Counts>) {
    for (client, way) in (0..clients).zip(Way::ALL.into_iter().cycle()) {
        let (target, counts) = (target.clone(), counts.clone());
        runtime.spawn(async move {
            loop {
                let _ = counts.slow(&target, origin.address(client), way).await;
                counts.ended.fetch_add(1, Ordering::Relaxed);
                sleep(RETURN_PAUSE).await;
            }
        });
    }
}

/// Connects polite clients one after the other, with this pause before each.
async fn polite(clients: Range<usize>, pause: Duration, origin: Origin, target: Arc<Target>, counts: Arc<Counts>) {
    for client in clients {
        sleep(pause).await;
        let (target, counts) = (target.clone(), counts.clone());
        tokio::spawn(async move {
            let _ = counts.polite(&target, origin.address(client)).await;
            counts.ended.fetch_add(1, Ordering::Relaxed);
        });
    }
}

/// Waits until the first polite clients are idle.
async fn idle(counts: &Counts) -> Result<()> {
    let end = Instant::now() + POLITE_IN;
    while counts.open.load(Ordering::Relaxed) < POLITE {
        ensure!(Instant::now() < end, "not all polite clients are idle after {} s", POLITE_IN.as_secs());
        sleep(POLITE_PAUSE).await;
    }
    Ok(())
}

/// The runtime of the hostile clients. On Linux `setpriority` changes the calling thread alone.
fn hostile_runtime() -> Result<Runtime> {
    let lower = || {
        // This cannot fail: a thread may always lower its own priority.
        let _ = rustix::process::setpriority_process(None, SLOW_NICE);
    };
    Ok(Builder::new_multi_thread().enable_all().on_thread_start(lower).build()?)
}

/// The server, for clients.
struct Target {
    address: SocketAddr,
    tls: TlsConnector,
    question: String,
}

impl Target {
    fn new(server: &Server, folder: &Folder) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&fs::read(folder.file("ca.crt"))?)?)?;
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let case = cases::all().into_iter().next().context("no case")?;
        let body = case.body(Kind::Mczk);
        let question = format!(
            "POST /interpreter HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        Ok(Self { address: server.address, tls: TlsConnector::from(Arc::new(config)), question })
    }

    async fn connect(&self, from: IpAddr) -> Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        let stream = socket.connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    async fn handshake(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>> {
        Ok(self.tls.connect(self.address.ip().into(), stream).await?)
    }
}

/// Counts of the hostile clients.
#[derive(Default)]
struct Counts {
    open: AtomicUsize,
    most: AtomicUsize,
    ended: AtomicUsize,
}

/// Counts an open connection.
struct Open<'a>(&'a Counts);

impl<'a> Open<'a> {
    fn new(counts: &'a Counts) -> Self {
        counts.most.fetch_max(counts.open.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        Self(counts)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counts {
    /// One connection of a polite client, until the server ends it. It counts as open once it is idle.
    async fn polite(&self, target: &Target, from: IpAddr) -> Result<()> {
        let mut stream = target.handshake(target.connect(from).await?).await?;
        ask(&mut stream, &target.question, None).await?;
        let _open = Open::new(self);
        stream.read_u8().await?;
        Ok(())
    }

    /// One connection of a slow client, until the server ends it.
    async fn slow(&self, target: &Target, from: IpAddr, way: Way) -> Result<()> {
        let mut stream = target.connect(from).await?;
        let _open = Open::new(self);
        match way {
            Way::HalfOpen => {
                stream.read_u8().await?;
            }
            Way::Handshake => drip(&mut stream, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await?,
            Way::Head => {
                let mut stream = target.handshake(stream).await?;
                drip(&mut stream, b"POST /interpreter HTTP/1.1\r\nX-Slow: ").await?;
            }
            Way::Body => {
                let mut stream = target.handshake(stream).await?;
                let (head, body) = target.question.split_once('{').context("no body")?;
                stream.write_all(head.as_bytes()).await?;
                drip(&mut stream, format!("{{{body}").as_bytes()).await?;
            }
            Way::Unread => {
                let mut stream = target.handshake(stream).await?;
                loop {
                    stream.write_all(target.question.as_bytes()).await?;
                    stream.flush().await?;
                }
            }
        }
        Ok(())
    }
}

/// Sends these bytes one by one, and then a letter again and again, until the server ends the connection.
async fn drip<S: AsyncReadExt + AsyncWriteExt + Unpin>(stream: &mut S, bytes: &[u8]) -> Result<()> {
    for byte in bytes.iter().copied().chain(std::iter::repeat(b'a')) {
        stream.write_all(&[byte]).await?;
        stream.flush().await?;
        if timeout(BYTE_PAUSE, stream.read(&mut [0; 64])).await.is_ok() {
            break;
        }
    }
    Ok(())
}

/// The calls of one caller.
#[derive(Default)]
struct Calls {
    times: Vec<Duration>,
    failed: usize,
}

/// The calls of all callers. They have a thread and a TLS configuration of their own: a time must not hold the wait for
/// slow clients of this process.
async fn calls_apart(target: Target, half_pause: Option<Duration>, end: Instant) -> Result<Calls> {
    let thread = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let (target, mut all) = (Arc::new(target), Calls::default());
            let mut callers = JoinSet::new();
            for _ in 0..CALLERS {
                callers.spawn(calls(target.clone(), half_pause, end));
            }
            while let Some(calls) = callers.join_next().await {
                let calls = calls??;
                all.failed += calls.failed;
                all.times.extend(calls.times);
            }
            anyhow::Ok(all)
        })
    });
    thread.await?
}

/// Asks until the end. A connection that the server has ended is opened again, as Go's client does.
async fn calls(target: Arc<Target>, half_pause: Option<Duration>, end: Instant) -> Result<Calls> {
    let mut calls = Calls::default();
    let mut connection: Option<TlsStream<TcpStream>> = None;
    let mut of_connection = 0;
    while Instant::now() < end {
        let begin = Instant::now();
        let call = async {
            let mut stream = match connection.take() {
                Some(stream) => stream,
                None => target.handshake(target.connect(Ipv4Addr::LOCALHOST.into()).await?).await?,
            };
            ask(&mut stream, &target.question, half_pause).await?;
            anyhow::Ok(stream)
        };
        match timeout(CALL_TIMEOUT, call).await {
            Ok(Ok(stream)) => {
                of_connection = (of_connection + 1) % CALLS_OF_A_CONNECTION;
                connection = (of_connection > 0).then_some(stream);
            }
            Ok(Err(error)) => {
                eprintln!("a call failed: {error:#}");
                calls.failed += 1;
            }
            Err(_) => calls.failed += 1,
        }
        calls.times.push(begin.elapsed());
        sleep_until((begin + CALL_PAUSE).into()).await;
    }
    Ok(calls)
}

/// Asks once, and reads the answer. With a pause the question is sent in two halves.
async fn ask(stream: &mut TlsStream<TcpStream>, question: &str, half_pause: Option<Duration>) -> Result<()> {
    let (first, rest) = question.as_bytes().split_at(question.len() / 2);
    stream.write_all(first).await?;
    if let Some(pause) = half_pause {
        stream.flush().await?;
        sleep(pause).await;
    }
    stream.write_all(rest).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&answer);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            ensure!(head.starts_with("HTTP/1.1 200 "), "{head}");
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).context("no length")?;
            if body.len() == length.parse::<usize>()? {
                ensure!(body.contains(r#""successful":true"#), "{body}");
                return Ok(());
            }
        }
        if stream.read_buf(&mut answer).await? == 0 {
            bail!("the connection ended before the answer");
        }
    }
}
