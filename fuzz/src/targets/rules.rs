//! Words of the command line for importers: split rules and normalizations.

use graphmill_data::dataset::import::{Normalize, SplitRule};

use super::Answer;
use crate::alloc::limited;

pub(super) const TOKENS: &[&[u8]] =
    &[b"given:", b"planetoid:", b"random:", b"graphs:", b"a/b,c/d", b"0.5,0.25,0.25",
      b"standard", b"18446744073709551615", b"1e308", b"nan"];

/// One input: a word.
pub fn run(data: &[u8]) -> Answer {
    let word = std::str::from_utf8(data)?;
    limited(data.len(), || {
        if word.parse::<Normalize>().is_ok() {
            return Ok(());
        }
        let rule: SplitRule = word.parse()?;
        assert_eq!(rule.to_string().parse::<SplitRule>().ok(), Some(rule), "a rule reads back");
        Ok(())
    })
}
