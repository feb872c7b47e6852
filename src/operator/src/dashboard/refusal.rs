//! Why a request gets no data, and the answer to it.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};

/// Why a request gets no data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageRefusal {
    /// The request names another host: a page of another origin may have made it.
    Host,
    /// The token is missing or wrong.
    Token,
    /// The user lacks the right, in this namespace or in all.
    Forbidden(Option<String>),
    /// Too many requests at the same time, or too many questions about tokens.
    Busy,
    /// The API server does not decide.
    Failed,
}

impl PageRefusal {
    const fn status(&self) -> StatusCode {
        match self {
            Self::Host => StatusCode::MISDIRECTED_REQUEST,
            Self::Token => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::Busy | Self::Failed => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// State and remedy.
    pub fn message(&self) -> String {
        match self {
            Self::Host => {
                "This page is only served to this machine: open the URL that mczk dashboard prints".to_owned()
            }
            Self::Token => "The token is missing, wrong or expired: enter a token that is valid now".to_owned(),
            Self::Forbidden(Some(namespace)) => {
                format!("You need the right to get multiclusterzookeepers.mczk.io in the namespace {namespace}")
            }
            Self::Forbidden(None) => {
                "You need the right to list multiclusterzookeepers.mczk.io in all namespaces: name a \
                                      namespace if you have rights in one"
                    .to_owned()
            }
            Self::Busy => "Too many requests at the same time: try again in a moment".to_owned(),
            Self::Failed => "The API server does not check the token: the log of the operator has the cause".to_owned(),
        }
    }
}

impl IntoResponse for PageRefusal {
    fn into_response(self) -> Response {
        let mut response = (self.status(), self.message()).into_response();
        let header = match self {
            Self::Token => Some((header::WWW_AUTHENTICATE, "Bearer")),
            Self::Busy | Self::Failed => Some((header::RETRY_AFTER, "5")),
            Self::Host | Self::Forbidden(_) => None,
        };
        if let Some((name, value)) = header {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}
