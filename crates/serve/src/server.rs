//! The server: its socket, signals and end.

use std::{net::SocketAddr, sync::Arc, thread::available_parallelism, time::Duration};

use graphmill_engine::{Error, Result, saved::on::remove_stale_scratch};
use tokio::{net::TcpListener, runtime, sync::Notify};

use crate::{
    ServeOptions,
    app::App,
    connections::{self, Bounds, allowed},
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
    let failed =
        |what: &str, e: std::io::Error| Error::usage(format!("{what}: {e}; choose another --listen"));
    let runtime = runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let runtime = runtime.map_err(|e| failed("the service cannot start", e))?;
    let log: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(log);
    let ended = runtime.block_on(async {
        let listener = TcpListener::bind(&addresses[..]).await;
        let listener = listener.map_err(|e| failed(&format!("--listen {}", app.options.listen), e))?;
        let stopping = Arc::new(Notify::new());
        let signals = Signals::new().map_err(|e| failed("the service cannot take signals", e))?;
        ready(listener.local_addr().map_err(|e| failed("the address is unknown", e))?);
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

/// Signals to the service.
#[cfg(unix)]
struct Signals {
    end: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    reload: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Self> {
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
    fn new() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn handle(self, _: Arc<App>, log: Arc<dyn Fn(&str) + Send + Sync>, stopping: Arc<Notify>) {
        let _ = tokio::signal::ctrl_c().await;
        log("stopping: requests in flight are answered");
        stopping.notify_one();
    }
}
