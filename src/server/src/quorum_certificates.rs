//! The quorum's certificates: mutual TLS 1.3 under the incarnation's authority. The authority is the credential. Names in
//! certificates have no meaning, since one identity serves the whole ensemble.
//!
//! The server polls the files of the Secret and writes them in `ZooKeeper`'s form.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
    version::TLS13,
};
use sha2::{Digest, Sha256};
use tokio::{
    sync::Mutex,
    time::{sleep, timeout},
};

use mczk_api::contract::loaded_certificates::Loaded;
use mczk_runtime::atomic_file;
use mczk_runtime::{authority_verifier::AuthorityVerifier, shutdown::Shutdown, tls::Serving};

/// Time in which `ZooKeeper` loads changed certificates. It does not report when it has loaded them (measured: under 4 s).
const ZOOKEEPER_RELOAD: Duration = Duration::from_secs(20);
/// Interval of attempts until there are certificates.
const RETRY: Duration = Duration::from_secs(2);

/// Certificates of the quorum.
#[derive(Debug)]
pub struct QuorumCertificates {
    folder: PathBuf,
    /// Key and certificate chain in one file, for `ZooKeeper`.
    joined: PathBuf,
    /// Authorities, for `ZooKeeper`.
    trust: PathBuf,
    current: ArcSwapOption<Current>,
    /// Held during a reload. The start of `ZooKeeper` reloads too, and the two must not write at the same time.
    reloading: Mutex<()>,
}

#[derive(Debug)]
struct Current {
    digest: [u8; 32],
    loaded: Loaded,
    /// Time of the change. `None` for the first certificates, which are there before `ZooKeeper` starts.
    changed: Option<Instant>,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

/// Cause of refused certificates.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file holds nothing of the required kind.
    #[error("{} holds no {what} in PEM", path.display())]
    Empty {
        /// Path of the file.
        path: PathBuf,
        /// What the file should hold.
        what: &'static str,
    },
    /// Key and certificate do not match, or TLS 1.3 cannot use them.
    #[error("the certificates cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
    /// The authorities cannot verify clients.
    #[error("the authorities cannot be used: {0}")]
    Authorities(#[from] rustls::server::VerifierBuilderError),
}

impl QuorumCertificates {
    /// The certificates in `folder`. `ZooKeeper` reads them from `joined` and `trust`.
    #[must_use]
    pub const fn new(folder: PathBuf, joined: PathBuf, trust: PathBuf) -> Self {
        Self { folder, joined, trust, current: ArcSwapOption::const_empty(), reloading: Mutex::const_new(()) }
    }

    /// Reads the files and takes new certificates if they are usable. True if the certificates changed.
    ///
    /// # Errors
    /// If new certificates are unusable. The former ones stay.
    pub async fn reload(&self) -> Result<bool, Error> {
        let _exclusive = self.reloading.lock().await;
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
        if self.current.load().as_ref().is_some_and(|current| current.digest == digest) {
            return Ok(false);
        }
        let mut new = self.parse(digest, &certificate, &key, &authorities)?;
        let joined = [key.as_slice(), b"\n", &certificate].concat();
        for (path, content) in [(&self.trust, &authorities), (&self.joined, &joined)] {
            atomic_file::write(path, content, 0o600).map_err(|source| Error::File { path: path.clone(), source })?;
        }
        new.changed = self.current.load().is_some().then(Instant::now);
        self.current.store(Some(Arc::new(new)));
        Ok(true)
    }

    /// Reloads until there are certificates.
    pub async fn wait(&self) {
        let mut logged = false;
        while let Err(error) = self.reload().await {
            if !logged {
                tracing::warn!(%error, "no certificates of the quorum yet");
                logged = true;
            }
            sleep(RETRY).await;
        }
    }

    /// Reloads every `period` until shutdown.
    pub async fn reload_every(self: Arc<Self>, period: Duration, shutdown: Shutdown) {
        let shutdown = shutdown.requested();
        tokio::pin!(shutdown);
        let mut logged = String::new();
        while timeout(period, &mut shutdown).await.is_err() {
            match self.reload().await {
                Ok(true) => tracing::info!(folder = %self.folder.display(), "loaded new certificates"),
                Ok(false) => logged.clear(),
                Err(error) => {
                    let error = error.to_string();
                    if error != logged {
                        tracing::error!(error, "refused new certificates; the former ones stay");
                        logged = error;
                    }
                }
            }
        }
    }

    /// TLS configuration for connections to other servers, if there are certificates.
    #[must_use]
    pub fn client_config(&self) -> Option<Arc<ClientConfig>> {
        self.current.load().as_ref().map(|current| current.client.clone())
    }

    /// The certificates that both this process and `ZooKeeper` have loaded. `None` while `ZooKeeper` may still load them.
    #[must_use]
    pub fn loaded(&self) -> Option<Loaded> {
        let current = self.current.load();
        let current = current.as_ref()?;
        current.changed.is_none_or(|since| since.elapsed() > ZOOKEEPER_RELOAD).then(|| current.loaded.clone())
    }

    fn parse(&self, digest: [u8; 32], certificate: &[u8], key: &[u8], authorities: &[u8]) -> Result<Current, Error> {
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
            .with_custom_certificate_verifier(Arc::new(AuthorityVerifier::new(roots, provider)?))
            .with_client_auth_cert(chain, key)?;
        client.alpn_protocols = vec![b"http/1.1".to_vec()];
        let loaded = Loaded::of(certificate, authorities).ok_or_else(|| empty("tls.crt", "certificate"))?;
        Ok(Current { digest, loaded, changed: None, server: Arc::new(server), client: Arc::new(client) })
    }
}

impl Serving for QuorumCertificates {
    fn server_config(&self) -> Option<Arc<ServerConfig>> {
        self.current.load().as_ref().map(|current| current.server.clone())
    }
}

fn certificates(text: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(text).collect::<Result<_, _>>().ok()?;
    (!all.is_empty()).then_some(all)
}
