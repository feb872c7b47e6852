//! `mczk status`: the state of ensembles, their clusters and servers.

mod text;

use std::time::Duration;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use kube::{Client, ResourceExt, api::DynamicObject};

use crate::terminal::{
    connection::Connection,
    error::Error,
    output::{Exit, Format, is_coloured, print},
    run::block_on,
    scope::{Scope, existing},
};
use mczk_reading::read_only;
use mczk_rules::view::status::{self as view, EnsembleView};
use mczk_runtime::failure::{self, is_forbidden};
pub(crate) use text::{Style, tree};

/// Time between two reads of `--watch`.
pub(crate) const WATCH_INTERVAL: Duration = Duration::from_secs(2);
/// Clears a terminal.
pub(crate) const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// Prints the state of ensembles: a table, or one ensemble with its clusters and servers
///
/// It reads the status of the MultiClusterZooKeeper and, for one ensemble, the reports of the agents in the
/// ResourceBinding of karmada-apiserver. It reads nothing in member clusters.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 if every ensemble is Ready, 1 for a failure, 2 for a wrong command line, 3 if an \
                        ensemble is not Ready."
)]
pub struct Status {
    #[command(flatten)]
    scope: Scope,
    /// Print again after every change, until a signal ends the command
    #[arg(short, long, env = "MCZK_STATUS_WATCH")]
    watch: bool,
    /// Format of the output [default: a table]
    #[arg(short, long, env = "MCZK_STATUS_OUTPUT", value_enum, value_name = "FORMAT")]
    output: Option<StatusOutput>,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StatusOutput {
    /// A table with more columns
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

impl Status {
    /// Prints the state, once or until a signal ends the process.
    ///
    /// # Errors
    /// If the API server refuses or does not answer, or no object has the name.
    pub fn run(self) -> Result<Exit, Error> {
        block_on(async {
            let (client, _) = self.connection.client().await?;
            let mut printed = None;
            loop {
                let (text, ending) = self.read(&client).await?;
                if !self.watch {
                    print(&text)?;
                    return Ok(ending);
                }
                if printed.as_ref() != Some(&text) {
                    print(&if is_coloured() { format!("{CLEAR}{text}") } else { text.clone() })?;
                    printed = Some(text);
                }
                tokio::time::sleep(WATCH_INTERVAL).await;
            }
        })
    }

    async fn read(&self, client: &Client) -> Result<(String, Exit), Error> {
        let namespace = self.scope.namespace(client);
        let ensembles = if let (Some(name), Some(namespace)) = (&self.scope.name, &namespace) {
            vec![one(client, namespace, name).await?]
        } else {
            let objects = read_only::ensembles(client, namespace.as_deref()).await.map_err(anyhow::Error::from)?;
            objects.iter().map(view::ensemble).collect()
        };
        let ending = Exit::waits(ensembles.iter().any(|ensemble| !ensemble.is_ready()));
        Ok((self.text(&ensembles, Timestamp::now())?, ending))
    }

    fn text(&self, ensembles: &[EnsembleView], now: Timestamp) -> Result<String, Error> {
        let format = match self.output {
            Some(StatusOutput::Json) => Some(Format::Json),
            Some(StatusOutput::Yaml) => Some(Format::Yaml),
            Some(StatusOutput::Wide) | None => None,
        };
        let one = ensembles.first().filter(|_| self.scope.name.is_some());
        let style = Style {
            wide: self.output == Some(StatusOutput::Wide),
            namespaces: self.scope.all_namespaces,
            coloured: is_coloured(),
        };
        Ok(match (format, one) {
            (Some(format), Some(one)) => format.text(one)?,
            (Some(format), None) => format.text(&ensembles)?,
            (None, Some(one)) => text::tree(one, style),
            (None, None) if ensembles.is_empty() => "No MultiClusterZooKeeper exists here\n".to_owned(),
            (None, None) => text::list(ensembles, style, now),
        })
    }
}

async fn one(client: &Client, namespace: &str, name: &str) -> Result<EnsembleView, Error> {
    view_of(client, &existing(client, namespace, name).await?).await
}

/// One ensemble with its clusters.
///
/// # Errors
/// If the API server refuses or does not answer.
pub(crate) async fn view_of(client: &Client, object: &DynamicObject) -> Result<EnsembleView, Error> {
    let failed = |error: failure::Error| Error::Failed(anyhow!(error));
    let namespace = object.namespace().unwrap_or_default();
    let binding = read_only::binding(client, &namespace, &object.name_any()).await.map_err(failed)?;
    // The clusters only show which reports may be old.
    let clusters = match read_only::member_clusters(client).await {
        Err(failure::Error::Api { source, .. }) if is_forbidden(&source) => None,
        other => Some(other.map_err(failed)?),
    };
    let mut ensemble = view::ensemble(object);
    ensemble.clusters = view::clusters(object, binding.as_ref(), clusters.as_deref());
    Ok(ensemble)
}
