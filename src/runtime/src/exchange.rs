//! One HTTP exchange between an agent or a server and a server, plain or over mutual TLS.

use anyhow::anyhow;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Request, StatusCode, body::Bytes, client::conn::http1, header::HOST, http::request::Builder};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

/// Largest answer in bytes.
const MAX_ANSWER: usize = 1 << 20;

/// Sends one request on a new connection to this host, and returns the status and the body of the answer.
///
/// # Errors
/// If the connection fails, or the answer is larger than 1 MiB.
pub async fn exchange(
    stream: TcpStream,
    tls: Option<&TlsConnector>,
    host: &str,
    request: Builder,
    body: Vec<u8>,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let _ = stream.set_nodelay(true);
    let request = request.header(HOST, host).body(Full::new(Bytes::from(body)))?;
    let Some(tls) = tls else { return send(stream, request).await };
    // The verifier ignores this name: the authority alone is the credential.
    let name = ServerName::try_from(host.to_owned())?;
    send(tls.connect(name, stream).await?, request).await
}

async fn send<S: AsyncRead + AsyncWrite + Unpin + Send>(
    stream: S,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let answer = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(|error| anyhow!(error))?;
        Ok((status, body.to_bytes()))
    };
    // The connection lives as long as its one exchange.
    tokio::select! {
        answer = answer => answer,
        Err(error) = connection => Err(error.into()),
    }
}
