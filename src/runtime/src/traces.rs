//! Traces: spans of webhook calls and reconciles, sent to a collector by OTLP over HTTP.
//!
//! The spans go through a bounded queue to a thread of their own. A full queue drops spans. A collector that does not
//! answer delays nothing but that thread.

use std::{
    str::FromStr,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::Context as _;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{Bytes, HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    trace::{BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider},
};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    time::timeout,
};
use tracing::{info, warn};
use tracing_subscriber::{
    Layer, Registry,
    filter::{LevelFilter, Targets},
};

/// Target of all spans that are exported. The log leaves it out: its lines name what the spans name.
pub const SPANS: &str = "mczk::spans";
/// Spans that wait to be sent. Further ones are dropped.
const QUEUE: usize = 2048;
/// Spans of one request.
const BATCH: usize = 512;
/// Time between two requests.
const INTERVAL: Duration = Duration::from_secs(2);
/// Time of one request.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// Time in which the last spans are sent.
const END_LIMIT: Duration = Duration::from_secs(2);
/// Longest answer of a collector, in bytes.
const MAX_ANSWER: usize = 64 << 10;

/// The URL of a collector: http or https, a host, and the path under which it serves OTLP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorEndpoint(String);

impl FromStr for CollectorEndpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || "write it as http://HOST:PORT or https://HOST:PORT".to_owned();
        let uri: Uri = text.parse().map_err(|_| refused())?;
        let speaks_http = matches!(uri.scheme_str(), Some("http" | "https"));
        if !speaks_http || uri.host().is_none_or(str::is_empty) || uri.query().is_some() {
            return Err(refused());
        }
        Ok(Self(format!("{}/v1/traces", text.trim_end_matches('/'))))
    }
}

/// The export of spans. It has threads of its own, so that it needs nothing of the service and delays nothing there.
pub struct Traces {
    provider: SdkTracerProvider,
    runtime: Runtime,
}

impl Traces {
    /// Starts the export under this name of the service.
    ///
    /// # Errors
    /// If the system has no thread left, or no certificate of an authority for https.
    pub fn start(endpoint: &CollectorEndpoint, service: &'static str) -> anyhow::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("traces").enable_all().build()?;
        let client = CollectorClient::new(endpoint, runtime.handle().clone())?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_endpoint(endpoint.0.clone())
            .with_timeout(REQUEST_LIMIT)
            .with_http_client(client)
            .build()
            .context("cannot export traces")?;
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE)
            .with_max_export_batch_size(BATCH)
            .with_scheduled_delay(INTERVAL)
            .build();
        let processor = BatchSpanProcessor::builder(exporter).with_batch_config(config).build();
        let resource = Resource::builder().with_service_name(service).build();
        let provider = SdkTracerProvider::builder().with_span_processor(processor).with_resource(resource).build();
        Ok(Self { provider, runtime })
    }

    /// The layer that turns spans of the target [`SPANS`] into traces.
    pub fn layer(&self) -> Box<dyn Layer<Registry> + Send + Sync> {
        tracing_opentelemetry::layer::<Registry>()
            .with_tracer(self.provider.tracer("mczk"))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_filter(Targets::new().with_target(SPANS, LevelFilter::TRACE))
            .boxed()
    }

    /// Sends the spans that wait, for at most two seconds, and ends. Call it outside of an asynchronous task: it waits.
    pub fn end(self) {
        if let Err(error) = self.provider.shutdown_with_timeout(END_LIMIT) {
            info!(%error, "The last spans were not exported");
        }
        self.runtime.shutdown_background();
    }
}

type Sender = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

#[derive(Debug)]
struct CollectorClient {
    url: String,
    sender: Sender,
    runtime: Handle,
    /// True if the last request failed: only changes are logged.
    fails: AtomicBool,
}

impl CollectorClient {
    fn new(endpoint: &CollectorEndpoint, runtime: Handle) -> anyhow::Result<Self> {
        let builder = HttpsConnectorBuilder::new();
        let connector = if endpoint.0.starts_with("https:") {
            let provider = rustls::crypto::aws_lc_rs::default_provider();
            let roots = builder.with_provider_and_native_roots(provider);
            roots
                .context("https needs certificates of authorities on this machine")?
                .https_only()
                .enable_http1()
                .build()
        } else {
            // The image has no certificates of authorities, and plain HTTP needs none.
            let config = rustls::ClientConfig::builder()
                .with_root_certificates(rustls::RootCertStore::empty())
                .with_no_client_auth();
            builder.with_tls_config(config).https_or_http().enable_http1().build()
        };
        let sender = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { url: endpoint.0.clone(), sender, runtime, fails: AtomicBool::new(false) })
    }

    /// Logs the first failure after a success, and the first success after a failure.
    fn report(&self, failure: Option<String>) {
        let url = self.url.as_str();
        match (self.fails.swap(failure.is_some(), Ordering::Relaxed), failure) {
            (false, Some(error)) => warn!(url, error, "Cannot export traces: spans are dropped"),
            (true, None) => info!(url, "Traces can be exported again"),
            _ => {}
        }
    }
}

async fn send(sender: Sender, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let answer = sender.request(request.map(Full::new)).await?;
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, MAX_ANSWER).collect().await?.to_bytes();
    Ok(Response::from_parts(head, body))
}

#[async_trait::async_trait]
impl HttpClient for CollectorClient {
    /// The thread that exports has no runtime, so the request runs in that of [`Traces`].
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sender = self.sender.clone();
        let sent = self.runtime.spawn(async move { timeout(REQUEST_LIMIT, send(sender, request)).await });
        let result = match sent.await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err("the collector does not answer".into()),
            Err(_) => Err("the process ends".into()),
        };
        self.report(match &result {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("the collector answers {}", answer.status())),
            Err(error) => Some(error.to_string()),
        });
        result
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("http://collector:4318", Some("http://collector:4318/v1/traces"))]
    #[case("https://[fd00::1]:4318/otlp/", Some("https://[fd00::1]:4318/otlp/v1/traces"))]
    #[case("collector:4318", None)]
    #[case("grpc://collector:4317", None)]
    #[case("http://collector:4318/?a=b", None)]
    #[case("", None)]
    fn an_endpoint_is_a_url_of_http(#[case] text: &str, #[case] url: Option<&str>) {
        assert_eq!(text.parse().ok(), url.map(|url| CollectorEndpoint(url.to_owned())));
    }

    /// A collector that accepts connections and never answers holds up the end for two seconds at most.
    #[test]
    fn a_silent_collector_does_not_hold_up_the_end() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let traces = Traces::start(&endpoint, "mczk-test").unwrap();
        let subscriber = tracing_subscriber::layer::SubscriberExt::with(tracing_subscriber::registry(), traces.layer());
        let begin = std::time::Instant::now();
        tracing::subscriber::with_default(subscriber, || {
            // More than the queue holds.
            for _ in 0..2 * QUEUE {
                tracing::info_span!(target: SPANS, "span").in_scope(|| {});
            }
        });
        assert!(begin.elapsed() < Duration::from_secs(2), "a full queue drops spans");
        traces.end();
        assert!(begin.elapsed() < Duration::from_secs(6), "{:?}", begin.elapsed());
    }
}
