//! Which certificates servers have loaded: what each tells of itself, and what a cluster reports of all of its own.

use crate::{
    agent::{decide::local_server::LocalServer, render::Material},
    api::tls::EnsembleTls,
    contract::loaded_certificates::Loaded,
};

/// What a cluster reports: the certificates that the list names, if every server here has loaded just these, and each that
/// starts will. Nothing while one is on its way, or cannot be asked.
#[must_use]
pub fn by_all(
    tls: Option<&EnsembleTls>,
    material: Option<&Material>,
    mounted: Option<&Material>,
    own: &[LocalServer],
) -> Option<EnsembleTls> {
    let material = material.filter(|material| mounted == Some(*material))?;
    let wanted = Loaded::of(material.certificate.as_bytes(), material.authorities.as_bytes())?;
    let has = |own: &LocalServer| own.view.as_ref().is_some_and(|view| view.loaded.as_ref() == Some(&wanted));
    tls.filter(|_| own.iter().all(has)).cloned()
}
