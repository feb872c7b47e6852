//! The authorities that Karmada trusts for the webhook.
//!
//! A new authority is registered beside the former ones before an operator serves its certificate. The former ones leave the
//! registration once no operator serves theirs. So a run that ends early, after any of its writes, leaves the webhook usable.

use base64::{Engine, engine::general_purpose::STANDARD};
use kube::{Client, api::ObjectMeta, core::DynamicObject};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};

use super::steps::InstallSteps;
use crate::{
    register::{Object, apply, credential::pem, interpreter},
    terminal::error::Error,
};

/// The field of the registration that names the authorities.
const BUNDLE: &str = "/webhooks/0/clientConfig/caBundle";

/// Registers an authority beside the present ones. Before the first registration Karmada calls no webhook.
///
/// # Errors
/// If karmada-apiserver refuses or does not answer.
pub(super) async fn add(karmada: &Client, authority: &str, steps: &mut InstallSteps) -> Result<(), Error> {
    let Some(mut body) = apply::registration(karmada).await? else { return Ok(()) };
    let all = all(authority, &body);
    if all.len() == registered(&body).len() {
        return Ok(());
    }
    if let Some(bundle) = body.data.pointer_mut(BUNDLE) {
        *bundle = json!(STANDARD.encode(pem(&all)));
    }
    // With the version, nothing that another client writes meanwhile is undone.
    let (name, resource_version) = (body.metadata.name, body.metadata.resource_version);
    body.metadata = ObjectMeta { name, resource_version, ..ObjectMeta::default() };
    steps.apply(karmada, &Object { resource: interpreter::resource(), body }).await
}

/// The authority with the former ones behind it, in base64; `None` if there are no former ones.
///
/// # Errors
/// As [`add`].
pub(super) async fn with_former(karmada: &Client, authority: &str) -> Result<Option<String>, Error> {
    let Some(registration) = apply::registration(karmada).await? else { return Ok(None) };
    let all = all(authority, &registration);
    Ok((all.len() > certificates(authority).len()).then(|| STANDARD.encode(pem(&all))))
}

fn all(authority: &str, registration: &DynamicObject) -> Vec<Vec<u8>> {
    let mut all = certificates(authority);
    let former = registered(registration).into_iter().filter(|former| !all.contains(former)).collect::<Vec<_>>();
    all.extend(former);
    all
}

fn registered(registration: &DynamicObject) -> Vec<Vec<u8>> {
    certificates(registration.data.pointer(BUNDLE).and_then(Value::as_str).unwrap_or_default())
}

/// The certificates of a bundle, in DER. A bundle that cannot be read has none.
fn certificates(bundle: &str) -> Vec<Vec<u8>> {
    let pem = STANDARD.decode(bundle).unwrap_or_default();
    CertificateDer::pem_slice_iter(&pem).flatten().map(|certificate| certificate.to_vec()).collect()
}
