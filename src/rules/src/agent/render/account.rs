//! The `ServiceAccount` of servers, without rights and without a token.

use serde_json::json;

use crate::agent::render::{
    object::{Kind, Object},
    source::Source,
};

pub(super) fn account(source: &Source<'_>) -> Object {
    source.object(
        Kind::ServiceAccount,
        source.base(),
        &source.labels(),
        json!({ "automountServiceAccountToken": false }),
    )
}
