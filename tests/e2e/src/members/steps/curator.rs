//! Curator, which many applications use, while clients must use TLS.
//!
//! Its `EnsembleTracker` replaces the addresses of a client by those in `/zookeeper/config`. With `Required`, these are
//! addresses that only a pod itself can use, so a client that believed them could not connect again.

use std::{process::Stdio, time::Duration};

use anyhow::{Context, Result};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Child,
    sync::watch,
    time::timeout,
};

use super::{Step, StoryContext, clients::SECRET};
use crate::{patience::wait_for, programs::java};

/// The client, which the JVM compiles when it starts.
const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../zookeeper/curator/Writer.java");
/// Writes after each kill of a server.
const WRITES: usize = 40;
/// The longest time until these writes are acknowledged.
const PATIENCE: Duration = Duration::from_secs(60);

pub const CURATOR: Step =
    step!("curator", curator, "with TLS required, a client with Curator survives the loss of each server in turn");

impl StoryContext<'_> {
    async fn curator(&mut self) -> Result<()> {
        self.certificates("curator").await?;
        let client = json!({ "mode": "Required", "secretName": SECRET, "certificates": "Ignored" });
        self.roll(json!({ "tls": { "client": client } })).await?;
        let mut curator = self.start_curator().await?;
        curator.writes().await?;
        for server in self.pods().servers().await? {
            self.members.signal(&self.scene.namespace, &server, "KILL").await?;
            curator.writes().await.with_context(|| format!("after the kill of {server}"))?;
            wait_for("all servers are ready", PATIENCE, || self.all_ready()).await?;
        }
        let written = *curator.written.borrow();
        self.members.report(&format!("Curator wrote {written} times; each server was killed once"));
        drop(curator);
        self.roll(json!({ "tls": { "client": null } })).await?;
        self.all_serve().await
    }

    async fn start_curator(&self) -> Result<Curator> {
        let lib = self.curator_lib.as_ref().context("name the folder of Curator's jars with --curator-lib")?;
        let authority = self.members.federation.folder.join("client-tls/curator/ca.crt");
        let servers = self.pods().servers().await?;
        let addresses: Vec<String> =
            servers.iter().filter_map(|server| Some(format!("{}:2281", server.address.as_ref()?))).collect();
        let mut process = java("-Xmx128m", lib)
            .args(["-Dzookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty"])
            .args(["-Dzookeeper.client.secure=true", "-Dzookeeper.ssl.trustStore.type=PEM"])
            .arg(format!("-Dzookeeper.ssl.trustStore.location={}", authority.display()))
            // The certificates name the client Service, which does not exist outside of pods.
            .args(["-Dzookeeper.ssl.hostnameVerification=false", CLIENT, &addresses.join(",")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run java")?;
        let mut output = BufReader::new(process.stdout.take().context("the process has no output")?).lines();
        let (count, written) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok(Some(line)) = output.next_line().await {
                count.send_modify(|count| *count += usize::from(line.starts_with("written ")));
            }
        });
        Ok(Curator { _process: process, written })
    }
}

/// A running client. It ends with this value.
struct Curator {
    _process: Child,
    written: watch::Receiver<usize>,
}

impl Curator {
    /// Waits for acknowledged writes that begin now.
    async fn writes(&mut self) -> Result<()> {
        let enough = *self.written.borrow() + WRITES;
        let written = timeout(PATIENCE, self.written.wait_for(|written| *written >= enough)).await;
        written
            .with_context(|| format!("no {WRITES} writes in {} s", PATIENCE.as_secs()))?
            .context("the client ended")?;
        Ok(())
    }
}
