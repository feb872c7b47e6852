//! The request to replace a volume: `mczk replace` writes it, the operator passes it on, and one agent acts on it.
//!
//! It names the uid of the claim. So it is void once that claim is gone: a repository that applies it again, or an old copy
//! of it, deletes no later claim.

use std::{
    collections::BTreeMap,
    fmt::{self, Display, Formatter},
    str::FromStr,
};

use crate::contract::labels::REPLACE_VOLUME;

/// More characters than any request has. The operator passes no more on.
pub const LONGEST_REQUEST: usize = 128;
/// Longest uid of an object.
const LONGEST_UID: usize = 64;

/// The request to replace the volume of one server by an empty one. As text it is `ID/UID`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplaceRequest {
    /// Id of the server.
    pub server: i32,
    /// Uid of its `PersistentVolumeClaim`.
    pub claim: String,
}

impl ReplaceRequest {
    /// The request in the annotations of an object, if there is one.
    ///
    /// # Errors
    /// If the annotation is no request.
    #[must_use]
    pub fn of(annotations: &BTreeMap<String, String>) -> Option<Result<Self, NoRequest>> {
        annotations.get(REPLACE_VOLUME).map(|text| text.parse())
    }
}

impl Display for ReplaceRequest {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.server, self.claim)
    }
}

/// A text is no request to replace a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the annotation {REPLACE_VOLUME} is not the id of a server, a slash and the uid of its claim. Remove it, and use mczk replace"
)]
pub struct NoRequest;

impl FromStr for ReplaceRequest {
    type Err = NoRequest;

    fn from_str(text: &str) -> Result<Self, NoRequest> {
        let (server, claim) = text.split_once('/').ok_or(NoRequest)?;
        let is_uid = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if claim.is_empty() || claim.len() > LONGEST_UID || !claim.chars().all(is_uid) {
            return Err(NoRequest);
        }
        Ok(Self { server: server.parse().map_err(|_| NoRequest)?, claim: claim.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("3/0b1c-4d", true)]
    #[case("0b1c-4d", false)]
    #[case("3/", false)]
    #[case("three/0b1c", false)]
    #[case("3/0b1c/2", false)]
    fn a_request_is_an_id_and_a_uid(#[case] text: &str, #[case] valid: bool) {
        let request = text.parse::<ReplaceRequest>();
        assert_eq!(request.map(|request| request.to_string()).ok().as_deref(), valid.then_some(text));
    }
}
