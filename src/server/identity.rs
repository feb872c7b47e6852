//! How servers and agents of one ensemble know each other: mutual TLS 1.3 under the authority of the ensemble's life. The
//! authority is the credential; names in certificates say nothing, since one identity serves all.
//!
//! Files of a Secret are read again from time to time, and `ZooKeeper` gets them in the form that it reads.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
    client::{
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor,
    },
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::{ParsedCertificate, WebPkiClientVerifier},
    version::TLS13,
};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

use crate::{
    contract::{client_certificates, loaded_certificates},
    runtime::{shutdown::Shutdown, tls::Serving},
    server::volume,
};

/// For how long `ZooKeeper` may be reading certificates that changed. It watches the files and was measured to take less than
/// 4 seconds; it does not say when it has.
const READING: Duration = Duration::from_secs(20);

/// Certificates of one purpose: those of the quorum, or those that clients see.
#[derive(Debug)]
pub struct Identity {
    folder: PathBuf,
    /// Where `ZooKeeper` finds key and certificate in one file, and the authorities.
    joined: PathBuf,
    trust: PathBuf,
    current: ArcSwapOption<Taken>,
    /// Held while files are looked at: whoever starts `ZooKeeper` looks too, and two must not write at once.
    looking: Mutex<()>,
}

#[derive(Debug)]
struct Taken {
    digest: [u8; 32],
    told: loaded_certificates::Loaded,
    /// When `ZooKeeper` was given them, if it had others before.
    changed: Option<Instant>,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

/// Why certificates are not taken.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file holds nothing of what it should.
    #[error("{} holds no {what} in PEM", path.display())]
    Empty {
        /// Which one.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
    },
    /// They do not go together.
    #[error("the certificates cannot be used: {0}")]
    Unfit(#[from] rustls::Error),
    /// Nothing that a client could be known by.
    #[error("the authorities cannot be used: {0}")]
    Authorities(#[from] rustls::server::VerifierBuilderError),
}

impl Identity {
    /// The certificates in `folder`, which `ZooKeeper` gets as `joined` and `trust`.
    #[must_use]
    pub const fn new(folder: PathBuf, joined: PathBuf, trust: PathBuf) -> Self {
        Self { folder, joined, trust, current: ArcSwapOption::const_empty(), looking: Mutex::const_new(()) }
    }

    /// Looks once, and takes what is new and sound. Tells whether something was taken.
    ///
    /// # Errors
    /// If there is something new that is not sound; what was taken before stays.
    pub async fn look(&self) -> Result<bool, Error> {
        let _alone = self.looking.lock().await;
        let read = async |name: &str| {
            let path = self.folder.join(name);
            tokio::fs::read(&path).await.map_err(|source| Error::File { path, source })
        };
        let (certificate, key, authorities) = (read("tls.crt").await?, read("tls.key").await?, read("ca.crt").await?);
        let mut digest = Sha256::new();
        for part in [&certificate, &key, &authorities] {
            digest.update(Sha256::digest(part));
        }
        let digest: [u8; 32] = digest.finalize().into();
        if self.current.load().as_ref().is_some_and(|loaded| loaded.digest == digest) {
            return Ok(false);
        }
        let mut taken = self.parse(digest, &certificate, &key, &authorities)?;
        let joined = [key.as_slice(), b"\n", &certificate].concat();
        for (path, content) in [(&self.trust, &authorities), (&self.joined, &joined)] {
            volume::write(path, content, 0o600).map_err(|source| Error::File { path: path.clone(), source })?;
        }
        // What is taken first is there before ZooKeeper starts.
        taken.changed = self.current.load().is_some().then(Instant::now);
        self.current.store(Some(Arc::new(taken)));
        Ok(true)
    }

    /// Looks every `period`, until it is time to end.
    pub async fn follow(self: Arc<Self>, period: Duration, shutdown: Shutdown) {
        let shutdown = shutdown.requested();
        tokio::pin!(shutdown);
        let mut told = String::new();
        while tokio::time::timeout(period, &mut shutdown).await.is_err() {
            match self.look().await {
                Ok(true) => tracing::info!(folder = %self.folder.display(), "new certificates"),
                Ok(false) => told.clear(),
                Err(error) => {
                    let error = error.to_string();
                    if error != told {
                        tracing::error!(error, "new certificates are not taken; the old ones stay");
                        told = error;
                    }
                }
            }
        }
    }

    /// How others are spoken to, if there are certificates.
    #[must_use]
    pub fn client_config(&self) -> Option<Arc<ClientConfig>> {
        self.current.load().as_ref().map(|loaded| loaded.client.clone())
    }

    /// What both this process and `ZooKeeper` have loaded; nothing while that may still be reading.
    #[must_use]
    pub fn loaded(&self) -> Option<loaded_certificates::Loaded> {
        let taken = self.current.load();
        let taken = taken.as_ref()?;
        taken.changed.is_none_or(|since| since.elapsed() > READING).then(|| taken.told.clone())
    }

    fn parse(&self, digest: [u8; 32], certificate: &[u8], key: &[u8], authorities: &[u8]) -> Result<Taken, Error> {
        let empty = |name: &str, what| Error::Empty { path: self.folder.join(name), what };
        let chain = certificates(certificate).ok_or_else(|| empty("tls.crt", "certificate"))?;
        let trusted = certificates(authorities).ok_or_else(|| empty("ca.crt", "certificate"))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| empty("tls.key", "private key"))?;
        let mut roots = RootCertStore::empty();
        for authority in trusted {
            roots.add(authority)?;
        }
        let (provider, roots) = (Arc::new(aws_lc_rs::default_provider()), Arc::new(roots));
        let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build()?;
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain.clone(), key.clone_key())?;
        server.alpn_protocols = vec![b"http/1.1".to_vec()];
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(ByAuthority { roots, provider }))
            .with_client_auth_cert(chain, key)?;
        client.alpn_protocols = vec![b"http/1.1".to_vec()];
        let told =
            loaded_certificates::Loaded::of(certificate, authorities).ok_or_else(|| empty("tls.crt", "certificate"))?;
        Ok(Taken { digest, told, changed: None, server: Arc::new(server), client: Arc::new(client) })
    }
}

