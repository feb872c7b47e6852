//! Entries for the fuzz targets in `tests/fuzz`: code that reads foreign bytes, and is not public.

use std::{io, path::Path};

use k8s_openapi::jiff::Timestamp;

use crate::{
    interpreter::handler,
    runtime::{pki, tls},
    server::{Volume, paths::Paths},
};

/// The webhook's answer to a body, as text. `None` if the body is no question.
#[must_use]
pub fn answer(body: &[u8], now: Timestamp) -> Option<Vec<u8>> {
    let answered = handler::answer(body, now).ok()?;
    serde_json::to_vec(&answered.reply).ok()
}

/// True if the webhook serves this certificate with this key, both in PEM.
#[must_use]
pub fn is_pair(certificate: &[u8], key: &[u8]) -> bool {
    tls::is_pair(certificate, key)
}

/// The end of the validity of a certificate in PEM, and how many certificates the text has.
#[must_use]
pub fn validity(pem: &str) -> (Option<Timestamp>, usize) {
    (pki::not_after(pem).ok(), pki::validities(pem).len())
}

/// What a server reads from the volume in this folder. `None` if it counts as new.
///
/// # Errors
/// If a file cannot be read.
pub fn stored(root: &Path, paths: Paths) -> io::Result<Option<(String, i32)>> {
    let stored = Volume::new(root.to_owned(), paths).stored()?;
    Ok(stored.map(|server| (server.incarnation, server.id)))
}
