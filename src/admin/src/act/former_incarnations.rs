//! `mczk adopt` and `mczk declare-over`: what becomes of an incarnation that lived before the object.

use std::io::{self, IsTerminal};

use anyhow::anyhow;
use clap::Args;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::json;

use crate::{
    act::{
        confirm::confirmed,
        patch::{Written, write},
    },
    terminal::{
        connection::Connection,
        error::Error,
        output::{Exit, print},
        run::block_on,
        scope::{One, existing, status_of},
    },
};
use mczk_api::{
    contract::{
        conditions::Reason,
        former_incarnations::{FormerIncarnations, is_incarnation},
        labels::{ADOPT, DECLARE_OVER},
    },
    multiclusterzookeeper::MultiClusterZooKeeperStatus,
};

/// Continues an ensemble whose control plane was lost, with its servers and data
///
/// Declare the MultiClusterZooKeeper again first, for instance from Git. The operator then finds the former incarnation, starts
/// no server beside it, and mczk why names it. This command writes its name into the MultiClusterZooKeeper. Once each cluster of the
/// incarnation has reported, the operator takes over its server list, and replaces the authority of its quorum, whose key was lost.
/// Servers run on, and clients keep their sessions.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 if the request is written, 1 for a failure or a refusal, 2 for a wrong command line."
)]
pub struct Adopt {
    #[command(flatten)]
    object: One,
    /// The incarnation to continue, as mczk why names it
    #[arg(value_name = "INCARNATION", value_parser = incarnation)]
    incarnation: String,
    #[command(flatten)]
    options: RequestOptions,
}

/// Declares former incarnations of an ensemble over: their servers stop, and their volumes stay
///
/// The operator starts no server of an ensemble while another incarnation of its name lives. If the data of that one has no use any
/// more, this command says so in the MultiClusterZooKeeper. The agents then stop its servers, and delete no volume, whatever
/// template.storage.reclaim says.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 if the request is written, 1 for a failure or a refusal, 2 for a wrong command line."
)]
pub struct DeclareOver {
    #[command(flatten)]
    object: One,
    /// The incarnations, as mczk why names them
    #[arg(value_name = "INCARNATION", value_parser = incarnation, required = true, num_args = 1..=64)]
    incarnations: Vec<String>,
    /// Do not ask. Required if standard input is no terminal
    #[arg(short, long, env = "MCZK_DECLARE_OVER_YES")]
    yes: bool,
    #[command(flatten)]
    options: RequestOptions,
}

#[derive(Debug, Args)]
struct RequestOptions {
    /// Print the request, and write nothing
    #[arg(long, env = "MCZK_FORMER_INCARNATION_DRY_RUN")]
    dry_run: bool,
    #[command(flatten)]
    connection: Connection,
}

fn incarnation(text: &str) -> Result<String, String> {
    if is_incarnation(text) {
        return Ok(text.to_owned());
    }
    Err("an incarnation has 1 to 10 lowercase letters and digits: mczk why names it".to_owned())
}

impl Adopt {
    /// Requests that the ensemble continues the incarnation.
    ///
    /// # Errors
    /// If the ensemble has servers already or has declared the incarnation over, or the API server refuses or does not answer.
    pub fn run(self) -> Result<Exit, Error> {
        let effect = format!(
            "The operator takes over the servers of incarnation {} once each of its clusters has reported. No pod restarts for this",
            self.incarnation
        );
        let incarnation = self.incarnation;
        let value = |object: &DynamicObject, status: &MultiClusterZooKeeperStatus| {
            adopted(object, status, &incarnation).map(|()| incarnation.clone())
        };
        request(&self.object, &self.options, &Request { annotation: ADOPT, value: &value, effect: &effect, asks: None })
    }
}

