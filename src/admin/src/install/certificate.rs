//! The certificate of the webhook, in a Secret of the host.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{Args, builder::NonEmptyStringValueParser};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;

use super::{
    cert_manager,
    flags::InstallTargets,
    host::{AUTHORITY, CERTIFICATE, KEY, read, refuse_foreign, text},
    steps::InstallSteps,
    trust,
};
use crate::{
    install::webhook_authority::{Authority, Certified, Name},
    register::{
        apply::{self, Change},
        host,
        interpreter::{Endpoint, ca_bundle},
        issued::{self, IssuerReference},
        ownership::is_marked,
    },
    terminal::error::Error,
};

/// Type of a Secret with a certificate and its key.
const TYPE: &str = "kubernetes.io/tls";

/// Days of validity of an authority and of a certificate.
const AUTHORITY_DAYS: i64 = 3650;
const CERTIFICATE_DAYS: i64 = 365;
/// A certificate that ends earlier than this is replaced.
const RESERVE: SignedDuration = SignedDuration::from_hours(24 * CERTIFICATE_DAYS / 3);

/// Where the certificate of the webhook comes from.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Certificate of the webhook")]
pub(super) struct CertificateFlags {
    /// Secret of the host with tls.crt, tls.key and ca.crt, which another tool makes [default: the command makes an authority
    /// and a certificate, and replaces the certificate in its last four months when it runs again]
    #[arg(long, env = "MCZK_CERTIFICATE_SECRET", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    certificate_secret: Option<String>,
    /// Issuer of cert-manager in the host, which signs and renews the certificate: Issuer/NAME or ClusterIssuer/NAME. The
    /// command creates a Certificate, and waits for its Secret as long as --wait-seconds says [default: none]
    #[arg(long, env = "MCZK_CERTIFICATE_ISSUER", value_name = "ISSUER", conflicts_with = "certificate_secret")]
    certificate_issuer: Option<IssuerReference>,
    /// Secret of the host in which the command, or cert-manager, writes the certificate
    #[arg(long, env = "MCZK_TLS_SECRET", value_name = "NAME", default_value = host::CERTIFICATE_SECRET,
          value_parser = NonEmptyStringValueParser::new())]
    tls_secret: String,
}

impl CertificateFlags {
    /// The Secret from which the operator serves.
    pub(super) fn secret_name(&self) -> &str {
        self.certificate_secret.as_deref().unwrap_or(&self.tls_secret)
    }

    /// Makes the certificate, unless the user names one, and returns the authority for the registration, in base64. An
    /// issuer has `limit` to sign.
    ///
    /// # Errors
    /// If the user's Secret is incomplete, the host refuses a Secret, another client made it, or the issuer does not sign.
    pub(super) async fn provide(
        &self,
        place: &InstallTargets,
        endpoint: &Endpoint,
        limit: Duration,
        steps: &mut InstallSteps,
    ) -> Result<String, Error> {
        let secret = &self.tls_secret;
        if let Some(name) = &self.certificate_secret {
            let authority = given(place, name).await?;
            trust::add(&place.karmada, &authority, steps).await?;
            return Ok(authority);
        }
        let registered = apply::registration(&place.karmada).await?;
        let called = registered.as_ref().and_then(|registered| Endpoint::of_registration(&registered.data));
        let names = names(endpoint, called.as_ref())?;
        match &self.certificate_issuer {
            Some(issuer) => {
                let order = cert_manager::Order { place, secret, issuer, names: &names };
                order.provide(registered.is_some(), limit, steps).await
            }
            None => own(place, secret, &names, steps).await,
        }
    }
}

