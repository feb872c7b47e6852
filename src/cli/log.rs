//! Flags of the log, as all long-running subcommands have them.

use anyhow::anyhow;
use clap::Args;

use super::error::Error;
use crate::runtime::telemetry::{self, LogFormat, LogLevel};

/// How it logs.
#[derive(Debug, Args)]
pub struct Log {
    /// How a line of the log looks
    #[arg(long, env = "MCZK_LOG_FORMAT", value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// error, warn, info, debug, trace or off; with commas also TARGET=LEVEL for single targets, as in info,mczk=debug
    #[arg(long, env = "MCZK_LOG_LEVEL", value_name = "LEVEL", default_value = "info")]
    log_level: LogLevel,
}

impl Log {
    /// Starts the log.
    ///
    /// # Errors
    /// If one was started before.
    pub fn start(&self) -> Result<(), Error> {
        Ok(telemetry::start_log(self.log_format, self.log_level.clone())
            .map_err(|error| anyhow!("cannot start the log: {error}"))?)
    }
}