impl DeclareOver {
    /// Requests the end of the incarnations.
    ///
    /// # Errors
    /// [`Error::Usage`] without a terminal and --yes; otherwise if one of them is the ensemble's own, or the API server refuses or
    /// does not answer.
    pub fn run(self) -> Result<Exit, Error> {
        if !self.options.dry_run && !self.yes && !io::stdin().is_terminal() {
            return Err(Error::Usage("standard input is no terminal: add --yes to stop the servers".to_owned()));
        }
        let named = self.incarnations.join(", ");
        let effect = format!("The agents stop all servers of these incarnations: {named}. No volume is deleted");
        let value =
            |object: &DynamicObject, status: &MultiClusterZooKeeperStatus| declared(object, status, &self.incarnations);
        let asks = (!self.yes).then(|| (self.object.name.clone(), "the name of the ensemble"));
        request(
            &self.object,
            &self.options,
            &Request { annotation: DECLARE_OVER, value: &value, effect: &effect, asks },
        )
    }
}

/// One annotation to write.
struct Request<'a> {
    annotation: &'static str,
    /// Its value, or why there is none.
    value: &'a dyn Fn(&DynamicObject, &MultiClusterZooKeeperStatus) -> Result<String, String>,
    /// What then happens.
    effect: &'a str,
    /// The word that the user has to type, and what it is.
    asks: Option<(String, &'static str)>,
}

fn request(object: &One, options: &RequestOptions, request: &Request<'_>) -> Result<Exit, Error> {
    block_on(async {
        let (client, _) = options.connection.client().await?;
        let (namespace, name) = (object.namespace(&client), &object.name);
        let found = existing(&client, &namespace, name).await?;
        let value = (request.value)(&found, &status_of(&found)?)
            .map_err(|why| Error::Failed(anyhow!("{namespace}/{name} is not changed: {why}")))?;
        let annotation = request.annotation;
        let before = found.annotations().get(annotation).map_or("none", String::as_str);
        let patch = json!({ "metadata": { "annotations": { annotation: value } } });
        let written = Written {
            manager: "mczk-former-incarnation",
            seen: &found,
            patch: &patch,
            verb: "changed",
            what: "the request into",
        };
        // The API server checks the change before the user reads that it happens.
        write(&client, (&namespace, name), &written, true).await?;
        print(&format!(
            "{namespace}/{name}: {}\nChange: metadata.annotations[{annotation}]: {before} -> {value}\n",
            request.effect
        ))?;
        if options.dry_run {
            print("Dry run: nothing is changed.\n")?;
            return Ok(Exit::Fine);
        }
        if let Some((word, what)) = &request.asks
            && !confirmed(word, &format!("Type {what}, {word}, to stop these servers: "))?
        {
            return Err(Error::Failed(anyhow!("not confirmed: nothing is changed")));
        }
        write(&client, (&namespace, name), &written, false).await?;
        print(&format!("Requested. See what the operator waits for with: mczk why {name} -n {namespace}\n"))?;
        Ok(Exit::Fine)
    })
}

/// The incarnation of an ensemble that has servers.
fn own(status: &MultiClusterZooKeeperStatus) -> Option<&str> {
    let has_servers = status.clusters.iter().any(|cluster| !cluster.voters.is_empty());
    let ensemble = status.ensemble.as_ref().filter(|_| has_servers)?;
    Some(ensemble.incarnation.as_str()).filter(|id| !id.is_empty())
}

/// True if the operator stopped because the control plane is older than the servers: its message names the incarnation that
/// lives, and the own one may be over.
fn is_outdated(status: &MultiClusterZooKeeperStatus) -> bool {
    status.conditions.iter().any(|condition| condition.reason == Reason::NewerServerList.as_str())
}

/// Whether the ensemble may continue an incarnation. The operator compares it with what agents report.
fn adopted(object: &DynamicObject, status: &MultiClusterZooKeeperStatus, incarnation: &str) -> Result<(), String> {
    let life = FormerIncarnations::of(object.annotations());
    match own(status) {
        Some(own) if own != incarnation && !is_outdated(status) => Err(format!(
            "it has servers of incarnation {own} already. Only an ensemble without servers can continue another incarnation"
        )),
        _ if life.over.contains(incarnation) => {
            Err(format!("its annotation {DECLARE_OVER} says that {incarnation} is over: remove it there first"))
        }
        _ => Ok(()),
    }
}

