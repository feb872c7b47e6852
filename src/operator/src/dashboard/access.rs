//! Who may see the page's data: the user who started `mczk dashboard`, or users of the cluster by their tokens.

use std::{
    convert::Infallible,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use axum::{
    extract::{ConnectInfo, FromRequestParts},
    http::{HeaderMap, header, request::Parts},
};
use kube::Client;
use sha2::{Digest, Sha256};

use super::{refusal::PageRefusal, reviews::Reviews};

/// Longest token. Tokens of service accounts have about 1 KiB.
const MAX_TOKEN_BYTES: usize = 16 << 10;

/// Who may see what.
#[derive(Clone)]
pub struct Access(Arc<AccessKind>);

/// Who asks.
#[derive(Clone)]
pub struct Caller {
    token: Option<String>,
    /// Address of the connection, which may be that of a proxy.
    address: IpAddr,
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let address = parts.extensions.get::<ConnectInfo<IpAddr>>();
        // Without an address, all callers count as one.
        let address = address.map_or(Ipv4Addr::UNSPECIFIED.into(), |ConnectInfo(address)| *address);
        Ok(Self { token: bearer(&parts.headers).map(str::to_owned), address })
    }
}

enum AccessKind {
    /// One token opens everything, on this machine alone.
    Local { digest: [u8; 32], port: u16 },
    /// The API server decides.
    Cluster(Box<Reviews>),
}

impl Access {
    /// The holder of the token, on this machine.
    #[must_use]
    pub fn local(token: &str, port: u16) -> Self {
        Self(Arc::new(AccessKind::Local { digest: Sha256::digest(token).into(), port }))
    }

    /// Users of the cluster, as the API server of this client decides.
    #[must_use]
    pub fn cluster(client: Client) -> Self {
        Self(Arc::new(AccessKind::Cluster(Box::new(Reviews::new(client)))))
    }

    /// Refuses a request whose host is not this machine, if the page is only for this machine. A browser follows a name
    /// of a foreign page to any address, and then takes the answers for that page's own.
    ///
    /// # Errors
    /// [`PageRefusal::Host`].
    pub(super) fn check_host(&self, headers: &HeaderMap) -> Result<(), PageRefusal> {
        let AccessKind::Local { port, .. } = &*self.0 else { return Ok(()) };
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let here = ["127.0.0.1", "localhost"].iter().any(|name| host == format!("{name}:{port}"));
        if here { Ok(()) } else { Err(PageRefusal::Host) }
    }

    /// Refuses a request whose token does not open the namespace, `None` for all namespaces.
    ///
    /// # Errors
    /// Why the request gets no data.
    pub async fn check(&self, caller: &Caller, namespace: Option<&str>) -> Result<(), PageRefusal> {
        let token = caller.token.as_deref().ok_or(PageRefusal::Token)?;
        match &*self.0 {
            // Digests show nothing about the token by the time that their comparison takes.
            AccessKind::Local { digest, .. } if <[u8; 32]>::from(Sha256::digest(token)) == *digest => Ok(()),
            AccessKind::Local { .. } => Err(PageRefusal::Token),
            AccessKind::Cluster(reviews) => reviews.check(token, caller.address, namespace).await,
        }
    }
}

/// The token of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    let usable = scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= MAX_TOKEN_BYTES;
    usable.then_some(token)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    fn caller(headers: &HeaderMap) -> Caller {
        Caller { token: bearer(headers).map(str::to_owned), address: Ipv4Addr::LOCALHOST.into() }
    }

    #[rstest]
    #[case("127.0.0.1:4000", true)]
    #[case("localhost:4000", true)]
    #[case("127.0.0.1", false)]
    #[case("127.0.0.1:4001", false)]
    #[case("attacker.example:4000", false)]
    #[case("localhost.attacker.example:4000", false)]
    #[case("", false)]
    fn hosts(#[case] host: &str, #[case] accepted: bool) {
        let checked = Access::local("t", 4000).check_host(&headers(header::HOST, host));
        assert_eq!(checked, if accepted { Ok(()) } else { Err(PageRefusal::Host) });
    }

    #[test]
    fn without_a_host_nothing_is_served() {
        assert_eq!(Access::local("t", 4000).check_host(&HeaderMap::new()), Err(PageRefusal::Host));
    }

    #[rstest]
    #[case(Some("Bearer secret"), true)]
    #[case(Some("bearer secret"), true)]
    #[case(Some("Bearer secre"), false)]
    #[case(Some("Bearer "), false)]
    #[case(Some("Basic secret"), false)]
    #[case(None, false)]
    #[tokio::test]
    async fn the_local_token(#[case] value: Option<&str>, #[case] accepted: bool) {
        let headers = value.map(|value| headers(header::AUTHORIZATION, value)).unwrap_or_default();
        let checked = Access::local("secret", 1).check(&caller(&headers), None).await;
        assert_eq!(checked, if accepted { Ok(()) } else { Err(PageRefusal::Token) });
    }

    #[test]
    fn a_token_is_bounded() {
        let long = "a".repeat(MAX_TOKEN_BYTES + 1);
        assert_eq!(bearer(&headers(header::AUTHORIZATION, &format!("Bearer {long}"))), None);
    }
}