/// The authority of a Secret that the user names.
async fn given(place: &InstallTargets, name: &str) -> Result<String, Error> {
    let found = read(&place.host, &place.namespace, name).await?;
    let missing = [CERTIFICATE, KEY, AUTHORITY].into_iter().find(|key| text(found.as_ref(), key).is_none());
    if let Some(key) = missing {
        let what = if found.is_some() { format!("has no {key}") } else { "does not exist".to_owned() };
        return Err(Error::Usage(format!(
            "--certificate-secret: Secret {}/{name} of the host {what}: it needs tls.crt, tls.key and ca.crt",
            place.namespace
        )));
    }
    let authority = text(found.as_ref(), AUTHORITY).unwrap_or_default();
    ca_bundle(authority.as_bytes())
        .map_err(|error| Error::Usage(format!("--certificate-secret {name}: ca.crt: {error}")))
}

/// The command's own authority and certificate.
async fn own(place: &InstallTargets, name: &str, names: &[Name], steps: &mut InstallSteps) -> Result<String, Error> {
    let now = Timestamp::now();
    let namespace = &place.namespace;
    let before = read(&place.host, namespace, host::AUTHORITY_SECRET).await?;
    refuse_foreign(before.as_ref(), "delete it, or name a certificate of your own with --certificate-secret")?;
    let kept = authority(before.as_ref(), now);
    let authority = match kept {
        Some(authority) => authority,
        None => Authority::make(now, AUTHORITY_DAYS)?,
    };
    if let Some(key) = &authority.new_key {
        let data = [(CERTIFICATE, authority.pem.clone()), (KEY, key.clone())];
        steps.apply(&place.host, &host::secret(namespace, host::AUTHORITY_SECRET, TYPE, data)?).await?;
    }
    let bundle = ca_bundle(authority.pem.as_bytes()).map_err(|error| anyhow!(error))?;
    trust::add(&place.karmada, &bundle, steps).await?;
    let before = without_issuer(place, name, steps).await?;
    let current = text(before.as_ref(), CERTIFICATE).and_then(|pem| Certified::read(&pem).ok());
    // A crash between the two writes, or two installations at once, leave a certificate of another authority.
    let is_signed = text(before.as_ref(), AUTHORITY).as_ref() == Some(&authority.pem);
    let is_ours = before.as_ref().is_some_and(|before| is_marked(&before.metadata));
    let lasts = current.is_some_and(|current| is_ours && is_signed && serves(&current, names, now));
    if lasts {
        let object = host::secret(namespace, name, TYPE, [])?;
        steps.report(&Change::Unchanged, &object)?;
    } else {
        let made = authority.certify(names, now, CERTIFICATE_DAYS)?;
        let data = [(CERTIFICATE, made.pem), (KEY, made.key), (AUTHORITY, authority.pem.clone())];
        steps.apply(&place.host, &host::secret(namespace, name, TYPE, data)?).await?;
    }
    Ok(bundle)
}

/// The Secret of the certificate, and `None` if cert-manager wrote it. The Certificate must go first, since cert-manager
/// would replace the Secret. The Secret must go too: its annotations would count as a certificate of the issuer.
async fn without_issuer(place: &InstallTargets, name: &str, steps: &mut InstallSteps) -> Result<Option<Secret>, Error> {
    let namespace = &place.namespace;
    let found = read(&place.host, namespace, name).await?;
    refuse_foreign(found.as_ref(), "delete it, or name it with --certificate-secret")?;
    if !found.as_ref().is_some_and(issued::is_issued) {
        return Ok(found);
    }
    for name in [cert_manager::trial(name).as_str(), name] {
        cert_manager::remove(place, name, steps).await?;
    }
    Ok(None)
}

/// The authority in its Secret, if it can sign a certificate of the full validity.
fn authority(secret: Option<&Secret>, now: Timestamp) -> Option<Authority> {
    let authority = Authority::of_pem(text(secret, CERTIFICATE)?, &text(secret, KEY)?, now).ok()?;
    (authority.not_after > now + SignedDuration::from_hours(24 * CERTIFICATE_DAYS)).then_some(authority)
}

