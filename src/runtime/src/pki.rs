//! Keys and certificates, P-256, for `mczk certs` and the operator.

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use x509_parser::certificate::X509Certificate;

use mczk_api::contract::certificate_expiry::Validity;

/// How far clocks of other machines may be behind when they verify a new certificate. A start in the past costs no security,
/// and a clock that was ahead when an authority was made would keep every server out until the other clocks arrive there.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_hours(365 * 24);

/// Why a key or certificate cannot be created or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The library failed.
    #[error("{action}: {source}")]
    Library {
        /// The attempted action.
        action: &'static str,
        /// Why it failed.
        source: rcgen::Error,
    },
    /// The clock of this machine is outside of the range of certificates.
    #[error("the clock is wrong, or the validity ends beyond the calendar")]
    Clock,
    /// The text is not a certificate.
    #[error("not a certificate: {0}")]
    Unreadable(String),
}

/// A certificate and its key.
pub struct Issued {
    /// Certificate, in PEM.
    pub certificate: String,
    /// Key, in PEM, PKCS#8.
    pub key: String,
    /// End of the validity of the certificate.
    pub not_after: Timestamp,
}

/// A new key.
///
/// # Errors
/// If there is no randomness.
pub fn new_key() -> Result<KeyPair, Error> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
        .map_err(|source| Error::Library { action: "cannot create a key", source })
}

/// Parameters of every certificate: a name, and a validity from long before now.
///
/// # Errors
/// If the clock is wrong.
pub fn params(common_name: &str, now: Timestamp, not_after: Timestamp) -> Result<CertificateParams, Error> {
    let not_before = now.checked_sub(CLOCK_SKEW).map_err(|_| Error::Clock)?;
    let mut params = CertificateParams::default();
    params.not_before = date_time_ymd(1970, 1, 1) + since_1970(not_before)?;
    params.not_after = date_time_ymd(1970, 1, 1) + since_1970(not_after)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    Ok(params)
}

/// Parameters of an authority: it signs only servers and clients, no further authority.
///
/// # Errors
/// As [`params`].
pub fn authority_params(common_name: &str, now: Timestamp, not_after: Timestamp) -> Result<CertificateParams, Error> {
    let mut params = params(common_name, now, not_after)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// A new authority.
///
/// # Errors
/// As [`new_key`] and [`params`].
pub fn authority(common_name: &str, now: Timestamp, life: SignedDuration) -> Result<Issued, Error> {
    let key = new_key()?;
    let not_after = whole_seconds(now.checked_add(life).map_err(|_| Error::Clock)?)?;
    let certificate = authority_params(common_name, now, not_after)?
        .self_signed(&key)
        .map_err(|source| Error::Library { action: "cannot sign the authority", source })?
        .pem();
    Ok(Issued { certificate, key: key.serialize_pem(), not_after })
}

/// A new identity for servers and clients, signed by an authority in PEM. It ends with its authority at the latest.
///
/// # Errors
/// As [`new_key`] and [`params`], and if the authority cannot be read.
pub fn identity(
    common_name: &str,
    (authority, authority_key): (&str, &str),
    now: Timestamp,
    life: SignedDuration,
) -> Result<Issued, Error> {
    let read = |source| Error::Library { action: "cannot read the authority", source };
    let issuer_key = KeyPair::from_pem(authority_key).map_err(read)?;
    let der = first(authority)?;
    let Validity { begin, end } = validity(&der)?;
    let issuer = Issuer::from_ca_cert_der(&der, issuer_key).map_err(read)?;
    let wanted = whole_seconds(now.checked_add(life).map_err(|_| Error::Clock)?)?;
    let mut params = params(common_name, now, wanted.min(end))?;
    // As early as its authority: a machine whose clock is behind accepts it, and a clock that was once wrong does no harm.
    params.not_before = date_time_ymd(1970, 1, 1) + since_1970(begin)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    let key = new_key()?;
    let certificate = params
        .signed_by(&key, &issuer)
        .map_err(|source| Error::Library { action: "cannot sign the identity", source })?
        .pem();
    Ok(Issued { certificate, key: key.serialize_pem(), not_after: wanted.min(end) })
}

fn since_1970(time: Timestamp) -> Result<std::time::Duration, Error> {
    Ok(std::time::Duration::from_secs(u64::try_from(time.as_second()).map_err(|_| Error::Clock)?))
}

/// Begin and end of the validity of a certificate.
///
/// # Errors
/// If it cannot be parsed.
pub fn validity(der: &CertificateDer<'_>) -> Result<Validity, Error> {
    let unreadable = |error: &dyn std::fmt::Display| Error::Unreadable(error.to_string());
    let (_, certificate): (_, X509Certificate<'_>) =
        x509_parser::parse_x509_certificate(der).map_err(|error| unreadable(&error))?;
    let time = |seconds| Timestamp::from_second(seconds).map_err(|error| unreadable(&error));
    let validity = certificate.validity();
    Ok(Validity { begin: time(validity.not_before.timestamp())?, end: time(validity.not_after.timestamp())? })
}

/// The first certificate of a PEM.
fn first(pem: &str) -> Result<CertificateDer<'static>, Error> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| Error::Unreadable(error.to_string()))
}

/// End of the validity of the first certificate of a PEM.
///
/// # Errors
/// If it holds no certificate.
pub fn not_after(pem: &str) -> Result<Timestamp, Error> {
    Ok(validity(&first(pem)?)?.end)
}

/// Begin and end of the validity of every certificate of a PEM that can be read.
pub fn validities(pem: &str) -> Vec<Validity> {
    let all = CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok);
    all.filter_map(|der| validity(&der).ok()).collect()
}

