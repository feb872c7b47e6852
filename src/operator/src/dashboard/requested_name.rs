//! Namespaces and names of URLs. They become parts of paths of the API server, where `/`, `..` or `?` would name another
//! object than the one that the caller may see.

use serde::Deserialize;

/// Longest name of a namespace or ensemble.
const MOST_BYTES: usize = 63;

/// What a namespace or an ensemble can be named.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct RequestedName(pub(super) String);

impl TryFrom<String> for RequestedName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let ends_well = !name.starts_with('-') && !name.ends_with('-');
        if (1..=MOST_BYTES).contains(&name.len()) && name.bytes().all(inner) && ends_well {
            return Ok(Self(name));
        }
        Err("a namespace or name has at most 63 small letters, digits and '-': correct it".to_owned())
    }
}