/// True if a certificate has every name, and is valid for long enough.
fn serves(current: &Certified, names: &[Name], now: Timestamp) -> bool {
    names.iter().all(|name| current.names.contains(name)) && current.validity.end > now + RESERVE
}

/// The names by which Karmada calls the webhook, and those of a port that a user forwards to the dashboard. Until the webhook
/// is registered again, Karmada calls it by the names of the present registration.
fn names(endpoint: &Endpoint, registered: Option<&Endpoint>) -> anyhow::Result<Vec<Name>> {
    let mut names = called_names(endpoint)?;
    let local = [Name::Dns("localhost".to_owned()), Name::Ip(Ipv4Addr::LOCALHOST.into())];
    let registered = registered.map(called_names).transpose()?.unwrap_or_default();
    for name in local.into_iter().chain(registered) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// The names by which Karmada calls the webhook.
pub(super) fn called_names(endpoint: &Endpoint) -> anyhow::Result<Vec<Name>> {
    match endpoint {
        Endpoint::Service(service) => {
            let name = format!("{}.{}.svc", service.name, service.namespace);
            Ok(vec![Name::Dns(format!("{name}.cluster.local")), Name::Dns(name)])
        }
        Endpoint::Url(url) => {
            let uri: http::Uri = url.parse().with_context(|| format!("{url} is no URL"))?;
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
            Ok(vec![host.parse().map_or_else(|_| Name::Dns(host.to_owned()), Name::Ip)])
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn dns(name: &str) -> Name {
        Name::Dns(name.to_owned())
    }

    #[test]
    fn a_new_certificate_keeps_the_names_that_are_still_registered() {
        let (new, old) = ("https://new.example.org", "https://old.example.org:8443/x");
        let [new, old] = [new, old].map(|url| Endpoint::url(url, None).unwrap());
        let all = names(&new, Some(&old)).unwrap();
        assert!(all.contains(&dns("new.example.org")) && all.contains(&dns("old.example.org")), "{all:?}");
        assert_eq!(names(&new, Some(&new)).unwrap(), names(&new, None).unwrap());
    }

    #[test]
    fn a_certificate_has_the_names_by_which_karmada_calls() {
        let service = Endpoint::service("sys/mczk:8443", None).unwrap();
        assert_eq!(called_names(&service).unwrap(), [dns("mczk.sys.svc.cluster.local"), dns("mczk.sys.svc")]);
        assert_eq!(called_names(&Endpoint::url("https://a.example:1", None).unwrap()).unwrap(), [dns("a.example")]);
        let address = Endpoint::url("https://[fd00::1]:1", None).unwrap();
        assert_eq!(called_names(&address).unwrap(), [Name::Ip("fd00::1".parse().unwrap())]);
    }

    #[rstest]
    #[case::service("https://a.example:1", 3)]
    #[case::loopback("https://127.0.0.1:1", 2)]
    fn a_forwarded_port_has_a_name_in_the_certificate(#[case] url: &str, #[case] count: usize) {
        let names = names(&Endpoint::url(url, None).unwrap(), None).unwrap();
        assert!(names.contains(&dns("localhost")), "{names:?}");
        assert!(names.contains(&Name::Ip(Ipv4Addr::LOCALHOST.into())), "{names:?}");
        assert_eq!(names.len(), count);
    }

    #[rstest]
    #[case::new(365, &["a"], true)]
    #[case::further_name(365, &["a", "b"], false)]
    #[case::last_months(100, &["a"], false)]
    fn a_certificate_is_kept(#[case] days: i64, #[case] wanted: &[&str], #[case] expected: bool) {
        let now = Timestamp::now();
        let made = Authority::make(now, AUTHORITY_DAYS).unwrap().certify(&[dns("a")], now, days).unwrap();
        let wanted: Vec<Name> = wanted.iter().map(|name| dns(name)).collect();
        assert_eq!(serves(&Certified::read(&made.pem).unwrap(), &wanted, now), expected);
    }
}
