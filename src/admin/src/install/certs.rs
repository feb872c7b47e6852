//! `mczk certs`: an authority and a certificate for the webhook, for users without another way to create them.

use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, builder::RangedI64ValueParser};
use jiff::Timestamp;

use super::webhook_authority::{Authority, Certified, Name, ServingCertificate, Unusable, is_dns_name};
use crate::terminal::{columns::aligned, error::Error};
use mczk_runtime::atomic_file;

/// Names of the files, as in a Secret of type `kubernetes.io/tls`.
const CA_CERTIFICATE: &str = "ca.crt";
const CA_KEY: &str = "ca.key";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// Default names of the certificate: the Service of `manifests/`, and this machine.
const DEFAULT_DNS: [&str; 2] = ["mczk.mczk-system.svc", "localhost"];
const DEFAULT_IP: [IpAddr; 1] = [IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)];

/// Creates a certificate authority and a certificate for the webhook
///
/// It writes ca.crt and ca.key (authority), and tls.crt and tls.key (certificate), all P-256. The operator serves
/// tls.crt, and `mczk register --ca-file ca.crt` lets Karmada trust it. A running operator takes a new tls.crt and
/// tls.key without a restart.
#[derive(Debug, Args)]
#[command(
    after_help = "Keep ca.key outside of the cluster: the operator's Secret needs only tls.crt and tls.key, and \
                        `mczk register` only ca.crt. See docs/how-to/webhook-certificates.md."
)]
pub struct Certs {
    /// Folder for the files; it is created if it does not exist
    #[arg(long, env = "MCZK_CERTS_DIR", value_name = "DIR")]
    dir: PathBuf,
    /// DNS name by which Karmada reaches the webhook; separate several with commas, or repeat the flag [default:
    /// mczk.mczk-system.svc,localhost; with --renew, those of the old certificate]
    #[arg(long, env = "MCZK_CERTS_DNS", value_name = "NAME", value_delimiter = ',')]
    dns: Vec<String>,
    /// IP address by which Karmada reaches the webhook; several as with --dns [default: 127.0.0.1, unless --dns is
    /// given]
    #[arg(long, env = "MCZK_CERTS_IP", value_name = "ADDRESS", value_delimiter = ',')]
    ip: Vec<IpAddr>,
    /// Days of validity of the certificate; it never outlives its authority
    #[arg(long, env = "MCZK_CERTS_VALIDITY_DAYS", value_name = "DAYS", default_value_t = 365, value_parser = days())]
    validity_days: i64,
    /// Days of validity of the authority
    #[arg(long, env = "MCZK_CERTS_CA_VALIDITY_DAYS", value_name = "DAYS", default_value_t = 3650, value_parser = days())]
    ca_validity_days: i64,
    /// Create a new certificate under the existing authority; no new `mczk register` is needed
    #[arg(long, env = "MCZK_CERTS_RENEW")]
    renew: bool,
    /// Replace everything, the authority too. If Karmada calls the webhook, use another folder, and register both authorities
    /// first
    #[arg(long, env = "MCZK_CERTS_FORCE")]
    force: bool,
}

fn days() -> RangedI64ValueParser<i64> {
    RangedI64ValueParser::new().range(1..=36_500)
}

impl Certs {
    /// Creates the files and prints their names.
    ///
    /// # Errors
    /// [`Error::Usage`] if files exist that no flag allows to replace, if the authority is missing, or if a name is
    /// invalid; [`Error::Failed`] if a file cannot be written.
    pub fn run(self) -> Result<(), Error> {
        let now = Timestamp::now();
        let dir = &self.dir;
        self.check_files()?;
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let names = self.names()?;
        let authority =
            if self.renew { read_authority(dir, now)? } else { Authority::make(now, self.ca_validity_days)? };
        let serving = authority.certify(&names, now, self.validity_days)?;

        if let Some(key) = &authority.new_key {
            write(&dir.join(CA_KEY), key, 0o600)?;
            write(&dir.join(CA_CERTIFICATE), &authority.pem, 0o644)?;
        }
        // The key first: an operator that reads between the two writes finds no pair, and reads again.
        write(&dir.join(KEY), &serving.key, 0o600)?;
        write(&dir.join(CERTIFICATE), &serving.pem, 0o644)?;

        let text = self.summary(&authority, &serving, &names);
        Ok(io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?)
    }