impl Serving for Identity {
    fn server_config(&self) -> Option<Arc<ServerConfig>> {
        self.current.load().as_ref().map(|loaded| loaded.server.clone())
    }
}

fn certificates(text: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(text).collect::<Result<_, _>>().ok()?;
    (!all.is_empty()).then_some(all)
}

/// Joins the files of a Secret as [`Identity`] does, for certificates that only `ZooKeeper` uses. What is as it was is not
/// written again: `ZooKeeper` reads what changes.
///
/// # Errors
/// If a file cannot be read or written, or key and certificate do not go together, as for a moment while a Secret changes.
pub fn join(folder: &Path, joined: &Path, trust: &Path) -> io::Result<()> {
    let (certificate, key) = (std::fs::read(folder.join("tls.crt"))?, std::fs::read(folder.join("tls.key"))?);
    let content = [key.as_slice(), b"\n", &certificate].concat();
    let holds = |path: &Path, content: &[u8]| std::fs::read(path).is_ok_and(|known| known == content);
    // It is looked for a change every few seconds: what was taken was a pair.
    let authorities = std::fs::read(folder.join("ca.crt"))?;
    if !holds(joined, &content) || !holds(trust, &authorities) {
        client_certificates::check(&certificate, &key, &authorities).map_err(io::Error::other)?;
    }
    for (path, content) in [(trust, authorities), (joined, content)] {
        if holds(path, &content) {
            continue;
        }
        volume::write(path, &content, 0o600)?;
    }
    Ok(())
}

/// Believes whoever shows a certificate of the authority, whatever its name.
#[derive(Debug)]
struct ByAuthority {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ByAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            self.provider.signature_verification_algorithms.all,
        )?;
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

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use k8s_openapi::jiff::{SignedDuration, Timestamp};

    use super::*;
    use crate::runtime::pki;

    #[test]
    fn only_a_pair_is_taken() {
        let folder = std::env::temp_dir().join(format!("mczk-join-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (joined, trust) = (folder.join("joined.pem"), folder.join("trust.pem"));
        let (now, life) = (Timestamp::now(), SignedDuration::from_hours(1));
        let authority = pki::authority("a", now, life).unwrap();
        let issue = || pki::identity("i", (&authority.certificate, &authority.key), now, life).unwrap();
        let (first, second) = (issue(), issue());
        let put = |certificate: &str, key: &str| {
            std::fs::write(folder.join("ca.crt"), &authority.certificate).unwrap();
            std::fs::write(folder.join("tls.crt"), certificate).unwrap();
            std::fs::write(folder.join("tls.key"), key).unwrap();
            join(&folder, &joined, &trust)
        };
        put(&first.certificate, &first.key).unwrap();
        let before = std::fs::read_to_string(&joined).unwrap();
        assert!(before.contains(&first.certificate) && before.contains(&first.key));
        // Half of a change.
        put(&second.certificate, &first.key).unwrap_err();
        put("no certificate", &first.key).unwrap_err();
        assert_eq!(std::fs::read_to_string(&joined).unwrap(), before);
        put(&second.certificate, &second.key).unwrap();
        assert!(std::fs::read_to_string(&joined).unwrap().contains(&second.certificate));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
