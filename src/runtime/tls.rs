//! The serving certificate: read as a pair, checked as a pair, and swapped whole while connections go on.
//!
//! Files in a Secret's volume change by a symbolic link that is replaced two folders above, which a watch of the files
//! does not see. So their content is read again from time to time.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    version::TLS13,
};
use sha2::{Digest, Sha256};

use crate::runtime::shutdown::Shutdown;

/// Where the pair is.
#[derive(Clone, Debug)]
pub struct Files {
    /// The certificate, and after it those that lead to the authority, in PEM.
    pub certificate: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
}

/// Why a pair is not taken.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
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
    /// The certificate is none.
    #[error("{} holds a certificate that does not parse", path.display())]
    Certificate {
        /// Where.
        path: PathBuf,
    },
    /// Certificate and key do not go together, or the key is of a kind that TLS 1.3 does not have.
    #[error("certificate and key are no pair that TLS 1.3 can use: {0}")]
    Pair(#[from] rustls::Error),
    /// The certificate ended.
    #[error("the certificate ended at {0}")]
    Expired(Timestamp),
}

/// What connections are served with.
pub trait Serving: std::fmt::Debug + Send + Sync {
    /// How the next connection is served; `None` while there are no certificates, and nobody is served.
    fn server_config(&self) -> Option<Arc<ServerConfig>>;
}

/// What is counted of certificates.
#[derive(Clone, Debug)]
pub struct Metrics {
    not_after: Gauge,
    reloads: Family<ReloadLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReloadLabels {
    result: &'static str,
}

impl Metrics {
    /// Registers them.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self { not_after: Gauge::default(), reloads: Family::default() };
        registry.register(
            "mczk_webhook_certificate_not_after_timestamp_seconds",
            "When the serving certificate ends, in seconds since 1970",
            metrics.not_after.clone(),
        );
        registry.register(
            "mczk_webhook_certificate_reloads",
            "Changes of the certificate's files, by whether the new pair was taken or refused",
            metrics.reloads.clone(),
        );
        metrics
    }
}

/// The pair that is served now.
#[derive(Debug)]
pub struct Certificates {
    files: Files,
    metrics: Metrics,
    current: ArcSwap<Pair>,
}

#[derive(Debug)]
struct Pair {
    config: Arc<ServerConfig>,
    not_after: Timestamp,
    digest: Contents,
}

/// Tells whether files are still the same; also if one of them cannot be read, so that this is said once and not at every
/// look.
type Contents = Result<[u8; 32], String>;

impl Certificates {
    /// Reads the pair for the first time. One that ended is taken with a warning: its successor is swapped in later, and a
    /// process that does not start would do no better.
    ///
    /// # Errors
    /// If it cannot be served.
    pub async fn load(files: Files, metrics: Metrics) -> Result<Self, Error> {
        let pair = Pair::parse(&files, &Text::read(&files).await?)?;
        if pair.not_after <= Timestamp::now() {
            tracing::warn!(not_after = %pair.not_after, "the serving certificate has ended: Karmada will refuse it");
        }
        metrics.not_after.set(pair.not_after.as_second());
        Ok(Self { files, metrics, current: ArcSwap::from_pointee(pair) })
    }

    /// When the pair that is served now ends.
    #[must_use]
    pub fn not_after(&self) -> Timestamp {
        self.current.load().not_after
    }

    /// Looks at the files every `period`, until it is time to end.
    pub async fn follow(self: Arc<Self>, period: Duration, shutdown: Shutdown) {
        let shutdown = shutdown.requested();
        tokio::pin!(shutdown);
        let mut seen = self.current.load().digest.clone();
        while tokio::time::timeout(period, &mut shutdown).await.is_err() {
            self.look(&mut seen).await;
        }
    }

    /// Looks once, and swaps if there is something new and sound. `seen` is what the last look found.
    async fn look(&self, seen: &mut Contents) {
        let text = Text::read(&self.files).await;
        let contents = text.as_ref().map(Text::digest).map_err(ToString::to_string);
        if contents == *seen {
            return;
        }
        let serving = self.current.load().digest == contents;
        *seen = contents;
        if serving {
            return;
        }
        let pair = text.and_then(|text| Pair::parse(&self.files, &text)).and_then(|pair| {
            if pair.not_after <= Timestamp::now() { Err(Error::Expired(pair.not_after)) } else { Ok(pair) }
        });
        match pair {
            Ok(pair) => {
                tracing::info!(not_after = %pair.not_after, "a new serving certificate");
                self.metrics.not_after.set(pair.not_after.as_second());
                self.metrics.reloads.get_or_create(&ReloadLabels { result: "swapped" }).inc();
                self.current.store(Arc::new(pair));
            }
            Err(error) => {
                tracing::error!(%error, until = %self.not_after(), "the new serving certificate is not taken; the old one stays");
                self.metrics.reloads.get_or_create(&ReloadLabels { result: "refused" }).inc();
            }
        }
    }
}

impl Serving for Certificates {
    /// TLS 1.3, HTTP/1.1. A new pair comes as a new configuration, so that no session of the old one is resumed under it.
    fn server_config(&self) -> Option<Arc<ServerConfig>> {
        Some(self.current.load().config.clone())
    }
}

/// Both files as they were at one look; perhaps not of one pair, if they were being replaced.
struct Text {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Text {
    async fn read(files: &Files) -> Result<Self, Error> {
        let read = async |path: &Path| {
            tokio::fs::read(path).await.map_err(|source| Error::Read { path: path.to_owned(), source })
        };
        Ok(Self { certificate: read(&files.certificate).await?, key: read(&files.key).await? })
    }

    fn digest(&self) -> [u8; 32] {
        // Each by itself, so that no byte can move from one to the other unseen.
        Sha256::new()
            .chain_update(Sha256::digest(&self.certificate))
            .chain_update(Sha256::digest(&self.key))
            .finalize()
            .into()
    }
}

impl Pair {
    fn parse(files: &Files, text: &Text) -> Result<Self, Error> {
        let (at, key_at) = (&files.certificate, &files.key);
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&text.certificate)
            .collect::<Result<_, _>>()
            .map_err(|_| Error::Certificate { path: at.clone() })?;
        let leaf = chain.first().ok_or_else(|| Error::Empty { path: at.clone(), what: "certificate" })?;
        let (_, parsed) =
            x509_parser::parse_x509_certificate(leaf).map_err(|_| Error::Certificate { path: at.clone() })?;
        let not_after = Timestamp::from_second(parsed.validity().not_after.timestamp())
            .map_err(|_| Error::Certificate { path: at.clone() })?;
        let key = PrivateKeyDer::from_pem_slice(&text.key)
            .map_err(|_| Error::Empty { path: key_at.clone(), what: "private key" })?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        // Not h2: Karmada would take it for a loopback URL only, so a test would speak what production does not.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), not_after, digest: Ok(text.digest()) })
    }
}