/// The annotation with more incarnations.
fn declared(object: &DynamicObject, status: &MultiClusterZooKeeperStatus, more: &[String]) -> Result<String, String> {
    if let Some(own) = own(status).filter(|own| more.iter().any(|id| id == own)) {
        return Err(format!(
            "{own} is the incarnation of its own servers. To end the ensemble, delete the MultiClusterZooKeeper"
        ));
    }
    let life = FormerIncarnations::of(object.annotations());
    if let Some(adopted) = life.adopted.filter(|adopted| more.iter().any(|id| id == adopted)) {
        return Err(format!("its annotation {ADOPT} says that it continues {adopted}: remove that annotation first"));
    }
    let over: std::collections::BTreeSet<&str> = life.over.into_iter().chain(more.iter().map(String::as_str)).collect();
    Ok(over.into_iter().collect::<Vec<_>>().join(","))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use rstest::rstest;
    use serde_json::Value;

    use super::*;

    fn object(annotations: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "mczk.io/v1alpha1", "kind": "MultiClusterZooKeeper",
            "metadata": { "name": "zk", "namespace": "n", "annotations": annotations }
        }))
        .unwrap()
    }

    fn status(voters: &[i32], reason: Reason) -> MultiClusterZooKeeperStatus {
        let cluster = json!({ "name": "m1", "desired": 1, "voters": voters, "ready": true });
        let progressing = json!({
            "type": "Progressing", "status": "False", "reason": reason.as_str(), "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"
        });
        serde_json::from_value(json!({
            "ensemble": { "incarnation": "new111", "epoch": 1, "hash": "h", "formed": true }, "clusters": [cluster], "records": [],
            "conditions": [progressing]
        }))
        .unwrap()
    }

    #[rstest]
    #[case::no_servers(json!({}), &[], Reason::Done, None)]
    #[case::repeated(json!({ ADOPT: "old111" }), &[], Reason::Done, None)]
    #[case::servers(json!({}), &[1], Reason::Done, Some("servers of incarnation new111 already"))]
    #[case::restored_with_servers(json!({}), &[1], Reason::NewerServerList, None)]
    #[case::over(json!({ DECLARE_OVER: "old111" }), &[], Reason::Done, Some("says that old111 is over"))]
    fn an_ensemble_without_servers_can_continue_an_incarnation(
        #[case] annotations: Value,
        #[case] voters: &[i32],
        #[case] reason: Reason,
        #[case] refused: Option<&str>,
    ) {
        let outcome = adopted(&object(&annotations), &status(voters, reason), "old111");
        assert_eq!(outcome.is_err(), refused.is_some());
        assert!(outcome.err().unwrap_or_default().contains(refused.unwrap_or_default()));
    }

    #[rstest]
    #[case::first(json!({}), &[], Ok("old111"))]
    #[case::one_more(json!({ DECLARE_OVER: "old222" }), &[1], Ok("old111,old222"))]
    #[case::own(json!({}), &[1], Ok("old111"))]
    #[case::adopted(json!({ ADOPT: "old111" }), &[], Err("continues old111"))]
    fn the_annotation_names_every_incarnation_that_is_over(
        #[case] annotations: Value,
        #[case] voters: &[i32],
        #[case] expected: Result<&str, &str>,
    ) {
        match (declared(&object(&annotations), &status(voters, Reason::Done), &["old111".to_owned()]), expected) {
            (Ok(value), Ok(expected)) => assert_eq!(value, expected),
            (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
            (outcome, _) => panic!("{outcome:?}"),
        }
    }

    #[test]
    fn an_ensemble_does_not_declare_its_own_servers_over() {
        let refused = declared(&object(&json!({})), &status(&[1], Reason::Done), &["new111".to_owned()]).unwrap_err();
        assert!(refused.contains("delete the MultiClusterZooKeeper"), "{refused}");
    }
}
