//! Namespaces and names of URLs. They become parts of paths of the API server, where `/`, `..` or `?` would name another
//! object than the one that the caller may see.

use serde::Deserialize;

use mczk_api::contract::naming::is_label;

/// What a namespace or an ensemble can be named.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct RequestedName(pub(super) String);

impl TryFrom<String> for RequestedName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        if is_label(&name) {
            return Ok(Self(name));
        }
        Err("a namespace or name has at most 63 small letters, digits and '-': correct it".to_owned())
    }
}
