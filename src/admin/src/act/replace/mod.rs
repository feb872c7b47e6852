//! `mczk replace`: requests an empty volume for one server.

mod member;
mod request;
mod wait;

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use crate::act::{
    confirm::confirmed,
    patch::{Written, write},
};
use crate::terminal::{
    connection::Connection,
    error::Error,
    output::{Exit, print},
    proxy::Proxy,
    run::block_on,
    scope::{One, existing, status_of},
    server_list::listed,
    server_name::ServerName,
};
use anyhow::anyhow;
use clap::{
    Args,
    builder::{NonEmptyStringValueParser, RangedU64ValueParser},
};
use mczk_api::{contract::labels::REPLACE_VOLUME, zookeeper::Role};

use member::Member;
use request::Request;

/// Replaces the volume of one server by an empty one: for a corrupt or a lost volume
///
/// It writes a request into the MultiClusterZooKeeper, and deletes nothing itself. The request names the server and the very
/// claim of its volume. The agent of its cluster deletes claim and pod once the other voters are a majority that serves, none of
/// them lacks a volume, and no other server is being restarted or replaced. The ensemble removes the id of the server, which
/// returns under a new id and copies the data of the others. Until then, mczk why shows what the agent waits for. The command
/// reads the claim through Karmada's cluster proxy, so you need the right to get clusters/proxy.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 if the replacement is requested, or with --wait done, 1 for a failure, 2 for a wrong \
                        command line. 3 if --wait ends before the server serves again."
)]
pub struct Replace {
    #[command(flatten)]
    object: One,
    /// The server: its id, or CLUSTER/POD
    #[arg(value_name = "SERVER", value_parser = NonEmptyStringValueParser::new())]
    server: String,
    /// Print the request, and write nothing
    #[arg(long, env = "MCZK_REPLACE_DRY_RUN")]
    dry_run: bool,
    /// Do not ask. Required if standard input is no terminal
    #[arg(short, long, env = "MCZK_REPLACE_YES")]
    yes: bool,
    /// Show what the agent waits for, until the server serves again
    #[arg(short, long, env = "MCZK_REPLACE_WAIT", conflicts_with = "dry_run")]
    wait: bool,
    /// Seconds after which --wait ends; the request stays
    #[arg(long, env = "MCZK_REPLACE_WAIT_SECONDS", value_name = "SECONDS", default_value_t = 3600,
          value_parser = RangedU64ValueParser::<u64>::new().range(1..=86_400))]
    wait_seconds: u64,
    #[command(flatten)]
    connection: Connection,
}

impl Replace {
    /// Requests the replacement.
    ///
    /// # Errors
    /// [`Error::Usage`] without a terminal and --yes; otherwise if there is no such server or claim, or an API server refuses
    /// or does not answer.
    pub fn run(self) -> Result<Exit, Error> {
        if !self.dry_run && !self.yes && !io::stdin().is_terminal() {
            return Err(Error::Usage("standard input is no terminal: add --yes to replace the volume".to_owned()));
        }
        let Ok(server) = self.server.parse::<ServerName>();
        block_on(async {
            let (client, _) = self.connection.client().await?;
            let (namespace, name) = (self.object.namespace(&client), &self.object.name);
            let object = existing(&client, &namespace, name).await?;
            let servers = listed(&namespace, name, &status_of(&object)?);
            let server = request::find(&servers, &server)
                .map_err(|why| Error::Failed(anyhow!("{namespace}/{name} has no server {}: {why}", self.server)))?;
            let proxy = Proxy::new(self.connection.config().await?);
            let member = Member::new(proxy.client(&server.cluster)?, &server.cluster, &namespace, name);
            let claim = member.claim(&server.pod).await.map_err(Error::Failed)?;
            let volume = member.volume(&server.pod).await.map_err(Error::Failed)?;
            let request = Request::new(&object, server.clone(), &claim, volume);
            // The API server checks the change before the user reads that it happens.
            let written = Written {
                manager: "mczk-replace",
                seen: &object,
                patch: &request.patch,
                verb: "requested",
                what: "the request into",
            };
            write(&client, (&namespace, name), &written, true).await?;
            print(&text(&format!("{namespace}/{name}"), &namespace, &request))?;
            if self.dry_run {
                print("Dry run: nothing is requested.\n")?;
                return Ok(Exit::Fine);
            }
            if !self.yes && !confirmed(&server.id.to_string(), &question(server.id))? {
                return Err(Error::Failed(anyhow!("not confirmed: nothing is requested")));
            }
            write(&client, (&namespace, name), &written, false).await?;
            print(&format!("Replacement requested. See what it waits for with: mczk why {name} -n {namespace}\n"))?;
            if !self.wait {
                return Ok(Exit::Fine);
            }
            let limit = Duration::from_secs(self.wait_seconds);
            Ok(Exit::waits(!wait::until_served(&member, &request, limit).await?))
        })
    }
}

fn question(id: i32) -> String {
    format!("Type the id of the server, {id}, to replace its volume: ")
}

/// What is requested, and what then happens.
fn text(name: &str, namespace: &str, request: &Request) -> String {
    let Request { server, claim, values, .. } = request;
    let role = if server.role == Role::Voter { "voter" } else { "observer" };
    let before = values.0.as_deref().unwrap_or("none");
    format!(
        "{name}: requests an empty volume for {role} {} in cluster {}\n\
         The agent of the cluster deletes these, once the other voters allow it:\n  \
         PersistentVolumeClaim {namespace}/{claim}: its data is lost\n  \
         Pod {namespace}/{}\n\
         Change: metadata.annotations[{REPLACE_VOLUME}]: {before} -> {}\n",
        server.id, server.cluster, server.pod, values.1
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::terminal::server_list::ListedServer;

    #[test]
    fn the_text_names_what_the_agent_deletes() {
        let request = Request {
            server: ListedServer { id: 2, cluster: "m2".to_owned(), role: Role::Voter, pod: "zk-abc123-0".to_owned() },
            claim: "data-zk-abc123-0".to_owned(),
            uid: "u-1".to_owned(),
            volume: None,
            patch: json!({}),
            values: (None, "2/u-1".to_owned()),
        };
        insta::assert_snapshot!(text("n/zk", "n", &request), @r"
        n/zk: requests an empty volume for voter 2 in cluster m2
        The agent of the cluster deletes these, once the other voters allow it:
          PersistentVolumeClaim n/data-zk-abc123-0: its data is lost
          Pod n/zk-abc123-0
        Change: metadata.annotations[mczk.io/replace-volume]: none -> 2/u-1
        ");
    }
}
