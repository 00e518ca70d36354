//! Connections: a bounded number, each with time limits for headers, bodies and unread answers.
//!
//! A connection that sends no whole header within the limit is closed, an idle one too, so that
//! clients that never end cannot keep others out. Beyond the maximum, new connections wait in the
//! system's queue until one ends. A client may close its sending side and still gets its answer.

use std::{future::Future, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};

/// File descriptors that the service keeps for its files.
#[cfg(unix)]
const RESERVED_FILES: u64 = 64;
/// Maximum bytes of a header, and of the part of a body that a connection reads at once.
const MAX_HEADER: usize = 64 << 10;
/// Time after which an accept that failed is tried again, such as for want of file descriptors.
const RETRY: Duration = Duration::from_millis(50);

/// Bounds of connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Maximum number of open connections.
    pub(crate) connections: usize,
    /// Time in which a header must arrive, an answer must be read, and connections must end after
    /// a stop.
    pub(crate) patience: Duration,
}

/// Serves connections until `stopped`, and then the requests in flight. Returns false if some do
/// not end in time.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    stopped: impl Future<Output = ()>,
) -> bool {
    let slots = Arc::new(Semaphore::new(bounds.connections));
    let ending = GracefulShutdown::new();
    tokio::pin!(stopped);
    loop {
        let next = async {
            // the semaphore is never closed
            let slot = slots.clone().acquire_owned().await.ok();
            (slot, listener.accept().await)
        };
        let (slot, accepted) = tokio::select! {
            next = next => next,
            () = &mut stopped => break,
        };
        let Ok((stream, _)) = accepted else {
            sleep(RETRY).await;
            continue;
        };
        prepare(&stream, bounds.patience);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(bounds.patience)
            .max_buf_size(MAX_HEADER)
            .half_close(true)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
        let connection = ending.watch(connection);
        tokio::spawn(async move {
            // an error is the client's: a broken connection, or bytes that are not HTTP
            let _ = connection.await;
            drop(slot);
        });
    }
    drop(listener);
    timeout(bounds.patience, ending.shutdown()).await.is_ok()
}

/// Sends answers at once, and ends the connection if no client reads them.
fn prepare(stream: &TcpStream, patience: Duration) {
    // a failure leaves the system's defaults, with which answers are the same
    let _ = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    {
        let millis = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
        let _ = rustix::net::sockopt::set_tcp_user_timeout(stream, millis);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = patience;
}

/// Number of connections that the limit of open files allows, at most `wanted`. Raises the soft
/// limit if it is lower.
pub(crate) fn allowed(wanted: usize) -> usize {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let needed = wanted as u64 + RESERVED_FILES;
        let limit = getrlimit(Resource::Nofile);
        if limit.current.is_some_and(|current| current < needed) {
            let current = Some(limit.maximum.map_or(needed, |maximum| needed.min(maximum)));
            // a refusal leaves the old limit, which is read again
            let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
        }
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        wanted.min(usize::try_from(files.saturating_sub(RESERVED_FILES)).unwrap_or(usize::MAX)).max(1)
    }
    #[cfg(not(unix))]
    wanted.max(1)
}
