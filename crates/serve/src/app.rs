//! State of a service: the run that answers, and its reload.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Instant,
};

use axum::http::StatusCode;
use graphmill_core::progress::Quiet;
use graphmill_engine::{
    Error, Result,
    predictor::{LinkPredictor, Neighborhood, Predictor, TopOptions},
    saved::{SavedRun, links::Reading},
};
use tokio::sync::{Mutex, Semaphore};

use crate::{
    EmbeddingCache, ServeOptions,
    batch::{Batcher, Bounds, Candidates, Nodes},
    body::Bodies,
    failure::{Failure, refuse},
    metrics::Metrics,
};

/// A run that answers requests.
#[derive(Clone)]
pub(crate) enum Opened {
    /// A run on nodes.
    Nodes(Arc<Predictor>),
    /// A run on links.
    Links(Arc<LinkPredictor>),
}

impl Opened {
    /// The run, if it is on nodes.
    ///
    /// # Errors
    /// It learned links.
    pub(crate) fn nodes(self) -> std::result::Result<Arc<Predictor>, Failure> {
        match self {
            Self::Nodes(predictor) => Ok(predictor),
            Self::Links(_) => {
                let fix = "ask /v1/links/top, /v1/links/score or /v1/links/embed";
                Err(refuse("the run learned links, which have no classes of nodes", fix))
            }
        }
    }

    /// The run, if it is on links.
    ///
    /// # Errors
    /// It learned none.
    pub(crate) fn links(self) -> std::result::Result<Arc<LinkPredictor>, Failure> {
        match self {
            Self::Links(links) => Ok(links),
            Self::Nodes(_) => Err(refuse("the run learned no links", "ask /v1/predict")),
        }
    }

    /// Number of nodes that the run answers for, of all types.
    pub(crate) fn num_nodes(&self) -> usize {
        match self {
            Self::Nodes(predictor) => predictor.num_nodes(),
            Self::Links(links) => (0..links.node_types().count()).map(|t| links.num_nodes(t)).sum(),
        }
    }
}

/// State that all requests share.
pub(crate) struct App {
    pub(crate) options: ServeOptions,
    pub(crate) nodes: Batcher<Nodes>,
    pub(crate) candidates: Batcher<Candidates>,
    pub(crate) metrics: Arc<Metrics>,
    /// Requests that may still be taken.
    pub(crate) permits: Semaphore,
    /// Limits of bodies.
    pub(crate) bodies: Bodies,
    /// Turn to answer for new nodes.
    pub(crate) new_nodes: Arc<Semaphore>,
    current: RwLock<Opened>,
    /// Held during a reload.
    reload: Mutex<()>,
}

impl App {
    /// Opens the run. Returns a line on cached embeddings, too.
    ///
    /// # Errors
    /// It cannot be opened, or cannot answer.
    pub(crate) fn open(options: ServeOptions) -> Result<(Self, Option<String>)> {
        let (opened, cached) = open(&options)?;
        let metrics = Arc::new(Metrics::new());
        let bounds = Bounds { window: options.window, nodes: options.max_batch };
        let failed = |e: std::io::Error| {
            Error::usage(format!("the service cannot start a thread: {e}; raise its limits"))
        };
        let nodes = Batcher::start(bounds, metrics.clone()).map_err(failed)?;
        let candidates = Batcher::start(bounds, metrics.clone()).map_err(failed)?;
        let permits = Semaphore::new(options.max_requests.min(Semaphore::MAX_PERMITS));
        let bodies = Bodies::new(&options);
        let current = RwLock::new(opened);
        let (new_nodes, reload) = (Arc::new(Semaphore::new(1)), Mutex::new(()));
        let app = Self { options, nodes, candidates, metrics, permits, bodies, new_nodes, current, reload };
        Ok((app, cached))
    }

    /// The run that answers new requests.
    pub(crate) fn opened(&self) -> Opened {
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
        let new = opened?.0;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }
}

/// Opens the run, caches its embeddings, and tries it on a node. Returns a line on the cache, too.
fn open(options: &ServeOptions) -> Result<(Opened, Option<String>)> {
    let run = SavedRun::open(&options.run, options.last)?;
    if run.answers_links() {
        return open_links(run, options);
    }
    if options.all_edges {
        return Err(Error::usage("--all-edges: only runs on links leave out edges; leave it out"));
    }
    let mut predictor = Predictor::open(&options.run, options.dataset.as_deref(), options.last)?;
    let cached = match options.cache {
        EmbeddingCache::None => None,
        EmbeddingCache::Bottom => {
            let began = Instant::now();
            let (rows, bytes) = predictor.cache_embeddings(&Quiet)?;
            Some(cached(rows, bytes, began))
        }
    };
    if predictor.num_nodes() > 0 {
        predictor.predict(&[0], Neighborhood::All)?;
    }
    Ok((Opened::Nodes(Arc::new(predictor)), cached))
}

/// Opens a run on links and tries it on a node.
fn open_links(run: SavedRun, options: &ServeOptions) -> Result<(Opened, Option<String>)> {
    if options.cache != EmbeddingCache::None {
        let message = "--cache-embeddings bottom: the run learned links, whose embeddings are always kept; \
                       leave it out";
        return Err(Error::usage(message));
    }
    let began = Instant::now();
    let reading = if options.all_edges { Reading::All } else { Reading::Training };
    let links = LinkPredictor::of(run, options.dataset.as_deref(), reading, &Quiet)?;
    if links.relations().first().is_some_and(|of| links.num_nodes(of.ends[0]) > 0) {
        links.top(0, &[0], TopOptions { k: 1, ..TopOptions::default() })?;
    }
    let width = links.embedding_dim();
    let opened = Opened::Links(Arc::new(links));
    let rows = opened.num_nodes();
    let line = cached(rows, 4 * width as u64 * rows as u64, began);
    Ok((opened, Some(line)))
}

/// Line on rows that are kept.
fn cached(rows: usize, bytes: u64, began: Instant) -> String {
    format!(
        "cached embeddings: {rows} nodes, {:.1} MiB, {:.1} s",
        bytes as f64 / f64::from(1 << 20),
        began.elapsed().as_secs_f32()
    )
}
