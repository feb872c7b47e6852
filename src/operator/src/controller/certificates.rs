//! Creates a Secret with a certificate of the quorum. [`mczk_rules::rollout::certificates`] decides which one.

use std::fmt::Display;

use k8s_openapi::{ByteString, api::core::v1::Secret, jiff::Timestamp};
use kube::{Api, ResourceExt, api::PostParams, core::ObjectMeta};
use tracing::info;

use super::context::Context;
use mczk_api::{
    MultiClusterZooKeeper,
    contract::{certificate_names::Holds, labels::ENSEMBLE_LABEL},
};
use mczk_reading::{
    certificate_secrets::{Freshness, list, refused},
    operator_identity::FIELD_MANAGER,
};
use mczk_rules::rollout::{
    certificates::{AUTHORITY_LIFE, Certificate, IDENTITY_LIFE, Make},
    plan::Observed,
};
use mczk_runtime::{
    failure::{During, Error},
    pki::{self, Issued},
};

const CA_CERTIFICATE: &str = "ca.crt";
const CA_KEY: &str = "ca.key";

/// Creates a Secret. It never changes an existing one of that name.
pub(super) async fn make(observed: &Observed, make: &Make, context: &Context) -> Result<(), Error> {
    let object = &observed.object;
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
    if make.holds != Holds::Trust && is_outdated(observed, make, context).await? {
        return Ok(());
    }
    let authority = match &make.authority {
        Some((_, name)) => Some(read_authority(&api, name).await?),
        None => None,
    };
    let (data, not_after) = issue(&object.name_any(), make, authority)
        .map_err(|source| failed(&format!("creating Secret {}", make.name), &source))?;
    let secret = Secret {
        metadata: make.metadata(object, not_after),
        data: Some(data.into_iter().map(|(field, text)| (field.to_owned(), ByteString(text.into_bytes()))).collect()),
        immutable: Some(true),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    };
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    match api.create(&params, &secret).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let found = api.get_metadata(&make.name).await.during(|| format!("reading Secret {}", make.name))?;
            return Err(exists(&found.metadata, object, make, kube::Error::Api(status)));
        }
        other => other.map_err(|error| refused(&namespace, &format!("creating Secret {}", make.name), error))?,
    };
    info!(secret = make.name, namespace = object.namespace(), "Secret created");
    context.metrics.wrote("Secret", "create");
    Ok(())
}

fn failed(action: &str, source: &dyn Display) -> Error {
    Error::Other { category: "certificate", message: format!("{action}: {source}") }
}

/// Certificate and key of an authority.
async fn read_authority(api: &Api<Secret>, name: &str) -> Result<(String, String), Error> {
    let action = || format!("reading Secret {name}");
    let secret = api.get(name).await.during(action)?;
    let text = |field: &str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(field));
        bytes.and_then(|bytes| String::from_utf8(bytes.0.clone()).ok())
    };
    let missing = || failed(&action(), &format_args!("{CA_CERTIFICATE} or {CA_KEY} is missing"));
    text(CA_CERTIFICATE).zip(text(CA_KEY)).ok_or_else(missing)
}

