//! The null server: what HTTP over TLS costs without an interpreter. It has the TLS settings and the runtime of mczk, reads
//! each question, and always gives the same answer.

use std::{net::SocketAddr, path::Path, sync::Arc};

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    header::{CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    version::TLS13,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

const ANSWER: &str = r#"{"apiVersion":"config.karmada.io/v1alpha1","kind":"ResourceInterpreterContext","response":{"uid":"6d3f1f52-9a3e-4a6c-8c0f-0b5f0e3c7d11","successful":true,"healthy":true}}"#;

/// Serves until the process ends. `certs` is a folder with `tls.crt` and `tls.key`.
///
/// # Errors
/// If it cannot listen, or cannot read the certificate.
pub(crate) async fn serve(address: SocketAddr, certs: &Path) -> Result<()> {
    let acceptor = TlsAcceptor::from(Arc::new(config(certs)?));
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    // On the threads of the runtime, as in mczk: the main thread would have to wake them for each connection.
    tokio::spawn(accept(listener, acceptor)).await?
}

fn config(certs: &Path) -> Result<ServerConfig> {
    let chain = CertificateDer::pem_file_iter(certs.join("tls.crt"))?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(certs.join("tls.key"))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(connection(stream, acceptor.clone()));
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor) {
    let _ = stream.set_nodelay(true);
    let Ok(stream) = acceptor.accept(stream).await else { return };
    // A client may end its connection at any time.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)).await;
}

async fn answer(request: Request<Incoming>) -> hyper::Result<Response<Full<Bytes>>> {
    let mut body = request.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
    }
    let mut response = Response::new(Full::new(Bytes::from_static(ANSWER.as_bytes())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
