//! The user agent of requests to API servers. Their audit logs then show which process sent a request.

use http::HeaderValue;

/// The user agent of every process of this version.
const PROGRAM: &str = concat!("mczk/", env!("CARGO_PKG_VERSION"));

/// The user agent of a process with this identity: the one in its Lease. Without an identity it names the version alone.
#[must_use]
pub fn user_agent(identity: Option<&str>) -> HeaderValue {
    let named = identity.and_then(|identity| HeaderValue::try_from(format!("{PROGRAM} ({identity})")).ok());
    named.unwrap_or_else(|| HeaderValue::from_static(PROGRAM))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(Some("mczk-0-1a2b3c4d"), " (mczk-0-1a2b3c4d)")]
    #[case(None, "")]
    #[case::no_text_of_a_header(Some("a\nb"), "")]
    fn the_identity_follows_the_version(#[case] identity: Option<&str>, #[case] end: &str) {
        assert_eq!(user_agent(identity), format!("mczk/{}{end}", env!("CARGO_PKG_VERSION")).as_str());
    }
}
