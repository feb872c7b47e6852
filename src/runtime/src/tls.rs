//! The webhook's certificate: read and checked as a pair with its key, and replaced while connections continue.
//!
//! Files in the volume of a Secret change by a symbolic link two folders above, which a watch of the files does not
//! notice. So their content is read periodically.

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

use crate::{pki, shutdown::Shutdown, telemetry::register_family};
use mczk_api::contract::certificate_expiry::Validity;

/// Files of the pair.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The certificate, followed by intermediate certificates, in PEM.
    pub certificate: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
}

/// Why a pair is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A file lacks its content.
    #[error("{} holds no {what} in PEM", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// The missing content.
        what: &'static str,
    },
    /// The certificate does not parse.
    #[error("{} holds a certificate that does not parse", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
    },
    /// Certificate and key do not match, or TLS 1.3 does not support the kind of key.
    #[error("certificate and key are not a pair that TLS 1.3 can use: {0}")]
    Pair(#[from] rustls::Error),
    /// The certificate has expired.
    #[error("the certificate expired at {0}")]
    Expired(Timestamp),
}

/// Source of the TLS configuration of connections.
pub trait Serving: std::fmt::Debug + Send + Sync {
    /// Configuration of the next connection. `None` while there are no certificates: the connection is then refused.
    fn server_config(&self) -> Option<Arc<ServerConfig>>;
}

/// Counters of certificates.
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
    /// Registers the counters.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self { not_after: Gauge::default(), reloads: Family::default() };
        registry.register(
            "mczk_webhook_certificate_not_after_timestamp_seconds",
            "End of the validity of the webhook's certificate, in seconds since 1970",
            metrics.not_after.clone(),
        );
        register_family(
            registry,
            "mczk_webhook_certificate_reloads",
            "Changes of the certificate files, by result: `swapped` if the new pair is served, `refused` if not",
            metrics.reloads.clone(),
        );
        metrics
    }
}

/// The pair that is served.
#[derive(Debug)]
pub struct Certificates {
    files: CertificateFiles,
    metrics: Metrics,
    current: ArcSwap<Pair>,
}

#[derive(Debug)]
struct Pair {
    config: Arc<ServerConfig>,
    validity: Validity,
    digest: Contents,
}

/// Digest of both files, or why one cannot be read. It changes with the files, so that each change is logged only once.
type Contents = Result<[u8; 32], String>;

impl Certificates {
    /// Reads the pair for the first time. An expired one is accepted with a warning: a valid one replaces it later, and
    /// a process that does not start would not help.
    ///
    /// # Errors
    /// If the pair cannot be served.
    pub async fn load(files: CertificateFiles, metrics: Metrics) -> Result<Self, Error> {
        let pair = Pair::parse(&files, &Text::read(&files).await?)?;
        if pair.validity.end <= Timestamp::now() {
            tracing::warn!(not_after = %pair.validity.end, "The certificate of the webhook has expired: Karmada refuses it. Renew it");
        }
        metrics.not_after.set(pair.validity.end.as_second());
        Ok(Self { files, metrics, current: ArcSwap::from_pointee(pair) })
    }

    /// End of the validity of the certificate that is served.
    #[must_use]
    pub fn not_after(&self) -> Timestamp {
        self.validity().end
    }

    /// Validity of the certificate that is served.
    #[must_use]
    pub fn validity(&self) -> Validity {
        self.current.load().validity
    }

    /// Reads the files every `period` until the shutdown is requested.
    pub async fn follow(self: Arc<Self>, period: Duration, shutdown: Shutdown) {
        let shutdown = shutdown.requested();
        tokio::pin!(shutdown);
        let mut last = self.current.load().digest.clone();
        while tokio::time::timeout(period, &mut shutdown).await.is_err() {
            self.reload(&mut last).await;
        }
    }

    /// Reads the files once, and serves a pair that is new and valid. `last` is the result of the last read.
    async fn reload(&self, last: &mut Contents) {
        let text = Text::read(&self.files).await;
        let contents = text.as_ref().map(Text::digest).map_err(ToString::to_string);
        if contents == *last {
            return;
        }
        let serving = self.current.load().digest == contents;
        *last = contents;
        if serving {
            return;
        }
        let pair = text.and_then(|text| Pair::parse(&self.files, &text)).and_then(|pair| {
            if pair.validity.end <= Timestamp::now() { Err(Error::Expired(pair.validity.end)) } else { Ok(pair) }
        });
        match pair {
            Ok(pair) => {
                tracing::info!(not_after = %pair.validity.end, "New certificate of the webhook");
                self.metrics.not_after.set(pair.validity.end.as_second());
                self.metrics.reloads.get_or_create(&ReloadLabels { result: "swapped" }).inc();
                self.current.store(Arc::new(pair));
            }
            Err(error) => {
                tracing::error!(%error, until = %self.not_after(), "Cannot use the new certificate files: the old certificate stays");
                self.metrics.reloads.get_or_create(&ReloadLabels { result: "refused" }).inc();
            }
        }
    }
}

impl Serving for Certificates {
    /// TLS 1.3, HTTP/1.1. A new pair has its own configuration, so that no session of the old one is resumed under it.
    fn server_config(&self) -> Option<Arc<ServerConfig>> {
        Some(self.current.load().config.clone())
    }
}

/// True if the texts are a pair that can be served.
#[must_use]
pub fn is_pair(certificate: &[u8], key: &[u8]) -> bool {
    let files = CertificateFiles { certificate: PathBuf::new(), key: PathBuf::new() };
    Pair::parse(&files, &Text { certificate: certificate.to_vec(), key: key.to_vec() }).is_ok()
}

/// Both files at one moment. If they were just being replaced, they may not be a pair.
struct Text {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Text {
    async fn read(files: &CertificateFiles) -> Result<Self, Error> {
        let read = async |path: &Path| {
            tokio::fs::read(path).await.map_err(|source| Error::Read { path: path.to_owned(), source })
        };
        Ok(Self { certificate: read(&files.certificate).await?, key: read(&files.key).await? })
    }

    fn digest(&self) -> [u8; 32] {
        // Separate digests, so that no byte can move from one file to the other unnoticed.
        Sha256::new()
            .chain_update(Sha256::digest(&self.certificate))
            .chain_update(Sha256::digest(&self.key))
            .finalize()
            .into()
    }
}

impl Pair {
    fn parse(files: &CertificateFiles, text: &Text) -> Result<Self, Error> {
        let (at, key_at) = (&files.certificate, &files.key);
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&text.certificate)
            .collect::<Result<_, _>>()
            .map_err(|_| Error::Certificate { path: at.clone() })?;
        let leaf = chain.first().ok_or_else(|| Error::Empty { path: at.clone(), what: "certificate" })?;
        let validity = pki::validity(leaf).map_err(|_| Error::Certificate { path: at.clone() })?;
        let key = PrivateKeyDer::from_pem_slice(&text.key)
            .map_err(|_| Error::Empty { path: key_at.clone(), what: "private key" })?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        // Not h2: Karmada uses it only for loopback URLs, so tests would differ from production.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Clients keep their sessions, so that thousands of hostile ones cannot displace Karmada's from a cache.
        config.ticketer = aws_lc_rs::Ticketer::new()?;
        config.send_tls13_tickets = 1;
        Ok(Self { config: Arc::new(config), validity, digest: Ok(text.digest()) })
    }
}
