//! Reports of living servers, for a server that decides how to start.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::{StreamExt, stream};
use hyper::Request;
use rustls::ClientConfig;
use tokio::{
    net::TcpStream,
    time::{Instant, timeout, timeout_at},
};
use tokio_rustls::TlsConnector;

use crate::resolver::Resolver;
use mczk_api::contract::{
    control_api::{Configuration, ServerReport, UNKNOWN_EPOCH},
    pod_layout,
};
use mczk_rules::server::start::Peers;
use mczk_runtime::exchange::exchange;

/// Time limit of a report. The server may be a continent away, and it observes `ZooKeeper` first.
const REPORT_TIMEOUT: Duration = Duration::from_secs(6);
/// Time limit of a connection to a server that may be lost. One that runs answers after a round trip.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for further reports once the answers are enough: they may know more of the server's volume.
const AFTER_ENOUGH: Duration = Duration::from_secs(1);
/// Number of simultaneous requests.
const MAX_REQUESTS: usize = 64;

/// Asks the servers `hosts` and summarizes the reports of the same incarnation. Without `tls`, in plain text. Waits no longer
/// than [`AFTER_ENOUGH`] once the answers are `enough`.
pub async fn ask(
    hosts: BTreeSet<String>,
    incarnation: &str,
    resolver: &Resolver,
    tls: Option<Arc<ClientConfig>>,
    enough: impl Fn(&Peers) -> bool,
) -> Peers {
    let tls = &tls;
    let reports = stream::iter(hosts)
        .map(async |host| match timeout(REPORT_TIMEOUT, report(&host, resolver, tls.clone())).await {
            Ok(Ok(report)) => Some(report),
            Ok(Err(error)) => {
                tracing::debug!(host, "no report: {error:#}");
                None
            }
            Err(_) => None,
        })
        .buffer_unordered(MAX_REQUESTS)
        .filter_map(std::future::ready);
    let mut reports = std::pin::pin!(reports);
    let (mut peers, mut end) = (Peers::default(), Instant::now() + REPORT_TIMEOUT + REPORT_TIMEOUT);
    while let Ok(Some(report)) = timeout_at(end, reports.next()).await {
        if report.incarnation == incarnation {
            add(&mut peers, report);
        }
        if enough(&peers) {
            end = end.min(Instant::now() + AFTER_ENOUGH);
        }
    }
    peers
}

/// True if server `id` answers at this host that it takes part in a quorum of this incarnation.
pub(crate) async fn takes_part(
    (id, host): (i32, &str),
    incarnation: &str,
    resolver: &Resolver,
    tls: Option<Arc<ClientConfig>>,
) -> bool {
    let Ok(Ok(stream)) = timeout(CONNECT_TIMEOUT, connect(host, resolver)).await else { return false };
    let answer = timeout(REPORT_TIMEOUT, report_over(stream, host, tls)).await;
    let is_same = |report: &ServerReport| report.incarnation == incarnation && report.id == Some(id);
    matches!(answer, Ok(Ok(report)) if is_same(&report) && report.takes_part())
}

/// Adds a report to the summary.
fn add(peers: &mut Peers, report: ServerReport) {
    peers.accepted_epoch = peers.accepted_epoch.max(report.accepted_epoch);
    // A server that cannot read its volume tells nothing of what it knew.
    peers.answered.extend(report.id.filter(|_| report.accepted_epoch != UNKNOWN_EPOCH));
    let votes = |configuration: &Configuration| configuration.voters().any(|voter| Some(voter) == report.id);
    let is_empty = report.accepted_epoch == 0 && !report.stored_configuration.as_ref().is_some_and(votes);
    peers.forgetful.extend(report.id.filter(|_| is_empty && !report.acknowledged_nothing));
    peers.acknowledged_nothing.extend(report.id.filter(|_| report.acknowledged_nothing));
    for (id, generation) in report.generations {
        let known = peers.generations.entry(id).or_default();
        *known = generation.max(*known);
    }
    peers.snapshot_bytes = peers.snapshot_bytes.max(report.snapshot_bytes);
    take_newer(&mut peers.configuration, report.configuration);
    take_newer(&mut peers.stored, report.stored_configuration);
    if report.server_list.as_ref().map(|list| list.epoch) > peers.list.as_ref().map(|list| list.epoch) {
        peers.list = report.server_list;
    }
}

fn take_newer(known: &mut Option<Configuration>, reported: Option<Configuration>) {
    if reported.as_ref().map(|c| c.version) > known.as_ref().map(|c| c.version) {
        *known = reported;
    }
}

async fn report(host: &str, resolver: &Resolver, tls: Option<Arc<ClientConfig>>) -> anyhow::Result<ServerReport> {
    report_over(connect(host, resolver).await?, host, tls).await
}

async fn connect(host: &str, resolver: &Resolver) -> anyhow::Result<TcpStream> {
    let addresses = resolver.resolve(host).await?;
    let address = addresses.first().context("the host name has no address")?;
    Ok(TcpStream::connect((*address, pod_layout::CONTROL_PORT)).await?)
}

async fn report_over(stream: TcpStream, host: &str, tls: Option<Arc<ClientConfig>>) -> anyhow::Result<ServerReport> {
    let tls = tls.map(TlsConnector::from);
    let (status, body) = exchange(stream, tls.as_ref(), host, Request::get("/v1/server"), Vec::new()).await?;
    ensure!(status.is_success(), "the server answers {status}");
    Ok(serde_json::from_slice(&body)?)
}
