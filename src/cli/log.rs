//! Flags of the log, for all services.

use anyhow::anyhow;
use clap::Args;

use super::error::Error;
use crate::runtime::telemetry::{self, LogFormat, LogLevel};

/// Format and level of the log.
#[derive(Debug, Args)]
pub(crate) struct Log {
    /// Format of the log on standard error
    #[arg(long, env = "MCZK_LOG_FORMAT", value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// Level of the log: error, warn, info, debug, trace or off; with commas also TARGET=LEVEL for single targets, as
    /// in info,mczk=debug
    #[arg(long, env = "MCZK_LOG_LEVEL", value_name = "LEVEL", default_value = "info")]
    log_level: LogLevel,
}

impl Log {
    /// Format of the log.
    pub(crate) const fn format(&self) -> LogFormat {
        self.log_format
    }

    /// Starts the log.
    ///
    /// # Errors
    /// If a log was started before.
    pub(crate) fn start(&self) -> Result<(), Error> {
        Ok(telemetry::start_log(self.log_format, self.log_level.clone())
            .map_err(|error| anyhow!("cannot start the log: {error}"))?)
    }
}
