//! The client of the control API ([`mczk_api::contract::control_api`]), over mutual TLS under the incarnation's authority, or in
//! plain text if the quorum has no certificates.
//!
//! The authority alone is the credential, as between servers. The client does not check names in certificates.

use std::{sync::Arc, time::Duration};

use axum::http::{Method, Request, StatusCode, header};
use futures::future::BoxFuture;
use hyper::body::Bytes;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    version::TLS13,
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

use mczk_api::{
    contract::control_api::{Configuration, NOT_LISTED, Problem, Reconfiguration, RestartLock, ServerReport},
    zookeeper::{Ensemble, FirstStart},
};
use mczk_rules::agent::render::material::Material;
use mczk_runtime::{authority_verifier::AuthorityVerifier, exchange::exchange};

/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of a poll and of the restart lock.
const POLL_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a membership step.
const STEP_TIMEOUT: Duration = Duration::from_secs(40);

/// Why a request to a server failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The agent cannot reach the server.
    #[error("{server} cannot be reached: {why}")]
    Unreachable {
        /// Host of the server.
        server: String,
        /// The cause.
        why: String,
    },
    /// The server refused the request.
    #[error("{server} refuses ({}): {}", problem.reason, problem.message)]
    Refused {
        /// Host of the server.
        server: String,
        /// The cause.
        problem: Problem,
    },
    /// The answer does not parse.
    #[error("the answer of {server} does not parse: {why}")]
    Unreadable {
        /// Host of the server.
        server: String,
        /// The cause.
        why: String,
    },
    /// The agent cannot use the certificates.
    #[error("The agent cannot use the certificates of the quorum: {0}. Replace the authority of the quorum")]
    Certificates(String),
}

impl Error {
    /// True if the ensemble's server list does not ask for the step.
    pub(super) fn is_unlisted(&self) -> bool {
        matches!(self, Self::Refused { problem, .. } if problem.reason == NOT_LISTED)
    }
}

/// Requests to servers. A server is named by its host: an address, or a name that resolves in this cluster.
pub trait Servers: Send + Sync {
    /// Reads the server's report.
    fn view<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<ServerReport, Error>>;
    /// Reconfigures the ensemble through this server.
    fn reconfigure<'a>(
        &'a self,
        host: &'a str,
        step: &'a Reconfiguration,
    ) -> BoxFuture<'a, Result<Configuration, Error>>;
    /// Publishes a server list in the ensemble.
    fn publish<'a>(&'a self, host: &'a str, list: &'a Ensemble) -> BoxFuture<'a, Result<Configuration, Error>>;
    /// Names the volume that is recorded for the server's first start.
    fn record_first_start<'a>(&'a self, host: &'a str, first: &'a FirstStart) -> BoxFuture<'a, Result<(), Error>>;
    /// Acquires the restart lock, or confirms it.
    fn acquire_lock<'a>(&'a self, host: &'a str, lock: &'a RestartLock) -> BoxFuture<'a, Result<(), Error>>;
    /// Releases the restart lock.
    fn release_lock<'a>(&'a self, host: &'a str, lock: &'a RestartLock) -> BoxFuture<'a, Result<(), Error>>;
}

/// Creates the client for one ensemble, with its certificates or without.
pub type Dial = Arc<dyn Fn(Option<&Material>) -> Result<Arc<dyn Servers>, Error> + Send + Sync>;

/// The client for servers that listen on this port.
#[must_use]
pub fn dial(port: u16) -> Dial {
    Arc::new(move |material| {
        let tls = material.map(tls).transpose()?;
        Ok(Arc::new(Client { port, tls }) as Arc<dyn Servers>)
    })
}

struct Client {
    port: u16,
    tls: Option<TlsConnector>,
}

