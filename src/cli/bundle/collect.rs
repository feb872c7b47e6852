//! Reads what a bundle holds from one API server, and stores it without secrets.

use std::io::{self, Write};

use anyhow::Context;
use http::Request as HttpRequest;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::LogParams};
use serde_json::Value;

use super::{
    archive::Archive,
    redact,
    request::{self, Log, MOST, PODS, Request},
};
use crate::cli::{error::Error, output::Format, proxy::answer};

/// Bytes of an average line: the number of lines to ask for follows from the size of a log.
const LINE: usize = 100;

/// Files of a bundle below one folder.
pub(super) struct Collector<'a, W: Write> {
    /// The archive.
    pub(super) archive: &'a mut Archive<W>,
    /// Client of the API server.
    pub(super) client: Client,
    /// Folder, with its last slash.
    pub(super) folder: String,
    /// Longest log, in bytes.
    pub(super) log_limit: usize,
}

impl<W: Write> Collector<'_, W> {
    /// Stores the version of the API server. False if it does not answer: everything else is missing too.
    ///
    /// # Errors
    /// If the archive cannot be written.
    pub(super) async fn version(&mut self) -> Result<bool, Error> {
        match self.get("/version").await.and_then(|text| redact::document(&text)) {
            Ok(version) => self.store("version.yaml", &version).map(|()| true),
            Err(why) => {
                self.missing("", &why);
                Ok(false)
            }
        }
    }

    /// Stores lists of objects, and the logs of all pods among them.
    ///
    /// # Errors
    /// If the archive cannot be written.
    pub(super) async fn lists(&mut self, requests: Vec<Request>) -> Result<(), Error> {
        for request in requests {
            match self.get(&request.path).await.and_then(|text| redact::document(&text)) {
                Ok(mut list) => {
                    request::reduce(&mut list, request.shared);
                    if request::is_cut(&list) {
                        self.missing(&request.file, &format!("only its first {MOST} objects are stored"));
                    }
                    self.store(&request.file, &list)?;
                    if request.file.ends_with(&format!("/{PODS}.yaml")) {
                        self.logs(request::logs(&list)).await?;
                    }
                }
                Err(why) => self.missing(&request.file, &why),
            }
        }
        Ok(())
    }

    /// Stores a text, or why it is missing.
    ///
    /// # Errors
    /// If the archive cannot be written.
    pub(super) fn text(&mut self, file: &str, text: Result<String, String>) -> Result<(), Error> {
        match text {
            Ok(text) => self.add(file, &redact::text(&text)),
            Err(why) => {
                self.missing(file, &why);
                Ok(())
            }
        }
    }

    async fn logs(&mut self, logs: Vec<Log>) -> Result<(), Error> {
        for log in logs {
            let api: Api<Pod> = Api::namespaced(self.client.clone(), &log.namespace);
            let params = LogParams {
                container: Some(log.container.clone()),
                previous: log.previous,
                tail_lines: i64::try_from(self.log_limit / LINE).ok(),
                // Long lines do not fill the memory.
                limit_bytes: i64::try_from(self.log_limit.saturating_mul(8)).ok(),
                timestamps: true,
                ..LogParams::default()
            };
            match answer(api.logs(&log.pod, &params)).await {
                // Without secrets first: a cut key would not be recognized.
                Ok(text) => self.add(&log.file(), request::tail(&redact::text(&text), self.log_limit))?,
                Err(why) => self.missing(&log.file(), &why),
            }
        }
        Ok(())
    }

    async fn get(&self, path: &str) -> Result<String, String> {
        let request = HttpRequest::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
        answer(self.client.request_text(request)).await
    }

    fn store(&mut self, file: &str, value: &Value) -> Result<(), Error> {
        let text = Format::Yaml.text(value)?;
        self.add(file, &text)
    }

    fn add(&mut self, file: &str, text: &str) -> Result<(), Error> {
        Ok(self.archive.add(&format!("{}{file}", self.folder), text).context("cannot write the bundle")?)
    }

    /// Notes what is missing, also on standard error.
    fn missing(&mut self, file: &str, why: &str) {
        let why = redact::text(why);
        let what = format!("{}{file}", self.folder);
        let what = what.trim_end_matches('/');
        // Standard error may be closed. The index remains.
        let _ = writeln!(io::stderr(), "  missing: {what}: {why}");
        self.archive.missing(what, &why);
    }
}
