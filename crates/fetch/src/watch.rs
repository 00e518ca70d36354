//! Who looks on while files arrive.

use std::time::Duration;

/// Told what a download does, from the thread that does it.
pub trait Watch {
    /// A piece of work begins: `name` is the file, `done` of its `total` bytes (where known) are there already.
    fn begin(&mut self, what: &'static str, name: &str, done: u64, total: Option<u64>);

    /// So many more bytes are done.
    fn advance(&mut self, bytes: u64);

    /// The piece of work begins anew, from its first byte.
    fn restart(&mut self);

    /// Something a person should know.
    fn note(&mut self, message: &str);

    /// Waiting before the next try; the time passes after this call.
    fn wait(&mut self, reason: &str, time: Duration) {
        self.note(&format!("{reason}; trying again in {} s", time.as_secs_f64()));
    }
}

/// Looks away.
#[derive(Debug, Default)]
pub struct Quiet;

impl Watch for Quiet {
    fn begin(&mut self, _: &'static str, _: &str, _: u64, _: Option<u64>) {}
    fn advance(&mut self, _: u64) {}
    fn restart(&mut self) {}
    fn note(&mut self, _: &str) {}
}
