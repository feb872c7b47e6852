//! Whether the port for clients with TLS serves any client.
//!
//! `ZooKeeper` opens that port with settings that no connection can use: with a cipher suite that Java does not know, or with
//! versions of TLS that it has disabled. It serves on otherwise, so nothing else would show that it turns its clients away.

use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio::{
    fs,
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use mczk_runtime::authority_verifier::AuthorityVerifier;

/// Time limit of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Types of TLS records (RFC 8446, 5.1).
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;

/// Every cipher suite with encryption and authentication that Java has or had, without those that it removed before 17: a server
/// that takes none of them takes no client.
const CIPHER_SUITES: [u16; 55] = [
    0x1301, 0x1302, 0x1303, 0x1304, 0x1305, 0xc02c, 0xc02b, 0xcca9, 0xc030, 0xcca8, 0xc02f, 0x009f, 0xccaa, 0x00a3,
    0x009e, 0x00a2, 0xc024, 0xc028, 0xc023, 0xc027, 0x006b, 0x006a, 0x0067, 0x0040, 0xc02e, 0xc032, 0xc02d, 0xc031,
    0xc026, 0xc02a, 0xc025, 0xc029, 0xc00a, 0xc014, 0xc009, 0xc013, 0x0039, 0x0038, 0x0033, 0x0032, 0xc005, 0xc00f,
    0xc004, 0xc00e, 0x009d, 0x009c, 0x003d, 0x003c, 0x0035, 0x002f, 0xc008, 0xc012, 0x0016, 0x0013, 0x000a,
];
/// Elliptic curves and fields.
const GROUPS: [u16; 8] = [0x001d, 0x0017, 0x0018, 0x0019, 0x001e, 0x0100, 0x0101, 0x0102];
const SIGNATURES: [u16; 18] = [
    0x0403, 0x0503, 0x0603, 0x0807, 0x0808, 0x0804, 0x0805, 0x0806, 0x0809, 0x080a, 0x080b, 0x0401, 0x0501, 0x0601,
    0x0402, 0x0203, 0x0201, 0x0202,
];
/// TLS 1.3 to 1.0.
const VERSIONS: [u16; 4] = [0x0304, 0x0303, 0x0302, 0x0301];

/// Why a port turns away every client with TLS; `None` if it serves one. A client that offers all that Java knows asks.
///
/// # Errors
/// If the port is closed or does not answer in time: that tells nothing.
pub(crate) async fn turned_away(port: SocketAddr) -> Result<Option<String>, Error> {
    let answered =
        timeout(ANSWER_TIMEOUT, first_record(port)).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()));
    match answered {
        Ok([HANDSHAKE, ..]) => Ok(None),
        Ok([ALERT, _, _, _, _, _, alert]) => Ok(Some(format!("it answers each with the TLS alert {alert}"))),
        Ok(_) => Ok(Some("it speaks no TLS".to_owned())),
        Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
            Ok(Some("it closes each connection without an answer".to_owned()))
        }
        Err(error) => Err(error),
    }
}

/// Why a port refuses a client certificate that its own authority has issued: the server's own certificate, if it is one of a client
/// too. Such a port turns away every client that shows a certificate, for example because it cannot learn whether one was revoked. A
/// port that refuses it for another reason, or has no version of TLS that is known here, tells nothing.
///
/// # Errors
/// If the port is closed or does not answer in time, or the files cannot be read: that tells nothing.
pub(crate) async fn refuses_own(port: SocketAddr, identity: &Path, trust: &Path) -> Result<Option<String>, Error> {
    let Some(config) = as_client(&fs::read(identity).await?, &fs::read(trust).await?) else { return Ok(None) };
    let asked = async {
        let stream = TcpStream::connect(port).await?;
        let mut stream = TlsConnector::from(Arc::new(config)).connect(port.ip().into(), stream).await?;
        stream.write_all(b"ruok").await?;
        stream.read_exact(&mut [0; 4]).await.map(drop)
    };
    let error = timeout(ANSWER_TIMEOUT, asked).await?.err();
    let alert = error.as_ref().and_then(|error| error.get_ref()?.downcast_ref::<rustls::Error>());
    Ok(alert
        .filter(|alert| is_of_certificate(alert))
        .map(|alert| format!("it refuses a certificate of its own authority: {alert}")))
}

