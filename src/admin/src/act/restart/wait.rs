//! Waits until a rollout is complete, and shows its progress as `mczk status` does.

use std::time::Duration;

use kube::Client;

use super::rule::{Progress, progress};
use crate::{
    act::wait::{Shown, until_done},
    see::status::{self, Style},
    terminal::{error::Error, output::is_coloured, scope::not_found},
};
use mczk_reading::read_only;

/// Waits until all clusters have completed a generation or a newer one. False if the time is over before. A failed read is
/// repeated: the rollout goes on without this command.
///
/// # Errors
/// If the object is gone, or standard output is closed.
pub(super) async fn until_complete(
    client: &Client,
    (namespace, name): (&str, &str),
    generation: i64,
    limit: Duration,
) -> Result<bool, Error> {
    until_done(async || look(client, namespace, name, generation).await, limit).await
}

/// The progress: the tree of `mczk status` on a terminal, else one line.
async fn look(client: &Client, namespace: &str, name: &str, generation: i64) -> Result<Result<Shown, Error>, Error> {
    let object = read_only::ensemble(client, namespace, name).await.map_err(anyhow::Error::from)?;
    let Some(object) = object else { return Ok(Err(not_found(namespace, name))) };
    let state = progress(&object, generation);
    let view = status::view_of(client, &object).await?;
    let text = if is_coloured() {
        let tree = status::tree(&view, Style { wide: false, namespaces: false, coloured: true });
        format!("{}{tree}", status::CLEAR)
    } else {
        let waiting = "Waiting for the operator to start the rollout";
        let rollout = if state == Progress::Waiting { waiting } else { view.rollout.as_deref().unwrap_or(waiting) };
        format!("{rollout}\n")
    };
    let late = format!("The rollout goes on: see mczk why {name} -n {namespace}");
    Ok(Ok(Shown { text, late, is_done: state == Progress::Complete }))
}
