//! Names of the Secrets that hold the quorum's certificates.

use crate::api::tls::EnsembleTls;

/// What a Secret holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holds {
    /// `ca.crt` and `ca.key`. It stays in the control plane.
    Authority,
    /// `ca.crt` alone.
    Trust,
    /// `tls.crt` and `tls.key`.
    Identity,
}

impl Holds {
    /// Its word in names and annotations.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Authority => "authority",
            Self::Trust => "trust",
            Self::Identity => "identity",
        }
    }
}

/// A Secret's name taken apart: what comes before its number, and the number.
#[must_use]
pub fn numbered(name: &str) -> Option<(&str, u32)> {
    let (stem, number) = name.rsplit_once('-')?;
    Some((stem, number.parse().ok()?))
}

/// Name of a Secret.
#[must_use]
pub fn secret_name(ensemble: &str, incarnation: &str, holds: Holds, number: u32) -> String {
    format!("{ensemble}-{incarnation}-{}-{number}", holds.word())
}

/// What was used before what is used now, by name: identities and authorities that come before all of those, the newest
/// first, at most so many of each kind.
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
