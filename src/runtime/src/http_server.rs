//! Serves a router on a listener, plain or over TLS, to clients that may be slow, many or hostile. On shutdown it
//! answers open requests and ends. Each request has the `ConnectInfo` of its client's address, without the port.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::Poll;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use axum::{Router, body::Body, extract::ConnectInfo, response::Response};
use http_body_util::BodyExt as _;
use hyper::{
    body::{Body as _, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::{
    rt::TokioIo,
    server::graceful::{GracefulShutdown, Watcher},
};
use prometheus_client::{metrics::counter::Counter, metrics::gauge::Gauge, registry::Registry};
use rustls::server::Acceptor;
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::{JoinError, JoinSet, yield_now},
    time::{sleep, timeout},
};
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};
use tower::ServiceExt;

use crate::{
    connections::{Connections, Evictions},
    permits::Permits,
    shutdown::Shutdown,
    slow_clients::{Activity, InFlight, Patience, SlowClientGuard},
    tls::Serving,
};

/// Time without a new connection after which no client waits to be accepted.
const LAST_CLIENT: Duration = Duration::from_millis(10);
/// Largest buffer of a connection in bytes, and so the largest head of a request. It bounds the memory of connections that
/// send only a head.
const MAX_BUFFER: usize = 32 << 10;
/// Largest number of bytes of answers that wait in a TLS connection, besides those in the kernel.
const MAX_UNSENT: usize = 16 << 10;
/// Largest number of bytes of answers that wait in the kernel, besides those that the client's kernel has. Without it, the
/// buffer of the kernel grows to megabytes, and a client that reads nothing is answered thousands of requests.
const MAX_UNSENT_IN_KERNEL: u32 = 16 << 10;
/// The longest time for clients that wait to be accepted at the end.
const LAST_CLIENTS: Duration = Duration::from_millis(100);

/// Limits on the number and slowness of clients.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest number of connections. A further one ends that of the slowest client.
    pub max_connections: usize,
    /// Largest number of connections from one address. A further one ends another one of this address.
    pub max_per_address: usize,
    /// Time from the connection to the end of the TLS handshake.
    pub handshake_timeout: Duration,
    /// Time from the first byte of a request's head to its last, and for a client that does not read its answer.
    pub header_timeout: Duration,
    /// Time between two requests. Keep it above the 90 s after which Go's clients close their side: a request that
    /// meets a closing connection fails, and Karmada does not repeat it.
    pub idle_timeout: Duration,
    /// Time in which connections without a request still serve one, after the request to shut down.
    pub linger: Duration,
    /// Time for open requests after that.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 768,
            // A proxy may stand before all clients.
            max_per_address: 384,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(120),
            linger: Duration::ZERO,
            drain: Duration::from_secs(20),
        }
    }
}

impl Limits {
    /// Limits of a listener to which only the kubelet and Prometheus connect.
    #[must_use]
    pub fn of_probes() -> Self {
        Self {
            max_connections: 256,
            max_per_address: 16,
            idle_timeout: Duration::from_secs(5),
            drain: Duration::from_secs(1),
            ..Self::default()
        }
    }
}

/// Counters of connections.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    connections: Gauge,
    handshake_failures: Counter,
    evictions: Evictions,
}

impl Metrics {
    /// Registers the counters.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("mczk_webhook_connections", "Open connections to the webhook", metrics.connections.clone());
        registry.register(
            "mczk_webhook_tls_handshake_failures",
            "Connections to the webhook that ended before the TLS handshake did",
            metrics.handshake_failures.clone(),
        );
        metrics.evictions.register(registry);
        metrics
    }
}

/// Transport of the bytes.
#[derive(Clone, Debug)]
pub enum Transport {
    /// Plain TCP.
    Plain,
    /// TLS, with the certificate that is current when a connection begins.
    Tls(Arc<dyn Serving>),
}

/// Result of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Number of connections that were cut at the end of [`Limits::drain`].
    pub cut: usize,
}

