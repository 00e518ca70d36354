//! Keys of a node type as columns, in the order of the ids.

use graphmill_core::Result;

use super::parts::KeyPart;
use crate::external::{Rows, Scratch};

/// Writer of the keys of a node type.
pub(super) enum KeyWriter {
    Integers(Rows<i64>),
    Texts(Rows<u64>, Rows<u8>, u64),
}

impl KeyWriter {
    pub(super) fn new(scratch: &Scratch, index: usize, integers: bool) -> Result<Self> {
        if integers {
            return Ok(Self::Integers(scratch.column(&format!("key-numbers-{index}"))?));
        }
        let mut starts = scratch.column(&format!("key-starts-{index}"))?;
        starts.extend(&[0])?;
        Ok(Self::Texts(starts, scratch.column(&format!("key-bytes-{index}"))?, 0))
    }

    pub(super) fn push(&mut self, key: &str) -> Result<()> {
        match self {
            Self::Integers(numbers) => numbers.extend(&[key.parse().unwrap_or_default()]),
            Self::Texts(starts, bytes, end) => {
                *end += key.len() as u64;
                bytes.extend(key.as_bytes())?;
                starts.extend(&[*end])
            }
        }
    }

    pub(super) fn finish(self) -> Result<KeyPart> {
        Ok(match self {
            Self::Integers(numbers) => KeyPart::Integers(numbers.finish()?),
            Self::Texts(starts, bytes, _) => KeyPart::Texts(starts.finish()?, bytes.finish()?),
        })
    }
}
