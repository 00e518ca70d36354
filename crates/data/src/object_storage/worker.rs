//! Threads in which the futures of `object_store` run.
//!
//! Each thread has a runtime of its own for one thread. The caller may be in a runtime itself,
//! where waiting for another one panics, so nothing runs in the caller's thread.

use std::{future::Future, io, thread};

use tokio::runtime::{Builder, Runtime};

/// Name of the threads.
const NAME: &str = "graphmill-objects";

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_time().build()
}

/// Runs a future to its end.
///
/// # Errors
/// The thread cannot be started.
pub(super) fn wait<T: Send>(future: impl Future<Output = T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name(NAME.into());
        let thread = thread.spawn_scoped(scope, || Ok(runtime()?.block_on(future)))?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the reader of object storage panicked")))
    })
}

/// Runs a future in the background. It ends by itself.
///
/// # Errors
/// The thread cannot be started.
pub(super) fn start(future: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
    let runtime = runtime()?;
    thread::Builder::new().name(NAME.into()).spawn(move || runtime.block_on(future)).map(drop)
}
