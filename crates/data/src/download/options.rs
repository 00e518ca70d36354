//! Options of a download.

use std::time::Duration;

/// Options of a download.
#[derive(Clone, Debug)]
pub struct Options {
    /// Mirror: fetch `MIRROR/NAME/FILE` instead of the files' own addresses.
    pub mirror: Option<String>,
    /// True to reject files of unexpected length or checksum.
    pub verify: bool,
    /// Maximum number of consecutive attempts without new data.
    pub attempts: u32,
    /// Delay after the first failed attempt; doubles with each.
    pub backoff: Duration,
    /// Timeout of a silent server.
    pub idle: Duration,
    /// True to use the proxy of the environment.
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
