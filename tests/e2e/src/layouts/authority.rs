//! Certificates of a control plane, by openssl.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::ground::display;
use crate::programs;

/// A certificate and its key, as PEM.
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// A certificate authority.
pub(super) struct Authority {
    folder: PathBuf,
    name: String,
    pub(super) pair: Pair,
}

impl Authority {
    /// Makes an authority. Its files are in the folder, under its name.
    ///
    /// # Errors
    /// If openssl fails.
    pub(super) async fn new(folder: &Path, name: &str) -> Result<Self> {
        let (certificate, key) = (path(folder, name, "crt"), path(folder, name, "key"));
        let make = ["req", "-x509", "-sha256", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=ca"];
        openssl(&[&make[..], &["-keyout", &key, "-out", &certificate]].concat()).await?;
        Ok(Self { folder: folder.to_owned(), name: name.to_owned(), pair: read(&certificate, &key)? })
    }

    /// Makes a certificate for servers and clients, valid for these hosts.
    ///
    /// # Errors
    /// If openssl fails.
    pub(super) async fn sign(&self, name: &str, subject: &str, hosts: &str) -> Result<Pair> {
        let of = |suffix: &str| path(&self.folder, name, suffix);
        let (request, key, extensions, certificate) = (of("csr"), of("key"), of("cnf"), of("crt"));
        let ask = ["req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", subject];
        openssl(&[&ask[..], &["-keyout", &key, "-out", &request]].concat()).await?;
        let content = format!("extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName={hosts}\n");
        fs::write(&extensions, content).with_context(|| format!("cannot write {extensions}"))?;
        let (signer, signer_key) = (path(&self.folder, &self.name, "crt"), path(&self.folder, &self.name, "key"));
        let sign = ["x509", "-req", "-sha256", "-days", "30", "-CAcreateserial", "-CA", &signer, "-CAkey", &signer_key];
        openssl(&[&sign[..], &["-in", &request, "-extfile", &extensions, "-out", &certificate]].concat()).await?;
        read(&certificate, &key)
    }
}

fn path(folder: &Path, name: &str, suffix: &str) -> String {
    display(&folder.join(format!("{name}.{suffix}")))
}

fn read(certificate: &str, key: &str) -> Result<Pair> {
    let read = |file: &str| fs::read_to_string(file).with_context(|| format!("cannot read {file}"));
    Ok(Pair { certificate: read(certificate)?, key: read(key)? })
}

async fn openssl(arguments: &[&str]) -> Result<String> {
    programs::run(Path::new("openssl"), arguments).await
}
