//! Logs and metrics. Neither holds a secret or the body of a request.

use prometheus_client::{encoding::text, registry::Registry};
use tracing_subscriber::EnvFilter;

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts the log on standard error. `level` is a level (`error`, `warn`, `info`, `debug`, `trace`) or a filter as in
/// `info,mczk=debug`.
///
/// # Errors
/// If `level` is no filter, or a log was started before: what to tell a person.
pub fn start_log(format: LogFormat, level: &str) -> Result<(), String> {
    let filter = EnvFilter::builder().parse(level).map_err(|error| error.to_string())?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(false).try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    }
    .map_err(|error| error.to_string())
}

/// The metrics, as Prometheus reads them, and their content type.
///
/// # Errors
/// Never for a text in memory.
pub fn exposition(registry: &Registry) -> Result<(&'static str, String), std::fmt::Error> {
    let mut body = String::new();
    text::encode(&mut body, registry)?;
    Ok(("application/openmetrics-text; version=1.0.0; charset=utf-8", body))
}