/// Serves until the shutdown is requested, then drains.
pub async fn serve(
    listener: TcpListener,
    transport: Transport,
    router: Router,
    limits: Limits,
    metrics: Metrics,
    shutdown: Shutdown,
) -> Drained {
    let open = Connections::new(limits.max_connections, limits.max_per_address, metrics.evictions.clone());
    let permits = Permits::new(available_parallelism().map_or(1, |processors| processors.get() / 2));
    // One request of clients that do not wait for their answers begins at a time.
    let hurried = Arc::new(Semaphore::new(1));
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let end = shutdown.requested();
    tokio::pin!(end);
    let connection = |stream, peer: SocketAddr| {
        let peer = peer.ip().to_canonical();
        let place = open.place(peer);
        let (router, metrics, watcher) = (router.clone(), metrics.clone(), graceful.watcher());
        let connection = ServedConnection {
            router,
            limits,
            metrics,
            watcher,
            peer,
            activity: place.activity(),
            permits: permits.clone(),
            hurried: hurried.clone(),
        };
        let transport = transport.clone();
        async move {
            tokio::select! {
                biased;
                () = place.evicted() => {}
                () = connection.serve(stream, transport) => {}
            }
        }
    };
    loop {
        tokio::select! {
            biased;
            () = &mut end => break,
            Some(ended) = connections.join_next() => log_panic(ended),
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    connections.spawn(connection(stream, peer));
                }
                Err(error) => {
                    // Usually no file descriptor is left: wait for other connections to end.
                    tracing::warn!(%error, "Cannot accept a connection");
                    sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
    // The kernel has answered these clients already, so they connect to no other replica.
    let last = Instant::now() + LAST_CLIENTS.min(limits.linger);
    while Instant::now() < last
        && let Ok(Ok((stream, peer))) = timeout(LAST_CLIENT, listener.accept()).await
    {
        connections.spawn(connection(stream, peer));
    }
    // From here on new clients are refused, and connect to another replica.
    drop(listener);
    // hyper closes a connection whose first request it has not read yet.
    let _ = timeout(limits.linger, async {
        while let Some(ended) = connections.join_next().await {
            log_panic(ended);
        }
    })
    .await;
    let drained = timeout(limits.drain, graceful.shutdown()).await;
    while let Some(ended) = connections.try_join_next() {
        log_panic(ended);
    }
    let cut = if drained.is_ok() { 0 } else { connections.len() };
    connections.shutdown().await;
    Drained { cut }
}

/// Logs the panic of a connection. It does not affect other connections.
fn log_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!("A connection panicked");
    }
}

struct ServedConnection {
    router: Router,
    limits: Limits,
    metrics: Metrics,
    watcher: Watcher,
    peer: IpAddr,
    activity: Arc<Activity>,
    permits: Permits,
    hurried: Arc<Semaphore>,
}

impl ServedConnection {
    async fn serve(self, stream: TcpStream, transport: Transport) {
        // An answer is one small write, which waiting for more bytes would only delay.
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(&stream).set_tcp_notsent_lowat(MAX_UNSENT_IN_KERNEL);
        let Transport::Tls(certificates) = transport else { return self.speak_http(stream).await };
        match timeout(self.limits.handshake_timeout, self.handshake(stream, &*certificates)).await {
            Ok(Ok(stream)) => self.speak_http(stream).await,
            Ok(Err(error)) => {
                // Load balancers that only connect end here, which deserves no warning.
                tracing::debug!(%error, "TLS handshake failed");
                self.metrics.handshake_failures.inc();
            }
            Err(_) => {
                self.metrics.handshake_failures.inc();
            }
        }
    }

    async fn handshake(&self, stream: TcpStream, certificates: &dyn Serving) -> io::Result<TlsStream<TcpStream>> {
        // A client that sends nothing takes no buffer.
        stream.readable().await?;
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        self.activity.queued();
        let permit = self.permits.permit(self.activity.address()).await;
        let config = certificates.server_config().ok_or(io::ErrorKind::NotConnected)?;
        // This computes the keys and the signature.
        let mut rest = hello.into_stream_with(config, |connection| connection.set_buffer_limit(Some(MAX_UNSENT)));
        let sent = futures::poll!(&mut rest);
        // Requests that have arrived go before the next handshake.
        yield_now().await;
        drop(permit);
        self.activity.served();
        match sent {
            Poll::Ready(result) => result,
            Poll::Pending => rest.await,
        }
    }

    async fn speak_http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self, stream: S) {
        let Self { router, limits, metrics, watcher, peer, activity, hurried, .. } = self;
        let _open = Open::new(metrics.connections);
        let patience = Patience { busy: limits.header_timeout, idle: limits.idle_timeout };
        let stream = SlowClientGuard::new(stream, patience, activity.clone());
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(peer));
            let (router, in_flight) = (router.clone(), activity.begin());
            let hurried = activity.hurries().then(|| hurried.clone());
            async move {
                if let Some(hurried) = hurried {
                    let permit = hurried.acquire().await;
                    // Requests that have arrived go before this one.
                    yield_now().await;
                    drop(permit);
                }
                let response = router.oneshot(request).await.unwrap_or_else(|never| match never {});
                Ok::<_, Infallible>(until_sent(response, in_flight))
            }
        });
        let connection = http1::Builder::new()
            // The guard has the time limits.
            .header_read_timeout(None)
            .max_buf_size(MAX_BUFFER)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(%error, "Connection failed");
        }
    }
}

/// A body of unknown length is made while it is sent. Until its end, the request is in flight.
fn until_sent(response: Response, in_flight: InFlight) -> Response {
    response.map(|body| {
        if body.size_hint().exact().is_some() {
            return body;
        }
        let held = body.map_frame(move |frame| {
            let _request = &in_flight;
            frame
        });
        Body::new(held)
    })
}

