//! Errors of requests: a status, and what failed, why, and how to fix it.

use std::{any::Any, fmt};

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use graphmill_core::memory;
use graphmill_engine::Error;
use serde_json::json;

/// Error of a request.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    what: String,
    why: String,
    fix: String,
}

impl Failure {
    pub(crate) fn new(
        status: StatusCode,
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { status, what: what.into(), why: why.into(), fix: fix.into() }
    }

    /// An error of the engine, whose message ends with the remedy behind the last semicolon.
    pub(crate) fn of(status: StatusCode, what: &str, error: &Error) -> Self {
        let message = error.to_string();
        let (why, fix) = message.rsplit_once("; ").unwrap_or((&message, "see the log of the service"));
        Self::new(status, what, why, fix)
    }
}

impl fmt::Display for Failure {
    /// Writes the whole message on a line.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {}; {}", self.what, self.why, self.fix)
    }
}

/// Failure of work that unwound with this payload: memory was refused, or the program has a fault.
pub(crate) fn unwound(what: &str, payload: &(dyn Any + Send)) -> Failure {
    match memory::refusal(payload) {
        Some(refused) => Failure::of(StatusCode::SERVICE_UNAVAILABLE, what, &refused.into()),
        None => {
            let why = "the computation failed in a way that it should not";
            let fix = "report it with the log of the service";
            Failure::new(StatusCode::INTERNAL_SERVER_ERROR, what, why, fix)
        }
    }
}

/// Status of a computation that failed: of a service without enough memory, or of a fault.
pub(crate) fn status_of(error: &Error) -> StatusCode {
    match error {
        Error::Graph(graphmill_core::Error::Memory(_)) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Status of a failed answer to a question whose content is not checked in advance: of the service
/// if memory, a file, a device or the model failed, else of the request.
pub(crate) fn status_of_question(error: &Error) -> StatusCode {
    match error {
        Error::OutputNotFinite { .. }
        | Error::Graph(
            graphmill_core::Error::Memory(_)
            | graphmill_core::Error::Io { .. }
            | graphmill_core::Error::Device(_),
        ) => status_of(error),
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

/// A failure by the content of a question.
pub(crate) fn refuse(why: impl Into<String>, fix: impl Into<String>) -> Failure {
    Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "predict", why, fix)
}

/// A failure by the size of a question.
pub(crate) fn too_large(why: String, flag: &str) -> Failure {
    let fix = format!("send several requests, or start the service with a larger {flag}");
    Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "predict", why, fix)
}

/// Error of a service to which the system refuses threads, descriptors or sockets.
pub(crate) fn refused(what: &str, why: impl fmt::Display) -> Error {
    let fix = "raise the limits of this process (ulimit -n, ulimit -u), or end other programs";
    graphmill_core::Error::invalid(format!("{what}: {why}; {fix}")).into()
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let document = json!({ "error": { "what": self.what, "why": self.why, "fix": self.fix } });
        let kind = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut response = (self.status, [kind], document.to_string()).into_response();
        let also = match self.status {
            StatusCode::UNAUTHORIZED => Some((header::WWW_AUTHENTICATE, "Bearer")),
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                Some((header::RETRY_AFTER, "1"))
            }
            _ => None,
        };
        if let Some((name, value)) = also {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn refused_memory_is_a_busy_service_and_a_panic_a_fault() {
        let failure =
            |work: &dyn Fn()| unwound("predict", &*catch_unwind(AssertUnwindSafe(work)).unwrap_err());
        let refused = failure(&|| memory::demand(&mut Vec::<u64>::new(), usize::MAX / 8));
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.why.contains("bytes of memory") && refused.fix.contains("--batch-size"), "{refused}");
        assert_eq!(failure(&|| panic!("a fault")).status, StatusCode::INTERNAL_SERVER_ERROR);
    }
}