impl Client {
    async fn request<T: Serialize + Sync + ?Sized, A: DeserializeOwned>(
        &self,
        host: &str,
        method: Method,
        path: &str,
        body: Option<&T>,
        limit: Duration,
    ) -> Result<A, Error> {
        let (status, bytes) = match timeout(limit, self.exchange(host, method, path, body)).await {
            Ok(answer) => answer?,
            Err(_) => return Err(unreachable(host, format!("no answer in {} s", limit.as_secs()))),
        };
        let unreadable =
            |error: serde_json::Error| Error::Unreadable { server: host.to_owned(), why: error.to_string() };
        if status.is_success() {
            let bytes = if bytes.is_empty() { &b"null"[..] } else { &bytes };
            return serde_json::from_slice(bytes).map_err(unreadable);
        }
        let problem = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Problem { reason: status.as_str().to_owned(), message: "no reason given".to_owned() });
        Err(Error::Refused { server: host.to_owned(), problem })
    }

    async fn exchange<T: Serialize + Sync + ?Sized>(
        &self,
        host: &str,
        method: Method,
        path: &str,
        body: Option<&T>,
    ) -> Result<(StatusCode, Bytes), Error> {
        let body = match body {
            Some(body) => serde_json::to_vec(body)
                .map_err(|error| Error::Unreadable { server: host.to_owned(), why: error.to_string() })?,
            None => Vec::new(),
        };
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
        exchange(self.connect(host).await?, self.tls.as_ref(), host, request, body)
            .await
            .map_err(|error| unreachable(host, error.to_string()))
    }

    async fn connect(&self, host: &str) -> Result<TcpStream, Error> {
        match timeout(CONNECT_TIMEOUT, TcpStream::connect((host, self.port))).await {
            Ok(stream) => stream.map_err(|error| unreachable(host, error.to_string())),
            Err(_) => Err(unreachable(host, format!("no connection in {} s", CONNECT_TIMEOUT.as_secs()))),
        }
    }
}

fn unreachable(host: &str, why: String) -> Error {
    Error::Unreachable { server: host.to_owned(), why }
}

impl Servers for Client {
    fn view<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<ServerReport, Error>> {
        Box::pin(self.request(host, Method::GET, "/v1/server", None::<&()>, POLL_TIMEOUT))
    }

    fn reconfigure<'a>(
        &'a self,
        host: &'a str,
        step: &'a Reconfiguration,
    ) -> BoxFuture<'a, Result<Configuration, Error>> {
        Box::pin(self.request(host, Method::POST, "/v1/reconfigure", Some(step), STEP_TIMEOUT))
    }

    fn publish<'a>(&'a self, host: &'a str, list: &'a Ensemble) -> BoxFuture<'a, Result<Configuration, Error>> {
        Box::pin(self.request(host, Method::POST, "/v1/server-list", Some(list), STEP_TIMEOUT))
    }

    fn record_first_start<'a>(&'a self, host: &'a str, first: &'a FirstStart) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.request(host, Method::POST, "/v1/first-start", Some(first), POLL_TIMEOUT))
    }

    fn acquire_lock<'a>(&'a self, host: &'a str, lock: &'a RestartLock) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            self.request::<_, serde::de::IgnoredAny>(host, Method::POST, "/v1/restart-lock", Some(lock), POLL_TIMEOUT)
                .await
                .map(drop)
        })
    }

    fn release_lock<'a>(&'a self, host: &'a str, lock: &'a RestartLock) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            self.request::<_, serde::de::IgnoredAny>(host, Method::DELETE, "/v1/restart-lock", Some(lock), POLL_TIMEOUT)
                .await
                .map(drop)
        })
    }
}

