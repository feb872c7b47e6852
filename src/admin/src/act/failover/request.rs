//! Reads an ensemble, decides the request, and writes it.

use anyhow::anyhow;
use k8s_openapi::jiff::Timestamp;
use kube::{Client, api::DynamicObject};

use super::decide::{MoveDecision, Wish, decide};
use crate::{
    act::patch::{Written, write},
    see::plan::ServerImage,
    terminal::{error::Error, scope::existing},
};

/// A request that the API server has checked.
pub(super) struct CheckedRequest {
    pub(super) object: DynamicObject,
    pub(super) decision: MoveDecision,
}

/// The request for an ensemble that exists.
///
/// # Errors
/// As [`check`], and if no object has the name.
pub(super) async fn check_named(
    client: &Client,
    (namespace, name): (&str, &str),
    wish: &Wish,
) -> Result<CheckedRequest, Error> {
    let object = existing(client, namespace, name).await?;
    check(client, (namespace, name), object, wish).await
}

/// The request for an ensemble. The API server checks the change before the user reads that it happens.
///
/// # Errors
/// If the request is refused, or the API server does not answer.
pub(super) async fn check(
    client: &Client,
    (namespace, name): (&str, &str),
    object: DynamicObject,
    wish: &Wish,
) -> Result<CheckedRequest, Error> {
    // A user who may not read all that the operator observes can still write the request.
    let seen = Box::pin(ServerImage::default().observe(client, &object)).await;
    let seen = seen.as_deref().map_err(|error| format!("{error:#}"));
    let decision = decide(&object, seen, wish, Timestamp::now())
        .map_err(|why| Error::Failed(anyhow!("{namespace}/{name} is not changed: {why}")))?;
    let request = CheckedRequest { object, decision };
    request.send(client, (namespace, name), true).await?;
    Ok(request)
}

impl CheckedRequest {
    /// Writes the request, unless the object says the same already. `dry_run` lets the API server check it.
    ///
    /// # Errors
    /// As [`write`].
    pub(super) async fn send(
        &self,
        client: &Client,
        (namespace, name): (&str, &str),
        dry_run: bool,
    ) -> Result<(), Error> {
        if !self.decision.changes() {
            return Ok(());
        }
        let patch = self.decision.patch();
        let written = Written {
            manager: "mczk-failover",
            seen: &self.object,
            patch: &patch,
            verb: "requested",
            what: "the request into",
        };
        write(client, (namespace, name), &written, dry_run).await.map(drop)
    }
}
