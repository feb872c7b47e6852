//! `mczk certs`: an authority and a serving certificate for the webhook, for those who have no other way to make them.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, builder::RangedI64ValueParser};
use jiff::{SignedDuration, Timestamp};
use rcgen::{ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose, SanType};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use x509_parser::{certificate::X509Certificate, extensions::GeneralName};

use super::{columns::aligned, error::Error};
use crate::runtime::pki;

/// Names of the files, as a Secret of type `kubernetes.io/tls` has them.
const CA_CERTIFICATE: &str = "ca.crt";
const CA_KEY: &str = "ca.key";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// For whom the certificate is if nobody says: the Service of `manifests/`, and this machine.
const DEFAULT_DNS: [&str; 2] = ["mczk.mczk-system.svc", "localhost"];
const DEFAULT_IP: [IpAddr; 1] = [IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)];

/// Makes an authority (ca.crt, ca.key) and a serving certificate (tls.crt, tls.key), P-256. A running operator takes a
/// new tls.crt and tls.key by itself.
#[derive(Debug, Args)]
#[command(
    after_help = "Keep ca.key away from the cluster: only tls.crt and tls.key go into the operator's Secret, and \
                        ca.crt into the registration. certs/README.md tells more."
)]
pub struct Certs {
    /// Folder for the files; it is made if it does not exist
    #[arg(long, env = "MCZK_CERTS_DIR", value_name = "DIR")]
    dir: PathBuf,
    /// DNS name under which Karmada reaches the webhook; more of them with commas, or by repeating this [default:
    /// mczk.mczk-system.svc,localhost; with --renew, those of the old certificate]
    #[arg(long, env = "MCZK_CERTS_DNS", value_name = "NAME", value_delimiter = ',')]
    dns: Vec<String>,
    /// IP address under which Karmada reaches the webhook, likewise [default: 127.0.0.1 if no --dns is given either]
    #[arg(long, env = "MCZK_CERTS_IP", value_name = "ADDRESS", value_delimiter = ',')]
    ip: Vec<IpAddr>,
    /// Days for which the serving certificate is valid; never longer than its authority
    #[arg(long, env = "MCZK_CERTS_VALIDITY_DAYS", value_name = "DAYS", default_value_t = 365, value_parser = days())]
    validity_days: i64,
    /// Days for which the authority is valid
    #[arg(long, env = "MCZK_CERTS_CA_VALIDITY_DAYS", value_name = "DAYS", default_value_t = 3650, value_parser = days())]
    ca_validity_days: i64,
    /// Make a new serving certificate under the authority that is there: nothing has to be registered again
    #[arg(long, env = "MCZK_CERTS_RENEW")]
    renew: bool,
    /// Replace what is there, the authority too: the webhook must then be registered again
    #[arg(long, env = "MCZK_CERTS_FORCE")]
    force: bool,
}

fn days() -> RangedI64ValueParser<i64> {
    RangedI64ValueParser::new().range(1..=36_500)
}

impl Certs {
    /// Makes them, and prints what it made.
    ///
    /// # Errors
    /// [`Error::Usage`] if files are there that nobody said to replace, or none where some should be, or a name is none;
    /// [`Error::Failed`] if something cannot be written.
    pub fn run(self) -> Result<(), Error> {
        let now = Timestamp::now();
        let dir = &self.dir;
        self.check_files()?;
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let names = self.names()?;
        let authority =
            if self.renew { Authority::read(dir, now)? } else { Authority::make(now, self.ca_validity_days)? };
        let serving = authority.certify(&names, now, self.validity_days)?;

        if let Some(key) = &authority.new_key {
            write(&dir.join(CA_KEY), key, 0o600)?;
            write(&dir.join(CA_CERTIFICATE), &authority.pem, 0o644)?;
        }
        // The key first: an operator that looks between the two finds no pair, and looks again.
        write(&dir.join(KEY), &serving.key, 0o600)?;
        write(&dir.join(CERTIFICATE), &serving.pem, 0o644)?;

        let text = self.summary(&authority, &serving, &names);
        Ok(io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?)
    }

    /// Nothing is replaced that nobody said to replace.
    fn check_files(&self) -> Result<(), Error> {
        if self.renew && self.force {
            return Err(Error::Usage(
                "--renew and --force cannot be used together: --renew keeps the authority, --force replaces it too"
                    .to_owned(),
            ));
        }
        let there = |name: &str| self.dir.join(name).exists();
        if self.renew {
            return match [CA_CERTIFICATE, CA_KEY].into_iter().find(|name| !there(name)) {
                Some(missing) => Err(Error::Usage(format!(
                    "--renew needs the authority, but there is no {}: leave --renew out to make one",
                    self.dir.join(missing).display()
                ))),
                None => Ok(()),
            };
        }
        match [CA_CERTIFICATE, CA_KEY, CERTIFICATE, KEY].into_iter().find(|name| there(name)) {
            Some(found) if !self.force => Err(Error::Usage(format!(
                "{} exists: --renew keeps its authority and replaces the serving certificate, --force replaces both",
                self.dir.join(found).display()
            ))),
            _ => Ok(()),
        }
    }