/// Fields of a Secret, and the end of the validity of its certificate.
type Issue = (Vec<(&'static str, String)>, Timestamp);

fn issue(ensemble: &str, make: &Make, authority: Option<(String, String)>) -> Result<Issue, pki::Error> {
    let now = Timestamp::now();
    let common_name = common_name(ensemble, make);
    Ok(match (make.holds, authority) {
        (Holds::Trust, Some((pem, _))) => {
            let not_after = pki::not_after(&pem)?;
            (vec![(CA_CERTIFICATE, pem)], not_after)
        }
        (Holds::Identity, Some((pem, key))) => {
            let Issued { certificate, key, not_after } = pki::identity(&common_name, (&pem, &key), now, IDENTITY_LIFE)?;
            (vec![("tls.crt", certificate), ("tls.key", key)], not_after)
        }
        _ => {
            let Issued { certificate, key, not_after } = pki::authority(&common_name, now, AUTHORITY_LIFE)?;
            (vec![(CA_CERTIFICATE, certificate), (CA_KEY, key)], not_after)
        }
    })
}

/// Why a Secret of the name exists.
fn exists(found: &ObjectMeta, object: &MultiClusterZooKeeper, make: &Make, conflict: kube::Error) -> Error {
    let action = format!("creating Secret {}", make.name);
    if found.labels.as_ref().and_then(|labels| labels.get(ENSEMBLE_LABEL)) != Some(&object.name_any()) {
        // The operator lists its Secrets by this label, and may not change a Secret.
        failed(
            &action,
            &format!(
                "a Secret of that name exists without the label {ENSEMBLE_LABEL}={ensemble}: run kubectl --namespace {namespace} label secret {secret} {ENSEMBLE_LABEL}={ensemble} --overwrite",
                ensemble = object.name_any(),
                namespace = object.namespace().unwrap_or_default(),
                secret = make.name,
            ),
        )
    } else if Certificate::read(found, object).is_some_and(|found| is_made_for(&found, make)) {
        // Another operator created it, or the list was too old: the next reconcile observes it.
        Error::Api { action, source: conflict }
    } else {
        failed(
            &action,
            &"a Secret of that name exists whose label, annotations or owner are not the operator's: keep a \
              copy of it, then delete it",
        )
    }
}

/// True if the certificate is the one that the plan asks for.
fn is_made_for(found: &Certificate, make: &Make) -> bool {
    (&found.incarnation, found.holds, found.number) == (&make.incarnation, make.holds, make.number)
}

/// Subject of a certificate. Every authority has its own subject: ZooKeeper stores trusted authorities by subject, and of
/// two with one subject it would trust only one.
fn common_name(ensemble: &str, make: &Make) -> String {
    match make.holds {
        Holds::Authority => format!("{ensemble} {} {}", make.incarnation, make.number),
        Holds::Trust | Holds::Identity => format!("{ensemble} {}", make.incarnation),
    }
}

/// True if certificates of the kind exist that the plan did not observe: the plan must then be made again. Otherwise a
/// certificate that was created a moment ago could count as lost, and the operator would create another one.
async fn is_outdated(observed: &Observed, make: &Make, context: &Context) -> Result<bool, Error> {
    let object = &observed.object;
    let current =
        list(&object.namespace().unwrap_or_default(), &object.name_any(), Freshness::Current, &context.client).await?;
    let mut current = current.iter().filter_map(|secret| Certificate::read(&secret.metadata, object));
    Ok(current
        .any(|c| c.incarnation == make.incarnation && c.holds == make.holds && !observed.certificates.contains(&c)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::multi_cluster_zookeeper;
    use mczk_api::contract::labels::INCARNATION_LABEL;

    fn authority() -> Make {
        Make {
            holds: Holds::Authority,
            name: "zk-abc123-quorum".to_owned(),
            incarnation: "abc123".to_owned(),
            number: 1,
            authority: None,
            requested: None,
        }
    }

    fn api_error(code: u16, message: &str) -> kube::Error {
        let status = json!({ "status": "Failure", "message": message, "reason": "", "code": code });
        kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
    }

    /// C5: the label of a Secret was removed, so the operator does not find it and creates it again. As a conflict that would
    /// be tried again every 50 ms, without end and without a condition.
    #[test]
    fn a_secret_without_its_label_is_a_failure_with_a_remedy() {
        let object: MultiClusterZooKeeper = multi_cluster_zookeeper(json!({}));
        let mut found = authority().metadata(&object, Timestamp::now());
        assert!(exists(&found, &object, &authority(), api_error(409, "already exists")).is_conflict());
        found.labels.as_mut().unwrap().remove(ENSEMBLE_LABEL);
        let error = exists(&found, &object, &authority(), api_error(409, "already exists"));
        assert!(!error.is_conflict(), "{error}");
        let remedy = "run kubectl --namespace n label secret zk-abc123-quorum mczk.io/ensemble=zk --overwrite";
        assert!(error.to_string().contains(remedy), "{error}");
    }

    /// A policy of a user may select all Secrets of the namespace. Karmada's detector leaves an object with this label alone.
    #[test]
    fn no_policy_may_propagate_a_secret_with_a_key() {
        let object: MultiClusterZooKeeper = multi_cluster_zookeeper(json!({}));
        let mut found = authority().metadata(&object, Timestamp::now());
        let label = "resourcetemplate.karmada.io/claimed-by";
        assert_eq!(found.labels.as_ref().unwrap().get(label).map(String::as_str), Some("mczk"));
        let propagated_by = |found: &ObjectMeta| Certificate::read(found, &object).unwrap().propagated_by;
        assert_eq!(propagated_by(&found), None);
        let claim = ("propagationpolicy.karmada.io/name".to_owned(), "all-secrets".to_owned());
        found.annotations.as_mut().unwrap().extend([claim]);
        assert_eq!(propagated_by(&found).as_deref(), Some("all-secrets"));
    }

    /// As another incarnation's, the plan would ask for the Secret again and again.
    #[test]
    fn a_secret_with_the_label_of_another_incarnation_is_a_failure_with_a_remedy() {
        let object: MultiClusterZooKeeper = multi_cluster_zookeeper(json!({}));
        let mut found = authority().metadata(&object, Timestamp::now());
        found.labels.as_mut().unwrap().insert(INCARNATION_LABEL.to_owned(), "other".to_owned());
        let error = exists(&found, &object, &authority(), api_error(409, "already exists"));
        assert!(!error.is_conflict() && error.to_string().contains("delete it"), "{error}");
    }
}
