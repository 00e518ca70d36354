//! The error type of this crate.

#![forbid(unsafe_code)]

use graphmill_core::options::{Fault, Values};

/// Error in the description of a model, or failure of a device.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An unknown name, with the known ones, or an error of `graphmill_core`.
    #[error(transparent)]
    Graph(#[from] graphmill_core::Error),
    /// A number outside its range, or a combination of choices that the model does not support.
    #[error("{field} = {value}: {message}")]
    Config {
        /// Name of the configuration field.
        field: String,
        /// Value of the field.
        value: String,
        /// The reason, and how to fix it.
        message: String,
    },
    /// A device failed or ran out of memory.
    #[error("{0}")]
    Device(String),
}

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The error for a fault in one of `values`.
    pub(crate) fn option(values: &Values, fault: Fault) -> Self {
        let field = fault.option.unwrap_or_default();
        let value = values.get(&field).map(ToString::to_string).unwrap_or_default();
        let message = fault.message.split_once("': ").map_or(fault.message.as_str(), |(_, reason)| reason);
        Self::config(field, value, message)
    }

    /// The error for a configuration field with an invalid value.
    pub fn config(field: impl Into<String>, value: impl ToString, message: impl Into<String>) -> Self {
        Self::Config { field: field.into(), value: value.to_string(), message: message.into() }
    }
}
