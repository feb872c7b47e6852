//! Certificates and kubeconfigs. Each cluster has its own authority, so that a key of one is useless in another.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use anyhow::{Context, Result};
use jiff::{ToSpan, Zoned};
use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SanType, date_time_ymd,
};
use serde_json::json;

use crate::layout::{Layout, write, write_json};

/// The certificate authority of one cluster.
pub(crate) struct Authority<'a> {
    layout: &'a Layout,
    cluster: &'a str,
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl<'a> Authority<'a> {
    /// Makes the authority (`ca.crt`, `ca.key`), the certificates of the API server (`server`) and of its front proxy
    /// (`front-proxy`), and the keys of service accounts (`sa.key`, `sa.pub`).
    pub(crate) fn new(layout: &'a Layout, cluster: &'a str, addresses: &[Ipv4Addr]) -> Result<Self> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = params(&format!("{cluster}-ca"), None)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key)?.pem();
        let folder = layout.pki(cluster);
        write(&folder.join("ca.crt"), certificate.as_bytes())?;
        write(&folder.join("ca.key"), key.serialize_pem().as_bytes())?;
        let authority = Self { layout, cluster, certificate, issuer: Issuer::new(params, key) };

        let mut sans: Vec<_> = addresses.iter().map(|address| SanType::IpAddress(IpAddr::V4(*address))).collect();
        for name in [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "karmada-aggregated-apiserver.karmada-system.svc",
            "karmada-webhook.karmada-system.svc",
        ] {
            sans.push(SanType::DnsName(name.try_into()?));
        }
        authority.certify("server", &format!("{cluster}-server"), None, sans)?;
        authority.certify("front-proxy", "front-proxy-client", None, vec![])?;
        let accounts = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        write(&folder.join("sa.key"), accounts.serialize_pem().as_bytes())?;
        write(&folder.join("sa.pub"), accounts.public_key_pem().as_bytes())?;
        Ok(authority)
    }

    fn certify(&self, file: &str, user: &str, group: Option<&str>, sans: Vec<SanType>) -> Result<(Vec<u8>, Vec<u8>)> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = params(user, group)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.subject_alt_names = sans;
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer)?.pem().into_bytes();
        let key = key.serialize_pem().into_bytes();
        let folder = self.layout.pki(self.cluster);
        write(&folder.join(format!("{file}.crt")), &certificate)?;
        write(&folder.join(format!("{file}.key")), &key)?;
        Ok((certificate, key))
    }

    /// The certificate `FILE.crt` of a server at this address, of a user's name and group.
    pub(crate) fn server(&self, file: &str, user: &str, group: &str, address: Ipv4Addr) -> Result<()> {
        self.certify(file, user, Some(group), vec![SanType::IpAddress(IpAddr::V4(address))]).map(drop)
    }

    /// A user of the API server at `server`. Its kubeconfig `NAME.kubeconfig` refers to no other file.
    pub(crate) fn user(&self, name: &str, user: &str, group: Option<&str>, server: &str) -> Result<()> {
        let (certificate, key) = self.certify(&format!("user-{}", user.replace(':', "-")), user, group, vec![])?;
        let authority = ByteString(self.certificate.clone().into_bytes());
        write_json(
            &self.layout.kubeconfig(name),
            &json!({
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": self.cluster,
                "clusters": [{"name": self.cluster,
                    "cluster": {"server": server, "certificate-authority-data": authority}}],
                "users": [{"name": user, "user": {
                    "client-certificate-data": ByteString(certificate), "client-key-data": ByteString(key)}}],
                "contexts": [{"name": self.cluster, "context": {"cluster": self.cluster, "user": user}}],
            }),
        )
    }
}

/// The certificate of the authority for a `caBundle` of Kubernetes, in base64.
pub(crate) fn bundle(layout: &Layout, cluster: &str) -> Result<String> {
    let path = layout.pki(cluster).join("ca.crt");
    let pem = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::to_value(ByteString(pem))?.as_str().map(str::to_owned).context("bytes are written as text")
}

/// karmada-webhook reads its certificate from a folder, under these names.
pub(crate) fn webhook_folder(pki: &Path) -> Result<std::path::PathBuf> {
    let folder = pki.join("webhook");
    for (from, to) in [("server.crt", "tls.crt"), ("server.key", "tls.key")] {
        let from = pki.join(from);
        let content = fs::read(&from).with_context(|| format!("cannot read {}", from.display()))?;
        write(&folder.join(to), &content)?;
    }
    Ok(folder)
}

fn params(user: &str, group: Option<&str>) -> Result<CertificateParams> {
    let mut params = CertificateParams::default();
    let today = Zoned::now().date();
    let (from, to) = (today.checked_sub(2.days())?, today.checked_add(1.year())?);
    let time = |day: jiff::civil::Date| -> Result<_> {
        Ok(date_time_ymd(day.year().into(), day.month().try_into()?, day.day().try_into()?))
    };
    params.not_before = time(from)?;
    params.not_after = time(to)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    if let Some(group) = group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.distinguished_name.push(DnType::CommonName, user);
    Ok(params)
}
