//! Why the HTTP service refuses a request before the interpreter answers it.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;

use super::{metrics::AnswerOutcome, request_id::RequestId};

/// Why a request gets no answer of the interpreter.
#[derive(Debug)]
pub(super) enum Rejection {
    NotFound,
    NotPost,
    NotJson,
    /// A newer request has taken the place of this one, whose body arrives slowly.
    Evicted,
    /// The requests that are answered take all memory for bodies.
    Full,
    /// With the largest body in bytes.
    TooLarge(usize),
    TooSlow,
    Malformed(String),
    Panicked,
}

impl Rejection {
    /// The outcome for the metrics.
    pub(super) const fn outcome(&self) -> AnswerOutcome {
        match self {
            Self::NotFound | Self::NotPost => AnswerOutcome::Astray,
            Self::NotJson => AnswerOutcome::NotJson,
            Self::Evicted => AnswerOutcome::Evicted,
            Self::Full => AnswerOutcome::Full,
            Self::TooLarge(_) => AnswerOutcome::TooLarge,
            Self::TooSlow => AnswerOutcome::TooSlow,
            Self::Malformed(_) => AnswerOutcome::Malformed,
            Self::Panicked => AnswerOutcome::Panicked,
        }
    }

    /// True if the client may still be writing the body.
    pub(super) const fn leaves_body(&self) -> bool {
        matches!(self, Self::NotJson | Self::Full | Self::TooLarge(_))
    }

    /// HTTP status, Kubernetes' reason for it, and a text for the user.
    fn describe(self) -> (StatusCode, &'static str, String) {
        match self {
            Self::NotFound => (
                StatusCode::NOT_FOUND,
                "NotFound",
                "nothing is served at this path: check the path of the registered URL".to_owned(),
            ),
            Self::NotPost => (StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "only POST is allowed".to_owned()),
            Self::NotJson => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "UnsupportedMediaType",
                "the Content-Type must be application/json".to_owned(),
            ),
            Self::Evicted => (
                StatusCode::TOO_MANY_REQUESTS,
                "TooManyRequests",
                "the body arrives slowly, and newer requests need its place: try again".to_owned(),
            ),
            Self::Full => (
                StatusCode::SERVICE_UNAVAILABLE,
                "ServiceUnavailable",
                "the bodies of other requests take all memory for bodies: try again".to_owned(),
            ),
            Self::TooLarge(bytes) => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "RequestEntityTooLarge",
                format!("the body is larger than {bytes} bytes: raise --max-body-bytes if Karmada sent it"),
            ),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "Timeout", "the body did not arrive in time".to_owned()),
            Self::Malformed(message) => (StatusCode::BAD_REQUEST, "BadRequest", message),
            Self::Panicked => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "InternalError",
                "this request caused a panic, which is a defect of mczk".to_owned(),
            ),
        }
    }

    /// The answer, whose message ends with the id of the request.
    pub(super) fn response(self, id: &RequestId) -> Response {
        let more = match self {
            // Karmada repeats the request within its own timeout only if this header is present.
            Self::Evicted | Self::Full => Some((header::RETRY_AFTER, "1")),
            Self::NotPost => Some((header::ALLOW, "POST")),
            // The rest of the body is not read.
            Self::TooSlow | Self::TooLarge(_) => Some((header::CONNECTION, "close")),
            _ => None,
        };
        let (code, reason, message) = self.describe();
        let status = json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
            "code": code.as_u16(), "reason": reason, "message": id.end(&message),
        });
        let mut response = (code, Json(status)).into_response();
        if let Some((name, value)) = more {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}
