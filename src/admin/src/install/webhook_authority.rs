//! The authority of the webhook, and the certificates that it signs.

use std::fmt;
use std::net::IpAddr;

use anyhow::Context;
use jiff::{SignedDuration, Timestamp};
use rcgen::{ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose, SanType};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use x509_parser::{certificate::X509Certificate, extensions::GeneralName};

use mczk_api::contract::{certificate_expiry::Validity, naming::is_label};
use mczk_runtime::pki;

/// A name or an address in a certificate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    Dns(String),
    Ip(IpAddr),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) => f.write_str(name),
            Self::Ip(address) => address.fmt(f),
        }
    }
}

/// Letters, digits and hyphens between dots. A star may replace the first label.
pub(crate) fn is_dns_name(name: &str) -> bool {
    let rest = name.strip_prefix("*.").unwrap_or(name).to_ascii_lowercase();
    name.len() <= 253 && rest.split('.').all(is_label) && name.parse::<IpAddr>().is_err()
}

/// Names and validity of a certificate in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certified {
    pub(crate) names: Vec<Name>,
    pub(crate) validity: Validity,
}

impl Certified {
    /// Reads the first certificate of a PEM text.
    ///
    /// # Errors
    /// If it holds none, or the certificate is damaged.
    pub(crate) fn read(pem: &str) -> anyhow::Result<Self> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes())?;
        let (_, certificate) = x509_parser::parse_x509_certificate(&der)?;
        let names = certificate.subject_alternative_name()?.map(|names| &names.value.general_names);
        let name = |name: &GeneralName<'_>| match *name {
            GeneralName::DNSName(name) => Some(Name::Dns(name.to_owned())),
            GeneralName::IPAddress(bytes) => match <[u8; 4]>::try_from(bytes) {
                Ok(four) => Some(Name::Ip(four.into())),
                Err(_) => <[u8; 16]>::try_from(bytes).ok().map(|sixteen| Name::Ip(sixteen.into())),
            },
            _ => None,
        };
        let names = names.into_iter().flatten().filter_map(name).collect();
        Ok(Self { names, validity: pki::validity(&der)? })
    }
}

/// Why an authority cannot sign.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// Its certificate is damaged or over.
    Certificate(String),
    /// Its key is damaged.
    Key(String),
    /// The key is that of another certificate.
    OtherKey,
}

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
    pub(crate) not_after: Timestamp,
    /// Its key, if it is new.
    pub(crate) new_key: Option<String>,
}

/// The certificate of the webhook.
pub(crate) struct ServingCertificate {
    pub(crate) pem: String,
    pub(crate) key: String,
    pub(crate) not_after: Timestamp,
    /// True if it ends earlier than asked, with its authority.
    pub(crate) shortened: bool,
}

impl Authority {
    /// A new authority.
    ///
    /// # Errors
    /// If there is no randomness, or the validity ends beyond the calendar.
    pub(crate) fn make(now: Timestamp, days: i64) -> anyhow::Result<Self> {
        let key = new_key()?;
        let not_after = after(now, days)?;
        let params = pki::authority_params("mczk webhook CA", now, not_after)?;
        let pem = params.self_signed(&key).context("cannot sign the authority")?.pem();
        let new_key = Some(key.serialize_pem());
        Ok(Self { issuer: Issuer::new(params, key), pem, not_after, new_key })
    }

    /// The authority with this certificate and key, in PEM.
    ///
    /// # Errors
    /// Why the certificate, or its key, cannot sign at `now`.
    pub(crate) fn of_pem(pem: String, key: &str, now: Timestamp) -> Result<Self, Unusable> {
        let key = KeyPair::from_pem(key).map_err(|error| Unusable::Key(error.to_string()))?;
        let of_certificate = |error: &dyn fmt::Display| Unusable::Certificate(error.to_string());
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| of_certificate(&error))?;
        let (_, certificate): (_, X509Certificate<'_>) =
            x509_parser::parse_x509_certificate(&der).map_err(|error| of_certificate(&error))?;
        let not_after = pki::validity(&der).map_err(|error| of_certificate(&error))?.end;
        if not_after <= now {
            return Err(of_certificate(&format_args!("it expired at {not_after}")));
        }
        if certificate.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
            return Err(Unusable::OtherKey);
        }
        let issuer = Issuer::from_ca_cert_der(&der, key).map_err(|error| of_certificate(&error))?;
        Ok(Self { issuer, pem, not_after, new_key: None })
    }

    /// A new certificate for these names.
    ///
    /// # Errors
    /// If there is no randomness, a name is invalid, or the validity ends beyond the calendar.
    pub(crate) fn certify(&self, names: &[Name], now: Timestamp, days: i64) -> anyhow::Result<ServingCertificate> {
        let wanted = after(now, days)?;
        let not_after = wanted.min(self.not_after);
        let common_name = names.first().map_or_else(String::new, ToString::to_string);
        // A common name has at most 64 characters. Clients ignore it if there are alternative names.
        let mut params = pki::params(common_name.get(..64).unwrap_or(&common_name), now, not_after)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.subject_alt_names = names
            .iter()
            .map(|name| match name {
                Name::Dns(name) => Ok(SanType::DnsName(name.as_str().try_into()?)),
                Name::Ip(address) => Ok(SanType::IpAddress(*address)),
            })
            .collect::<Result<_, rcgen::Error>>()
            .context("a name cannot be written into a certificate")?;
        let key = new_key()?;
        let pem = params.signed_by(&key, &self.issuer).context("cannot sign the certificate")?.pem();
        Ok(ServingCertificate { pem, key: key.serialize_pem(), not_after, shortened: not_after < wanted })
    }
}

fn new_key() -> anyhow::Result<KeyPair> {
    Ok(pki::new_key()?)
}

fn after(now: Timestamp, days: i64) -> anyhow::Result<Timestamp> {
    now.checked_add(SignedDuration::from_hours(24 * days)).context("the validity ends beyond the calendar")
}
