//! Batches of requests: a thread answers one after the other, and takes what waits as the next.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, PoisonError, RwLock,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use axum::http::StatusCode;
use graphmill_core::NodeId;
use graphmill_engine::predictor::{Answers, Neighborhood, Predictor};
use tokio::sync::oneshot;

use crate::{failure::Failure, metrics::Metrics};

/// Answers to a request, or why there are none.
type Reply = Result<Answers, Failure>;

/// A request that waits for its answers.
struct Job {
    predictor: Arc<Predictor>,
    nodes: Vec<NodeId>,
    of: Neighborhood,
    reply: oneshot::Sender<Reply>,
}

/// Bounds of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Time for which a batch waits after its first request.
    pub(crate) window: Duration,
    /// Nodes from which on a batch takes no further request.
    pub(crate) nodes: usize,
}

/// The thread that answers, and the queue before it.
pub(crate) struct Batcher {
    /// The queue; `None` once the service ends.
    jobs: RwLock<Option<Sender<Job>>>,
    thread: Option<JoinHandle<()>>,
}

impl Batcher {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start(bounds: Bounds, metrics: Arc<Metrics>) -> std::io::Result<Self> {
        let (jobs, queue) = channel();
        let run = move || {
            // The thread is one of a pool, so that a short computation neither wakes another nor waits
            // for it. If the system refuses the threads, the process's own pool computes.
            let threads = rayon::current_num_threads();
            let _pool = rayon::ThreadPoolBuilder::new().num_threads(threads).use_current_thread().build();
            while let Some(batch) = next(&queue, bounds) {
                answer(batch, &metrics);
            }
        };
        let thread = thread::Builder::new().name("batches".into()).spawn(run)?;
        Ok(Self { jobs: RwLock::new(Some(jobs)), thread: Some(thread) })
    }

    /// Answers for `nodes` by `predictor`, in a batch with other requests.
    pub(crate) async fn ask(&self, predictor: Arc<Predictor>, nodes: Vec<NodeId>, of: Neighborhood) -> Reply {
        let (reply, answers) = oneshot::channel();
        let job = Job { predictor, nodes, of, reply };
        if let Some(jobs) = &*self.jobs.read().unwrap_or_else(PoisonError::into_inner) {
            // a failure drops the job, and with it the sender of the reply
            let _ = jobs.send(job);
        }
        answers.await.unwrap_or_else(|_| {
            let (what, why) = ("predict", "the service stops");
            Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, what, why, "ask another instance"))
        })
    }
}

impl Drop for Batcher {
    fn drop(&mut self) {
        self.jobs.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = self.thread.take() {
            // a panic of the thread has been reported
            let _ = thread.join();
        }
    }
}

/// The next batch: a request, and those that wait or arrive within the window; `None` at the end.
fn next(queue: &Receiver<Job>, bounds: Bounds) -> Option<Vec<Job>> {
    let first = queue.recv().ok()?;
    let end = Instant::now() + bounds.window;
    let (mut nodes, mut batch) = (first.nodes.len(), vec![first]);
    while nodes < bounds.nodes {
        match queue.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(job) => {
                nodes += job.nodes.len();
                batch.push(job);
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    Some(batch)
}

/// Answers a batch: together those that ask the same run for the same neighbours.
fn answer(batch: Vec<Job>, metrics: &Metrics) {
    // the client of a closed reply is gone
    let mut rest: Vec<Job> = batch.into_iter().filter(|job| !job.reply.is_closed()).collect();
    while let Some(first) = rest.first() {
        let (predictor, of) = (first.predictor.clone(), first.of);
        let alike = |job: &mut Job| Arc::ptr_eq(&job.predictor, &predictor) && job.of == of;
        let group: Vec<Job> = rest.extract_if(.., alike).collect();
        let nodes: Vec<NodeId> = group.iter().flat_map(|job| job.nodes.iter().copied()).collect();
        metrics.batch(group.len(), nodes.len());
        let answers = computed(&predictor, &nodes, of);
        let mut first = 0;
        for job in group {
            let count = job.nodes.len();
            let part = answers.as_ref().map(|all| all.part(first, count)).map_err(Clone::clone);
            first += count;
            // a client that is gone needs no answer
            let _ = job.reply.send(part);
        }
    }
}

/// Answers of a batch. A panic fails this batch only.
fn computed(predictor: &Predictor, nodes: &[NodeId], of: Neighborhood) -> Reply {
    let failed = StatusCode::INTERNAL_SERVER_ERROR;
    match catch_unwind(AssertUnwindSafe(|| predictor.predict(nodes, of))) {
        Ok(answers) => answers.map_err(|error| Failure::of(failed, "predict", &error)),
        Err(_) => {
            let why = "the computation failed in a way that it should not";
            Err(Failure::new(failed, "predict", why, "report it with the log of the service"))
        }
    }
}
