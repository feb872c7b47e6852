//! The flag of traces, for operator and agent.

use clap::Args;

use super::log::LogFlags;
use mczk_admin::terminal::error::Error;
use mczk_runtime::traces::{CollectorEndpoint, Traces};

/// The export of traces.
#[derive(Clone, Debug, Args)]
pub(crate) struct TracesFlags {
    /// URL of an OpenTelemetry collector that takes OTLP over HTTP, such as `http://collector:4318` [default: no traces]
    #[arg(long, env = "MCZK_OTLP_ENDPOINT", value_name = "URL")]
    otlp_endpoint: Option<CollectorEndpoint>,
}

impl TracesFlags {
    /// Starts the log, and the export of traces if the flag names a collector. Runs the service, and ends the export.
    ///
    /// # Errors
    /// As the service, and if a log was started before or the export cannot start.
    pub(crate) fn run(
        &self,
        log: &LogFlags,
        name: &'static str,
        service: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let endpoint = self.otlp_endpoint.as_ref();
        let traces = endpoint.map(|endpoint| Traces::start(endpoint, name)).transpose()?;
        log.start_with(traces.as_ref())?;
        let result = service();
        if let Some(traces) = traces {
            traces.end();
        }
        result
    }
}
