//! `mczk restart`: a rolling restart of every server, by the operator's own rollout.

mod rule;
mod wait;

use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{Args, builder::RangedU64ValueParser};
use k8s_openapi::jiff::Timestamp;

use crate::{
    act::patch::{Written, write},
    see::plan::ServerImage,
    terminal::{
        columns::aligned,
        connection::Connection,
        error::Error,
        output::{Exit, print},
        run::block_on,
        scope::{One, existing},
    },
};
use mczk_rules::rollout::{known::Known, plan::restart_order::restart_order};

use rule::{RESTARTED_AT, RestartDecision};

/// Restarts every server of an ensemble, cluster by cluster and one at a time
///
/// It writes one annotation of the pods into the MultiClusterZooKeeper, as kubectl rollout restart does. The operator then
/// rolls the change out like any other: the next cluster starts only after the cluster before it is complete. The command
/// itself deletes no pod.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 if the restart is requested, or with --wait complete, 1 for a failure or a \
                        refusal, 2 for a wrong command line. 3 if --wait ends before the rollout is complete.")]
pub struct Restart {
    #[command(flatten)]
    object: One,
    /// Print what would happen, and change nothing
    #[arg(long, env = "MCZK_RESTART_DRY_RUN")]
    dry_run: bool,
    /// Show the progress until the rollout is complete
    #[arg(short, long, env = "MCZK_RESTART_WAIT", conflicts_with = "dry_run")]
    wait: bool,
    /// Seconds after which --wait ends; the rollout goes on
    #[arg(long, env = "MCZK_RESTART_WAIT_SECONDS", value_name = "SECONDS", default_value_t = 3600,
          value_parser = RangedU64ValueParser::<u64>::new().range(1..=86_400))]
    wait_seconds: u64,
    #[command(flatten)]
    connection: Connection,
}

impl Restart {
    /// Requests the restart.
    ///
    /// # Errors
    /// If the API server refuses or does not answer, the object has changed meanwhile, or no server would restart.
    pub fn run(self) -> Result<Exit, Error> {
        block_on(async {
            let (client, _) = self.connection.client().await?;
            let (namespace, name) = (self.object.namespace(&client), &self.object.name);
            let object = existing(&client, &namespace, name).await?;
            let now = Timestamp::now();
            // The order depends on all that the operator observes. A user who may not read that can still restart.
            let seen = ServerImage::default().observe(&client, &object).await;
            let order = seen.map(|seen| restart_order(&Known::of(&seen, now)));
            let mut decision = rule::decide(&object, order.as_deref().unwrap_or_default(), now)
                .map_err(|why| Error::Failed(anyhow!("{namespace}/{name} is not restarted: {why}")))?;
            if let Err(error) = order {
                decision.notes.push(format!("The order of the clusters is unknown: {error}."));
            }
            // The API server checks the change before the user reads that it happens.
            let written = Written {
                manager: "mczk-restart",
                seen: &object,
                patch: &decision.patch,
                verb: "restarted",
                what: "the restart of",
            };
            write(&client, (&namespace, name), &written, true).await?;
            print(&text(&format!("{namespace}/{name}"), &decision))?;
            if self.dry_run {
                print("Dry run: nothing is changed.\n")?;
                return Ok(Exit::Fine);
            }
            let stored = write(&client, (&namespace, name), &written, false).await?;
            let generation = stored.metadata.generation.context("the API server returns no generation")?;
            print(&format!("Restart requested: generation {generation}.\n"))?;
            if !self.wait {
                return Ok(Exit::Fine);
            }
            let limit = Duration::from_secs(self.wait_seconds);
            Ok(Exit::waits(!wait::until_complete(&client, (&namespace, name), generation, limit).await?))
        })
    }
}

/// What will happen.
fn text(ensemble: &str, decision: &RestartDecision) -> String {
    let count: usize = decision.clusters.iter().map(|cluster| cluster.servers.len()).sum();
    let rows = decision.clusters.iter().map(|cluster| {
        let ids = cluster.servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let remarks = [(cluster.leads, "holds the leader"), (!cluster.ready, "is not complete now")];
        let remarks: Vec<&str> = remarks.into_iter().filter(|(holds, _)| *holds).map(|(_, text)| text).collect();
        [format!("  {}", cluster.name), format!("servers {ids}"), remarks.join(", ")]
    });
    let rows = aligned(&rows.collect::<Vec<_>>());
    let before = decision.values.0.as_deref().unwrap_or("none");
    let notes = decision.notes.iter().flat_map(|note| [note, "\n"]).collect::<String>();
    format!(
        "{ensemble}: the operator restarts {count} servers, one at a time. The order of the clusters as of now:\n{rows}\
         Change: spec.template.metadata.annotations[{RESTARTED_AT}]: {before} -> {}\n{notes}",
        decision.values.1
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{rule::ClusterRestart, *};

    #[test]
    fn the_text_names_servers_in_order() {
        let cluster = |name: &str, servers: &[i32], leads, ready| ClusterRestart {
            name: name.to_owned(),
            servers: servers.to_vec(),
            leads,
            ready,
        };
        let decision = RestartDecision {
            patch: json!({}),
            values: (None, "2026-01-02T03:04:05Z".to_owned()),
            clusters: vec![cluster("m3", &[3], false, false), cluster("m1", &[1, 2], true, true)],
            notes: vec!["A rollout is under way.".to_owned()],
        };
        insta::assert_snapshot!(text("n/zk", &decision), @r"
        n/zk: the operator restarts 3 servers, one at a time. The order of the clusters as of now:
          m3  servers 3     is not complete now
          m1  servers 1, 2  holds the leader
        Change: spec.template.metadata.annotations[kubectl.kubernetes.io/restartedAt]: none -> 2026-01-02T03:04:05Z
        A rollout is under way.
        ");
    }
}
