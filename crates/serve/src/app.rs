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
use tokio::sync::{Mutex, RwLockReadGuard, Semaphore};

use crate::{
    EmbeddingCache, ServeOptions,
    batch::{Batched, Batcher, Bounds, Candidates, Nodes},
    body::Bodies,
    failure::{Failure, refuse, refused},
    metrics::Metrics,
    new_nodes::Turns,
};

/// A run that answers requests, with the thread that computes its batches.
pub(crate) struct Served<R, Q: Batched> {
    pub(crate) run: Arc<R>,
    pub(crate) batches: Arc<Batcher<Q>>,
}

impl<R, Q: Batched> Clone for Served<R, Q> {
    fn clone(&self) -> Self {
        Self { run: self.run.clone(), batches: self.batches.clone() }
    }
}

/// A run of one of the kinds that are served.
#[derive(Clone)]
pub(crate) enum Opened {
    /// A run on nodes.
    Nodes(Served<Predictor, Nodes>),
    /// A run on links.
    Links(Served<LinkPredictor, Candidates>),
}

impl Opened {
    /// The run, if it is on nodes.
    ///
    /// # Errors
    /// It learned links.
    pub(crate) fn nodes(self) -> std::result::Result<Served<Predictor, Nodes>, Failure> {
        match self {
            Self::Nodes(served) => Ok(served),
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
    pub(crate) fn links(self) -> std::result::Result<Served<LinkPredictor, Candidates>, Failure> {
        match self {
            Self::Links(served) => Ok(served),
            Self::Nodes(_) => Err(refuse("the run learned no links", "ask /v1/predict")),
        }
    }

    /// Number of nodes that the run answers for, of all types.
    pub(crate) fn num_nodes(&self) -> usize {
        match self {
            Self::Nodes(Served { run, .. }) => run.num_nodes(),
            Self::Links(Served { run, .. }) => num_nodes(run),
        }
    }
}

/// State that all requests share.
pub(crate) struct App {
    pub(crate) options: ServeOptions,
    pub(crate) metrics: Arc<Metrics>,
    /// Requests that may still be taken.
    pub(crate) permits: Semaphore,
    /// Limits of bodies.
    pub(crate) bodies: Bodies,
    /// Turns to answer for new nodes.
    pub(crate) new_nodes: Turns,
    /// Turn to answer as of a time, or to add events, by a run on events.
    pub(crate) as_of: Arc<Semaphore>,
    current: RwLock<Opened>,
    /// Held during a reload.
    reload: Mutex<()>,
    /// Read by those that change the run, written as it is exchanged.
    changes: tokio::sync::RwLock<()>,
}

impl App {
    /// Opens the run. Returns a line on cached embeddings, too.
    ///
    /// # Errors
    /// It cannot be opened, or cannot answer.
    pub(crate) fn open(options: ServeOptions) -> Result<(Self, Option<String>)> {
        let metrics = Arc::new(Metrics::new());
        let (opened, cached) = open(&options, None, &metrics)?;
        let permits = Semaphore::new(options.max_requests.min(Semaphore::MAX_PERMITS));
        let bodies = Bodies::new(&options);
        let current = RwLock::new(opened);
        let (new_nodes, as_of, reload) = (Turns::new(), Arc::new(Semaphore::new(1)), Mutex::new(()));
        let changes = tokio::sync::RwLock::new(());
        let app = Self { options, metrics, permits, bodies, new_nodes, as_of, current, reload, changes };
        Ok((app, cached))
    }

    /// The run that answers new requests.
    pub(crate) fn opened(&self) -> Opened {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Leave to change the run: a reload exchanges it before or afterwards.
    pub(crate) async fn changes(&self) -> RwLockReadGuard<'_, ()> {
        self.changes.read().await
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
        let work = move || open(&app.options, Some(app.opened()), &app.metrics);
        let opened = tokio::task::spawn_blocking(work).await;
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
        let _alone = self.changes.write().await;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }
}

/// Opens the run, caches its embeddings, and tries it on a node. Its batches are computed by the
/// thread of the `old` run, if that is of the same kind. Returns a line on the cache, too.
fn open(
    options: &ServeOptions,
    old: Option<Opened>,
    metrics: &Arc<Metrics>,
) -> Result<(Opened, Option<String>)> {
    let run = SavedRun::open(&options.run, options.last)?;
    if run.ranks_links() {
        let (links, cached) = open_links(run, options)?;
        let batches = match old {
            Some(Opened::Links(old)) => old.batches,
            _ => start(options, metrics)?,
        };
        return Ok((Opened::Links(Served { run: Arc::new(links), batches }), Some(cached)));
    }
    let (predictor, cached) = open_nodes(options)?;
    let batches = match old {
        Some(Opened::Nodes(old)) => old.batches,
        _ => start(options, metrics)?,
    };
    Ok((Opened::Nodes(Served { run: Arc::new(predictor), batches }), cached))
}

/// Starts a thread that computes batches.
fn start<Q: Batched>(options: &ServeOptions, metrics: &Arc<Metrics>) -> Result<Arc<Batcher<Q>>> {
    let bounds = Bounds { window: options.window, nodes: options.max_batch };
    let started = Batcher::start(bounds, metrics.clone());
    started.map(Arc::new).map_err(|e| refused("the service cannot start a thread", e))
}

/// Opens a run on nodes and tries it on a node.
fn open_nodes(options: &ServeOptions) -> Result<(Predictor, Option<String>)> {
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
        unless_not_finite(predictor.predict(&[0], Neighborhood::All))?;
    }
    Ok((predictor, cached))
}

/// Ends without an error if the output of the node alone is not finite: others may have answers.
fn unless_not_finite<T>(trial: Result<T>) -> Result<()> {
    match trial {
        Ok(_) | Err(Error::OutputNotFinite { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Opens a run on links and tries it on a node.
fn open_links(run: SavedRun, options: &ServeOptions) -> Result<(LinkPredictor, String)> {
    if options.cache != EmbeddingCache::None {
        let message = "--cache-embeddings bottom: the run learned links, whose embeddings are always kept; \
                       leave it out";
        return Err(Error::usage(message));
    }
    let began = Instant::now();
    let reading = if options.all_edges { Reading::All } else { Reading::Training };
    let links = LinkPredictor::of(run, options.dataset.as_deref(), reading, &Quiet)?;
    if links.ranks() && links.relations().first().is_some_and(|of| links.num_nodes(of.ends[0]) > 0) {
        unless_not_finite(links.top(0, &[0], TopOptions { k: 1, ..TopOptions::default() }))?;
    }
    let (rows, width) = (num_nodes(&links), links.embedding_dim());
    let line = cached(rows, 4 * width as u64 * rows as u64, began);
    Ok((links, line))
}

/// Number of nodes of all types that have embeddings.
fn num_nodes(links: &LinkPredictor) -> usize {
    (0..links.node_types().count()).map(|t| links.num_nodes(t)).sum()
}

/// Line on rows that are kept.
fn cached(rows: usize, bytes: u64, began: Instant) -> String {
    format!(
        "cached embeddings: {rows} nodes, {:.1} MiB, {:.1} s",
        bytes as f64 / f64::from(1 << 20),
        began.elapsed().as_secs_f32()
    )
}