    /// Refuses to replace files without a flag that allows it.
    fn check_files(&self) -> Result<(), Error> {
        if self.renew && self.force {
            return Err(Error::Usage(
                "--renew and --force cannot be used together: --renew keeps the authority, --force replaces it"
                    .to_owned(),
            ));
        }
        let exists = |name: &str| self.dir.join(name).exists();
        if self.renew {
            return match [CA_CERTIFICATE, CA_KEY].into_iter().find(|name| !exists(name)) {
                Some(missing) => Err(Error::Usage(format!(
                    "--renew needs the authority, but {} does not exist: leave out --renew to create one",
                    self.dir.join(missing).display()
                ))),
                None => Ok(()),
            };
        }
        match [CA_CERTIFICATE, CA_KEY, CERTIFICATE, KEY].into_iter().find(|name| exists(name)) {
            Some(found) if !self.force => Err(Error::Usage(format!(
                "{} exists: --renew replaces the certificate and keeps the authority, --force replaces both",
                self.dir.join(found).display()
            ))),
            _ => Ok(()),
        }
    }

    /// Names of the certificate: those of the flags, or those of the old certificate, or the defaults.
    fn names(&self) -> Result<Vec<Name>, Error> {
        let mut names: Vec<Name> =
            self.dns.iter().cloned().map(Name::Dns).chain(self.ip.iter().copied().map(Name::Ip)).collect();
        if names.is_empty() && self.renew {
            names = former_names(&self.dir.join(CERTIFICATE)).unwrap_or_default();
        }
        if names.is_empty() {
            names.extend(DEFAULT_DNS.map(|name| Name::Dns(name.to_owned())));
            names.extend(DEFAULT_IP.map(Name::Ip));
        }
        for name in &names {
            if let Name::Dns(name) = name
                && !is_dns_name(name)
            {
                return Err(Error::Usage(format!(
                    "--dns {name:?} is not a DNS name: give names like mczk.mczk-system.svc, and addresses with --ip"
                )));
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        Ok(names)
    }

    fn summary(&self, authority: &Authority, serving: &ServingCertificate, names: &[Name]) -> String {
        let file = |name: &str| self.dir.join(name).display().to_string();
        let names = names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let change = |new: bool| if new { "created" } else { "kept" }.to_owned();
        let (day, ca_day) = (day(serving.not_after), day(authority.not_after));
        let ca = authority.new_key.is_some();
        let mut text = aligned(&[
            ["FILE", "CONTENT", "CHANGE", "EXPIRES", "NAMES"].map(str::to_owned),
            [file(CA_CERTIFICATE), "authority".into(), change(ca), ca_day, String::new()],
            [file(CA_KEY), "its key, keep it secret".into(), change(ca), String::new(), String::new()],
            [file(CERTIFICATE), "certificate".into(), change(true), day, names],
            [file(KEY), "its key".into(), change(true), String::new(), String::new()],
        ]);
        if serving.shortened {
            text.push_str("\nThe certificate expires with its authority, earlier than --validity-days: create a new authority with --force.\n");
        }
        if ca {
            let ca_file = file(CA_CERTIFICATE);
            text.push_str("\nRegister the authority:         mczk register --ca-file ");
            text.push_str(&ca_file);
            text.push_str(" ...\nor, for caBundle by hand:      base64 -w 0 ");
            text.push_str(&ca_file);
            text.push('\n');
        }
        text
    }
}

/// The authority in a folder.
fn read_authority(dir: &Path, now: Timestamp) -> Result<Authority, Error> {
    let (path, key_path) = (dir.join(CA_CERTIFICATE), dir.join(CA_KEY));
    let read = |path: &Path| fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    let unusable = |path: &Path, why: &str| {
        Error::Usage(format!("{} cannot be used ({why}): create a new authority with --force", path.display()))
    };
    Authority::of_pem(read(&path)?, &read(&key_path)?, now).map_err(|error| match error {
        Unusable::Certificate(why) => unusable(&path, &why),
        Unusable::Key(why) => unusable(&key_path, &why),
        Unusable::OtherKey => unusable(&path, &format!("{} is not its key", key_path.display())),
    })
}

/// Names in the certificate that is replaced. `None` if it cannot be read: it is replaced anyway.
fn former_names(path: &Path) -> Option<Vec<Name>> {
    Some(Certified::read(&fs::read_to_string(path).ok()?).ok()?.names)
}

fn day(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d").to_string()
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), Error> {
    Ok(atomic_file::write(path, text.as_bytes(), mode).with_context(|| format!("cannot write {}", path.display()))?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use clap::Parser;
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    use tempfile::TempDir;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        certs: Certs,
    }

    /// A folder that does not exist yet, in one that is deleted after the test.
    struct Folder(TempDir);

    impl Folder {
        fn new() -> Self {
            Self(TempDir::new().unwrap())
        }

        fn path(&self) -> PathBuf {
            self.0.path().join("certs")
        }

        fn run(&self, flags: &[&str]) -> Result<(), Error> {
            let dir = self.path();
            Cli::try_parse_from(["certs", "--dir", dir.to_str().unwrap()].iter().chain(flags)).unwrap().certs.run()
        }

        fn read(&self, name: &str) -> String {
            fs::read_to_string(self.path().join(name)).unwrap()
        }
    }

    #[test]
    fn only_the_owner_can_read_keys() {
        let folder = Folder::new();
        folder.run(&[]).unwrap();
        for (name, mode) in [("ca.crt", 0o644), ("ca.key", 0o600), ("tls.crt", 0o644), ("tls.key", 0o600)] {
            assert_eq!(fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777, mode, "{name}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
    }

    #[test]
    fn files_are_replaced_only_with_a_flag() {
        let folder = Folder::new();
        folder.run(&["--dns", "a.example"]).unwrap();
        let (ca, tls) = (folder.read("ca.crt"), folder.read("tls.crt"));
        assert!(
            matches!(folder.run(&[]), Err(Error::Usage(text)) if text.contains("--renew") && text.contains("--force"))
        );
        assert_eq!(folder.read("tls.crt"), tls);
        folder.run(&["--renew"]).unwrap();
        assert_eq!(folder.read("ca.crt"), ca);
        assert_ne!(folder.read("tls.crt"), tls);
        folder.run(&["--force"]).unwrap();
        assert_ne!(folder.read("ca.crt"), ca);
    }

    #[test]
    fn a_renewal_keeps_names_unless_flags_name_others() {
        let folder = Folder::new();
        let names = || former_names(&folder.path().join("tls.crt")).unwrap();
        let dns = |name: &str| Name::Dns(name.to_owned());
        folder
            .run(&["--dns", "a.example,b.example", "--ip", "10.0.0.1", "--ip", "fd00::1", "--dns", "a.example"])
            .unwrap();
        let first = names();
        assert_eq!(
            first,
            [
                dns("a.example"),
                dns("b.example"),
                Name::Ip("10.0.0.1".parse().unwrap()),
                Name::Ip("fd00::1".parse().unwrap())
            ]
        );
        folder.run(&["--renew"]).unwrap();
        assert_eq!(names(), first);
        folder.run(&["--renew", "--dns", "c.example"]).unwrap();
        assert_eq!(names(), [dns("c.example")]);
    }

    #[test]
    fn a_certificate_does_not_outlive_its_authority() {
        let folder = Folder::new();
        folder.run(&["--validity-days", "30", "--ca-validity-days", "10"]).unwrap();
        let end = |name: &str| {
            let der = CertificateDer::from_pem_file(folder.path().join(name)).unwrap();
            x509_parser::parse_x509_certificate(&der).unwrap().1.validity().not_after.timestamp()
        };
        assert_eq!(end("tls.crt"), end("ca.crt"));
    }

    #[test]
    fn a_renewal_needs_its_authority() {
        let folder = Folder::new();
        assert!(matches!(folder.run(&["--renew"]), Err(Error::Usage(text)) if text.contains("ca.crt")));
        assert!(matches!(folder.run(&["--renew", "--force"]), Err(Error::Usage(text)) if text.contains("together")));
        assert!(!folder.path().exists(), "nothing was created");
        folder.run(&[]).unwrap();
        fs::copy(folder.path().join("tls.key"), folder.path().join("ca.key")).unwrap();
        assert!(matches!(folder.run(&["--renew"]), Err(Error::Usage(text)) if text.contains("is not its key")));
    }

    #[test]
    fn dns_names_are_recognized() {
        for name in ["mczk.svc", "*.example.org", "localhost", "a-b.c1"] {
            assert!(is_dns_name(name), "{name}");
        }
        for name in ["", "a..b", "-a", "a b", "127.0.0.1", "a.*.b", "https://x"] {
            assert!(!is_dns_name(name), "{name}");
        }
        assert!(matches!(Folder::new().run(&["--dns", "https://x"]), Err(Error::Usage(_))));
    }
}
