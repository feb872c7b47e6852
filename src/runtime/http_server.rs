//! Serves a router on a listener, plain or over TLS, to clients that may be slow, many or hostile, until it is time to end;
//! then answers what was asked, and ends.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
};
use prometheus_client::{metrics::counter::Counter, metrics::gauge::Gauge, registry::Registry};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{JoinError, JoinSet},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use crate::runtime::{shutdown::Shutdown, slow_clients::Pace, tls::Serving};

/// How many clients are served, and how slow they may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time; further ones wait to be accepted.
    pub max_connections: usize,
    /// From the connection to the end of TLS's handshake.
    pub handshake_timeout: Duration,
    /// From the first byte of a request's head to its last; also how long a client may not take a byte of the answer.
    pub header_timeout: Duration,
    /// Between two requests. Longer than the 90 s after which Go's clients close their side: a request that meets a close
    /// on its way fails, and Karmada does not try it again.
    pub idle_timeout: Duration,
    /// From the wish to end to the end: for requests that are being answered.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 1024,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(120),
            drain: Duration::from_secs(20),
        }
    }
}

/// What is counted of connections.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    connections: Gauge,
    handshake_failures: Counter,
}

impl Metrics {
    /// Registers them.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("mczk_webhook_connections", "Connections to the webhook", metrics.connections.clone());
        registry.register(
            "mczk_webhook_tls_handshake_failures",
            "Connections to the webhook that ended before TLS was agreed on",
            metrics.handshake_failures.clone(),
        );
        metrics
    }
}

/// How bytes travel.
#[derive(Clone, Debug)]
pub enum Transport {
    /// As they are.
    Plain,
    /// Over TLS, with the certificate that is current when a connection begins.
    Tls(Arc<dyn Serving>),
}

/// How many connections had to be cut when the time to drain was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// 0, if all ended by themselves.
    pub cut: usize,
}

/// Serves until it is time to end, then drains.
pub async fn serve(
    listener: TcpListener,
    transport: Transport,
    router: Router,
    limits: Limits,
    metrics: Metrics,
    shutdown: Shutdown,
) -> Drained {
    let room = Arc::new(Semaphore::new(limits.max_connections));
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let end = shutdown.requested();
    tokio::pin!(end);
    loop {
        tokio::select! {
            biased;
            () = &mut end => break,
            Some(ended) = connections.join_next() => note(ended),
            accepted = accept(&listener, &room) => match accepted {
                Ok((permit, stream)) => {
                    let connection = Connection {
                        router: router.clone(),
                        limits,
                        metrics: metrics.clone(),
                        watcher: graceful.watcher(),
                        _room: permit,
                    };
                    connections.spawn(connection.serve(stream, transport.clone()));
                }
                Err(error) => {
                    // Mostly no file descriptors left: others must end first, and trying at once would only burn time.
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
    // New clients are refused from here on, and go to another replica.
    drop(listener);
    let drained = timeout(limits.drain, graceful.shutdown()).await;
    while let Some(ended) = connections.try_join_next() {
        note(ended);
    }
    let cut = if drained.is_ok() { 0 } else { connections.len() };
    connections.shutdown().await;
    Drained { cut }
}

/// A connection, once there is room for it.
async fn accept(listener: &TcpListener, room: &Arc<Semaphore>) -> io::Result<(OwnedSemaphorePermit, TcpStream)> {
    let permit = room.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((permit, stream))
}

/// A connection's task harms no other, but what it died of is told.
fn note(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!("a connection's task panicked");
    }
}

struct Connection {
    router: Router,
    limits: Limits,
    metrics: Metrics,
    watcher: Watcher,
    _room: OwnedSemaphorePermit,
}

impl Connection {
    async fn serve(self, stream: TcpStream, transport: Transport) {
        // An answer is one small write: waiting for more would only delay it.
        let _ = stream.set_nodelay(true);
        let Transport::Tls(certificates) = transport else { return self.speak(stream).await };
        let Some(config) = certificates.server_config() else {
            self.metrics.handshake_failures.inc();
            return;
        };
        let handshake = TlsAcceptor::from(config).accept(stream);
        match timeout(self.limits.handshake_timeout, handshake).await {
            Ok(Ok(stream)) => self.speak(stream).await,
            Ok(Err(error)) => {
                // Load balancers that only connect end here: not worth a warning.
                tracing::debug!(%error, "no TLS");
                self.metrics.handshake_failures.inc();
            }
            Err(_) => {
                self.metrics.handshake_failures.inc();
            }
        }
    }

    async fn speak<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self, stream: S) {
        let Self { router, limits, metrics, watcher, _room } = self;
        let _open = Open::new(metrics.connections);
        let (stream, pace) = Pace::keep(stream, limits.header_timeout);
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let (router, asked) = (router.clone(), pace.asked());
            async move {
                let response = router.oneshot(request).await;
                drop(asked);
                Ok::<_, Infallible>(response.unwrap_or_else(|never| match never {}))
            }
        });
        let connection = http1::Builder::new()
            // Without a timer hyper's timeouts do nothing.
            .timer(TokioTimer::new())
            .header_read_timeout(limits.idle_timeout)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(%error, "a connection broke");
        }
    }
}

/// Counts a connection while it lives.
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