/// Certificates have whole seconds.
fn whole_seconds(time: Timestamp) -> Result<Timestamp, Error> {
    Timestamp::from_second(time.as_second()).map_err(|_| Error::Clock)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const DAY: SignedDuration = SignedDuration::from_hours(24);

    #[test]
    fn an_identity_is_signed_by_its_authority_and_ends_with_it() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let ours = authority("zk abc", now, DAY * 10).unwrap();
        let (short, long) = (DAY * 3, DAY * 30);
        for (life, ends) in [(short, now + short), (long, ours.not_after)] {
            let made = identity("zk abc", (&ours.certificate, &ours.key), now, life).unwrap();
            assert_eq!((made.not_after, not_after(&made.certificate).unwrap()), (ends, ends));
            let der = CertificateDer::from_pem_slice(made.certificate.as_bytes()).unwrap();
            let root = CertificateDer::from_pem_slice(ours.certificate.as_bytes()).unwrap();
            let (_, read) = x509_parser::parse_x509_certificate(&der).unwrap();
            let (_, signer) = x509_parser::parse_x509_certificate(&root).unwrap();
            assert_eq!(read.issuer(), signer.subject());
            let usage = read.extended_key_usage().unwrap().unwrap().value;
            assert!(usage.server_auth && usage.client_auth && !read.is_ca() && signer.is_ca());
        }
        let other = authority("zk abc", now, DAY).unwrap();
        assert_ne!(other.key, ours.key);
    }

    #[test]
    fn a_clock_that_is_ahead_makes_certificates_that_are_valid_now() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let ahead = now + DAY * 300;
        let ours = authority("zk abc", ahead, DAY * 10).unwrap();
        let made = identity("zk abc", (&ours.certificate, &ours.key), ahead, DAY).unwrap();
        for text in [ours.certificate, made.certificate] {
            let Validity { begin, end } = validity(&first(&text).unwrap()).unwrap();
            assert!(begin < now && now < end, "{begin} to {end}");
        }
    }

    #[test]
    fn an_invalid_authority_is_refused() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let ours = authority("zk abc", now, DAY).unwrap();
        assert!(identity("zk", ("", &ours.key), now, DAY).is_err());
        assert!(identity("zk", (&ours.certificate, "no key"), now, DAY).is_err());
        assert!(not_after("nothing").is_err());
    }
}
