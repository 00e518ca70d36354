//! Words of the command line: every option of `train` as `name=value`.

use graphmill_engine::{TrainConfig, options};

use super::Answer;
use crate::alloc::limited;

pub(super) const TOKENS: &[&[u8]] = &[
    b"fanout=",
    b"15,-1",
    b"layers=",
    b"lr=",
    b"dropout=",
    b"batch_size=",
    b"schedule=",
    b"seed=",
    b"18446744073709551615",
    b"1e308",
    b"nan",
    b"true",
];

/// One input: words, one a line.
pub fn run(data: &[u8]) -> Answer {
    let text = std::str::from_utf8(data)?;
    limited(data.len(), || {
        let mut config = TrainConfig::default();
        let mut given = Vec::new();
        for word in text.lines() {
            let (name, value) = word.split_once('=').ok_or("no '='")?;
            let key = options::key(name).ok_or("no such option")?;
            key.parse(&mut config, value)?;
            given.push(key.name);
        }
        config.derive_options(&given)?;
        Ok(config.check()?)
    })
}
