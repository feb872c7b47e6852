//! What living servers of the ensemble answer when a server must know how to start.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use futures::{StreamExt, stream};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::{
    contract::{control_api::ServerReport, pod_layout},
    server::{resolver::Names, start::Peers},
};

/// How long a server may take to answer: it may be a continent away, and its own look at `ZooKeeper` takes time.
const PATIENCE: Duration = Duration::from_secs(6);
/// How many are asked at a time.
const AT_A_TIME: usize = 16;
/// How many bytes of an answer are read.
const LONGEST: usize = 1 << 20;

/// Asks the servers `hosts`, and sums up what those of the same life answer. With `tls` absent, in plain text.
pub async fn ask(hosts: BTreeSet<String>, incarnation: &str, names: &Names, tls: Option<Arc<ClientConfig>>) -> Peers {
    let tls = &tls;
    let answers = stream::iter(hosts)
        .map(async |host| match timeout(PATIENCE, view(&host, names, tls.clone())).await {
            Ok(Ok(view)) => Some(view),
            Ok(Err(error)) => {
                tracing::debug!(host, "does not answer: {error:#}");
                None
            }
            Err(_) => None,
        })
        .buffer_unordered(AT_A_TIME)
        .filter_map(std::future::ready)
        .collect::<Vec<_>>()
        .await;
    sum_up(answers, incarnation)
}

fn sum_up(answers: Vec<ServerReport>, incarnation: &str) -> Peers {
    let mut peers = Peers::default();
    for view in answers.into_iter().filter(|view| view.incarnation == incarnation) {
        peers.accepted_epoch = peers.accepted_epoch.max(view.accepted_epoch);
        if view.configuration.as_ref().map(|c| c.version) > peers.configuration.as_ref().map(|c| c.version) {
            peers.configuration = view.configuration;
        }
        if view.server_list.as_ref().map(|list| list.epoch) > peers.list.as_ref().map(|list| list.epoch) {
            peers.list = view.server_list;
        }
    }
    peers
}

async fn view(host: &str, names: &Names, tls: Option<Arc<ClientConfig>>) -> anyhow::Result<ServerReport> {
    let addresses = names.resolve(host).await?;
    let address = addresses.first().context("it has no address")?;
    let stream = TcpStream::connect((*address, pod_layout::CONTROL_PORT)).await?;
    stream.set_nodelay(true)?;
    match tls {
        None => get(host, stream).await,
        Some(config) => {
            let name = ServerName::try_from(host.to_owned())?;
            get(host, TlsConnector::from(config).connect(name, stream).await?).await
        }
    }
}

async fn get<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    host: &str,
    stream: S,
) -> anyhow::Result<ServerReport> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get("/v1/server").header("host", host).body(Empty::<Bytes>::new())?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body =
            Limited::new(response.into_body(), LONGEST).collect().await.map_err(|error| anyhow::anyhow!(error))?;
        if !status.is_success() {
            bail!("it answers {status}");
        }
        Ok(serde_json::from_slice(&body.to_bytes())?)
    };
    // The connection ends with the exchange: nobody is left to drive it.
    tokio::select! {
        answer = exchange => answer,
        ended = connection => { ended?; bail!("it closed the connection") }
    }
}