    /// For whom the certificate is: as said, else as it was, else by default.
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
                    "--dns {name:?} is no DNS name: give names like mczk.mczk-system.svc, and addresses with --ip"
                )));
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        Ok(names)
    }

    fn summary(&self, authority: &Authority, serving: &Serving, names: &[Name]) -> String {
        let file = |name: &str| self.dir.join(name).display().to_string();
        let names = names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let what = |new: bool| if new { "made" } else { "kept" }.to_owned();
        let (day, ca_day) = (day(serving.not_after), day(authority.not_after));
        let ca = authority.new_key.is_some();
        let mut text = aligned(&[
            ["FILE", "WHAT", "", "ENDS", "FOR"].map(str::to_owned),
            [file(CA_CERTIFICATE), "authority".into(), what(ca), ca_day, String::new()],
            [file(CA_KEY), "its key, to be kept away".into(), what(ca), String::new(), String::new()],
            [file(CERTIFICATE), "serving certificate".into(), what(true), day, names],
            [file(KEY), "its key".into(), what(true), String::new(), String::new()],
        ]);
        if serving.shortened {
            text.push_str("\nThe serving certificate ends with its authority, earlier than --validity-days says: make a new authority with --force.\n");
        }
        if ca {
            let ca_file = file(CA_CERTIFICATE);
            text.push_str("\nTell Karmada of the authority:  mczk register --ca-file ");
            text.push_str(&ca_file);
            text.push_str(" ...\nor, for caBundle by hand:      base64 -w 0 ");
            text.push_str(&ca_file);
            text.push('\n');
        }
        text
    }
}

/// A name or an address in a certificate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Dns(String),
    Ip(IpAddr),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) => f.write_str(name),
            Self::Ip(address) => address.fmt(f),
        }
    }
}

/// Letters, digits and hyphens between dots; a star may stand for the first label.
fn is_dns_name(name: &str) -> bool {
    let plain = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let rest = name.strip_prefix("*.").unwrap_or(name);
    name.len() <= 253 && rest.split('.').all(plain) && name.parse::<IpAddr>().is_err()
}

/// The names in the certificate that is to be replaced; none if it cannot be read, since it is replaced anyway.
fn former_names(path: &Path) -> Option<Vec<Name>> {
    let der = CertificateDer::from_pem_file(path).ok()?;
    let (_, certificate) = x509_parser::parse_x509_certificate(&der).ok()?;
    let names = certificate.subject_alternative_name().ok()??;
    let name = |name: &GeneralName<'_>| match *name {
        GeneralName::DNSName(name) => Some(Name::Dns(name.to_owned())),
        GeneralName::IPAddress(bytes) => match <[u8; 4]>::try_from(bytes) {
            Ok(four) => Some(Name::Ip(four.into())),
            Err(_) => <[u8; 16]>::try_from(bytes).ok().map(|sixteen| Name::Ip(sixteen.into())),
        },
        _ => None,
    };
    Some(names.value.general_names.iter().filter_map(name).collect())
}

/// Who signs.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    not_after: Timestamp,
    /// Its key, if it was made just now.
    new_key: Option<String>,
}

/// What is served.
struct Serving {
    pem: String,
    key: String,
    not_after: Timestamp,
    /// Whether its authority ends before it should.
    shortened: bool,
}

impl Authority {
    fn make(now: Timestamp, days: i64) -> Result<Self, Error> {
        let key = new_key()?;
        let not_after = after(now, days)?;
        let params = pki::authority_params("mczk webhook CA", now, not_after).map_err(anyhow::Error::from)?;
        let pem = params.self_signed(&key).context("cannot sign the authority")?.pem();
        let new_key = Some(key.serialize_pem());
        Ok(Self { issuer: Issuer::new(params, key), pem, not_after, new_key })
    }

