//! Logs and metrics. Neither contains secrets or the body of a request.

use std::{
    fmt::{self, Debug},
    str::FromStr,
    sync::Arc,
};

use axum::{
    body::Body,
    http::header,
    response::{IntoResponse as _, Response},
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, text},
    metrics::info::Info,
    registry::Registry,
};
use tokio::sync::mpsc;
use tracing_subscriber::{
    Layer, Registry as Subscriber,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use crate::runtime::traces::{SPANS, Traces};

/// Format of a line of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Plain text.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Level of the log: one level for everything, or different ones for single targets, as in `info,mczk=debug`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LogLevel(Targets);

/// A text that is not a level.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a level: give error, warn, info, debug, trace or off, or with commas one of them for everything and \
     TARGET=LEVEL for single targets, as in info,mczk=debug"
)]
pub(crate) struct NoLevel(String);

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
pub(crate) fn start_log(format: LogFormat, level: LogLevel, traces: Option<&Traces>) -> Result<(), String> {
    let lines = tracing_subscriber::fmt::layer::<Subscriber>().with_writer(std::io::stderr);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    // Lines name what they are about, with or without traces: a span would repeat it.
    let LogLevel(targets) = level;
    let lines = lines.with_filter(targets.with_target(SPANS, LevelFilter::OFF)).boxed();
    let layers: Vec<_> = std::iter::once(lines).chain(traces.map(Traces::layer)).collect();
    tracing_subscriber::registry().with(layers).try_init().map_err(|error| error.to_string())
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
pub(crate) fn register_family<M>(registry: &mut Registry, name: impl Into<String>, help: &str, family: M)
where
    M: EncodeMetric + Debug + Send + Sync + 'static,
{
    registry.register_collector(Box::new(Described { name: name.into(), help: format!("{help}."), family }));
}

/// Registers the version of the program under this prefix. The series exists from the start, so its absence means that no
/// program runs.
pub(crate) fn register_build(registry: &mut Registry, prefix: &str) {
    let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register(format!("{prefix}_build"), "Version of the program", version);
}

/// Content type of the metrics.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Least length of a part of a page, in bytes.
const PART: usize = 64 * 1024;
/// Parts that wait for a client. All families together are shorter, so none is locked while a client does not read.
const PARTS: usize = 16;

/// The metrics in the format of Prometheus.
///
/// # Errors
/// Never for a text in memory.
pub fn exposition(registry: &Registry) -> Result<String, fmt::Error> {
    let mut page = String::new();
    text::encode(&mut page, registry)?;
    Ok(page)
}

/// The answer to a scrape. It is sent while it is encoded: with 10,000 ensembles it has 30 MB.
pub fn page(registry: Arc<Registry>) -> Response {
    let (sender, mut parts) = mpsc::channel(PARTS);
    tokio::task::spawn_blocking(move || {
        let mut page = Page { part: String::new(), sender };
        let end = text::encode(&mut page, &registry).and_then(|()| page.send());
        // A client that has left needs no end. For any other one, a part of the metrics is no page.
        if let Err(error) = end {
            let _ = page.sender.blocking_send(Err(error));
        }
    });
    let body = Body::from_stream(futures::stream::poll_fn(move |context| parts.poll_recv(context)));
    ([(header::CONTENT_TYPE, OPENMETRICS)], body).into_response()
}

/// A page that is sent in parts.
struct Page {
    part: String,
    sender: mpsc::Sender<Result<String, fmt::Error>>,
}

impl Page {
    /// Sends what is written. Blocks while too many parts wait for the client.
    fn send(&mut self) -> fmt::Result {
        self.sender.blocking_send(Ok(std::mem::take(&mut self.part))).map_err(|_| fmt::Error)
    }
}

impl fmt::Write for Page {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.part.push_str(text);
        if self.part.len() < PART { Ok(()) } else { self.send() }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use http_body_util::BodyExt as _;
    use prometheus_client::metrics::{counter::Counter, family::Family};
    use rstest::rstest;
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

    /// More than may wait for a client.
    #[tokio::test]
    async fn a_page_is_sent_in_parts() {
        let (mut registry, family) = (Registry::default(), Family::<[(&str, String); 1], Counter>::default());
        for number in 0..40_000 {
            family.get_or_create_owned(&[("number", number.to_string())]).inc_by(7);
        }
        registry.register("long", "Many", family);
        let (registry, mut page, mut longest) = (Arc::new(registry), Vec::new(), 0);
        let mut body = super::page(Arc::clone(&registry)).into_body();
        while let Some(frame) = body.frame().await {
            let part = frame.unwrap().into_data().unwrap();
            longest = longest.max(part.len());
            page.extend_from_slice(&part);
        }
        assert_eq!(String::from_utf8(page).unwrap(), exposition(&registry).unwrap());
        assert!(longest < 2 * PART, "{longest}");
        assert!(exposition(&registry).unwrap().len() > PART * PARTS);
    }
}
