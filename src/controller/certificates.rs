//! The Secrets with the quorum's certificates: which there are, and making one. Which is made is decided in
//! [`crate::rollout::certificates`].

use k8s_openapi::{ByteString, api::core::v1::Secret, jiff::Timestamp};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
    core::{ObjectMeta, PartialObjectMeta},
};
use tracing::{info, warn};

use super::{Context, During, Error, FIELD_MANAGER};
use crate::{
    api::{MultiClusterZooKeeper, karmada::DELETION_PROTECTION},
    contract::{
        certificate_names::Holds,
        labels::{ENSEMBLE_LABEL, INCARNATION_LABEL},
    },
    rollout::{
        certificates::{AUTHORITY_LIFE, Certificate, IDENTITY_LIFE, Make},
        objects,
        plan::Observed,
    },
    runtime::pki::{self, Issued},
};

/// Certificates of one object that are read at most: one of each kind, and those of many years of renewals.
const MOST: u32 = 500;
const CA_CERTIFICATE: &str = "ca.crt";
const CA_KEY: &str = "ca.key";

/// As of when the Secrets are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AsOf {
    /// Now, and without the right to list them nothing is decided.
    NowOrNever,
    /// Now.
    Now,
    /// As of some milliseconds ago.
    JustBefore,
}

/// The Secrets of an object, without their content.
///
/// The only read that the API server may answer as of some milliseconds ago: for a list that is sure to be the newest it waits
/// up to 100 ms for its own cache, each time, which would be most of the time between two clusters. No harm comes of it:
/// Secrets never change, one that is missing here is found when it is to be made, and none is used whose number is below that
/// of one in use. While an object is deleted nothing is in a hurry, and `newest` is asked for.
///
/// Without the right to list them there are none, and making one then fails and says so.
pub(super) async fn seen(
    namespace: &str,
    name: &str,
    as_of: AsOf,
    context: &Context,
) -> Result<Vec<PartialObjectMeta<Secret>>, Error> {
    let api: Api<Secret> = Api::namespaced(context.client.clone(), namespace);
    let params = ListParams::default().labels(&format!("{ENSEMBLE_LABEL}={name},{INCARNATION_LABEL}"));
    // An answer of the API server's cache has no pages.
    let params = if as_of == AsOf::JustBefore { params.match_any() } else { params.limit(MOST) };
    match api.list_metadata(&params).await {
        Err(kube::Error::Api(status)) if status.code == 403 && as_of != AsOf::NowOrNever => {
            warn!(namespace, name, message = status.message, "Secrets cannot be listed: mczk register gives the right");
            Ok(Vec::new())
        }
        other => Ok(other.during(|| "listing the Secrets of certificates".to_owned())?.items),
    }
}

