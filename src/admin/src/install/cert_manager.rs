//! The certificate of the webhook by an issuer of cert-manager.

use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject};

use super::{
    flags::InstallTargets,
    host::{AUTHORITY, CERTIFICATE, KEY, read, refuse_foreign, text},
    steps::InstallSteps,
    trust,
    wait::{self, Missing},
};
use crate::{
    install::webhook_authority::{Certified, Name},
    register::{
        host,
        interpreter::ca_bundle,
        issued::{self, IssuerReference},
    },
    terminal::error::Error,
};

/// What an issuer signs.
pub(super) struct Order<'a> {
    pub(super) place: &'a InstallTargets,
    /// Name of the Secret, and of the Certificate.
    pub(super) secret: &'a str,
    pub(super) issuer: &'a IssuerReference,
    pub(super) names: &'a [Name],
}

impl Order<'_> {
    /// Writes the Certificate, waits for its Secret, and returns the authority in it, in base64. An operator may serve the
    /// Secret at once. So if Karmada calls the webhook, another Secret shows first which authority to register.
    ///
    /// # Errors
    /// [`Error::Usage`] without cert-manager; otherwise if its Secret is not complete in time, or another client made it.
    pub(super) async fn provide(
        &self,
        is_called: bool,
        limit: Duration,
        steps: &mut InstallSteps,
    ) -> Result<String, Error> {
        let begun = Instant::now();
        self.ensure_served().await?;
        let name = trial(self.secret);
        let trial = Order { secret: &name, ..*self };
        if is_called && self.authority().await?.is_err() {
            trial.issue(limit, steps).await?;
        }
        let authority = self.issue(limit.saturating_sub(begun.elapsed()), steps).await?;
        remove(self.place, &name, steps).await?;
        Ok(authority)
    }

    /// Writes the Certificate, waits for its Secret, and registers the authority in it.
    async fn issue(&self, limit: Duration, steps: &mut InstallSteps) -> Result<String, Error> {
        refuse_foreign(self.read().await?.as_ref(), "delete it, or choose another name with --tls-secret")?;
        let (dns, addresses) = split(self.names);
        let (namespace, secret) = (&self.place.namespace, self.secret);
        steps.apply(&self.place.host, &issued::certificate(namespace, secret, self.issuer, &dns, &addresses)?).await?;
        if steps.is_dry_run() {
            // Without a Secret the empty text only shows that the registration changes.
            return Ok(self.authority().await?.unwrap_or_default());
        }
        if !wait::until_complete("certificate", limit, async || self.missing().await).await? {
            return Err(anyhow!(
                "cert-manager has not issued the certificate {namespace}/{secret} in {} s: see kubectl describe certificate \
                 --namespace {namespace} {secret}, repair the issuer, and run the command again",
                limit.as_secs()
            )
            .into());
        }
        let authority = self.authority().await?.map_err(|why| anyhow!("Secret {namespace}/{secret}: {why}"))?;
        trust::add(&self.place.karmada, &authority, steps).await?;
        Ok(authority)
    }

    async fn ensure_served(&self) -> Result<(), Error> {
        let groups = self.place.host.list_api_groups().await.context("cannot list the API groups of the host")?;
        if groups.groups.iter().any(|group| group.name == issued::GROUP) {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "--certificate-issuer: the host does not serve {}: install cert-manager there, or leave the flag out, and the \
             command makes the certificate itself",
            issued::GROUP
        )))
    }

    async fn read(&self) -> Result<Option<Secret>, Error> {
        read(&self.place.host, &self.place.namespace, self.secret).await
    }

    async fn authority(&self) -> Result<Result<String, String>, Error> {
        Ok(authority(self.read().await?.as_ref(), self.issuer, self.names))
    }

    /// What the Secret lacks, with what cert-manager says about it.
    async fn missing(&self) -> Result<Missing, Error> {
        let Err(why) = self.authority().await? else { return Ok(Missing::new()) };
        let namespace = &self.place.namespace;
        let api: Api<DynamicObject> = Api::namespaced_with(self.place.host.clone(), namespace, &issued::resource());
        let found = api.get_opt(self.secret).await.context("cannot read the Certificate")?;
        let said = found.map(|found| issued::messages(&found.data)).filter(|said| !said.is_empty());
        let why = said.map_or_else(|| why.clone(), |said| format!("{why}. cert-manager: {said}"));
        Ok(Missing::from([(format!("Secret {namespace}/{}", self.secret), why)]))
    }
}

/// Name of the Certificate, and of its Secret, that only shows the authority of an issuer.
pub(super) fn trial(secret: &str) -> String {
    format!("{secret}-trial")
}

/// Removes a Secret that cert-manager wrote for the command, and its Certificate. The Certificate must go first, since
/// cert-manager would write the Secret again.
///
/// # Errors
/// If the host refuses or does not answer.
pub(super) async fn remove(place: &InstallTargets, name: &str, steps: &mut InstallSteps) -> Result<(), Error> {
    if !read(&place.host, &place.namespace, name).await?.as_ref().is_some_and(issued::is_issued) {
        return Ok(());
    }
    steps.remove(&place.host, &issued::named(&place.namespace, name)?).await?;
    steps.remove(&place.host, &host::secret(&place.namespace, name, "kubernetes.io/tls", [])?).await
}

