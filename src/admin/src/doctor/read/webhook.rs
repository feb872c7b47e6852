//! The certificates that the webhook shows.

use std::sync::Arc;

use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    version::TLS13,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::reader::BoundedReader;
use crate::doctor::observed::{Read, address};
use mczk_api::karmada::interpreter::WebhookClientConfig;

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
        .with_custom_certificate_verifier(Arc::new(AnyCertificate { provider }))
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(|error| in_words(&error))?;
    let stream = TcpStream::connect((host, port)).await.map_err(|error| in_words(&error))?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(|error| in_words(&error))?;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    Ok(chain.iter().map(|certificate| certificate.to_vec()).collect())
}

/// Accepts every certificate, because the examination judges it. Nothing is sent over the connection.
#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
