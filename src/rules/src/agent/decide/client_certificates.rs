//! Which certificates for clients the agent accepts, and which stay until the Secret is sound.
//!
//! Karmada propagates the user's Secret under its own name, to all clusters at once. It releases the Secret as soon as the
//! template names another one, the object leaves the cluster, or a user deletes it. A pod that mounts a missing or half changed
//! Secret cannot start. So pods mount the agent's own copy of the last sound certificates.

use crate::agent::render::material::Material;

/// Longest name of a Secret.
const LONGEST_NAME: usize = 253;

/// State of the user's Secret in this cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretState {
    /// No Secret can have that name.
    Misnamed,
    /// No Secret of that name exists.
    Missing,
    /// The Secret lacks a text for one of `tls.crt`, `tls.key` and `ca.crt`.
    Partial(&'static str),
    /// The Secret holds all three, and servers cannot use them: why.
    Unsound(String),
    /// The Secret holds all three, and servers can use them.
    Sound(Material),
    /// The same, but Karmada has released the Secret: it is not renewed any more.
    Released(Material),
}

/// The certificates for clients that pods mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptedCertificates {
    /// The newest certificates, or the last sound ones.
    pub material: Option<Material>,
    /// Why the agent does not accept the newest ones: state, cause and action.
    pub problem: Option<String>,
    /// True if the copy that pods mount exists.
    pub copied: bool,
}

/// True if a Secret may have this name, which is a DNS subdomain. The agent requests no other name from the API server.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        label.bytes().all(|c| plain(c) || c == b'-')
            && label.bytes().next().is_some_and(plain)
            && label.bytes().last().is_some_and(plain)
    };
    name.len() <= LONGEST_NAME && name.split('.').all(is_label)
}

/// Accepts the newest certificates if they are sound, else the agent's copy.
#[must_use]
pub fn accept(secret: &str, state: SecretState, copy: Option<Material>) -> AcceptedCertificates {
    let copied = copy.is_some();
    let released = matches!(state, SecretState::Released(_));
    let why = match state {
        // Karmada has not propagated the Secret yet: the user has nothing to repair.
        SecretState::Missing if !copied => return AcceptedCertificates::default(),
        SecretState::Missing => "does not exist".to_owned(),
        SecretState::Misnamed => "cannot have this name".to_owned(),
        SecretState::Partial(key) => format!("cannot be used: it has no text {key}"),
        SecretState::Unsound(why) => format!("cannot be used: {why}"),
        SecretState::Sound(material) | SecretState::Released(material) => {
            let problem = released.then(|| {
                format!(
                    "Secret {secret} is not renewed any more: Karmada has released it. Create it in the control plane \
                     again, and check that a policy propagates it"
                )
            });
            return AcceptedCertificates { material: Some(material), problem, copied };
        }
    };
    let meanwhile = if copied { "servers keep the certificates that they have" } else { "servers wait for it" };
    let problem = format!(
        "Secret {secret} {why}; {meanwhile}. Correct it in the control plane, from where Karmada propagates it"
    );
    AcceptedCertificates { material: copy, problem: Some(problem), copied }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn made(name: &str) -> Material {
        let text = |what: &str| format!("{what} of {name}");
        Material { certificate: text("certificate"), key: text("key"), authorities: text("authorities") }
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

    #[test]
    fn sound_certificates_are_accepted() {
        let (copy, newest) = (made("copy"), made("newest"));
        for copy in [None, Some(copy)] {
            let copied = copy.is_some();
            let accepted = accept("s", SecretState::Sound(newest.clone()), copy);
            assert_eq!(accepted, AcceptedCertificates { material: Some(newest.clone()), problem: None, copied });
        }
    }

    /// The certificates would expire in all clusters at once, so the agent reports them before.
    #[test]
    fn a_released_secret_is_accepted_and_reported() {
        let newest = made("newest");
        let accepted = accept("s", SecretState::Released(newest.clone()), None);
        assert_eq!(accepted.material, Some(newest));
        assert!(accepted.problem.unwrap().starts_with("Secret s is not renewed any more: Karmada has released it"));
    }

    #[rstest]
    #[case::deleted(SecretState::Missing, "Secret s does not exist")]
    #[case::misnamed(SecretState::Misnamed, "Secret s cannot have this name")]
    #[case::partial(SecretState::Partial("ca.crt"), "Secret s cannot be used: it has no text ca.crt")]
    #[case::unsound(SecretState::Unsound("it is broken".into()), "Secret s cannot be used: it is broken")]
    fn an_unsound_secret_keeps_the_copy(#[case] state: SecretState, #[case] why: &str) {
        let copy = made("copy");
        let accepted = accept("s", state.clone(), Some(copy.clone()));
        assert_eq!(accepted.material, Some(copy));
        let problem = accepted.problem.unwrap();
        assert!(problem.contains(why) && problem.contains("servers keep the certificates that they have"), "{problem}");
        let accepted = accept("s", state.clone(), None);
        assert_eq!(accepted.material, None);
        // Karmada may still be propagating it.
        assert_eq!(accepted.problem.is_some(), state != SecretState::Missing);
    }
}