/// The configuration of a client with this identity, if the authorities accept it as one of a client.
fn as_client(identity: &[u8], trust: &[u8]) -> Option<ClientConfig> {
    let all = |pem| CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().ok();
    let (chain, key) = (all(identity)?, PrivateKeyDer::from_pem_slice(identity).ok()?);
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(all(trust)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().ok()?;
    let (own, intermediates) = chain.split_first()?;
    verifier.verify_client_cert(own, intermediates, UnixTime::now()).ok()?;
    ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .ok()?
        .dangerous()
        // The port is the server's own, and the connection carries nothing.
        .with_custom_certificate_verifier(Arc::new(AuthorityVerifier::without_authority(provider)))
        .with_client_auth_cert(chain, key)
        .ok()
}

/// True for the alerts by which a server refuses the certificate of a client (RFC 8446, 6.2).
const fn is_of_certificate(error: &rustls::Error) -> bool {
    use rustls::AlertDescription as Alert;
    matches!(
        error,
        rustls::Error::AlertReceived(
            Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::AccessDenied
                | Alert::CertificateRequired
                | Alert::BadCertificateStatusResponse
        )
    )
}

/// The begin of the first record that a port answers.
async fn first_record(port: SocketAddr) -> Result<[u8; 7], Error> {
    let mut stream = TcpStream::connect(port).await?;
    stream.write_all(&client_hello()).await?;
    let mut begin = [0; 7];
    stream.read_exact(&mut begin).await?;
    Ok(begin)
}

/// The first message of a client (RFC 8446, 4.1.2). It keeps no secret, so its random bytes are none.
fn client_hello() -> Vec<u8> {
    let numbers = |all: &[u16]| all.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>();
    let extension = |kind: u16, content: &[u8]| [&kind.to_be_bytes()[..], &with_length(2, content)].concat();
    let extensions = [
        extension(0x000a, &with_length(2, &numbers(&GROUPS))),
        extension(0x000b, &with_length(1, &[0])),
        extension(0x000d, &with_length(2, &numbers(&SIGNATURES))),
        extension(0x0017, &[]),
        extension(0x002b, &with_length(1, &numbers(&VERSIONS))),
        // Without a share the server names the group that it wants.
        extension(0x0033, &with_length(2, &[])),
        extension(0xff01, &with_length(1, &[])),
    ];
    let body = [
        vec![3, 3],
        vec![7; 32],
        with_length(1, &[7; 32]),
        with_length(2, &numbers(&CIPHER_SUITES)),
        with_length(1, &[0]),
        with_length(2, &extensions.concat()),
    ];
    let message = [vec![1], with_length(3, &body.concat())].concat();
    [vec![HANDSHAKE, 3, 1], with_length(2, &message)].concat()
}

/// Bytes after their number, which takes so many bytes itself.
fn with_length(bytes: usize, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap_or_default().to_be_bytes();
    length.iter().skip(length.len() - bytes).chain(content).copied().collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use rustls::server::Acceptor;
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn the_message_is_a_complete_client_hello() {
        let mut acceptor = Acceptor::default();
        let message = client_hello();
        assert_eq!(acceptor.read_tls(&mut message.as_slice()).unwrap(), message.len());
        let accepted = acceptor.accept().unwrap().unwrap();
        assert_eq!(accepted.client_hello().cipher_suites().len(), CIPHER_SUITES.len());
    }

    #[rstest]
    #[case::a_server(&[22, 3, 3, 0, 80, 2, 0], None)]
    #[case::no_common_cipher(&[21, 3, 3, 0, 2, 2, 40], Some("the TLS alert 40"))]
    #[case::closed_at_once(&[], Some("closes each connection"))]
    #[case::another_program(b"HTTP/1.1 400", Some("speaks no TLS"))]
    #[tokio::test]
    async fn the_answer_of_a_port_is_judged(#[case] answer: &'static [u8], #[case] expected: Option<&str>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut hello = vec![0; 4096];
            assert!(stream.read(&mut hello).await.unwrap() > 0);
            stream.write_all(answer).await.unwrap();
        });
        let found = turned_away(port).await.unwrap();
        let is_expected =
            found.as_deref().map_or(expected.is_none(), |why| expected.is_some_and(|part| why.contains(part)));
        assert!(is_expected, "{found:?}");
    }

    #[tokio::test]
    async fn a_closed_port_tells_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap();
        drop(listener);
        assert!(turned_away(port).await.is_err());
    }
}