    fn read(dir: &Path, now: Timestamp) -> Result<Self, Error> {
        let (path, key_path) = (dir.join(CA_CERTIFICATE), dir.join(CA_KEY));
        let read = |path: &Path| fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
        let unusable = |path: &Path, error: &dyn fmt::Display| {
            Error::Usage(format!("{} cannot be used ({error}): make a new authority with --force", path.display()))
        };
        let (pem, key_pem) = (read(&path)?, read(&key_path)?);
        let key = KeyPair::from_pem(&key_pem).map_err(|error| unusable(&key_path, &error))?;
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| unusable(&path, &error))?;
        let (_, certificate): (_, X509Certificate<'_>) =
            x509_parser::parse_x509_certificate(&der).map_err(|error| unusable(&path, &error))?;
        let not_after = Timestamp::from_second(certificate.validity().not_after.timestamp())
            .map_err(|error| unusable(&path, &error))?;
        if not_after <= now {
            return Err(unusable(&path, &format_args!("it ended at {not_after}")));
        }
        if certificate.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
            return Err(unusable(&path, &format_args!("{} is not its key", key_path.display())));
        }
        let issuer = Issuer::from_ca_cert_der(&der, key).map_err(|error| unusable(&path, &error))?;
        Ok(Self { issuer, pem, not_after, new_key: None })
    }

    fn certify(&self, names: &[Name], now: Timestamp, days: i64) -> Result<Serving, Error> {
        let wanted = after(now, days)?;
        let not_after = wanted.min(self.not_after);
        let common_name = names.first().map_or_else(String::new, ToString::to_string);
        // A common name has room for 64 characters; nobody reads it where there are alternative names.
        let mut params =
            pki::params(common_name.get(..64).unwrap_or(&common_name), now, not_after).map_err(anyhow::Error::from)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.subject_alt_names = names
            .iter()
            .map(|name| match name {
                Name::Dns(name) => Ok(SanType::DnsName(name.as_str().try_into()?)),
                Name::Ip(address) => Ok(SanType::IpAddress(*address)),
            })
            .collect::<Result<_, rcgen::Error>>()
            .context("a name cannot be written into a certificate")?;
        let key = new_key()?;
        let pem = params.signed_by(&key, &self.issuer).context("cannot sign the serving certificate")?.pem();
        Ok(Serving { pem, key: key.serialize_pem(), not_after, shortened: not_after < wanted })
    }
}

fn new_key() -> Result<KeyPair, Error> {
    Ok(pki::new_key().map_err(anyhow::Error::from)?)
}

fn after(now: Timestamp, days: i64) -> Result<Timestamp, Error> {
    Ok(now.checked_add(SignedDuration::from_hours(24 * days)).context("the validity ends beyond the calendar")?)
}

fn day(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d").to_string()
}

/// Writes a file whole or not at all, readable from its first moment for those only who may read it.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), Error> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let attempt = || -> io::Result<()> {
        // Left over from an attempt that was broken off; its mode may be another.
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    Ok(attempt().with_context(|| format!("cannot write {}", path.display()))?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        certs: Certs,
    }

    /// A folder that goes with the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("mczk-certs-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }

        fn run(&self, flags: &[&str]) -> Result<(), Error> {
            let dir = self.0.to_str().unwrap();
            Cli::try_parse_from(["certs", "--dir", dir].iter().chain(flags)).unwrap().certs.run()
        }

        fn read(&self, name: &str) -> String {
            fs::read_to_string(self.0.join(name)).unwrap()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn keys_are_for_their_owner_only() {
        let folder = Folder::new("modes");
        folder.run(&[]).unwrap();
        for (name, mode) in [("ca.crt", 0o644), ("ca.key", 0o600), ("tls.crt", 0o644), ("tls.key", 0o600)] {
            assert_eq!(fs::metadata(folder.0.join(name)).unwrap().permissions().mode() & 0o777, mode, "{name}");
        }
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 4);
    }

    #[test]
    fn nothing_is_replaced_unasked() {
        let folder = Folder::new("force");
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
    fn a_renewal_keeps_names_unless_told() {
        let folder = Folder::new("names");
        let names = || former_names(&folder.0.join("tls.crt")).unwrap();
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
    fn a_certificate_ends_with_its_authority() {
        let folder = Folder::new("validity");
        folder.run(&["--validity-days", "30", "--ca-validity-days", "10"]).unwrap();
        let end = |name: &str| {
            let der = CertificateDer::from_pem_file(folder.0.join(name)).unwrap();
            x509_parser::parse_x509_certificate(&der).unwrap().1.validity().not_after.timestamp()
        };
        assert_eq!(end("tls.crt"), end("ca.crt"));
    }

    #[test]
    fn a_renewal_needs_its_authority() {
        let folder = Folder::new("renew");
        assert!(matches!(folder.run(&["--renew"]), Err(Error::Usage(text)) if text.contains("ca.crt")));
        assert!(matches!(folder.run(&["--renew", "--force"]), Err(Error::Usage(text)) if text.contains("together")));
        assert!(!folder.0.exists(), "nothing was made");
        folder.run(&[]).unwrap();
        fs::copy(folder.0.join("tls.key"), folder.0.join("ca.key")).unwrap();
        assert!(matches!(folder.run(&["--renew"]), Err(Error::Usage(text)) if text.contains("is not its key")));
    }

    #[test]
    fn names_are_names() {
        for name in ["mczk.svc", "*.example.org", "localhost", "a-b.c1"] {
            assert!(is_dns_name(name), "{name}");
        }
        for name in ["", "a..b", "-a", "a b", "127.0.0.1", "a.*.b", "https://x"] {
            assert!(!is_dns_name(name), "{name}");
        }
        assert!(matches!(Folder::new("no-name").run(&["--dns", "https://x"]), Err(Error::Usage(_))));
    }
}
