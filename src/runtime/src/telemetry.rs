//! Logs and metrics. Neither contains secrets or the body of a request.

use std::{
    fmt::{self, Debug},
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    body::Body,
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::{MethodRouter, get},
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, text},
    metrics::info::Info,
    registry::Registry,
};
use tokio::sync::{Semaphore, mpsc};
use tracing::warn;
use tracing_subscriber::{
    Layer, Registry as Subscriber,
    filter::{LevelFilter, Targets, filter_fn},
    layer::{Filter, SubscriberExt},
    util::SubscriberInitExt,
};

use crate::{
    log_target::{self, StandardError, in_json, in_text},
    traces::{SPANS, Traces},
};

/// Format of a line of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Plain text.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Level of the log: one level for everything, or different ones for single targets, as in `info,mczk=debug`.
#[derive(Clone, Debug, PartialEq)]
pub struct LogLevel(Targets);

/// A text that is not a level.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a level: give error, warn, info, debug, trace or off, or with commas one of them for everything and \
     TARGET=LEVEL for single targets, as in info,mczk=debug"
)]
pub struct NoLevel(String);

impl FromStr for LogLevel {
    type Err = NoLevel;

    /// Refuses a word that is not a level. `tracing`'s own filters would take it for a target, so that a misspelt level
    /// would log almost nothing without an error. Targets without a level of their own use the level without a target,
    /// or else `error`.
    fn from_str(text: &str) -> Result<Self, NoLevel> {
        let (mut all, mut targets) = (None, Targets::new());
        for part in text.split(',').map(str::trim) {
            let refused = || NoLevel(part.to_owned());
            match part.split_once('=') {
                None if all.is_none() => all = Some(level(part).ok_or_else(refused)?),
                Some((target, word)) if is_target(target) => {
                    targets = targets.with_target(target, level(word).ok_or_else(refused)?);
                }
                _ => return Err(refused()),
            }
        }
        Ok(Self(targets.with_default(all.unwrap_or(LevelFilter::ERROR))))
    }
}

fn level(word: &str) -> Option<LevelFilter> {
    let levels = [
        ("off", LevelFilter::OFF),
        ("error", LevelFilter::ERROR),
        ("warn", LevelFilter::WARN),
        ("info", LevelFilter::INFO),
        ("debug", LevelFilter::DEBUG),
        ("trace", LevelFilter::TRACE),
    ];
    levels.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name)).map(|(_, level)| level)
}

/// True for the path of a Rust module.
fn is_target(text: &str) -> bool {
    text.split("::")
        .all(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
}

/// Starts the log on standard error, and the traces if they are exported.
///
/// # Errors
/// If a log was started before. The text is for the user.
pub fn start_log(format: LogFormat, level: LogLevel, traces: Option<&Traces>) -> Result<(), String> {
    let lines = tracing_subscriber::fmt::layer::<Subscriber>();
    let lines = match format {
        LogFormat::Text => lines.with_ansi(false).with_writer(StandardError(in_text)).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_writer(StandardError(in_json)).boxed(),
    };
    // Lines name what they are about, with or without traces: a span would repeat it.
    let LogLevel(targets) = level;
    let lines = lines.with_filter(filter(targets.with_target(SPANS, LevelFilter::OFF))).boxed();
    let layers: Vec<_> = std::iter::once(lines).chain(traces.map(Traces::layer)).collect();
    tracing_subscriber::registry().with(layers).try_init().map_err(|error| error.to_string())
}

/// Passes what the levels of these targets let through. Users name the targets of [`log_target`].
fn filter(targets: Targets) -> impl Filter<Subscriber> + Send + Sync {
    let most = Filter::<Subscriber>::max_level_hint(&targets).unwrap_or(LevelFilter::TRACE);
    filter_fn(move |line| targets.would_enable(&log_target::of(line.target()), line.level())).with_max_level_hint(most)
}

/// A family of metrics with its description.
#[derive(Debug)]
struct Described<M> {
    name: String,
    help: String,
    family: M,
}

impl<M: EncodeMetric + Debug + Send + Sync + 'static> Collector for Described<M> {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let encoder = encoder.encode_descriptor(&self.name, &self.help, None, self.family.metric_type())?;
        self.family.encode(encoder)
    }
}

