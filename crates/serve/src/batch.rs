//! Batches of requests: a thread answers one after the other, and takes what waits as the next.
//!
//! A short question to an idle service is answered on the thread of its connection: waking the
//! thread of the batches and being woken by it takes longer than the answer.
//!
//! A [`Batcher`] belongs to the run that it answers for and to the requests to this run. A reload
//! hands it to a new run of the same kind; otherwise it ends with the last request to the old run.

use std::{
    cell::OnceCell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use axum::http::StatusCode;
use graphmill_core::NodeId;
use graphmill_engine::{
    Error, Result,
    predictor::{Answers, LinkPredictor, Neighborhood, Predictor, TopOptions},
};
use tokio::sync::oneshot;

use crate::{
    failure::{Failure, status_of, unwound},
    metrics::Metrics,
};

/// Candidates of a node that take as much of a batch as the node.
const CANDIDATES: usize = 100;

/// Time that the thread of a connection, which other connections wait for, may spend on an answer.
const AT_ONCE: Duration = Duration::from_millis(1);
/// Time without a question after which the service is idle.
const IDLE: Duration = Duration::from_micros(500);

thread_local! {
    /// A pool that has this thread alone, so that its computations neither wake others nor wait for
    /// them; `None` if the system refuses it.
    static ALONE: OnceCell<Option<rayon::ThreadPool>> = const { OnceCell::new() };
}

/// A question that is answered together with others.
pub(crate) trait Batched: Send + Sized + 'static {
    type Answers: Send + 'static;

    /// Number of its nodes.
    fn nodes(&self) -> usize;

    /// Number of nodes that it counts for in the bounds of a batch.
    fn weight(&self) -> usize {
        self.nodes()
    }

    /// Returns true if questions of as many nodes take about as long.
    fn is_even(&self) -> bool;

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

    /// Fanouts bound the neighbours that are drawn; all neighbours may be any number.
    fn is_even(&self) -> bool {
        matches!(self.of, Neighborhood::Drawn { .. })
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

    /// All candidates are ranked.
    fn is_even(&self) -> bool {
        false
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

/// State of all threads that answer.
struct Shared {
    metrics: Arc<Metrics>,
    began: Instant,
    /// Microseconds from the beginning to the last question or answer.
    last: AtomicU64,
    /// Nanoseconds that the last even questions took, for each node; at first more than any allows.
    nanos: AtomicU64,
}

impl Shared {
    /// Answers questions that are alike, in their order.
    fn answer<Q: Batched>(&self, questions: &[Q]) -> Vec<Reply<Q>> {
        let nodes = questions.iter().map(Batched::nodes).sum();
        self.metrics.batch(questions.len(), nodes);
        let began = Instant::now();
        let answers = computed(questions);
        if questions.iter().all(Batched::is_even) {
            let nanos = began.elapsed().as_nanos() / nodes.max(1) as u128;
            self.nanos.store(u64::try_from(nanos).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        self.elapsed();
        answers
    }

    /// Notes a question or an answer. Returns the time since the last one.
    fn elapsed(&self) -> Duration {
        let now = self.began.elapsed().as_micros() as u64;
        Duration::from_micros(now.saturating_sub(self.last.swap(now, Ordering::Relaxed)))
    }

    /// Returns true if an answer is expected to be short.
    fn is_short<Q: Batched>(&self, question: &Q) -> bool {
        let nanos = self.nanos.load(Ordering::Relaxed).saturating_mul(question.nodes() as u64);
        question.is_even() && Duration::from_nanos(nanos) <= AT_ONCE
    }
}

/// The queue of a thread that answers. The thread ends when this is dropped, after the batch that
/// it computes.
pub(crate) struct Batcher<Q: Batched> {
    jobs: Sender<Job<Q>>,
    /// A batch waits for further requests.
    waits: bool,
    shared: Arc<Shared>,
}

impl<Q: Batched> Batcher<Q> {
    /// Starts the thread and its pool.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start(bounds: Bounds, metrics: Arc<Metrics>) -> std::io::Result<Self> {
        let (jobs, queue) = channel();
        let (last, nanos) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        let shared = Arc::new(Shared { metrics, began: Instant::now(), last, nanos });
        let of_thread = shared.clone();
        let run = move || {
            // The thread is one of a pool, so that a short computation neither wakes another nor
            // waits for it. If the system refuses the threads, the process's own pool computes.
            let threads = rayon::current_num_threads();
            let _pool = rayon::ThreadPoolBuilder::new().num_threads(threads).use_current_thread().build();
            while let Some(batch) = next(&queue, bounds) {
                answer(batch, &of_thread);
            }
        };
        thread::Builder::new().name("batches".into()).spawn(run)?;
        Ok(Self { jobs, waits: !bounds.window.is_zero(), shared })
    }

    /// Answers to a question: at once if it is short and the service idle, and otherwise in a batch
    /// with others.
    pub(crate) async fn ask(&self, question: Q) -> Reply<Q> {
        let is_idle = self.shared.elapsed() >= IDLE;
        if is_idle && !self.waits && self.shared.is_short(&question) {
            let answers = alone(|| self.shared.answer(&[question]));
            return answers.into_iter().next().unwrap_or_else(|| Err(stopping()));
        }
        let (reply, answers) = oneshot::channel();
        // a failure drops the job, and with it the sender of the reply
        let _ = self.jobs.send(Job { question, reply });
        answers.await.unwrap_or_else(|_| Err(stopping()))
    }
}

/// No thread answers any more.
fn stopping() -> Failure {
    let (what, why) = ("predict", "the service stops");
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, what, why, "ask another instance")
}

/// Runs `work` on this thread alone.
fn alone<R>(work: impl FnOnce() -> R) -> R {
    ALONE.with(|pool| {
        let pool_of_one = || rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build().ok();
        pool.get_or_init(pool_of_one);
        work()
    })
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
fn answer<Q: Batched>(batch: Vec<Job<Q>>, shared: &Shared) {
    // the client of a closed reply is gone
    let mut rest: Vec<Job<Q>> = batch.into_iter().filter(|job| !job.reply.is_closed()).collect();
    while !rest.is_empty() {
        let first = rest.remove(0);
        let alike: Vec<Job<Q>> = rest.extract_if(.., |job| job.question.is_like(&first.question)).collect();
        let group = std::iter::once(first).chain(alike).map(|job| (job.question, job.reply));
        let (questions, replies): (Vec<Q>, Vec<_>) = group.unzip();
        // a client that is gone needs no answer
        replies.into_iter().zip(shared.answer(&questions)).for_each(|(reply, own)| drop(reply.send(own)));
    }
}

/// Answers of a batch. A panic, or a refusal of memory, fails this batch only. An output that is
/// not finite fails the question of its node only.
fn computed<Q: Batched>(questions: &[Q]) -> Vec<Reply<Q>> {
    let failure = match catch_unwind(AssertUnwindSafe(|| Q::answer(questions))) {
        Ok(Ok(answers)) => return answers.into_iter().map(Ok).collect(),
        Ok(Err(Error::OutputNotFinite { .. })) if questions.len() > 1 => {
            // the one question is found in few batches
            let (first, second) = questions.split_at(questions.len() / 2);
            return [first, second].into_iter().flat_map(computed).collect();
        }
        Ok(Err(error)) => Failure::of(status_of(&error), "predict", &error),
        Err(payload) => unwound("predict", &*payload),
    };
    questions.iter().map(|_| Err(failure.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A question whose answer is its number, or an output that is not finite.
    struct Number(f32);

    impl Batched for Number {
        type Answers = f32;

        fn nodes(&self) -> usize {
            1
        }

        fn is_even(&self) -> bool {
            true
        }

        fn is_like(&self, _: &Self) -> bool {
            true
        }

        fn answer(questions: &[Self]) -> Result<Vec<f32>> {
            match questions.iter().position(|one| !one.0.is_finite()) {
                Some(row) => {
                    let value = questions[row].0;
                    Err(Error::OutputNotFinite { row, name: format!("node {row}"), value })
                }
                None => Ok(questions.iter().map(|one| one.0).collect()),
            }
        }
    }

    #[test]
    fn outputs_that_are_not_finite_fail_their_question_only() {
        let questions = [1.0, f32::NAN, 3.0, f32::INFINITY].map(Number);
        let answers = computed(&questions);
        let found: Vec<Option<f32>> = answers.iter().map(|answer| answer.as_ref().ok().copied()).collect();
        assert_eq!(found, [Some(1.0), None, Some(3.0), None]);
        let failure = answers[1].as_ref().unwrap_err().to_string();
        assert!(failure.starts_with("predict: the model's outputs for node 0 are not finite"), "{failure}");
        assert_eq!(status_of(&Number::answer(&questions).unwrap_err()), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
