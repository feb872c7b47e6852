//! Reads what a bundle holds from one API server, and stores it without secrets.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::Context;
use futures::AsyncReadExt;
use http::Request as HttpRequest;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::LogParams};
use serde_json::Value;
use tokio::time::timeout;

use super::{
    archive::Archive,
    newest::{Newest, newest},
    redact,
    request::{self, ContainerLog, DEPLOYMENTS, ListRequest, MOST, PODS},
};
use crate::terminal::{error::Error, output::Format, proxy::answer};

/// Longest time for one log.
const LOG_TIMEOUT: Duration = Duration::from_secs(120);

/// Files of a bundle below one folder.
pub(super) struct Collector<'a, W: Write> {
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
    pub(super) async fn lists(&mut self, requests: Vec<ListRequest>) -> Result<(), Error> {
        let mut deployments = Vec::new();
        for request in requests {
            match self.get(&request.path).await.and_then(|text| redact::document(&text)) {
                Ok(mut list) => {
                    request::reduce(&mut list, request.keep, &deployments);
                    if request::is_cut(&list) {
                        self.missing(&request.file, &format!("only its first {MOST} objects are stored"));
                    }
                    self.store(&request.file, &list)?;
                    if request.file.ends_with(&format!("/{DEPLOYMENTS}.yaml")) {
                        deployments = request::names(&list);
                    }
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

    async fn logs(&mut self, logs: Vec<ContainerLog>) -> Result<(), Error> {
        for log in logs {
            // Larger than the limit: a key that is cut at its beginning is recognized by its end.
            let mut end = Newest::new(self.log_limit.saturating_mul(2));
            let read = timeout(LOG_TIMEOUT, self.read(&log, &mut end)).await;
            let read = read.unwrap_or_else(|_| Err(format!("it does not end within {} s", LOG_TIMEOUT.as_secs())));
            let (text, left_out) = end.text();
            if read.is_ok() || !text.is_empty() {
                // Without secrets first: a cut key would not be recognized.
                self.add(&log.file(), &newest(&redact::text(&text), left_out, self.log_limit))?;
            }
            if let Err(why) = read {
                self.missing(&log.file(), &why);
            }
        }
        Ok(())
    }

    /// Reads a whole log. The API server could limit it only from its beginning on: the newest lines would be missing.
    async fn read(&self, log: &ContainerLog, end: &mut Newest) -> Result<(), String> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &log.namespace);
        let params = LogParams {
            container: Some(log.container.clone()),
            previous: log.previous,
            timestamps: true,
            ..LogParams::default()
        };
        let mut stream = Box::pin(answer(api.log_stream(&log.pod, &params)).await?);
        let mut chunk = vec![0_u8; 64 << 10];
        loop {
            let read = stream.read(&mut chunk).await.map_err(|error| format!("the log broke off: {error}"))?;
            if read == 0 {
                return Ok(());
            }
            end.push(chunk.get(..read).unwrap_or_default());
        }
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
