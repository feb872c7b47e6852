//! Names of the Secrets with the quorum's certificates.

use crate::tls::EnsembleTls;

/// Kind of content of a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holds {
    /// `ca.crt` and `ca.key`. The Secret stays in the control plane.
    Authority,
    /// `ca.crt` only.
    Trust,
    /// `tls.crt` and `tls.key`.
    Identity,
}

impl Holds {
    /// The word in names and annotations.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Authority => "authority",
            Self::Trust => "trust",
            Self::Identity => "identity",
        }
    }
}

/// The parts of a Secret's name: everything before its number, and the number.
#[must_use]
pub fn numbered(name: &str) -> Option<(&str, u32)> {
    let (stem, number) = name.rsplit_once('-')?;
    Some((stem, number.parse().ok()?))
}

/// Name of a Secret with certificates.
#[must_use]
pub fn secret_name(ensemble: &str, incarnation: &str, holds: Holds, number: u32) -> String {
    format!("{ensemble}-{incarnation}-{}-{number}", holds.word())
}

/// The ensemble of a Secret with certificates of this kind, by its name.
#[must_use]
pub fn ensemble_of(secret: &str, holds: Holds) -> Option<&str> {
    let (stem, _) = numbered(secret)?;
    let (ensemble, _) = stem.strip_suffix(holds.word())?.strip_suffix('-')?.rsplit_once('-')?;
    Some(ensemble)
}

/// Names of the identities and authorities before those in use, newest first, at most `most` of each kind.
#[must_use]
pub fn former(tls: &EnsembleTls, most: u32) -> Vec<String> {
    let first_trusted = tls.trust.iter().filter_map(|name| numbered(name)).min_by_key(|(_, number)| *number);
    let kinds = numbered(&tls.identity).into_iter().chain(first_trusted);
    kinds
        .flat_map(|(stem, first)| {
            (1..first).rev().take(usize::try_from(most).unwrap_or(0)).map(move |n| format!("{stem}-{n}"))
        })
        .collect()
}
