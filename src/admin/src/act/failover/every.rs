//! `mczk failover --all`: the same request for every ensemble that it concerns.

use std::time::Duration;

use anyhow::anyhow;
use kube::{Client, ResourceExt, api::DynamicObject};

use super::{
    decide::{MoveDecision, Wish},
    preview::FailoverPreview,
    progress::VoterGoal,
    request::{CheckedRequest, check},
    wait::until_there,
};
use crate::terminal::{
    columns::aligned,
    error::Error,
    output::{Exit, print},
    scope::status_of,
};
use mczk_api::{contract::requested_places::RequestedPlaces, multiclusterzookeeper::ClusterStatus};
use mczk_reading::read_only;

/// An ensemble that a request concerns.
struct ConcernedEnsemble {
    namespace: String,
    name: String,
    request: Result<CheckedRequest, Error>,
}

/// How the command ends.
pub(super) struct RequestEnding {
    pub(super) dry_run: bool,
    /// How long it waits for each ensemble.
    pub(super) wait: Option<Duration>,
}

/// Requests the same of every ensemble of a namespace, or of all. A failure does not stop the others.
///
/// # Errors
/// If the API server does not list ensembles, or one of the requests fails.
pub(super) async fn request_all(
    client: &Client,
    namespace: Option<&str>,
    wish: &Wish,
    ending: &RequestEnding,
) -> Result<Exit, Error> {
    let objects = read_only::ensembles(client, namespace).await.map_err(anyhow::Error::from)?;
    let mut concerned = Vec::new();
    for object in objects.into_iter().filter(|object| is_concerned(object, wish)) {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let request = check(client, (&namespace, &name), object, wish).await;
        concerned.push(ConcernedEnsemble { namespace, name, request });
    }
    if concerned.is_empty() {
        print("No ensemble is concerned: nothing is requested.\n")?;
        return Ok(Exit::Fine);
    }
    print(&table(&concerned))?;
    if ending.dry_run {
        print("Dry run: nothing is changed.\n")?;
    } else {
        send_all(client, &mut concerned).await?;
    }
    let is_late = match ending.wait {
        Some(limit) => !all_there(client, &mut concerned, limit).await?,
        None => false,
    };
    let failed: Vec<String> =
        concerned.iter().filter(|one| one.request.is_err()).map(ConcernedEnsemble::path).collect();
    if !failed.is_empty() {
        let (count, all, failed) = (failed.len(), concerned.len(), failed.join(", "));
        return Err(Error::Failed(anyhow!("{count} of {all} ensembles failed: {failed}")));
    }
    Ok(Exit::waits(is_late))
}

impl ConcernedEnsemble {
    fn path(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn row(&self) -> [String; 5] {
        let request = match &self.request {
            Ok(request) => &request.decision,
            Err(error) => {
                return [self.path(), "-".to_owned(), "-".to_owned(), "-".to_owned(), format!("failed: {error}")];
            }
        };
        let voters = request.homes.voters(&request.home);
        let to = request.place.clone().unwrap_or_else(|| voters.place.clone());
        [self.path(), voters.seat, to, voters.count.to_string(), effect(request)]
    }
}

/// What the request does, or what stands against it.
fn effect(request: &MoveDecision) -> String {
    let against = |preview: &FailoverPreview| preview.against().map(|first| format!("waits. {}", first.message));
    match &request.preview {
        _ if request.place.is_none() => "removes the request".to_owned(),
        Ok(preview) if request.waits() => against(preview).unwrap_or_else(|| "waits".to_owned()),
        _ if !request.changes() => "requested already".to_owned(),
        Ok(_) => "moves".to_owned(),
        Err(why) => format!("unknown: {why}"),
    }
}

/// A row for each ensemble: where voters are, where they shall be, and what stands against it.
fn table(concerned: &[ConcernedEnsemble]) -> String {
    let title = ["ENSEMBLE", "NOW", "THEN", "VOTERS", "EFFECT"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(title).chain(concerned.iter().map(ConcernedEnsemble::row)).collect();
    aligned(&rows)
}

async fn send_all(client: &Client, concerned: &mut [ConcernedEnsemble]) -> Result<(), Error> {
    for one in concerned {
        let Ok(request) = &one.request else { continue };
        match request.send(client, (&one.namespace, &one.name), false).await {
            Ok(()) => print(&format!("{}: requested.\n", one.path()))?,
            Err(error) => {
                print(&format!("{}: failed: {error}\n", one.path()))?;
                one.request = Err(error);
            }
        }
    }
    Ok(())
}

/// Waits for one ensemble after another. False if the time of one is over before.
async fn all_there(client: &Client, concerned: &mut [ConcernedEnsemble], limit: Duration) -> Result<bool, Error> {
    let mut all = true;
    for one in concerned {
        let Some(goal) = one.request.as_ref().ok().and_then(|request| VoterGoal::of(&request.decision)) else {
            continue;
        };
        print(&format!("{}:\n", one.path()))?;
        match until_there(client, (&one.namespace, &one.name), &goal, limit).await {
            Ok(is_there) => all &= is_there,
            Err(error) => one.request = Err(error),
        }
    }
    Ok(all)
}

/// True if a request is about an ensemble. One that this version cannot read counts: its request fails.
fn is_concerned(object: &DynamicObject, wish: &Wish) -> bool {
    let Ok(status) = status_of(object) else { return true };
    let cluster = |name: &str| status.clusters.iter().find(|cluster| cluster.name == name);
    let Ok(requested) = RequestedPlaces::read(object.annotations()) else { return true };
    match wish {
        Wish::From { cluster: left, .. } => cluster(left).is_some_and(|cluster| !cluster.voters.is_empty()),
        Wish::Back(home) => {
            let holds = |cluster: &ClusterStatus| cluster.moved_to.as_ref() == Some(home);
            requested.names(home)
                || cluster(home).is_some_and(|cluster| cluster.moved_to.is_some())
                || status.clusters.iter().any(holds)
        }
        Wish::Release(home) => requested.names(home),
    }
}

#[cfg(test)]
mod tests;
