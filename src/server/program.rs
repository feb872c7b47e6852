//! The command that starts `ZooKeeper`.

use std::path::PathBuf;

use crate::runtime::telemetry::LogFormat;

/// Command of the process.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The program `java`.
    pub(crate) java: PathBuf,
    /// Class path: folders and jars, in the order of the search.
    pub(crate) class_path: String,
    /// Public flags.
    pub(crate) flags: Vec<String>,
    /// File with flags that the process list must not show.
    pub(crate) secret_flags: PathBuf,
    /// `zoo.cfg`.
    pub(crate) configuration: PathBuf,
    /// Texts that no log line may contain.
    pub(crate) secrets: Vec<String>,
    /// Format of the log lines.
    pub(crate) log_format: LogFormat,
}
