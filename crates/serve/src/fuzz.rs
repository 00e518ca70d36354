//! Entry points of the fuzzer (feature `fuzz`) to private parsers.

use crate::{links, question::Question};

/// Parses the body of a request to an endpoint: `predict`, `top`, `score`, `embed` or `events`. New
/// nodes become the tables or feature rows that a predictor takes, unless their meaning depends on
/// it.
///
/// # Errors
/// The endpoint is unknown, or the service refuses the body.
pub fn body(endpoint: &str, body: &[u8]) -> Result<(), String> {
    let parsed = match endpoint {
        "predict" => Question::parse(body).and_then(Question::check_new),
        other => match links::parse_body(other, body) {
            Some(parsed) => parsed,
            None => return Err(format!("'{other}' is not an endpoint")),
        },
    };
    parsed.map_err(|failure| failure.to_string())
}
