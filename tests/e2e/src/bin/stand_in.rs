//! The real agents of all member clusters in one process, on simulated pods and servers.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use clap::Parser;
use e2e::{
    agent::{Agents, Behaviour},
    federation::client,
};
use tokio::signal::unix::{SignalKind, signal};

/// Runs the agent of each member cluster on simulated pods and ZooKeeper servers, against the clusters' real API servers.
#[derive(Parser)]
struct Cli {
    /// A member cluster and the kubeconfig of its API server
    #[arg(long = "member", value_name = "NAME=FILE", value_parser = member, required = true)]
    members: Vec<(String, PathBuf)>,
    /// Time that servers need to start, in milliseconds
    #[arg(long, default_value_t = 300)]
    start_milliseconds: u64,
    /// Time that a server needs to restart, in milliseconds
    #[arg(long, default_value_t = 200)]
    restart_milliseconds: u64,
}

fn member(text: &str) -> Result<(String, PathBuf), String> {
    let (name, file) = text.split_once('=').ok_or("expected NAME=FILE")?;
    Ok((name.to_owned(), file.into()))
}

#[tokio::main]
async fn main() -> Result<()> {
    let cli = Cli::parse();
    let mut members = BTreeMap::new();
    for (name, file) in &cli.members {
        members.insert(name.clone(), client(file).await?);
    }
    let how = Behaviour {
        start: Duration::from_millis(cli.start_milliseconds),
        restart: Duration::from_millis(cli.restart_milliseconds),
    };
    let agents = Agents::start(&members, how);
    let mut terminate = signal(SignalKind::terminate()).context("cannot receive signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot receive signals")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    drop(agents);
    Ok(())
}