fn tls(material: &Material) -> Result<TlsConnector, Error> {
    let refused = |error: &dyn std::fmt::Display| Error::Certificates(error.to_string());
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(material.certificate.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| refused(&error))?;
    let key = PrivateKeyDer::from_pem_slice(material.key.as_bytes()).map_err(|error| refused(&error))?;
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(material.authorities.as_bytes()) {
        roots.add(authority.map_err(|error| refused(&error))?).map_err(|error| refused(&error))?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = AuthorityVerifier::new(Arc::new(roots), provider.clone()).map_err(|error| refused(&error))?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| refused(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_auth_cert(chain, key)
        .map_err(|error| refused(&error))?;
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use axum::{Json, Router, routing::get, routing::post};
    use hyper_util::rt::TokioIo;
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls::{ServerConfig, server::WebPkiClientVerifier};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tower::ServiceExt as _;

    use super::*;

    async fn locked(_: Json<RestartLock>) -> StatusCode {
        StatusCode::NO_CONTENT
    }

    fn router() -> Router {
        let refuse =
            (StatusCode::CONFLICT, Json(Problem { reason: "stale".into(), message: "another configuration".into() }));
        Router::new()
            .route(
                "/v1/server-list",
                post(async |_: Json<Ensemble>| Json(Configuration { version: 7, servers: vec![] })),
            )
            .route("/v1/restart-lock", post(locked).delete(locked))
            .route("/v1/reconfigure", post(async move |_: Json<Reconfiguration>| refuse))
            .route("/v1/server", get(async || "no JSON"))
    }

    async fn serve(acceptor: Option<TlsAcceptor>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let service = hyper::service::service_fn(|request| router().oneshot(request));
                    let http = hyper::server::conn::http1::Builder::new();
                    match acceptor {
                        None => drop(http.serve_connection(TokioIo::new(stream), service).await),
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                drop(http.serve_connection(TokioIo::new(stream), service).await);
                            }
                        }
                    }
                });
            }
        });
        port
    }

    #[tokio::test]
    async fn answers_are_parsed() {
        let client = dial(serve(None).await)(None).unwrap();
        assert_eq!(client.publish("127.0.0.1", &Ensemble::default()).await.unwrap().version, 7);
        let lock = RestartLock { holder: "m1".into(), server: 1 };
        client.acquire_lock("127.0.0.1", &lock).await.unwrap();
        client.release_lock("127.0.0.1", &lock).await.unwrap();
        let step = Reconfiguration { epoch: 1, from_version: 1, add: None, remove: Some(1) };
        let refused = client.reconfigure("127.0.0.1", &step).await.unwrap_err();
        assert_eq!(refused.to_string(), "127.0.0.1 refuses (stale): another configuration");
        assert!(matches!(client.view("127.0.0.1").await, Err(Error::Unreadable { .. })));
    }

    #[tokio::test]
    async fn an_absent_server_is_unreachable() {
        // No program listens on port 1.
        let client = dial(1)(None).unwrap();
        assert!(matches!(client.view("127.0.0.1").await, Err(Error::Unreachable { .. })));
    }

    fn authority() -> CertifiedIssuer<'static, KeyPair> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    fn material(signer: &CertifiedIssuer<'static, KeyPair>, trusted: &CertifiedIssuer<'static, KeyPair>) -> Material {
        let key = KeyPair::generate().unwrap();
        // The client requests another name.
        let certificate =
            CertificateParams::new(vec!["incarnation.mczk.io".into()]).unwrap().signed_by(&key, signer).unwrap();
        Material { certificate: certificate.pem(), key: key.serialize_pem(), authorities: trusted.pem() }
    }

    #[tokio::test]
    async fn the_authority_is_the_credential() {
        let (ours, other) = (authority(), authority());
        let server = material(&ours, &ours);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(server.authorities.as_bytes()).unwrap()).unwrap();
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(server.certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(server.key.as_bytes()).unwrap(),
            )
            .unwrap();
        let dial = dial(serve(Some(TlsAcceptor::from(Arc::new(config)))).await);
        for host in ["127.0.0.1", "localhost"] {
            let client = dial(Some(&material(&ours, &ours))).unwrap();
            client.publish(host, &Ensemble::default()).await.unwrap();
        }
        // Certificates of another incarnation: client and server do not trust each other.
        for wrong in [material(&ours, &other), material(&other, &ours)] {
            let client = dial(Some(&wrong)).unwrap();
            assert!(client.publish("127.0.0.1", &Ensemble::default()).await.is_err());
        }
        let broken = Material { key: "no key".into(), ..material(&ours, &ours) };
        assert!(matches!(dial(Some(&broken)), Err(Error::Certificates(_))));
    }
}
