//! Id of a request. It links the answer with the line of the log.

use axum::{
    http::{HeaderMap, HeaderName, HeaderValue},
    response::Response,
};

/// Header with the id, in requests and answers.
const HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// Longest id of a client.
const LONGEST: usize = 64;

/// Id of a request: the client's if it is valid, else a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestId(HeaderValue);

impl RequestId {
    /// The id of the request with these headers.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let valid = headers.get(HEADER).filter(|id| is_valid(id.as_bytes())).cloned();
        Self(valid.unwrap_or_else(|| new(rand::random())))
    }

    /// The text of the id.
    pub(super) fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    /// The message of an error, with the id at its end.
    pub(super) fn end(&self, message: &str) -> String {
        format!("{message}, request {}", self.as_str())
    }

    /// The answer with the id in its header.
    pub(super) fn mark(self, mut response: Response) -> Response {
        response.headers_mut().insert(HEADER, self.0);
        response
    }
}

/// Letters, digits and `._-`: the id is written into logs and messages.
fn is_valid(id: &[u8]) -> bool {
    (1..=LONGEST).contains(&id.len()) && id.iter().all(|c| c.is_ascii_alphanumeric() || b"._-".contains(c))
}

/// A new id: 16 hexadecimal digits.
fn new(random: u64) -> HeaderValue {
    let text = format!("{random:016x}");
    HeaderValue::from_str(&text).unwrap_or(const { HeaderValue::from_static("none") })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::uuid("6c7e1d5e-0001-4b9e-a1b2-1234567890ab", true)]
    #[case::longest(&"x".repeat(64), true)]
    #[case::too_long(&"x".repeat(65), false)]
    #[case::empty("", false)]
    #[case::space("a b", false)]
    #[case::quote("a\"b", false)]
    #[case::slash("a/b", false)]
    fn only_a_valid_id_is_taken_over(#[case] id: &str, #[case] valid: bool) {
        let headers = HeaderMap::from_iter([(HEADER, HeaderValue::from_str(id).unwrap())]);
        let taken = RequestId::of(&headers);
        assert_eq!(taken.as_str() == id, valid);
        assert!(is_valid(taken.as_str().as_bytes()));
    }

    #[test]
    fn an_id_that_is_no_text_is_replaced() {
        let headers = HeaderMap::from_iter([(HEADER, HeaderValue::from_bytes(b"\xff").unwrap())]);
        assert_eq!(RequestId::of(&headers).as_str().len(), 16);
    }

    #[test]
    fn new_ids_differ() {
        assert_ne!(RequestId::of(&HeaderMap::new()), RequestId::of(&HeaderMap::new()));
    }
}
