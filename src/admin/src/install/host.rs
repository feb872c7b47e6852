//! Secrets of the operator in the host.

use anyhow::{Context, anyhow};
use k8s_openapi::{ByteString, api::core::v1::Secret, jiff::Timestamp};
use kube::{Api, Client, api::ObjectMeta};

use super::{flags::InstallTargets, steps::InstallSteps};
use crate::{
    register::{
        Object, agents,
        apply::{self, Change},
        credential::{self, TokenValidity},
        host,
        ownership::{bind, is_marked, is_of_another, mark},
    },
    terminal::error::Error,
};

/// Keys of a Secret of type `kubernetes.io/tls`, and of the authority that cert-manager adds.
pub(super) const CERTIFICATE: &str = "tls.crt";
/// Key of the private key.
pub(super) const KEY: &str = "tls.key";
/// Key of the authority.
pub(super) const AUTHORITY: &str = "ca.crt";

/// A Secret of the host.
///
/// # Errors
/// If the API server refuses or does not answer.
pub(super) async fn read(client: &Client, namespace: &str, name: &str) -> Result<Option<Secret>, Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    Ok(api.get_opt(name).await.with_context(|| format!("cannot read Secret {namespace}/{name} of the host"))?)
}

/// Refuses a Secret that another client made: the command would replace its content, and its removal would delete it.
///
/// # Errors
/// [`Error::Usage`] with the remedy.
pub(super) fn refuse_foreign(found: Option<&Secret>, remedy: &str) -> Result<(), Error> {
    let Some(found) = found.filter(|found| !is_marked(&found.metadata)) else { return Ok(()) };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name) = (text(&found.metadata.namespace), text(&found.metadata.name));
    Err(Error::Usage(format!("mczk install did not make Secret {namespace}/{name} of the host: {remedy}")))
}

pub(crate) fn text(secret: Option<&Secret>, key: &str) -> Option<String> {
    let ByteString(bytes) = secret?.data.as_ref()?.get(key)?;
    String::from_utf8(bytes.clone()).ok()
}

/// Refuses if the operator's credential in the host is one of another control plane of Karmada. Returns the named one.
///
/// # Errors
/// [`Error::Usage`] with the remedy; otherwise if an API server refuses or does not answer.
pub(super) async fn control_plane(place: &InstallTargets, name: &str) -> Result<String, Error> {
    let control_plane = apply::control_plane(&place.karmada).await?;
    let Some(found) = read(&place.host, &place.namespace, name).await? else { return Ok(control_plane) };
    if is_of_another(&found.metadata, &control_plane) {
        return Err(place.another_karmada(&found.metadata));
    }
    Ok(control_plane)
}

/// The operator's credential: it stays while its token is valid for long enough, the server is the same, and Karmada accepts
/// the token. A control plane that was built again, or a deleted account, leaves a token
/// that Karmada refuses.
///
/// # Errors
/// If an API server refuses or does not answer.
pub(super) async fn credential(
    place: &InstallTargets,
    name: &str,
    control_plane: &str,
    kubeconfig: String,
    steps: &mut InstallSteps,
) -> Result<(), Error> {
    let namespace = &place.namespace;
    let before = read(&place.host, namespace, name).await?;
    refuse_foreign(before.as_ref(), "delete it, and the command makes the operator's credential")?;
    let is_same = text(before.as_ref(), credential::KUBECONFIG).as_ref() == Some(&kubeconfig);
    let lasts = |token: &String| TokenValidity::of(token).is_some_and(|validity| !validity.is_due(Timestamp::now()));
    let token = text(before.as_ref(), credential::TOKEN).filter(|token| is_same && lasts(token));
    let stays = match &token {
        Some(token) => {
            credential::is_accepted(&place.karmada, token).await.context("cannot review the operator's token")?
        }
        None => false,
    };
    if stays {
        return steps.report(&Change::Unchanged, &host::secret(namespace, name, "Opaque", [])?);
    }
    // Nothing may be requested in a dry run: the text only shows that it changes.
    let token = if steps.is_dry_run() {
        String::new()
    } else {
        credential::request(&place.karmada).await.context("cannot request a token for the operator")?
    };
    let data = [(credential::KUBECONFIG, kubeconfig), (credential::TOKEN, token)];
    let mut object = host::secret(namespace, name, "Opaque", data)?;
    bind(&mut object.body.metadata, control_plane);
    steps.apply(&place.host, &object).await
}

/// A copy of the pull secret for Karmada's control plane, from where the agents get it.
///
/// # Errors
/// If the Secret does not exist, or has another type.
pub(super) async fn pull_secret(
    place: &InstallTargets,
    name: Option<&str>,
    dry_run: bool,
) -> Result<Option<Object>, Error> {
    const TYPE: &str = "kubernetes.io/dockerconfigjson";
    let Some(name) = name else { return Ok(None) };
    let Some(found) = read(&place.host, &place.namespace, name).await? else {
        if dry_run {
            return Ok(None);
        }
        return Err(anyhow!(
            "--pull-secret: the host has no Secret {}/{name}: create it with kubectl create secret docker-registry",
            place.namespace
        )
        .into());
    };
    if found.type_.as_deref() != Some(TYPE) {
        return Err(Error::Usage(format!("--pull-secret: Secret {}/{name} is not of type {TYPE}", place.namespace)));
    }
    let mut metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(agents::NAMESPACE.to_owned()),
        ..ObjectMeta::default()
    };
    mark(&mut metadata);
    Ok(Some(Object::of(&Secret { metadata, data: found.data, type_: found.type_, ..Secret::default() })?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_of_another_client_is_refused() {
        let secret = |metadata| serde_json::from_value::<Secret>(json!({ "metadata": metadata })).unwrap();
        let foreign = secret(json!({ "namespace": "sys", "name": "tls", "labels": { "a": "b" } }));
        let error = refuse_foreign(Some(&foreign), "delete it").unwrap_err().to_string();
        assert_eq!(error, "mczk install did not make Secret sys/tls of the host: delete it");
        let made = host::secret("sys", "tls", "Opaque", []).unwrap();
        assert!(refuse_foreign(Some(&secret(json!(made.body.metadata))), "").is_ok());
        assert!(refuse_foreign(None, "").is_ok());
    }
}
