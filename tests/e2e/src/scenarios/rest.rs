//! Rest.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::{
    agent::Behaviour,
    audit::{self, Entry},
    federation::{Federation, LEASE, OPERATOR_USER},
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
    let (log, begin) = (federation.rig.audit_log(), audit::end(&federation.rig.audit_log())?);
    federation.restart_operator().await?;
    tokio::time::sleep(rest()).await;
    let requests = audit::read(&log, begin, OPERATOR_USER)?;
    // It lists the templates of all namespaces if other scenarios have left ensembles.
    let reads = |request: &Entry| {
        request.resource == "zookeepers"
            && request.verb != "watch"
            && ["", &scene.namespace].contains(&request.namespace.as_str())
    };
    ensure!(requests.iter().any(reads), "the new operator has not read the ensemble");
    // The leader renews its Lease even if there is nothing to do, and an event about the Lease names it.
    let is_election = |r: &Entry| r.resource == "leases" || r.resource == "events" && LEASE.starts_with(&*r.namespace);
    let writes = requests.iter().filter(|request| request.is_write() && !is_election(request));
    let writes: Vec<String> = writes.map(|r| format!("{} {} {} {}", r.verb, r.resource, r.namespace, r.name)).collect();
    ensure!(writes.is_empty(), "{} writes in {} s: {}", writes.len(), rest().as_secs(), writes.join(", "));
    Ok(())
}
