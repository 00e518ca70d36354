//! Keys of a node type as columns, in the order of the ids.

use graphmill_core::{Error, Result};

use super::parts::KeyPart;
use crate::{
    external::{Rows, Scratch},
    typed::{Key, Keys},
};

/// Keys that are copied at a time.
const CHUNK_LEN: usize = 1 << 16;

/// Writer of the keys of a node type.
pub(super) enum KeyWriter {
    Integers(Box<Rows<i64>>),
    Texts(Box<Texts>),
}

/// Texts one after the other: starts, bytes, and the end of the last text.
pub(super) struct Texts {
    starts: Rows<u64>,
    bytes: Rows<u8>,
    end: u64,
}

impl KeyWriter {
    pub(super) fn new(scratch: &Scratch, index: usize, integers: bool) -> Result<Self> {
        if integers {
            return Ok(Self::Integers(Box::new(scratch.column(&format!("key-numbers-{index}"))?)));
        }
        let mut starts = scratch.column(&format!("key-starts-{index}"))?;
        starts.extend(&[0])?;
        let bytes = scratch.column(&format!("key-bytes-{index}"))?;
        Ok(Self::Texts(Box::new(Texts { starts, bytes, end: 0 })))
    }

    pub(super) fn push(&mut self, key: &str) -> Result<()> {
        match self {
            Self::Integers(numbers) => {
                let wrong = |_| Error::invalid(format!("the key '{key}' is not an integer of 64 bits"));
                numbers.extend(&[key.parse().map_err(wrong)?])
            }
            Self::Texts(texts) => {
                texts.end += key.len() as u64;
                texts.bytes.extend(key.as_bytes())?;
                texts.starts.extend(&[texts.end])
            }
        }
    }

    /// Adds the keys of a dataset.
    pub(super) fn push_all(&mut self, keys: &Keys) -> Result<()> {
        if let (Self::Integers(numbers), Keys::Integers(keys)) = (&mut *self, keys) {
            return keys.chunks(CHUNK_LEN).try_for_each(|chunk| numbers.extend(chunk));
        }
        (0..keys.len()).try_for_each(|id| match keys.get(id) {
            Key::Text(key) => self.push(&key),
            key @ Key::Integer(_) => self.push(&key.to_string()),
        })
    }

    pub(super) fn finish(self) -> Result<KeyPart> {
        Ok(match self {
            Self::Integers(numbers) => KeyPart::Integers(numbers.finish()?),
            Self::Texts(texts) => KeyPart::Texts(texts.starts.finish()?, texts.bytes.finish()?),
        })
    }
}