/// DNS names, and addresses.
fn split(names: &[Name]) -> (Vec<String>, Vec<String>) {
    let (dns, addresses): (Vec<&Name>, Vec<&Name>) = names.iter().partition(|name| matches!(name, Name::Dns(_)));
    let texts = |names: Vec<&Name>| names.into_iter().map(ToString::to_string).collect();
    (texts(dns), texts(addresses))
}

/// The authority in the Secret of an issuer, in base64, or what the Secret lacks.
fn authority(secret: Option<&Secret>, issuer: &IssuerReference, names: &[Name]) -> Result<String, String> {
    let Some(found) = secret else { return Err("cert-manager has not written it yet".to_owned()) };
    if !issued::is_of(found, issuer) {
        return Err("it still holds the certificate of a former source".to_owned());
    }
    if text(secret, KEY).is_none() {
        return Err(format!("it has no {KEY}"));
    }
    let certificate = text(secret, CERTIFICATE).ok_or_else(|| format!("it has no {CERTIFICATE}"))?;
    let current = Certified::read(&certificate).map_err(|error| format!("{CERTIFICATE}: {error:#}"))?;
    if let Some(name) = names.iter().find(|name| !current.names.contains(name)) {
        return Err(format!("its certificate lacks the name {name}"));
    }
    let authority = text(secret, AUTHORITY).filter(|text| !text.is_empty()).ok_or_else(|| {
        format!(
            "it has no {AUTHORITY}: the issuer does not publish its authority. Use another issuer, or add the key to a \
             Secret of your own and name it with --certificate-secret"
        )
    })?;
    ca_bundle(authority.as_bytes()).map_err(|error| format!("{AUTHORITY}: {error}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;
    use k8s_openapi::ByteString;
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::install::webhook_authority::Authority;

    fn dns(name: &str) -> Name {
        Name::Dns(name.to_owned())
    }

    /// The Secret that the issuer `Issuer/a` writes for the name `mczk.sys.svc`.
    fn issued() -> Secret {
        let authority = Authority::make(Timestamp::now(), 10).unwrap();
        let made = authority.certify(&[dns("mczk.sys.svc")], Timestamp::now(), 5).unwrap();
        let metadata = json!({
            "labels": { "app.kubernetes.io/managed-by": "mczk-install" },
            "annotations": {
                "cert-manager.io/certificate-name": "x", "cert-manager.io/issuer-kind": "Issuer",
                "cert-manager.io/issuer-name": "a",
            },
        });
        let data = [(CERTIFICATE, made.pem), (KEY, made.key), (AUTHORITY, authority.pem)];
        let data: BTreeMap<_, _> =
            data.into_iter().map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes()))).collect();
        Secret { metadata: serde_json::from_value(metadata).unwrap(), data: Some(data), ..Secret::default() }
    }

    fn without(key: &str) -> Secret {
        let mut secret = issued();
        secret.data.as_mut().unwrap().remove(key);
        secret
    }

    #[rstest]
    #[case::absent(None, "Issuer/a", "mczk.sys.svc", "has not written it yet")]
    #[case::of_another_issuer(Some(issued()), "Issuer/b", "mczk.sys.svc", "a former source")]
    #[case::no_key(Some(without(KEY)), "Issuer/a", "mczk.sys.svc", "it has no tls.key")]
    #[case::no_certificate(Some(without(CERTIFICATE)), "Issuer/a", "mczk.sys.svc", "it has no tls.crt")]
    #[case::no_authority(Some(without(AUTHORITY)), "Issuer/a", "mczk.sys.svc", "does not publish its authority")]
    #[case::former_names(Some(issued()), "Issuer/a", "other.sys.svc", "lacks the name other.sys.svc")]
    fn a_secret_that_is_not_complete(
        #[case] secret: Option<Secret>,
        #[case] issuer: &str,
        #[case] name: &str,
        #[case] expected: &str,
    ) {
        let why = authority(secret.as_ref(), &issuer.parse().unwrap(), &[dns(name)]).unwrap_err();
        assert!(why.contains(expected), "{why}");
    }

    #[test]
    fn a_complete_secret_has_the_authority() {
        let (secret, issuer) = (issued(), "Issuer/a".parse().unwrap());
        let expected = ca_bundle(text(Some(&secret), AUTHORITY).unwrap().as_bytes()).unwrap();
        assert_eq!(authority(Some(&secret), &issuer, &[dns("mczk.sys.svc")]), Ok(expected));
    }

    #[test]
    fn names_and_addresses_are_apart() {
        let names = [dns("a"), Name::Ip("::1".parse().unwrap())];
        assert_eq!(split(&names), (vec!["a".to_owned()], vec!["::1".to_owned()]));
    }
}
