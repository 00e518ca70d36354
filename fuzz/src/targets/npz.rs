//! `.npz` archive: its directory, and every member as numbers and as text.

use graphmill_data::npz::Npz;

use super::Answer;
use crate::{alloc::limited, input::Input, scratch::with_files};

pub(super) use super::ARRAY_TOKENS as TOKENS;

/// One input: options (none are known) and the file `a.npz`, as an archive or as a list of members.
pub fn run(data: &[u8]) -> Answer {
    let input = Input::read(data, &["a.npz"]);
    with_files("npz", &input.files, |dir| {
        limited(input.unpacked, || {
            let mut npz = Npz::open(dir.join("a.npz"))?;
            // An archive may name thousands of members, each of which takes time.
            let names: Vec<String> = npz.names().iter().take(16).map(|name| name.to_string()).collect();
            for name in names {
                npz.header(&name)?;
                let _ = npz.read_as::<f32>(&name);
                if npz.text(&name).is_err() {
                    npz.read_as::<u64>(&name)?;
                }
            }
            Ok(())
        })
    })
}