/// Registers a family of metrics. [`Registry::register`] would hide its name and type until its first sample.
pub fn register_family<M>(registry: &mut Registry, name: impl Into<String>, help: &str, family: M)
where
    M: EncodeMetric + Debug + Send + Sync + 'static,
{
    registry.register_collector(Box::new(Described { name: name.into(), help: format!("{help}."), family }));
}

/// Registers the version of the program under this prefix. The series exists from the start, so its absence means that no
/// program runs.
pub fn register_build(registry: &mut Registry, prefix: &str) {
    let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register(format!("{prefix}_build"), "Version of the program", version);
}

/// Content type of the metrics.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Least length of a part of a page, in bytes.
const PART: usize = 64 * 1024;
/// Most parts that wait for a client: 1 MiB. All families together are shorter, so the writer never waits while it holds the
/// lock of one. The numbers of the ensembles are longer, and come last.
const PARTS: usize = 16;
/// Most pages at once. Everybody may ask for them, and each takes a thread and the memory of its parts. One address has at most
/// 16 connections, so one that takes all of them leaves room for others.
const MOST_PAGES: usize = 24;
/// After this time a page gets no further part: a client that reads slowly occupies a thread.
const LONGEST_PAGE: Duration = Duration::from_secs(60);

/// The metrics as one text, for tests.
///
/// # Errors
/// Never for a text in memory.
pub fn exposition(registry: &Registry) -> Result<String, fmt::Error> {
    let mut page = String::new();
    text::encode(&mut page, registry)?;
    Ok(page)
}

/// The route of the metrics. A page is refused while too many others are sent.
pub fn pages(registry: impl Into<Arc<Registry>>) -> MethodRouter {
    let (registry, room) = (registry.into(), Arc::new(Semaphore::new(MOST_PAGES)));
    get(async move || match room.clone().try_acquire_owned() {
        Ok(permit) => answer(Arc::clone(&registry), permit),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "too many pages at once\n").into_response(),
    })
}

/// The answer to a scrape, in the format of Prometheus. It is sent while it is encoded: with 10,000 ensembles it has 30 MB.
/// `permit` is held until the last part is encoded.
fn answer(registry: Arc<Registry>, permit: impl Send + 'static) -> Response {
    let (sender, mut parts) = mpsc::channel(PARTS);
    tokio::task::spawn_blocking(move || {
        let mut page = Page { part: String::new(), sender, begin: Instant::now(), is_whole: false };
        page.is_whole = text::encode(&mut page, &registry).and_then(|()| page.send()).is_ok();
        drop(permit);
    });
    let body = Body::from_stream(futures::stream::poll_fn(move |context| parts.poll_recv(context)));
    ([(header::CONTENT_TYPE, OPENMETRICS)], body).into_response()
}

/// A page that is sent in parts.
struct Page {
    part: String,
    sender: mpsc::Sender<Result<String, fmt::Error>>,
    begin: Instant,
    is_whole: bool,
}

impl Page {
    /// Sends what is written. Blocks while too many parts wait for the client.
    fn send(&mut self) -> fmt::Result {
        if self.begin.elapsed() > LONGEST_PAGE {
            return Err(fmt::Error);
        }
        self.sender.blocking_send(Ok(std::mem::take(&mut self.part))).map_err(|_| fmt::Error)
    }
}

impl fmt::Write for Page {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.part.push_str(text);
        if self.part.len() < PART { Ok(()) } else { self.send() }
    }
}

