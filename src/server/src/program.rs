//! The command that starts `ZooKeeper`.

use std::path::PathBuf;

use mczk_runtime::telemetry::LogFormat;

/// Command of the process.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program `java`.
    pub java: PathBuf,
    /// Class path: folders and jars, in the order of the search.
    pub(crate) class_path: String,
    /// Public flags.
    pub flags: Vec<String>,
    /// File with flags that the process list must not show.
    pub(crate) secret_flags: PathBuf,
    /// `zoo.cfg`.
    pub configuration: PathBuf,
    /// Texts that no log line may contain.
    pub secrets: Vec<String>,
    /// Format of the log lines.
    pub log_format: LogFormat,
}
