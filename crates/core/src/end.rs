//! The ends of an edge.

#![forbid(unsafe_code)]

/// An end of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The node from which messages come.
    Source,
    /// The node that receives them.
    Destination,
}

impl End {
    /// Returns the other end.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Source => Self::Destination,
            Self::Destination => Self::Source,
        }
    }
}
