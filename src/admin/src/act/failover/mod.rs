//! `mczk failover`: requests where the voters of a cluster shall be.

mod decide;
mod every;
mod homes;
mod preview;
mod progress;
mod rehearse;
mod request;
mod spare;
mod text;
mod tolerance;
mod wait;

use std::time::Duration;

use clap::{
    ArgGroup, Args,
    builder::{NonEmptyStringValueParser, RangedU64ValueParser},
};
use kube::Client;

use crate::terminal::{
    connection::Connection,
    error::Error,
    output::{Exit, print},
    run::block_on,
    scope::Namespace,
};

use decide::Wish;
use every::RequestEnding;
use progress::VoterGoal;
use rehearse::MoveRehearsal;

/// Moves the voters of a cluster to a spare, or back, also while the cluster is healthy
///
/// It writes a request into the annotation mczk.io/failover of the MultiClusterZooKeeper, as CLUSTER=PLACE. The operator then
/// gives the voters to that place: servers join there before live ones leave. The request stays, and the times of
/// spec.failover do not count for the cluster until --release removes it. A request that cannot be followed yet waits, and the
/// command says for what. Only clusters of spec.failover.spares take voters. Without the right to list Secrets in the namespace,
/// the command does not know what the operator will do, and --rehearse refuses.
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("failover request").required(true).args(["from", "back", "release", "rehearse"])),
    after_help = "Exit codes: 0 if the request is written, or with --wait or --rehearse carried out. 1 for a failure or a \
                  refusal, 2 for a wrong command line. 3 if --wait or a way of --rehearse ends before the voters are there."
)]
#[allow(clippy::struct_excessive_bools)] // independent flags
pub struct MoveVoters {
    /// Name of the MultiClusterZooKeeper
    #[arg(value_name = "NAME", value_parser = NonEmptyStringValueParser::new(), required_unless_present = "all")]
    name: Option<String>,
    #[command(flatten)]
    namespace: Namespace,
    /// The voters leave this cluster: their home, or the spare that holds them
    #[arg(long, env = "MCZK_FAILOVER_FROM", value_name = "CLUSTER", value_parser = cluster)]
    from: Option<String>,
    /// The place that they get with --from or --rehearse [default: the first of failover.spares that can take voters]
    #[arg(long, env = "MCZK_FAILOVER_TO", value_name = "CLUSTER", value_parser = cluster, conflicts_with_all = ["back", "release"])]
    to: Option<String>,
    /// The voters of this cluster move home, or stay there, whatever spec.failover declares
    #[arg(long, env = "MCZK_FAILOVER_BACK", value_name = "CLUSTER", value_parser = cluster)]
    back: Option<String>,
    /// Remove the request for this cluster: spec.failover counts for it again. It moves nothing by itself
    #[arg(long, env = "MCZK_FAILOVER_RELEASE", value_name = "CLUSTER", value_parser = cluster)]
    release: Option<String>,
    /// Move the voters of this cluster to a spare and home again, if all is well, and print how long it took
    #[arg(long, env = "MCZK_FAILOVER_REHEARSE", value_name = "CLUSTER", value_parser = cluster, conflicts_with = "all")]
    rehearse: Option<String>,
    /// Request it of every ensemble that has voters in the cluster of --from, or a request to take back
    #[arg(long, env = "MCZK_FAILOVER_ALL", conflicts_with = "name")]
    all: bool,
    /// With --all: in all namespaces
    #[arg(short = 'A', long, env = "MCZK_ALL_NAMESPACES", conflicts_with = "name")]
    all_namespaces: bool,
    /// Print what would happen, and change nothing
    #[arg(long, env = "MCZK_FAILOVER_DRY_RUN")]
    dry_run: bool,
    /// Show the progress until the voters are there and the ensemble is Ready
    #[arg(short, long, env = "MCZK_FAILOVER_WAIT", conflicts_with_all = ["dry_run", "release"])]
    wait: bool,
    /// Seconds after which --wait ends, or a way of --rehearse; the operator goes on
    #[arg(long, env = "MCZK_FAILOVER_WAIT_SECONDS", value_name = "SECONDS", default_value_t = 3600,
          value_parser = RangedU64ValueParser::<u64>::new().range(1..=86_400))]
    wait_seconds: u64,
    #[command(flatten)]
    connection: Connection,
}

/// A name of a cluster, as Karmada allows it. The separators of the annotation are no part of one.
fn cluster(text: &str) -> Result<String, String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if (1..=48).contains(&text.len()) && text.chars().all(is_part) {
        return Ok(text.to_owned());
    }
    Err("a cluster has 1 to 48 lowercase letters, digits and hyphens in its name".to_owned())
}

impl MoveVoters {
    /// Requests the move.
    ///
    /// # Errors
    /// If the request is refused, or the API server refuses or does not answer.
    pub fn run(self) -> Result<Exit, Error> {
        block_on(async {
            let (client, _) = self.connection.client().await?;
            let namespace = self.namespace.name(&client);
            let limit = Duration::from_secs(self.wait_seconds);
            match (&self.name, &self.rehearse) {
                (Some(name), Some(home)) => {
                    let of = (namespace.as_str(), name.as_str());
                    let to = self.to.as_deref();
                    MoveRehearsal { client: &client, of, home, to, limit }.run(self.dry_run).await
                }
                (Some(name), None) => self.one(&client, (&namespace, name), limit).await,
                (None, _) => {
                    let ending = RequestEnding { dry_run: self.dry_run, wait: self.wait.then_some(limit) };
                    let namespace = (!self.all_namespaces).then_some(namespace.as_str());
                    every::request_all(&client, namespace, &self.wish()?, &ending).await
                }
            }
        })
    }

    /// What the user asks for.
    fn wish(&self) -> Result<Wish, Error> {
        let from = self.from.clone().map(|cluster| Wish::From { cluster, to: self.to.clone() });
        let back = self.back.clone().map(Wish::Back);
        let wish = from.or(back).or_else(|| self.release.clone().map(Wish::Release));
        wish.ok_or_else(|| Error::Usage("name a cluster with --from, --back, --release or --rehearse".to_owned()))
    }

    /// Requests it of one ensemble.
    async fn one(&self, client: &Client, of: (&str, &str), limit: Duration) -> Result<Exit, Error> {
        let request = request::check_named(client, of, &self.wish()?).await?;
        print(&text::text(&format!("{}/{}", of.0, of.1), &request.decision))?;
        if self.dry_run {
            print("Dry run: nothing is changed.\n")?;
            return Ok(Exit::Fine);
        }
        request.send(client, of, false).await?;
        if request.decision.changes() {
            print("Requested.\n")?;
        }
        let Some(goal) = VoterGoal::of(&request.decision).filter(|_| self.wait) else { return Ok(Exit::Fine) };
        Ok(Exit::waits(!wait::until_there(client, of, &goal, limit).await?))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("m1", true)]
    #[case("eu-west-1", true)]
    #[case("", false)]
    #[case("m1=m4", false)]
    #[case("m1,m2", false)]
    #[case("M1", false)]
    fn a_name_of_a_cluster(#[case] text: &str, #[case] valid: bool) {
        assert_eq!(cluster(text).is_ok(), valid);
    }
}
