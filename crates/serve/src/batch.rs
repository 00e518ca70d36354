//! Batches of requests: a thread answers one after the other, and takes what waits as the next.
//!
//! A [`Batcher`] belongs to the run that it answers for and to the requests to this run. A reload
//! hands it to a new run of the same kind; otherwise it ends with the last request to the old run.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use axum::http::StatusCode;
use graphmill_core::NodeId;
use graphmill_engine::{
    Result,
    predictor::{Answers, LinkPredictor, Neighborhood, Predictor, TopOptions},
};
use tokio::sync::oneshot;

use crate::{failure::Failure, metrics::Metrics};

/// Candidates of a node that take as much of a batch as the node.
const CANDIDATES: usize = 100;

/// A question that is answered together with others.
pub(crate) trait Batched: Send + Sized + 'static {
    type Answers: Send + 'static;

    /// Number of its nodes.
    fn nodes(&self) -> usize;

    /// Number of nodes that it counts for in the bounds of a batch.
    fn weight(&self) -> usize {
        self.nodes()
    }

    /// Returns true if one computation answers both.
    fn is_like(&self, other: &Self) -> bool;

    /// Answers of questions that are alike, in their order.
    ///
    /// # Errors
    /// The computation fails.
    fn answer(questions: &[Self]) -> Result<Vec<Self::Answers>>;
}

/// A question for predictions of nodes.
pub(crate) struct Nodes {
    pub(crate) predictor: Arc<Predictor>,
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) of: Neighborhood,
}

impl Batched for Nodes {
    type Answers = Answers;

    fn nodes(&self) -> usize {
        self.nodes.len()
    }

    fn is_like(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.predictor, &other.predictor) && self.of == other.of
    }

    fn answer(questions: &[Self]) -> Result<Vec<Answers>> {
        let Some(Self { predictor, of, .. }) = questions.first() else { return Ok(Vec::new()) };
        let nodes: Vec<NodeId> = questions.iter().flat_map(|one| one.nodes.iter().copied()).collect();
        let all = predictor.predict(&nodes, *of)?;
        let mut first = 0;
        let part = |one: &Self| {
            first += one.nodes.len();
            all.part(first - one.nodes.len(), one.nodes.len())
        };
        Ok(questions.iter().map(part).collect())
    }
}

/// A question for the best candidates of nodes.
pub(crate) struct Candidates {
    pub(crate) links: Arc<LinkPredictor>,
    pub(crate) relation: usize,
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) options: TopOptions,
}

impl Batched for Candidates {
    /// Candidates of each node, with their scores.
    type Answers = Vec<Vec<(NodeId, f32)>>;

    fn nodes(&self) -> usize {
        self.nodes.len()
    }

    fn weight(&self) -> usize {
        self.nodes.len().max(self.nodes.len() * self.options.k / CANDIDATES)
    }

    fn is_like(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.links, &other.links)
            && self.relation == other.relation
            && self.options == other.options
    }

    fn answer(questions: &[Self]) -> Result<Vec<Self::Answers>> {
        let Some(Self { links, relation, options, .. }) = questions.first() else { return Ok(Vec::new()) };
        let nodes: Vec<NodeId> = questions.iter().flat_map(|one| one.nodes.iter().copied()).collect();
        let mut best = links.top(*relation, &nodes, *options)?.into_iter();
        Ok(questions.iter().map(|one| best.by_ref().take(one.nodes.len()).collect()).collect())
    }
}

/// Answers to a question, or why there are none.
type Reply<Q> = std::result::Result<<Q as Batched>::Answers, Failure>;

/// A question that waits for its answers.
struct Job<Q: Batched> {
    question: Q,
    reply: oneshot::Sender<Reply<Q>>,
}

/// Bounds of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Time for which a batch waits after its first request.
    pub(crate) window: Duration,
    /// Nodes from which on a batch takes no further request.
    pub(crate) nodes: usize,
}

/// The queue of a thread that answers. The thread ends when this is dropped, after the batch that
/// it computes.
pub(crate) struct Batcher<Q: Batched> {
    jobs: Sender<Job<Q>>,
}

impl<Q: Batched> Batcher<Q> {
    /// Starts the thread and its pool.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start(bounds: Bounds, metrics: Arc<Metrics>) -> std::io::Result<Self> {
        let (jobs, queue) = channel();
        let run = move || {
            // The thread is one of a pool, so that a short computation neither wakes another nor
            // waits for it. If the system refuses the threads, the process's own pool computes.
            let threads = rayon::current_num_threads();
            let _pool = rayon::ThreadPoolBuilder::new().num_threads(threads).use_current_thread().build();
            while let Some(batch) = next(&queue, bounds) {
                answer(batch, &metrics);
            }
        };
        thread::Builder::new().name("batches".into()).spawn(run)?;
        Ok(Self { jobs })
    }

    /// Answers to a question, in a batch with others.
    pub(crate) async fn ask(&self, question: Q) -> Reply<Q> {
        let (reply, answers) = oneshot::channel();
        // a failure drops the job, and with it the sender of the reply
        let _ = self.jobs.send(Job { question, reply });
        answers.await.unwrap_or_else(|_| {
            let (what, why) = ("predict", "the service stops");
            Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, what, why, "ask another instance"))
        })
    }
}

/// The next batch: a question, and those that wait or arrive within the window; `None` at the end.
fn next<Q: Batched>(queue: &Receiver<Job<Q>>, bounds: Bounds) -> Option<Vec<Job<Q>>> {
    let first = queue.recv().ok()?;
    let end = Instant::now() + bounds.window;
    let (mut nodes, mut batch) = (first.question.weight(), vec![first]);
    while nodes < bounds.nodes {
        match queue.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(job) => {
                nodes += job.question.weight();
                batch.push(job);
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    Some(batch)
}

/// Answers a batch: together those that are alike.
fn answer<Q: Batched>(batch: Vec<Job<Q>>, metrics: &Metrics) {
    // the client of a closed reply is gone
    let mut rest: Vec<Job<Q>> = batch.into_iter().filter(|job| !job.reply.is_closed()).collect();
    while !rest.is_empty() {
        let first = rest.remove(0);
        let alike: Vec<Job<Q>> = rest.extract_if(.., |job| job.question.is_like(&first.question)).collect();
        let group = std::iter::once(first).chain(alike).map(|job| (job.question, job.reply));
        let (questions, replies): (Vec<Q>, Vec<_>) = group.unzip();
        metrics.batch(questions.len(), questions.iter().map(Batched::nodes).sum());
        // a client that is gone needs no answer
        match computed(&questions) {
            Ok(answers) => {
                replies.into_iter().zip(answers).for_each(|(reply, own)| drop(reply.send(Ok(own))))
            }
            Err(failure) => replies.into_iter().for_each(|reply| drop(reply.send(Err(failure.clone())))),
        }
    }
}

/// Answers of a batch. A panic fails this batch only.
fn computed<Q: Batched>(questions: &[Q]) -> std::result::Result<Vec<Q::Answers>, Failure> {
    let failed = StatusCode::INTERNAL_SERVER_ERROR;
    match catch_unwind(AssertUnwindSafe(|| Q::answer(questions))) {
        Ok(answers) => answers.map_err(|error| Failure::of(failed, "predict", &error)),
        Err(_) => {
            let why = "the computation failed in a way that it should not";
            Err(Failure::new(failed, "predict", why, "report it with the log of the service"))
        }
    }
}
