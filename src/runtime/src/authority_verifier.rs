//! Verifies servers without their names: by their authority alone, since one identity serves the whole ensemble, or not at all.

use std::sync::Arc;

use rustls::{
    DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        VerifierBuilderError,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor,
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

/// Accepts every certificate of an authority, whatever its name.
#[derive(Debug)]
pub struct AuthorityVerifier {
    /// `None` accepts the certificates of everybody.
    roots: Option<Arc<RootCertStore>>,
    provider: Arc<CryptoProvider>,
}

impl AuthorityVerifier {
    /// Accepts certificates of the authorities in `roots`.
    ///
    /// # Errors
    /// If there are no authorities.
    pub fn new(roots: Arc<RootCertStore>, provider: Arc<CryptoProvider>) -> Result<Self, VerifierBuilderError> {
        if roots.is_empty() {
            Err(VerifierBuilderError::NoRootAnchors)
        } else {
            Ok(Self { roots: Some(roots), provider })
        }
    }

    /// Accepts the certificates of everybody. Only for a connection that carries nothing secret, and whose answers are believed
    /// from anybody.
    #[must_use]
    pub fn without_authority(provider: Arc<CryptoProvider>) -> Self {
        Self { roots: None, provider }
    }
}

impl ServerCertVerifier for AuthorityVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(roots) = &self.roots {
            let certificate = ParsedCertificate::try_from(end_entity)?;
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&certificate, roots, intermediates, now, algorithms)?;
        }
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
