//! Lists the Secrets with the certificates of the quorum.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, api::ListParams, core::PartialObjectMeta};
use tracing::warn;

use mczk_api::contract::{
    labels::{ENSEMBLE_LABEL, INCARNATION_LABEL},
    operator_rights::grant,
};
use mczk_runtime::failure::{Error, is_namespace_terminating};

/// Most certificates of one object in a list: one of each kind, and those of many years of renewals.
const MAX_CERTIFICATES: u32 = 500;

/// Category of an error if the operator has no rights in a namespace.
pub(super) const NO_RIGHTS: &str = "rights";

/// How recent a list of Secrets must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Current. It is an error if the operator may not list Secrets.
    CurrentOrError,
    /// Current. Empty if the operator may not list Secrets.
    Current,
    /// Some milliseconds old. Empty if the operator may not list Secrets.
    Recent,
}

/// The Secrets of an object, without their content.
///
/// This is the only read that may be some milliseconds old. For a current list the API server waits up to 100 ms for its own
/// cache, each time, which would be most of the time between two clusters. An old list is harmless: Secrets never change,
/// the creation of a Secret finds one that the list misses, and no certificate is used whose number is below that of one in
/// use. The deletion of an object is not urgent, and uses a current list.
///
/// If the operator may not list Secrets, the list is empty, and the creation of one then fails with that error.
///
/// # Errors
/// All others of the API server.
pub async fn list(
    namespace: &str,
    name: &str,
    freshness: Freshness,
    client: &Client,
) -> Result<Vec<PartialObjectMeta<Secret>>, Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let params = ListParams::default().labels(&format!("{ENSEMBLE_LABEL}={name},{INCARNATION_LABEL}"));
    // An answer of the API server's cache has no pages.
    let params = if freshness == Freshness::Recent { params.match_any() } else { params.limit(MAX_CERTIFICATES) };
    match api.list_metadata(&params).await {
        Err(kube::Error::Api(status)) if status.code == 403 && freshness != Freshness::CurrentOrError => {
            let remedy = grant(namespace, &status.message);
            warn!(namespace, name, message = status.message, remedy, "Cannot list Secrets");
            Ok(Vec::new())
        }
        other => Ok(other.map_err(|error| refused(namespace, "listing the Secrets of certificates", error))?.items),
    }
}

/// A request for a Secret failed. If the operator has no right to it, the message begins with the command that grants it.
#[must_use]
pub fn refused(namespace: &str, action: &str, source: kube::Error) -> Error {
    match source {
        kube::Error::Api(status)
            if status.code == 403 && !is_namespace_terminating(&kube::Error::Api(status.clone())) =>
        {
            Error::Other {
                category: NO_RIGHTS,
                message: format!(
                    "The operator has no rights in this namespace: {}. It failed at {action}: {}",
                    grant(namespace, &status.message),
                    status.message,
                ),
            }
        }
        source => Error::Api { action: action.to_owned(), source },
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn api_error(code: u16, message: &str) -> kube::Error {
        let status = json!({ "status": "Failure", "message": message, "reason": "", "code": code });
        kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
    }

    /// C6.
    #[test]
    fn a_missing_right_is_reported_with_the_command_that_grants_it() {
        let message = r#"secrets is forbidden: User "mczk-operator" cannot create resource "secrets" in API group """#;
        let error = refused("n", "creating Secret x", api_error(403, message)).to_string();
        assert!(error.contains("run kubectl --namespace n create rolebinding mczk-operator --clusterrole=mczk-ensemble-namespace --user=mczk-operator"), "{error}");
        assert!(!refused("n", "creating Secret x", api_error(500, "no")).to_string().contains("rolebinding"));
    }
}
