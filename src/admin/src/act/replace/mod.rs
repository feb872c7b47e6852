//! `mczk replace`: gives one server an empty volume.

mod others;
mod refusal;
mod rule;
mod seen;

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Context, anyhow};
use clap::{Args, builder::NonEmptyStringValueParser};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Preconditions},
};
use serde::de::DeserializeOwned;

use crate::terminal::{
    connection::Connection,
    error::Error,
    output::{Exit, print},
    proxy::{Proxy, answer},
    run::block_on,
    scope::{One, existing, status_of},
    server_name::ServerName,
};
use mczk_api::zookeeper::Role;
use mczk_runtime::failure::is_not_found;

use refusal::Refusal;
use rule::Replacement;
use seen::Seen;

/// Replaces the volume of one server by an empty one: for a corrupt or a lost volume
///
/// It deletes the claim and the pod of the server, in its member cluster. The StatefulSet makes both again. The ensemble
/// removes the id of the server, which returns under a new id and copies the data of the others. The command refuses if no
/// majority would serve meanwhile, if the volume of another server is not known to exist, or if another server is being
/// restarted or replaced. It reads and deletes through Karmada's cluster proxy, so you need the right to
/// clusters/proxy.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 if claim and pod are deleted, 1 for a failure or a refusal, 2 for a wrong command \
                        line."
)]
pub struct Replace {
    #[command(flatten)]
    object: One,
    /// The server: its id, or CLUSTER/POD
    #[arg(value_name = "SERVER", value_parser = NonEmptyStringValueParser::new())]
    server: String,
    /// Print what would be deleted, and delete nothing
    #[arg(long, env = "MCZK_REPLACE_DRY_RUN")]
    dry_run: bool,
    /// Do not ask. Required if standard input is no terminal
    #[arg(short, long, env = "MCZK_REPLACE_YES")]
    yes: bool,
    #[command(flatten)]
    connection: Connection,
}

impl Replace {
    /// Replaces the volume.
    ///
    /// # Errors
    /// [`Error::Usage`] without a terminal and --yes; otherwise if the ensemble would lose its majority, or an API server
    /// refuses or does not answer.
    pub fn run(self) -> Result<Exit, Error> {
        if !self.dry_run && !self.yes && !io::stdin().is_terminal() {
            return Err(Error::Usage("standard input is no terminal: add --yes to replace the volume".to_owned()));
        }
        let Ok(server) = self.server.parse::<ServerName>();
        block_on(async {
            let (client, _) = self.connection.client().await?;
            let proxy = Proxy::new(self.connection.config().await?);
            let namespace = self.object.namespace(&client);
            let name = format!("{namespace}/{}", self.object.name);
            let mut decision = self.decide(&client, &proxy, &namespace, &server).await?;
            print(&text(&name, &namespace, &decision))?;
            if self.dry_run {
                print("Dry run: nothing is deleted.\n")?;
                return Ok(Exit::Fine);
            }
            if !self.yes && !confirmed(&decision.server.id.to_string())? {
                return Err(Error::Failed(anyhow!("not confirmed: nothing is deleted")));
            }
            // The user has had time to read. Another server may have stopped meanwhile.
            if self.decide(&client, &proxy, &namespace, &server).await? != decision {
                return Err(Error::Failed(anyhow!(
                    "the ensemble has changed meanwhile, and nothing is deleted: run the command again"
                )));
            }
            let member = proxy.client(&decision.server.cluster)?;
            if let (Some(claim), Some(_)) = (decision.claim.clone(), &decision.pod) {
                delete_one::<PersistentVolumeClaim>(&member, &namespace, &claim).await?;
                decision.claim = None;
                // The claim waits for its pod, and its data stays until then. Of two commands for two servers, at least one
                // sees the claim of the other.
                let again = self.decide(&client, &proxy, &namespace, &server).await;
                if !again.as_ref().is_ok_and(|again| *again == decision) {
                    let why =
                        again.err().map_or_else(|| "the ensemble has changed".to_owned(), |error| error.to_string());
                    return Err(Error::Failed(anyhow!(
                        "the pod and its data stay, because {why}. Claim {} ends with its pod: run the command again",
                        claim.0
                    )));
                }
            }
            delete(&member, &namespace, &decision).await?;
            print(&format!("Follow it with: mczk status {} -n {namespace} --watch\n", self.object.name))?;
            Ok(Exit::Fine)
        })
    }

