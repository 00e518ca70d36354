//! The naive backend.

/// Plain loops.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;