/// Counts a connection while it is open.
struct Open(Gauge);

impl Open {
    fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::routing::get;
    use futures::StreamExt as _;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpSocket,
        task::JoinHandle,
    };

    use super::*;
    use crate::shutdown::{self, Trigger};

    /// A server on loopback, which the trigger ends.
    struct LocalServer {
        address: SocketAddr,
        trigger: Trigger,
        server: JoinHandle<Drained>,
    }

    impl LocalServer {
        async fn start(router: Router, limits: Limits) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (trigger, requested) = shutdown::channel();
            let served = serve(listener, Transport::Plain, router, limits, Metrics::default(), requested);
            Self { address, trigger, server: tokio::spawn(served) }
        }

        async fn stop(self) {
            self.trigger.request_shutdown();
            self.server.await.unwrap();
        }
    }

    #[tokio::test]
    async fn slow_clients_end_for_new_ones() {
        let router = Router::new().route("/", get(async || "served"));
        let limits = Limits { max_connections: 4, max_per_address: 3, ..Limits::of_probes() };
        let local = LocalServer::start(router, limits).await;
        let connect = async |from: &str| {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
            socket.connect(local.address).await.unwrap()
        };
        let mut silent = Vec::new();
        for _ in 0..6 {
            silent.push(connect("127.0.0.2").await);
        }
        let answer = async |from: &str| {
            let mut client = connect(from).await;
            client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
            let mut answer = String::new();
            timeout(Duration::from_secs(5), client.read_to_string(&mut answer)).await.expect("an end").unwrap();
            answer
        };
        for from in ["127.0.0.3", "127.0.0.2"] {
            assert!(answer(from).await.ends_with("served"), "{from}");
        }
        for client in &mut silent[..4] {
            let ended = timeout(Duration::from_secs(5), client.read(&mut [0])).await.expect("an end");
            assert_eq!(ended.unwrap(), 0);
        }
        assert!(timeout(Duration::from_millis(100), silent[5].read(&mut [0])).await.is_err(), "it keeps its place");
        local.stop().await;
    }

    #[tokio::test]
    async fn a_client_that_reads_no_answer_is_not_answered_again() {
        const REQUESTS: usize = 500;
        const ANSWER: usize = 8 << 10;
        let answered = Arc::<AtomicUsize>::default();
        let count = answered.clone();
        let router = Router::new().route(
            "/",
            get(async move || {
                count.fetch_add(1, Ordering::Relaxed);
                "~".repeat(ANSWER)
            }),
        );
        let local = LocalServer::start(router, Limits::default()).await;
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(32 << 10).unwrap();
        let mut client = socket.connect(local.address).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        client.write_all(&request.repeat(REQUESTS)).await.unwrap();
        sleep(Duration::from_millis(300)).await;
        let unread = answered.load(Ordering::Relaxed);
        assert!((1..50).contains(&unread), "{unread}");
        // As soon as it reads, it gets all answers.
        let (mut letters, mut chunk) = (0, vec![0; 64 << 10]);
        while letters < REQUESTS * ANSWER {
            let read = timeout(Duration::from_secs(5), client.read(&mut chunk)).await.expect("answers").unwrap();
            assert!(read > 0, "the connection ended after {letters} letters");
            letters += String::from_utf8_lossy(&chunk[..read]).matches('~').count();
        }
        assert_eq!(answered.load(Ordering::Relaxed), REQUESTS);
        local.stop().await;
    }

    #[tokio::test]
    async fn an_answer_may_take_longer_than_the_pause_that_follows() {
        let limits = Limits { idle_timeout: Duration::from_millis(100), ..Limits::default() };
        let slow = async || {
            Body::from_stream(futures::stream::iter(["first ", "second ", "last"]).then(async |part| {
                sleep(Duration::from_millis(300)).await;
                Ok::<_, Infallible>(part)
            }))
        };
        let local = LocalServer::start(Router::new().route("/", get(slow)), limits).await;
        let mut client = TcpStream::connect(local.address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        timeout(Duration::from_secs(20), client.read_to_string(&mut answer)).await.expect("an end").unwrap();
        assert!(answer.contains("second") && answer.contains("last"), "{answer}");
        local.stop().await;
    }

    #[tokio::test]
    async fn a_client_that_waits_to_be_accepted_at_the_end_gets_its_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let (trigger, requested) = shutdown::channel();
        trigger.request_shutdown();
        let router = Router::new().route("/", get(async || "served"));
        let limits = Limits { linger: Duration::from_millis(200), ..Limits::default() };
        let metrics = Metrics::default();
        let drained = serve(listener, Transport::Plain, router, limits, metrics, requested).await;
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(drained, Drained { cut: 0 });
        assert!(answer.ends_with("served"), "{answer}");
    }
}