    async fn decide(
        &self,
        client: &Client,
        proxy: &Proxy,
        namespace: &str,
        server: &ServerName,
    ) -> Result<Replacement, Error> {
        let name = &self.object.name;
        let object = existing(client, namespace, name).await?;
        let status = status_of(&object)?;
        let seen = Seen {
            namespace: namespace.to_owned(),
            name: name.clone(),
            terminating: object.metadata.deletion_timestamp.is_some(),
            current: status.observed_generation == object.metadata.generation,
            clusters: seen::read(proxy, namespace, name, &status).await,
            status,
        };
        rule::decide(&seen, server).map_err(|Refusal { why, action }| {
            Error::Failed(anyhow!("server {} of {namespace}/{name} is not replaced: {why}. {action}", self.server))
        })
    }
}

/// Deletes the claim, which stays until its pod is gone, and then the pod.
async fn delete(client: &Client, namespace: &str, decision: &Replacement) -> Result<(), Error> {
    if let Some(claim) = &decision.claim {
        delete_one::<PersistentVolumeClaim>(client, namespace, claim).await?;
    }
    if let Some(pod) = &decision.pod {
        delete_one::<Pod>(client, namespace, pod).await.map_err(|error| {
            Error::Failed(anyhow!("{error}. The claim is being deleted: run the command again to delete the pod"))
        })?;
    }
    Ok(())
}

async fn delete_one<K>(client: &Client, namespace: &str, (name, uid): &(String, String)) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let kind = K::kind(&());
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid: Some(uid.clone()), resource_version: None }),
        ..DeleteParams::default()
    };
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let request = async {
        match api.delete(name, &params).await {
            Err(error) if is_not_found(&error) => Ok(()),
            other => other.map(drop),
        }
    };
    answer(request).await.map_err(|why| Error::Failed(anyhow!("cannot delete {kind} {namespace}/{name}: {why}")))?;
    print(&format!("Deleted {kind} {namespace}/{name}\n"))
}

/// Asks on the terminal. Only the word that the user is asked for confirms.
fn confirmed(word: &str) -> Result<bool, Error> {
    let mut out = io::stderr();
    write!(out, "Type the id of the server, {word}, to delete its volume: ")
        .and_then(|()| out.flush())
        .context("cannot write to standard error")?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).context("cannot read standard input")?;
    Ok(line.trim() == word)
}

/// What will happen.
fn text(name: &str, namespace: &str, decision: &Replacement) -> String {
    let Replacement { server, claim, pod, serving, needed } = decision;
    let role = if server.role == Role::Voter { "voter" } else { "observer" };
    let head = format!("{name}: replaces the volume of {role} {} in cluster {}\n", server.id, server.cluster);
    let claim = claim
        .iter()
        .map(|(claim, _)| format!("  delete PersistentVolumeClaim {namespace}/{claim}: its data is lost\n"));
    let pod = pod.iter().map(|(pod, _)| format!("  delete Pod {namespace}/{pod}\n"));
    let tail = format!("Without the server {serving} voters serve, and {needed} must.\n");
    [head].into_iter().chain(claim).chain(pod).chain([tail]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::server_list::ListedServer;

    #[test]
    fn the_text_names_what_is_deleted() {
        let named = |name: &str| Some((name.to_owned(), "u".to_owned()));
        let server = ListedServer { id: 2, cluster: "m2".to_owned(), role: Role::Voter, pod: "zk-abc123-0".to_owned() };
        let claim = named("data-zk-abc123-0");
        let decision = Replacement { server, claim, pod: named("zk-abc123-0"), serving: 2, needed: 2 };
        insta::assert_snapshot!(text("n/zk", "n", &decision), @r"
        n/zk: replaces the volume of voter 2 in cluster m2
          delete PersistentVolumeClaim n/data-zk-abc123-0: its data is lost
          delete Pod n/zk-abc123-0
        Without the server 2 voters serve, and 2 must.
        ");
    }
}