/// Makes a Secret. One of that name that is there is never touched.
pub(super) async fn make(observed: &Observed, make: &Make, context: &Context) -> Result<(), Error> {
    let object = &observed.object;
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &object.namespace().unwrap_or_default());
    let now = Timestamp::now();
    if make.holds != Holds::Trust && is_outdated(observed, make, context).await? {
        return Ok(());
    }
    let authority = match &make.authority {
        Some((_, name)) => {
            let secret = api.get(name).await.during(|| format!("reading Secret {name}"))?;
            let text = |field: &str| {
                let bytes = secret.data.as_ref().and_then(|data| data.get(field));
                bytes.and_then(|bytes| String::from_utf8(bytes.0.clone()).ok())
            };
            Some(text(CA_CERTIFICATE).zip(text(CA_KEY)).ok_or_else(|| Error::Certificate {
                action: format!("reading Secret {name}"),
                source: pki::Error::Unreadable(format!("{CA_CERTIFICATE} or {CA_KEY} is not there")),
            })?)
        }
        None => None,
    };
    let failed = |source: pki::Error| Error::Certificate { action: format!("making Secret {}", make.name), source };
    let common_name = common_name(&object.name_any(), make);
    let (data, not_after) = match (make.holds, authority) {
        (Holds::Trust, Some((pem, _))) => {
            let not_after = pki::not_after(&pem).map_err(failed)?;
            (vec![(CA_CERTIFICATE, pem)], not_after)
        }
        (Holds::Identity, Some((pem, key))) => {
            let Issued { certificate, key, not_after } =
                pki::identity(&common_name, (&pem, &key), now, IDENTITY_LIFE).map_err(failed)?;
            (vec![("tls.crt", certificate), ("tls.key", key)], not_after)
        }
        _ => {
            let Issued { certificate, key, not_after } =
                pki::authority(&common_name, now, AUTHORITY_LIFE).map_err(failed)?;
            (vec![(CA_CERTIFICATE, certificate), (CA_KEY, key)], not_after)
        }
    };
    let secret = Secret {
        metadata: metadata(object, make, not_after),
        data: Some(data.into_iter().map(|(field, text)| (field.to_owned(), ByteString(text.into_bytes()))).collect()),
        immutable: Some(true),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    };
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    match api.create(&params, &secret).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let found = api.get_metadata(&make.name).await.during(|| format!("reading Secret {}", make.name))?;
            if Certificate::read(&found.metadata, object).is_some() {
                // Another operator made it, or the list was older than it: the next look sees it.
                return Err(kube::Error::Api(status)).during(|| format!("making Secret {}", make.name));
            }
            // What is there is not recognised as ours: no look resolves that.
            return Err(Error::Certificate {
                action: format!("making Secret {}", make.name),
                source: pki::Error::Unreadable(
                    "one of that name exists whose label, annotations or owner are not those that it was made with; delete it"
                        .to_owned(),
                ),
            });
        }
        other => other.during(|| format!("making Secret {}", make.name))?,
    };
    info!(secret = make.name, namespace = object.namespace(), "made");
    context.metrics.wrote("Secret", "create");
    Ok(())
}

/// The subject of a certificate. Every authority has its own: `ZooKeeper` keeps those that it trusts by their subjects, and of
/// two with one subject it would trust only one.
fn common_name(ensemble: &str, make: &Make) -> String {
    match make.holds {
        Holds::Authority => format!("{ensemble} {} {}", make.incarnation, make.number),
        Holds::Trust | Holds::Identity => format!("{ensemble} {}", make.incarnation),
    }
}

/// Whether there are certificates of the kind that the decision to make another one did not know: then it is taken anew.
/// Else one that was made a moment ago could count as lost, and another be made.
async fn is_outdated(observed: &Observed, make: &Make, context: &Context) -> Result<bool, Error> {
    let object = &observed.object;
    let newest = seen(&object.namespace().unwrap_or_default(), &object.name_any(), AsOf::Now, context).await?;
    let newest = newest.iter().filter_map(|secret| Certificate::read(&secret.metadata, object));
    let unknown = |c: &Certificate| {
        c.incarnation == make.incarnation && c.holds == make.holds && !observed.certificates.contains(c)
    };
    Ok(newest.into_iter().any(|c| unknown(&c)))
}

/// What travels is taken back where a cluster that left kept it, as the policy says: a name never has another content, and
/// holds the ensemble's life, which nothing foreign has in its name by chance.
fn metadata(object: &MultiClusterZooKeeper, make: &Make, not_after: Timestamp) -> ObjectMeta {
    let mut meta = objects::metadata(object, make.name.clone(), None);
    let labels = meta.labels.get_or_insert_default();
    labels.insert(INCARNATION_LABEL.to_owned(), make.incarnation.clone());
    // It goes with its owner, by Kubernetes' garbage collector, which does not lift the protection.
    labels.remove(DELETION_PROTECTION);
    let annotations = meta.annotations.get_or_insert_default();
    annotations.extend(make.annotations(not_after));
    meta
}
