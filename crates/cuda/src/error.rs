//! What can go wrong on a device.

/// What went wrong, where, and what to do.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// No device can be used.
    #[error("{0}")]
    Unavailable(String),
    /// Its memory, or the part of it that may be used, is full.
    #[error(
        "{device} is out of memory: {bytes} bytes more, {free} of {budget} are free; use a smaller --batch-size, --hidden or --cache-ratio"
    )]
    OutOfMemory {
        /// Which device.
        device: String,
        /// What was asked for.
        bytes: u64,
        /// What was left.
        free: u64,
        /// What may be used.
        budget: u64,
    },
    /// A call of the driver failed.
    #[error("{device}: {call} failed: {message}")]
    Driver {
        /// Which device.
        device: String,
        /// The call.
        call: &'static str,
        /// The driver's answer.
        message: String,
    },
}

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<Error> for graphmill_graph::Error {
    fn from(error: Error) -> Self {
        Self::Device(error.to_string())
    }
}
