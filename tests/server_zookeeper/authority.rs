//! Certificates of the quorum.

use std::fs;
use std::path::Path;

/// A certificate authority of one incarnation.
pub struct Authority(pub rcgen::CertifiedIssuer<'static, rcgen::KeyPair>);

impl Authority {
    pub fn new() -> Self {
        Self::named("quorum")
    }

    pub fn named(subject: &str) -> Self {
        let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, subject);
        Self(rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap())
    }

    /// Writes a new certificate of this authority, as the files of a Secret.
    pub fn write_identity(&self, folder: &Path) {
        self.write(folder, self.issue());
    }

    /// Writes a certificate of this authority that ended years ago.
    pub fn write_expired_identity(&self, folder: &Path) {
        self.write(folder, self.issue_until(2021));
    }

    fn write(&self, folder: &Path, (certificate, key): (String, String)) {
        for (name, text) in [("tls.key", key), ("tls.crt", certificate), ("ca.crt", self.0.pem())] {
            fs::write(folder.join(name), text).unwrap();
        }
    }

    /// A certificate and its key.
    pub fn issue(&self) -> (String, String) {
        self.issue_until(4096)
    }

    fn issue_until(&self, year: i32) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["quorum.mczk".to_owned()]).unwrap();
        params.extended_key_usages =
            vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth, rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}
