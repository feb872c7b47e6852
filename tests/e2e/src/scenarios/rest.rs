//! Rest.

use std::{
    fs::File,
    io::{BufRead, BufReader, Seek, SeekFrom},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    agent::Behaviour,
    federation::{Federation, OPERATOR_USER},
    scene::{Scene, ensemble},
};

/// How long nothing may be written: a minute, or `E2E_REST_SECONDS`.
pub(super) fn rest() -> Duration {
    let seconds = std::env::var("E2E_REST_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(60))
}

pub(super) async fn no_writes(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "rest", Behaviour::default()).await?;
    scene.create(&ensemble("zoo", 5, &json!({}))).await?;
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    // Karmada still reports the last rollout for some seconds.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut log = File::open(federation.rig.audit_log()).context("no audit log exists")?;
    log.seek(SeekFrom::End(0))?;
    federation.restart_operator().await?;
    tokio::time::sleep(rest()).await;
    let mut all = 0;
    let mut writes = Vec::new();
    for line in BufReader::new(log).lines() {
        let Ok(entry) = serde_json::from_str::<Value>(&line?) else { continue };
        let text = |path: &str| entry.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        all += 1;
        if text("/user/username") == OPERATOR_USER
            && ["create", "update", "patch", "delete"].contains(&text("/verb").as_str())
            // The leader renews its Lease even if there is nothing to do.
            && text("/objectRef/resource") != "leases"
        {
            let object = [text("/objectRef/resource"), text("/objectRef/namespace"), text("/objectRef/name")].join(" ");
            writes.push(format!("{} {object}", text("/verb")));
        }
    }
    ensure!(all > 0, "the audit log is empty, so it proves nothing");
    ensure!(writes.is_empty(), "{} writes in {} s: {}", writes.len(), rest().as_secs(), writes.join(", "));
    Ok(())
}
