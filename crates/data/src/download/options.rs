//! Options of a download.

use std::time::Duration;

/// How to fetch.
#[derive(Clone, Debug)]
pub struct Options {
    /// Fetch `MIRROR/NAME/FILE` instead of the files' own addresses.
    pub mirror: Option<String>,
    /// Refuse files whose length or checksum is not the known one.
    pub verify: bool,
    /// Tries in a row that bring nothing new before we give up.
    pub attempts: u32,
    /// The wait after the first of them; it doubles with each.
    pub backoff: Duration,
    /// How long a server may be silent.
    pub idle: Duration,
    /// Go through the proxy that the environment names.
    pub proxy: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mirror: None,
            verify: true,
            attempts: 6,
            backoff: Duration::from_secs(1),
            idle: Duration::from_secs(60),
            proxy: true,
        }
    }
}
