//! The certificates that the webhook shows.

use std::sync::Arc;

use rustls::{ClientConfig, crypto::aws_lc_rs, pki_types::ServerName, version::TLS13};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::reader::BoundedReader;
use crate::doctor::observed::{Read, address};
use mczk_api::karmada::interpreter::WebhookClientConfig;
use mczk_runtime::authority_verifier::AuthorityVerifier;

/// The certificates, in DER. `None` without an address. No request is sent.
pub(super) async fn served(config: Option<&WebhookClientConfig>, reader: &BoundedReader) -> Option<Read<Vec<Vec<u8>>>> {
    let (host, port) = address(config?)?;
    Some(reader.bounded(&format!("the webhook {host}:{port}"), handshake(&host, port)).await)
}

async fn handshake(host: &str, port: u16) -> Read<Vec<Vec<u8>>> {
    let in_words = |error: &dyn std::fmt::Display| error.to_string();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(&[&TLS13]);
    let config = config
        .map_err(|error| in_words(&error))?
        .dangerous()
        // The examination judges it, and nothing is sent.
        .with_custom_certificate_verifier(Arc::new(AuthorityVerifier::without_authority(provider)))
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(|error| in_words(&error))?;
    let stream = TcpStream::connect((host, port)).await.map_err(|error| in_words(&error))?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(|error| in_words(&error))?;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    Ok(chain.iter().map(|certificate| certificate.to_vec()).collect())
}
