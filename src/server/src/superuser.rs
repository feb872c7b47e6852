//! The rights of a superuser: only this process has them, and only for its own server.

use base64::Engine as _;

/// A superuser's password, valid for one start of one server.
#[derive(Clone)]
pub(crate) struct Superuser {
    password: String,
}

impl std::fmt::Debug for Superuser {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Superuser")
    }
}

impl Superuser {
    /// A superuser with a new random password.
    #[must_use]
    pub(crate) fn generate() -> Self {
        Self { password: format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>()) }
    }

    /// Credential of a session.
    #[must_use]
    pub(crate) fn credential(&self) -> String {
        format!("super:{}", self.password)
    }

    /// Digest for the server, which checks the credential with it and cannot derive the credential from it.
    #[must_use]
    pub(crate) fn digest(&self) -> String {
        // ZooKeeper's algorithm. Another one would change the meaning of digests in users' access lists.
        let sum = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY, self.credential().as_bytes());
        format!("super:{}", base64::engine::general_purpose::STANDARD.encode(sum))
    }

    /// Texts that no log line may contain.
    #[must_use]
    pub(crate) fn secrets(&self) -> Vec<String> {
        vec![self.digest(), self.password.clone()]
    }
}
