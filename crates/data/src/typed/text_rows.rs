//! Texts written one by one.

use graphmill_core::Result;

use super::Texts;
use crate::external::{Rows, Scratch};

/// Bytes that are collected before they are passed on.
const BATCH: usize = 1 << 16;

/// Texts under construction, such as the keys of a node type: in memory, or in files of the scratch
/// if they are large.
///
/// ```
/// use graphmill_data::{external::Scratch, typed::{Keys, TextRows}};
///
/// let mut keys = TextRows::new(&Scratch::in_memory(), "author-keys")?;
/// ["ann", "bob"].into_iter().try_for_each(|key| keys.push(key))?;
/// let keys = Keys::Texts(keys.finish()?);
/// assert_eq!(keys.get(1).to_string(), "bob");
/// # Ok::<(), graphmill_core::Error>(())
/// ```
#[derive(Debug)]
pub struct TextRows {
    offsets: Rows<u64>,
    bytes: Rows<u8>,
    /// Ends and bytes that are not passed on yet.
    ends: Vec<u64>,
    batch: Vec<u8>,
    /// Bytes of all texts.
    end: u64,
}

impl TextRows {
    /// Creates an empty list; `name` is unique within the scratch, and a part of file names.
    ///
    /// # Errors
    /// The files of an earlier process cannot be resumed.
    pub fn new(scratch: &Scratch, name: &str) -> Result<Self> {
        let name = super::names::escape(name);
        let offsets = scratch.column(&format!("{name}-offsets"))?;
        let bytes = scratch.column(&format!("{name}-bytes"))?;
        Ok(Self { offsets, bytes, ends: vec![0], batch: Vec::new(), end: 0 })
    }

    /// Adds a text.
    ///
    /// # Errors
    /// Writing fails, or the work is cancelled.
    pub fn push(&mut self, text: &str) -> Result<()> {
        self.batch.extend_from_slice(text.as_bytes());
        self.end += text.len() as u64;
        self.ends.push(self.end);
        if self.batch.len() + 8 * self.ends.len() >= BATCH { self.pass() } else { Ok(()) }
    }

    fn pass(&mut self) -> Result<()> {
        self.offsets.extend(&self.ends)?;
        self.bytes.extend(&self.batch)?;
        self.ends.clear();
        self.batch.clear();
        Ok(())
    }

    /// Returns all texts.
    ///
    /// # Errors
    /// Writing or mapping fails.
    pub fn finish(mut self) -> Result<Texts> {
        self.pass()?;
        Ok(Texts { offsets: self.offsets.finish()?, bytes: self.bytes.finish()? })
    }
}
