//! Waits until voters are where a request says, and shows the progress.

use std::time::Duration;

use kube::Client;

use super::progress::{MoveProgress, VoterGoal, progress};
use crate::{
    act::wait::{Shown, until_done},
    see::status::{self, Style},
    terminal::{
        error::Error,
        output::is_coloured,
        scope::{not_found, status_of},
    },
};
use mczk_reading::read_only;

/// Waits until the voters are there. False if the time is over before. A failed read is repeated: the operator goes on without
/// this command.
///
/// # Errors
/// If the object is gone, or standard output is closed.
pub(super) async fn until_there(
    client: &Client,
    of: (&str, &str),
    goal: &VoterGoal,
    limit: Duration,
) -> Result<bool, Error> {
    until_done(async || look(client, of, goal).await, limit).await
}

/// The progress: on a terminal below the tree of `mczk status`.
///
/// # Errors
/// If the API server refuses or does not answer.
pub(super) async fn look(
    client: &Client,
    (namespace, name): (&str, &str),
    goal: &VoterGoal,
) -> Result<Result<Shown, Error>, Error> {
    let object = read_only::ensemble(client, namespace, name).await.map_err(anyhow::Error::from)?;
    let Some(object) = object else { return Ok(Err(not_found(namespace, name))) };
    let state = progress(&status_of(&object)?, goal);
    let tree = if is_coloured() {
        let view = status::view_of(client, &object).await?;
        let tree = status::tree(&view, Style { wide: false, namespaces: false, coloured: true });
        format!("{}{tree}\n", status::CLEAR)
    } else {
        String::new()
    };
    let text = format!("{tree}{}\n", state.text());
    let late = format!("The operator goes on: see mczk why {name} -n {namespace}");
    Ok(Ok(Shown { text, late, is_done: matches!(state, MoveProgress::Done(_)) }))
}
