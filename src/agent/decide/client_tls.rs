//! Certificates that clients see: which of a person's Secret are taken, and what stays while they are not sound.
//!
//! Karmada brings the Secret under its own name, in all clusters at once, and lets go of it as soon as the template names
//! another one, the cluster is left, or somebody deletes it. Pods that mounted it could not start again once it is gone, nor with
//! a Secret that holds half of a change. So the agent has a copy of its own, of what was sound last, and pods mount that.

use crate::{agent::render::Material, contract::client_certificates::check};

/// As long as a name may be.
const LONGEST: usize = 253;

/// What a person's Secret holds here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretState {
    /// No Secret can have that name.
    Misnamed,
    /// There is none of that name.
    Missing,
    /// It lacks one of `tls.crt`, `tls.key` and `ca.crt`, or that is no text.
    Partial(&'static str),
    /// All three.
    Whole(Material),
    /// All three, but Karmada, which brought them, has let go of the Secret: no renewal would come.
    Released(Material),
}

/// What pods are to mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// The certificates: the person's newest, or those that were sound last.
    pub material: Option<Material>,
    /// Why the newest are not taken, in words for a person.
    pub trouble: Option<String>,
    /// Whether the copy that pods mount is there already.
    pub copied: bool,
}

/// Whether a Secret may have this name: a DNS subdomain. The API server would not even be asked for another.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let part = |part: &str| {
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        part.bytes().all(|c| plain(c) || c == b'-')
            && part.bytes().next().is_some_and(plain)
            && part.bytes().last().is_some_and(plain)
    };
    name.len() <= LONGEST && name.split('.').all(part)
}

/// Takes the newest if they are sound, else what is `kept`.
#[must_use]
pub fn take(secret: &str, travelled: SecretState, kept: Option<Material>) -> Taken {
    let copied = kept.is_some();
    let let_go = matches!(travelled, SecretState::Released(_));
    let why = match travelled {
        // It is on its way: nothing has to be repaired.
        SecretState::Missing if kept.is_none() => return Taken::default(),
        SecretState::Missing => "is not here".to_owned(),
        SecretState::Misnamed => "can have no such name".to_owned(),
        SecretState::Partial(key) => format!("cannot be used: it has no text {key}"),
        SecretState::Whole(material) | SecretState::Released(material) => {
            let Material { certificate, key, authorities } = &material;
            match check(certificate.as_bytes(), key.as_bytes(), authorities.as_bytes()) {
                Ok(()) => {
                    let trouble = let_go.then(|| {
                        format!(
                            "Secret {secret} is not kept by Karmada any more, so no renewal comes: it is not in the control \
                             plane, or nothing propagates it. Make it there again"
                        )
                    });
                    return Taken { material: Some(material), trouble, copied };
                }
                Err(unsound) => format!("cannot be used: {unsound}"),
            }
        }
    };
    let until = if copied { "servers go on with what they have" } else { "servers wait for it" };
    let trouble = format!("Secret {secret} {why}; {until}. Mend it in the control plane, from where it travels here");
    Taken { material: kept, trouble: Some(trouble), copied }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use k8s_openapi::jiff::{SignedDuration, Timestamp};
    use rstest::rstest;

    use super::*;
    use crate::{contract::client_certificates::Unsound, runtime::pki};

    fn made() -> Material {
        let (now, life) = (Timestamp::now(), SignedDuration::from_hours(1));
        let authority = pki::authority("a", now, life).unwrap();
        let issued = pki::identity("i", (&authority.certificate, &authority.key), now, life).unwrap();
        Material { certificate: issued.certificate, key: issued.key, authorities: authority.certificate }
    }

    #[rstest]
    #[case("zk-tls", true)]
    #[case("a.b-1.c", true)]
    #[case("zk tls", false)]
    #[case("zk-tls\n", false)]
    #[case("../zk", false)]
    #[case("-a", false)]
    #[case("a..b", false)]
    #[case("", false)]
    fn names_of_secrets(#[case] name: &str, #[case] is: bool) {
        assert_eq!(is_name(name), is);
    }

    /// What `ZooKeeper` does not read must not take the place of what it does.
    #[test]
    fn keys_of_other_forms_are_not_sound() {
        let Material { certificate, authorities, .. } = made();
        let der = rcgen::KeyPair::generate().unwrap().serialize_der();
        let other = |label: &str, der: &[u8]| {
            format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
        };
        let ed25519 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let own = rcgen::CertificateParams::default().self_signed(&ed25519).unwrap().pem();
        for (certificate, key) in [
            (&certificate, other("EC PRIVATE KEY", &der)),
            (&certificate, other("RSA PRIVATE KEY", &der)),
            (&own, ed25519.serialize_pem()),
        ] {
            let refused = check(certificate.as_bytes(), key.as_bytes(), authorities.as_bytes()).unwrap_err();
            assert!(matches!(refused, Unsound::Key), "{refused}");
        }
    }

    #[test]
    fn what_is_sound_is_taken() {
        let (kept, newest) = (made(), made());
        for kept in [None, Some(kept)] {
            let copied = kept.is_some();
            let taken = take("s", SecretState::Whole(newest.clone()), kept);
            assert_eq!(taken, Taken { material: Some(newest.clone()), trouble: None, copied });
        }
    }

    /// What would end some day, in all clusters at once, is told before.
    #[test]
    fn what_karmada_let_go_of_is_taken_and_told() {
        let newest = made();
        let taken = take("s", SecretState::Released(newest.clone()), None);
        assert_eq!(taken.material, Some(newest));
        assert!(taken.trouble.unwrap().starts_with("Secret s is not kept by Karmada any more"));
    }

    #[rstest]
    #[case::deleted(SecretState::Missing, "Secret s is not here")]
    #[case::misnamed(SecretState::Misnamed, "Secret s can have no such name")]
    #[case::partial(SecretState::Partial("ca.crt"), "Secret s cannot be used: it has no text ca.crt")]
    #[case::no_pair(SecretState::Whole(Material { key: made().key, ..made() }), "tls.crt and tls.key do not go together")]
    #[case::no_key(SecretState::Whole(Material { key: made().certificate, ..made() }), "tls.key holds no private key in PEM")]
    #[case::no_certificate(SecretState::Whole(Material { certificate: "none".into(), ..made() }), "tls.crt holds no certificate")]
    #[case::no_authority(SecretState::Whole(Material { authorities: String::new(), ..made() }), "ca.crt holds no certificate")]
    #[case::a_broken_authority(
        SecretState::Whole(Material { authorities: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".into(), ..made() }),
        "ca.crt: "
    )]
    fn what_is_not_leaves_what_there_is(#[case] travelled: SecretState, #[case] why: &str) {
        let kept = made();
        let taken = take("s", travelled.clone(), Some(kept.clone()));
        assert_eq!(taken.material, Some(kept));
        let trouble = taken.trouble.unwrap();
        assert!(trouble.contains(why) && trouble.contains("servers go on with what they have"), "{trouble}");
        let taken = take("s", travelled.clone(), None);
        assert_eq!(taken.material, None);
        // On its way it is no trouble.
        assert_eq!(taken.trouble.is_some(), travelled != SecretState::Missing);
    }
}
