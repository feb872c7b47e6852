//! The certificates for clients, which only `ZooKeeper` uses.

use std::fs;
use std::io;
use std::path::Path;

use mczk_runtime::atomic_file;
use mczk_runtime::client_certificates;

/// Writes the files of a Secret in `ZooKeeper`'s form: key and certificate chain to `joined`, authorities to `trust`. Leaves
/// unchanged files alone, because `ZooKeeper` reloads a file that is written.
///
/// # Errors
/// If a file cannot be read or written. If key and certificate do not match, as for a moment while a Secret changes.
pub(crate) fn join(folder: &Path, joined: &Path, trust: &Path) -> io::Result<()> {
    let (certificate, key) = (fs::read(folder.join("tls.crt"))?, fs::read(folder.join("tls.key"))?);
    let authorities = fs::read(folder.join("ca.crt"))?;
    let content = [key.as_slice(), b"\n", &certificate].concat();
    let is_unchanged = |path: &Path, content: &[u8]| fs::read(path).is_ok_and(|current| current == content);
    // The server polls every few seconds: unchanged files were checked before.
    if !is_unchanged(joined, &content) || !is_unchanged(trust, &authorities) {
        client_certificates::check(&certificate, &key, &authorities).map_err(io::Error::other)?;
    }
    for (path, content) in [(trust, authorities), (joined, content)] {
        if !is_unchanged(path, &content) {
            atomic_file::write(path, &content, 0o600)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use k8s_openapi::jiff::{SignedDuration, Timestamp};

    use super::*;
    use mczk_runtime::pki;

    #[test]
    fn join_refuses_a_key_without_its_certificate() {
        let folder = std::env::temp_dir().join(format!("mczk-join-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (joined, trust) = (folder.join("joined.pem"), folder.join("trust.pem"));
        let (now, validity) = (Timestamp::now(), SignedDuration::from_hours(1));
        let authority = pki::authority("a", now, validity).unwrap();
        let issue = || pki::identity("i", (&authority.certificate, &authority.key), now, validity).unwrap();
        let (first, second) = (issue(), issue());
        let put = |certificate: &str, key: &str| {
            fs::write(folder.join("ca.crt"), &authority.certificate).unwrap();
            fs::write(folder.join("tls.crt"), certificate).unwrap();
            fs::write(folder.join("tls.key"), key).unwrap();
            join(&folder, &joined, &trust)
        };
        put(&first.certificate, &first.key).unwrap();
        let before = fs::read_to_string(&joined).unwrap();
        assert!(before.contains(&first.certificate) && before.contains(&first.key));
        // Half of a change.
        put(&second.certificate, &first.key).unwrap_err();
        put("no certificate", &first.key).unwrap_err();
        assert_eq!(fs::read_to_string(&joined).unwrap(), before);
        put(&second.certificate, &second.key).unwrap();
        assert!(fs::read_to_string(&joined).unwrap().contains(&second.certificate));
        fs::remove_dir_all(&folder).unwrap();
    }
}
