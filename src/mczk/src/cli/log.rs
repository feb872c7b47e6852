//! Flags of the log, for all services.

use anyhow::anyhow;
use clap::Args;

use mczk_admin::terminal::error::Error;
use mczk_runtime::{
    telemetry::{self, LogFormat, LogLevel},
    traces::Traces,
};

/// Variable that the kubelet sets in every container.
const IN_POD: &str = "KUBERNETES_SERVICE_HOST";

/// Log collectors read pods; users read terminals and files.
const fn default_format(in_pod: bool) -> LogFormat {
    if in_pod { LogFormat::Json } else { LogFormat::Text }
}

/// Format and level of the log.
#[derive(Clone, Debug, Args)]
pub(crate) struct LogFlags {
    /// Format of the log on standard error [default: json in a pod, text elsewhere]
    #[arg(long, env = "MCZK_LOG_FORMAT", value_enum, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// Level of the log: error, warn, info, debug, trace or off; with commas also TARGET=LEVEL for single targets, as
    /// in info,mczk=debug
    #[arg(long, env = "MCZK_LOG_LEVEL", value_name = "LEVEL", default_value = "info")]
    log_level: LogLevel,
}

impl LogFlags {
    /// Format of the log. A flag in the pods of servers would restart those that run, so the default depends on the place.
    pub(crate) fn format(&self) -> LogFormat {
        self.log_format.unwrap_or_else(|| default_format(std::env::var_os(IN_POD).is_some()))
    }

    /// Starts the log.
    ///
    /// # Errors
    /// If a log was started before.
    pub(crate) fn start(&self) -> Result<(), Error> {
        self.start_with(None)
    }

    /// Starts the log, and lets spans go to the export of traces.
    ///
    /// # Errors
    /// If a log was started before.
    pub(crate) fn start_with(&self, traces: Option<&Traces>) -> Result<(), Error> {
        Ok(telemetry::start_log(self.format(), self.log_level.clone(), traces)
            .map_err(|error| anyhow!("cannot start the log: {error}"))?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::Parser;
    use rstest::rstest;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        log: LogFlags,
    }

    #[rstest]
    #[case(true, LogFormat::Json)]
    #[case(false, LogFormat::Text)]
    fn pods_log_json(#[case] in_pod: bool, #[case] format: LogFormat) {
        assert_eq!(default_format(in_pod), format);
    }

    #[test]
    fn a_flag_chooses_the_format() {
        for (flag, format) in [("text", LogFormat::Text), ("json", LogFormat::Json)] {
            let flags = Flags::try_parse_from(["mczk", "--log-format", flag]).unwrap();
            assert_eq!(flags.log.format(), format);
        }
    }
}