impl Drop for Page {
    /// A part must not look like a page: an error breaks the connection. A client that has left gets none.
    fn drop(&mut self) {
        if !self.is_whole && self.sender.blocking_send(Err(fmt::Error)).is_ok() {
            warn!("A page of metrics is incomplete: the client reads too slowly, or the writer has a defect");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use http_body_util::BodyExt as _;
    use prometheus_client::metrics::{counter::Counter, family::Family};
    use rstest::rstest;
    use tower::ServiceExt as _;
    use tracing::Level;

    use super::*;

    #[rstest]
    #[case("info", Level::INFO, Level::INFO)]
    #[case("WARN", Level::WARN, Level::WARN)]
    #[case("info,mczk=debug", Level::DEBUG, Level::INFO)]
    #[case(" mczk::controller=trace , warn", Level::WARN, Level::WARN)]
    #[case("mczk=info", Level::INFO, Level::ERROR)]
    fn levels(#[case] text: &str, #[case] ours: Level, #[case] others: Level) {
        let LogLevel(targets) = text.parse().unwrap();
        for (target, most) in [("mczk", ours), ("kube", others)] {
            for level in [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE] {
                assert_eq!(targets.would_enable(target, &level), level <= most, "{target} {level}");
            }
        }
    }

    #[rstest]
    #[case("inf", "inf")]
    #[case("", "")]
    #[case("info,", "")]
    #[case("mczk", "mczk")]
    #[case("info,mczk=dbug", "mczk=dbug")]
    #[case("info,debug", "debug")]
    #[case("=info", "=info")]
    #[case("a=b=info", "a=b=info")]
    #[case("[span]=info", "[span]=info")]
    #[case("3", "3")]
    fn an_invalid_level_is_named(#[case] text: &str, #[case] part: &str) {
        assert_eq!(text.parse::<LogLevel>(), Err(NoLevel(part.to_owned())));
    }

    /// A page that is longer than the parts that may wait for a client.
    fn long() -> Arc<Registry> {
        let (mut registry, family) = (Registry::default(), Family::<[(&str, String); 1], Counter>::default());
        for number in 0..60_000 {
            family.get_or_create_owned(&[("number", number.to_string())]).inc_by(7);
        }
        registry.register("long", "Many", family);
        assert!(exposition(&registry).unwrap().len() > PART * (PARTS + 2));
        Arc::new(registry)
    }

    #[tokio::test]
    async fn a_page_is_sent_in_parts() {
        let (registry, mut page, mut longest) = (long(), Vec::new(), 0);
        let mut body = answer(Arc::clone(&registry), ()).into_body();
        while let Some(frame) = body.frame().await {
            let part = frame.unwrap().into_data().unwrap();
            longest = longest.max(part.len());
            page.extend_from_slice(&part);
        }
        assert!(String::from_utf8(page).unwrap() == exposition(&registry).unwrap());
        assert!(longest < 2 * PART, "{longest}");
    }

    #[derive(Debug)]
    struct Defect;

    impl Collector for Defect {
        fn encode(&self, _: DescriptorEncoder) -> fmt::Result {
            panic!("a defect");
        }
    }

    #[tokio::test]
    async fn a_part_of_a_page_ends_with_an_error() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Defect));
        assert!(answer(Arc::new(registry), ()).into_body().collect().await.is_err());
    }

    #[tokio::test]
    async fn the_writer_ends_with_its_client() {
        let registry = long();
        let mut body = answer(Arc::clone(&registry), ()).into_body();
        body.frame().await.unwrap().unwrap();
        assert_eq!(Arc::strong_count(&registry), 2, "the writer waits for its client");
        drop(body);
        let ended = async {
            while Arc::strong_count(&registry) > 1 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ended).await.unwrap();
    }

    /// Clients that read nothing, from many addresses.
    #[tokio::test]
    async fn pages_at_once_are_limited() {
        let router = axum::Router::new().route("/metrics", pages(long()));
        let ask = async || {
            let request = axum::http::Request::get("/metrics").body(Body::empty()).unwrap();
            router.clone().oneshot(request).await.unwrap()
        };
        let mut open = Vec::new();
        for _ in 0..MOST_PAGES {
            open.push(ask().await);
            assert_eq!(open.last().unwrap().status(), StatusCode::OK);
        }
        assert_eq!(ask().await.status(), StatusCode::SERVICE_UNAVAILABLE);
        open.pop();
        let room = async {
            while ask().await.status() != StatusCode::OK {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), room).await.unwrap();
    }
}
