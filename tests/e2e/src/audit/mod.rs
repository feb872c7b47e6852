//! The audit logs of API servers, and what they prove: [`terms`] of leaders, and used [`rights`].

pub mod rights;
pub mod terms;

use std::{
    fs::File,
    io::{BufRead, BufReader, Seek, SeekFrom},
    path::Path,
};

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde_json::Value;

/// One request to an API server.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// User of the request.
    pub user: String,
    /// Its user agent.
    pub agent: String,
    /// Verb of Kubernetes, such as `patch`.
    pub verb: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Plural of the kind; empty for a path that is no resource.
    pub resource: String,
    /// Part of the object, such as `status`; empty for the whole object.
    pub subresource: String,
    /// Namespace; empty for all, or if the kind has none.
    pub namespace: String,
    /// Name; empty for lists.
    pub name: String,
    /// HTTP status of the answer.
    pub code: u64,
    /// True if the user lacked the right.
    pub is_forbidden: bool,
    /// When the API server received the request.
    pub received: Timestamp,
    /// When it had answered.
    pub done: Timestamp,
}

impl Entry {
    /// The request of a line, if the line ends one.
    fn of(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let text = |path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let is_end = text("/stage") == "ResponseComplete";
        // The end of a watch is written only when it ends.
        let is_watch = text("/stage") == "ResponseStarted" && text("/verb") == "watch";
        if !is_end && !is_watch {
            return None;
        }
        Some(Self {
            user: text("/user/username"),
            agent: text("/userAgent"),
            verb: text("/verb"),
            group: text("/objectRef/apiGroup"),
            resource: text("/objectRef/resource"),
            subresource: text("/objectRef/subresource"),
            namespace: text("/objectRef/namespace"),
            name: text("/objectRef/name"),
            code: value.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default(),
            is_forbidden: text("/annotations/authorization.k8s.io~1decision") == "forbid",
            received: text("/requestReceivedTimestamp").parse().ok()?,
            done: text("/stageTimestamp").parse().ok()?,
        })
    }

    /// True if the request changes an object.
    #[must_use]
    pub fn is_write(&self) -> bool {
        ["create", "update", "patch", "delete", "deletecollection"].contains(&self.verb.as_str())
    }

    /// True if the API server accepted it.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

/// The end of a log, for a later [`read`].
///
/// # Errors
/// If there is no log.
pub fn end(log: &Path) -> Result<u64> {
    Ok(std::fs::metadata(log).context("no audit log exists")?.len())
}

/// The requests of a user, from this place of a log on.
///
/// # Errors
/// If the log cannot be read.
pub fn read(log: &Path, begin: u64, user: &str) -> Result<Vec<Entry>> {
    let mut file = File::open(log).context("no audit log exists")?;
    file.seek(SeekFrom::Start(begin))?;
    let mut entries = Vec::new();
    for line in BufReader::new(file).lines() {
        // The API server may be writing the last line.
        entries.extend(Entry::of(&line?).filter(|entry| entry.user == user));
    }
    Ok(entries)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_is_a_request() {
        let line = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete",
            "requestURI":"/apis","verb":"patch","user":{"username":"mczk-operator"},"userAgent":"mczk/0.1.0 (a)",
            "objectRef":{"resource":"multiclusterzookeepers","namespace":"n","name":"zk","apiGroup":"mczk.io",
            "apiVersion":"v1alpha1","subresource":"status"},"responseStatus":{"metadata":{},"code":409},
            "requestReceivedTimestamp":"2026-01-01T00:00:00.000001Z","stageTimestamp":"2026-01-01T00:00:00.500000Z",
            "annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":""}}"#;
        let entry = Entry::of(line).unwrap();
        assert!(entry.is_write() && !entry.is_accepted() && !entry.is_forbidden && entry.received < entry.done);
        assert_eq!(
            [entry.agent.as_str(), &entry.resource, &entry.subresource, &entry.name],
            ["mczk/0.1.0 (a)", "multiclusterzookeepers", "status", "zk"]
        );
        assert!(Entry::of(&line.replace("\"allow\"", "\"forbid\"")).unwrap().is_forbidden);
        assert_eq!(Entry::of(&line.replace("ResponseComplete", "ResponseStarted")), None);
        assert_eq!(Entry::of("{\"stage\":\"Resp"), None);
    }
}
