//! Errors of making a batch.

#![forbid(unsafe_code)]

use std::fmt;

/// Error of making a batch, by the exception that Python raises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Invalid value: `ValueError`.
    Value(String),
    /// Unreadable file: `OSError`.
    File(String),
    /// Refused memory: `MemoryError`.
    Memory(String),
}

impl From<String> for Fault {
    fn from(message: String) -> Self {
        Self::Value(message)
    }
}

impl From<graphmill_core::Error> for Fault {
    fn from(error: graphmill_core::Error) -> Self {
        match error {
            graphmill_core::Error::Io { .. } => Self::File(error.to_string()),
            graphmill_core::Error::Memory(_) => Self::Memory(error.to_string()),
            other => Self::Value(other.to_string()),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(message) | Self::File(message) | Self::Memory(message) => f.write_str(message),
        }
    }
}
