//! A webhook that shows a certificate of another authority than the registered one, and certificates for registrations.

use std::{net::TcpListener, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use rustls::{
    ServerConfig, ServerConnection,
    crypto::aws_lc_rs,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};

/// Serves handshakes on localhost until the program ends. Returns the port.
///
/// It has a thread of its own: the test blocks its runtime while it runs a program.
pub(super) fn serve() -> u16 {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut connection = ServerConnection::new(config.clone()).unwrap();
            // The client may close the connection at once.
            let _ = connection.complete_io(&mut stream);
        }
    });
    port
}

/// A `caBundle` with an authority that has expired.
pub(super) fn expired_authority() -> String {
    let mut parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    parameters.not_before = rcgen::date_time_ymd(2020, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let certificate = parameters.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
    STANDARD.encode(certificate.pem())
}

/// A `caBundle` without a certificate.
pub(super) fn no_authority() -> String {
    STANDARD.encode("none")
}
