//! List of nodes for `predict`: text or an array.

use graphmill_engine::fuzz;

use super::{ARRAY_TOKENS, Answer};
use crate::{alloc::limited, input::Input, scratch::with_files};

pub(super) const TOKENS: &[&[u8]] = ARRAY_TOKENS;

/// One input: options, and the file `a.txt` or `a.npy`.
pub fn run(data: &[u8]) -> Answer {
    let input = Input::read(data, &["a.txt", "a.npy"]);
    let Some((name, _)) = input.files.first() else { return Err("no list".into()) };
    with_files("nodes", &input.files, |dir| {
        limited(input.unpacked, || fuzz::nodes(&dir.join(name), 100))?;
        Ok(())
    })
}
