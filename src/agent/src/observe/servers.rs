//! Polls the servers of an ensemble.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::{StreamExt, stream};
use tracing::debug;

use crate::{
    context::AgentContext,
    control_client::Servers,
    observe::{certificates::QuorumSecrets, snapshot::MemberSnapshot},
};
use mczk_api::{
    ZooKeeper,
    contract::{cause::Cause, conditions::Reason, control_api::ServerReport},
    zookeeper::Ensemble,
};
use mczk_rules::agent::decide::quorum::Quorum;

/// Servers that are polled at once.
const CONCURRENT_POLLS: usize = 32;

/// The client for an ensemble's servers. The agent speaks plain text only if the servers do.
pub(super) fn client(
    object: &ZooKeeper,
    quorum: &QuorumSecrets,
    context: &AgentContext,
) -> (Option<Arc<dyn Servers>>, Option<Cause>) {
    let encrypted = object.spec.tls.quorum;
    let material = quorum.usable().filter(|_| encrypted);
    if encrypted && material.is_none() {
        return (None, None);
    }
    match (context.options.dial)(material) {
        Ok(client) => (Some(client), None),
        Err(error) => (None, Some(Cause { reason: Reason::CertificatesUnusable, message: error.to_string() })),
    }
}

/// Polls every server: those of this cluster by their pods' addresses, those of other clusters by their listed names, and
/// those that ZooKeeper's configuration names and the list does not.
pub(crate) async fn poll(snapshot: &mut MemberSnapshot, list: &Ensemble, addresses: &BTreeMap<String, String>) {
    let Some(client) = snapshot.client.clone() else { return };
    let incarnation = list.incarnation.clone().unwrap_or_default();
    poll_local(snapshot, client.as_ref(), &incarnation, addresses).await;
    let cluster = snapshot.observation.cluster.clone().unwrap_or_default();
    let mut polled: BTreeSet<String> = BTreeSet::new();
    let others = list.all_servers().filter(|s| s.cluster != cluster).map(|s| s.host.clone());
    let mut next: Vec<String> = others.collect();
    // The second round polls the servers that the first answers name besides the list.
    for _ in 0..2 {
        next.retain(|host| polled.insert(host.clone()));
        let views: Vec<_> = stream::iter(next)
            .map(async |host| (view(client.as_ref(), &host, &incarnation).await, host))
            .buffer_unordered(CONCURRENT_POLLS)
            .collect()
            .await;
        for (view, host) in views {
            let Some(view) = view else { continue };
            if let Some(id) = view.id {
                snapshot.hosts.entry(id).or_insert(host);
            }
            snapshot.observation.views.push(view);
        }
        next = unlisted_hosts(&snapshot.observation.views, list, &cluster);
    }
    snapshot.observation.views.sort_by_key(|view| view.id);
}

/// Hosts of other clusters that ZooKeeper's configuration names and that have not answered.
fn unlisted_hosts(views: &[ServerReport], list: &Ensemble, cluster: &str) -> Vec<String> {
    let answered: BTreeSet<i32> = views.iter().filter_map(|view| view.id).collect();
    let local: BTreeSet<&str> = list.servers.iter().filter(|s| s.cluster == cluster).map(|s| s.host.as_str()).collect();
    let configured = Quorum::of(views).map(|quorum| quorum.configuration.servers).unwrap_or_default();
    let unanswered =
        configured.into_iter().filter(|server| !answered.contains(&server.id) && !local.contains(server.host.as_str()));
    unanswered.map(|server| server.host).collect()
}

async fn poll_local(
    snapshot: &mut MemberSnapshot,
    client: &dyn Servers,
    incarnation: &str,
    addresses: &BTreeMap<String, String>,
) {
    let servers = &snapshot.observation.servers;
    let own: Vec<(usize, String)> = servers
        .iter()
        .enumerate()
        .filter(|(_, (of, server))| of == incarnation && !server.terminating)
        .filter_map(|(index, (_, server))| Some((index, addresses.get(&server.uid)?.clone())))
        .collect();
    let views: Vec<_> = stream::iter(own)
        .map(async |(index, host)| (index, view(client, &host, incarnation).await, host))
        .buffer_unordered(CONCURRENT_POLLS)
        .collect()
        .await;
    for (index, view, host) in views {
        let Some(view) = view else { continue };
        if let Some(id) = view.id {
            snapshot.hosts.insert(id, host);
        }
        snapshot.observation.views.push(view.clone());
        if let Some((_, server)) = snapshot.observation.servers.get_mut(index) {
            server.view = Some(view);
        }
    }
}

async fn view(client: &dyn Servers, host: &str, incarnation: &str) -> Option<ServerReport> {
    match client.view(host).await {
        // A server of another incarnation shares only the address.
        Ok(view) => Some(view).filter(|view| view.incarnation == incarnation),
        Err(error) => {
            debug!(%error, "a server does not answer");
            None
        }
    }
}
