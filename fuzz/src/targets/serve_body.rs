//! Bodies of requests to the service: JSON for one endpoint.

use graphmill_serve::fuzz;

use super::Answer;
use crate::{alloc::limited, input::Input};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"body\n",
    b"predict",
    b"top",
    b"score",
    b"embed",
    b"events",
    b"{\"ids\": [0, 7]}",
    b"\"keys\": [\"a\", 3]",
    b"\"keys\": [[\"a\", 3]]",
    b"\"new\": {\"rows\": [{\"x\": 1}]}",
    b"\"new\": {\"features\": [[0.5]]}",
    b"\"new\": {\"features\": {\"a\": [[0.5]]}}",
    b"\"edges\": [[0, 1], [0, \"a\", 0.5]]",
    b"\"edges\": {\"a:to:b\": [{\"a\": 1}]}",
    b"\"undirected\": true",
    b"\"seed\": 18446744073709551615",
    b"\"exact\": true",
    b"\"top_k\": 3",
    b"\"times\": [-9223372036854775808]",
    b"\"at\": 5",
    b"\\ud800",
    b"1e999",
];

/// One input: the name of the endpoint, and the body.
pub fn run(data: &[u8]) -> Answer {
    let input = Input::read(data, &["body"]);
    let body = input.file("body").ok_or("there is no body")?;
    Ok(limited(input.unpacked, || fuzz::body(input.options, body))?)
}
