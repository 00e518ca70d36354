//! State of a service: the run that answers, and its reload.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Instant,
};

use axum::http::StatusCode;
use graphmill_core::progress::Quiet;
use graphmill_engine::{
    Error, Result,
    predictor::{Neighborhood, Predictor},
};
use tokio::sync::{Mutex, Semaphore};

use crate::{
    EmbeddingCache, ServeOptions,
    batch::{Batcher, Bounds},
    body::Bodies,
    failure::Failure,
    metrics::Metrics,
};

/// State that all requests share.
pub(crate) struct App {
    pub(crate) options: ServeOptions,
    pub(crate) batcher: Batcher,
    pub(crate) metrics: Arc<Metrics>,
    /// Requests that may still be taken.
    pub(crate) permits: Semaphore,
    /// Limits of bodies.
    pub(crate) bodies: Bodies,
    /// Turn to answer for new nodes.
    pub(crate) new_nodes: Arc<Semaphore>,
    current: RwLock<Arc<Predictor>>,
    /// Held during a reload.
    reload: Mutex<()>,
}

impl App {
    /// Opens the run. Returns a line on cached embeddings, too.
    ///
    /// # Errors
    /// It cannot be opened, or cannot answer.
    pub(crate) fn open(options: ServeOptions) -> Result<(Self, Option<String>)> {
        let (predictor, cached) = open(&options)?;
        let metrics = Arc::new(Metrics::new());
        let bounds = Bounds { window: options.window, nodes: options.max_batch };
        let batcher = Batcher::start(bounds, metrics.clone())
            .map_err(|e| Error::usage(format!("the service cannot start a thread: {e}; raise its limits")))?;
        let permits = Semaphore::new(options.max_requests.min(Semaphore::MAX_PERMITS));
        let bodies = Bodies::new(&options);
        let current = RwLock::new(Arc::new(predictor));
        let (new_nodes, reload) = (Arc::new(Semaphore::new(1)), Mutex::new(()));
        Ok((Self { options, batcher, metrics, permits, bodies, new_nodes, current, reload }, cached))
    }

    /// The run that answers new requests.
    pub(crate) fn predictor(&self) -> Arc<Predictor> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Opens the run directory again and lets it answer new requests. If it fails, the old run
    /// stays.
    ///
    /// # Errors
    /// Another reload is under way, or the run cannot be opened or cannot answer.
    pub(crate) async fn reload(self: &Arc<Self>) -> std::result::Result<(), Failure> {
        let Ok(_held) = self.reload.try_lock() else {
            let why = "another reload is under way";
            return Err(Failure::new(StatusCode::CONFLICT, "reload", why, "ask again when it has ended"));
        };
        let app = self.clone();
        let opened = tokio::task::spawn_blocking(move || open(&app.options)).await;
        let refused = StatusCode::UNPROCESSABLE_ENTITY;
        let opened = match opened {
            Ok(opened) => opened.map_err(|error| Failure::of(refused, "reload", &error)),
            Err(_) => {
                let why = "opening the run failed in a way that it should not";
                Err(Failure::new(refused, "reload", why, "check the run by graphmill predict"))
            }
        };
        self.metrics.reloaded(opened.is_ok());
        let new = Arc::new(opened?.0);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }
}

/// Opens the run, caches its embeddings, and tries it on a node. Returns a line on the cache, too.
fn open(options: &ServeOptions) -> Result<(Predictor, Option<String>)> {
    let mut predictor = Predictor::open(&options.run, options.dataset.as_deref(), options.last)?;
    let cached = match options.cache {
        EmbeddingCache::None => None,
        EmbeddingCache::Bottom => {
            let began = Instant::now();
            let (rows, bytes) = predictor.cache_embeddings(&Quiet)?;
            Some(format!(
                "cached embeddings: {rows} nodes, {:.1} MiB, {:.1} s",
                bytes as f64 / f64::from(1 << 20),
                began.elapsed().as_secs_f32()
            ))
        }
    };
    if predictor.num_nodes() > 0 {
        predictor.predict(&[0], Neighborhood::All)?;
    }
    Ok((predictor, cached))
}
