//! The server: its socket, signals and end.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    panic::catch_unwind,
    sync::Arc,
    thread::available_parallelism,
    time::Duration,
};

use graphmill_engine::{Error, Result, saved::on::remove_stale_scratch};
use tokio::{net::TcpListener, runtime, sync::Notify};

use crate::{
    ServeOptions,
    app::App,
    connections::{self, Bounds, allowed},
    failure::refused,
    handlers::router,
};

/// Maximum number of threads for connections; predictions have their own.
const MAX_THREADS: usize = 4;

/// Answers requests until SIGTERM or SIGINT arrives, and then those in flight. SIGHUP reloads the
/// run. `log` receives a line for each event, `ready` the address once it listens.
///
/// # Errors
/// Wrong usage; the run cannot be opened; the address is taken; requests in flight do not end in
/// [`ServeOptions::patience`].
pub fn serve(
    options: ServeOptions,
    log: impl Fn(&str) + Send + Sync + 'static,
    ready: impl FnOnce(SocketAddr),
) -> Result<()> {
    let addresses = options.addresses()?;
    let patience = options.patience;
    // A killed service leaves them.
    remove_stale_scratch();
    let (app, cached) = App::open(options)?;
    let app = Arc::new(app);
    if let Some(line) = cached {
        log(&line);
    }
    let threads = available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let runtime = start(threads)?;
    let log: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(log);
    let ended = runtime.block_on(async {
        let listener = TcpListener::bind(&addresses[..]).await;
        let listener = listener.map_err(|e| not_listening(&app.options.listen, &e))?;
        let stopping = Arc::new(Notify::new());
        let signals = Signals::new().map_err(|e| refused("the service cannot take signals", e))?;
        ready(listener.local_addr().map_err(|e| refused("the address is unknown", e))?);
        let (of_signals, stopped) =
            (tokio::spawn(signals.handle(app.clone(), log.clone(), stopping.clone())), {
                let stopping = stopping.clone();
                async move { stopping.notified().await }
            });
        let bounds = Bounds { connections: allowed(app.options.max_connections), patience };
        let server = tokio::spawn(connections::serve(listener, router(app.clone()), bounds, stopped));
        let _ = of_signals.await;
        match server.await {
            Ok(true) => Ok(()),
            _ => Err(Error::usage(format!(
                "the service stops after {} s with requests in flight, whose clients do not read",
                patience.as_secs_f32()
            ))),
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

/// Error of a service that cannot listen: of its address, or of the system.
fn not_listening(listen: &str, error: &io::Error) -> Error {
    let what = format!("--listen {listen}");
    match error.kind() {
        ErrorKind::AddrInUse
        | ErrorKind::AddrNotAvailable
        | ErrorKind::PermissionDenied
        | ErrorKind::InvalidInput
        | ErrorKind::Unsupported => Error::usage(format!("{what}: {error}; choose another --listen")),
        _ => refused(&what, error),
    }
}

/// Runtime with this number of threads for connections. The library panics if the system refuses
/// the first of them, and goes on with fewer if it refuses another.
fn start(threads: usize) -> Result<runtime::Runtime> {
    let what = "the service cannot start";
    let build = || runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    match catch_unwind(build) {
        Ok(built) => built.map_err(|e| refused(what, e)),
        Err(_) => Err(refused(what, "the system refuses a thread")),
    }
}

/// Signals to the service.
#[cfg(unix)]
struct Signals {
    end: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    reload: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            end: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            reload: signal(SignalKind::hangup())?,
        })
    }

    /// Reloads until a signal ends the service.
    async fn handle(mut self, app: Arc<App>, log: Arc<dyn Fn(&str) + Send + Sync>, stopping: Arc<Notify>) {
        loop {
            tokio::select! {
                _ = self.end.recv() => break,
                _ = self.interrupt.recv() => break,
                _ = self.reload.recv() => {
                    let (app, log) = (app.clone(), log.clone());
                    // requests and signals do not wait for the new run
                    tokio::spawn(async move {
                        match app.reload().await {
                            Ok(()) => log("the run was reloaded"),
                            Err(failure) => log(&format!("{failure}; the old run stays")),
                        }
                    });
                }
            }
        }
        log("stopping: requests in flight are answered");
        stopping.notify_one();
    }
}

/// Signals to the service: Ctrl-C alone.
#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn handle(self, _: Arc<App>, log: Arc<dyn Fn(&str) + Send + Sync>, stopping: Arc<Notify>) {
        let _ = tokio::signal::ctrl_c().await;
        log("stopping: requests in flight are answered");
        stopping.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_wrong_address_is_wrong_usage() {
        for (kind, is_usage) in [
            (ErrorKind::AddrInUse, true),
            (ErrorKind::PermissionDenied, true),
            (ErrorKind::OutOfMemory, false),
            (ErrorKind::Other, false),
        ] {
            let error = not_listening("127.0.0.1:1", &kind.into());
            assert_eq!(error.is_usage(), is_usage, "{kind:?}");
            assert!(error.to_string().starts_with("--listen 127.0.0.1:1: "), "{error}");
        }
        let error = refused("the service cannot start", "no threads");
        assert!(error.to_string().contains("ulimit -u") && !error.is_usage(), "{error}");
    }
}
