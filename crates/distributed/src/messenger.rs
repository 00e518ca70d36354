//! Who asks whom, who answers, and how long anyone waits.
//!
//! One thread drives the transport (`driver.rs`), and hands over what is urgent first (`queue.rs`). It hands asks to the services, on threads of their own that wait for nobody (so that two ranks
//! which ask each other cannot wait for one another), and puts everything else in a box, where whoever waits finds it.
//!
//! A rank that has nothing to say says so, several times in the time that others wait for it. Who waits for a rank that was silent for
//! [`MessengerOptions::patience`] gives up with an error that names it; a rank that fails tells all others why, and they fail at once.

mod driver;
mod queue;

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use driver::{Driver, Ending, Outgoing};
use graphmill_core::{Error, Result};
pub use queue::IN_FLIGHT_BYTES;

use crate::{Transport, transport::Lane};

/// Words before what a message says: its kind and service, and its number.
pub const HEADER: usize = 3;
/// What a message is, in the low byte of its first word.
mod kind {
    pub(super) const ASK: u32 = 1;
    pub(super) const ANSWER: u32 = 2;
    pub(super) const REFUSAL: u32 = 3;
    pub(super) const PUT: u32 = 4;
    pub(super) const FAULT: u32 = 5;
    pub(super) const BEAT: u32 = 6;
    pub(super) const BYE: u32 = 7;
}

/// Answers what other ranks ask.
///
/// ```
/// use std::sync::Arc;
/// use graphmill_core::Result;
/// use graphmill_distributed::{Messenger, MessengerOptions, Service, local, messenger::HEADER};
///
/// /// Answers with twice the words.
/// struct Twice;
///
/// impl Service for Twice {
///     fn answer(&self, _from: usize, words: &[u32], answer: &mut Vec<u32>) -> Result<()> {
///         answer.extend(words.iter().map(|word| 2 * word));
///         Ok(())
///     }
/// }
///
/// let start = |end| Messenger::start(MessengerOptions::default(), move || Ok(end));
/// let ranks = local(2).into_iter().map(start).collect::<Result<Vec<_>>>()?;
/// ranks[1].serve(1, Arc::new(Twice));
/// let reply = ranks[0].ask(1, 1, |words| words.extend([3, 4])).wait()?;
/// assert_eq!(reply[HEADER..], [6, 8]);
/// ranks.iter().for_each(|rank| rank.close());
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub trait Service: Send + Sync {
    /// Appends to `answer` what is answered to `words`, which rank `from` asks. Waits for no other rank.
    ///
    /// # Errors
    /// It cannot be answered: told to whoever asked, and what was appended is dropped.
    fn answer(&self, from: usize, words: &[u32], answer: &mut Vec<u32>) -> Result<()>;

    /// What its answers are, and so which messages they let pass.
    fn lane(&self) -> Lane {
        Lane::Draws
    }
}

/// How a post behaves.
#[derive(Clone, Copy, Debug)]
pub struct MessengerOptions {
    /// How long a rank may be silent while another waits for it.
    pub patience: Duration,
    /// Threads that answer.
    pub threads: usize,
}

impl Default for MessengerOptions {
    fn default() -> Self {
        Self { patience: Duration::from_secs(60), threads: 1 }
    }
}

/// What one rank has sent, headers included; signs of life and good-byes are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Messages.
    pub messages: u64,
    /// Bytes.
    pub bytes: u64,
}

/// What counts as one in [`Messenger::sent`]: everything that is asked of, and answered by, one service; and what is put in boxes.
const COUNTERS: usize = 256;

/// A rank's end of all conversations. Dropping the last clone of its [`Arc`] without [`Messenger::close`] tells the others that this rank failed.
pub struct Messenger {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    rank: usize,
    size: usize,
    options: MessengerOptions,
    out: Mutex<Sender<Outgoing>>,
    boxes: Mutex<Mailboxes>,
    arrived: Condvar,
    services: RwLock<HashMap<u32, Arc<dyn Service>>>,
    next: AtomicU64,
    began: Instant,
    /// When each rank was last heard, in milliseconds since `began`.
    heard: Vec<AtomicU64>,
    sent: Vec<[AtomicU64; 2]>,
    ended: AtomicBool,
}

#[derive(Default)]
struct Mailboxes {
    /// By sender, kind and number.
    mail: HashMap<(usize, u32, u64), VecDeque<Vec<u32>>>,
    /// What became of the ranks that are no longer there.
    gone: HashMap<usize, String>,
    /// What ended this rank's post.
    broken: Option<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Messenger {
    /// Starts the thread that drives the transport, which `join` makes there.
    ///
    /// # Errors
    /// There is no transport, or no thread.
    pub fn start<T: Transport>(
        options: MessengerOptions,
        join: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<Arc<Self>> {
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(options.threads.max(1))
            .thread_name(|i| format!("answer {i}"))
            .build()
            .map_err(|error| Error::invalid(format!("no threads to answer other ranks: {error}")))?;
        let (out, outbox) = channel();
        let (ready, made) = channel();
        let thread = std::thread::Builder::new().name("post".into()).spawn(move || {
            let transport = match join() {
                Ok(transport) => transport,
                Err(error) => return drop(ready.send(Err(error))),
            };
            let size = transport.size();
            let shared = Arc::new(Shared {
                rank: transport.rank(),
                size,
                options,
                out: Mutex::new(out),
                boxes: Mutex::default(),
                arrived: Condvar::new(),
                services: RwLock::default(),
                next: AtomicU64::new(0),
                began: Instant::now(),
                heard: (0..size).map(|_| AtomicU64::new(0)).collect(),
                sent: (0..COUNTERS).map(|_| Default::default()).collect(),
                ended: AtomicBool::new(false),
            });
            let _ = ready.send(Ok(shared.clone()));
            Driver::new(shared, transport, Arc::new(threads), outbox).drive();
        });
        let thread = thread.map_err(|e| Error::invalid(format!("no thread to talk to other ranks: {e}")))?;
        let lost = || Error::invalid("the thread that talks to other ranks ended before it began");
        let shared = made.recv().map_err(|_| lost())??;
        Ok(Arc::new(Self { shared, thread: Mutex::new(Some(thread)) }))
    }

    /// Which rank this is.
    pub fn rank(&self) -> usize {
        self.shared.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.shared.size
    }

    /// The other ranks, from the one behind this.
    pub fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, size) = (self.rank(), self.size());
        (1..size).map(move |i| (rank + i) % size)
    }

    /// Answers asks for `number` (below 256) by this service from now on.
    pub fn serve(&self, number: u32, service: Arc<dyn Service>) {
        let mut services = self.shared.services.write().unwrap_or_else(PoisonError::into_inner);
        services.insert(number, service);
    }

    /// Asks a rank's service. `say` writes the words.
    pub fn ask(&self, to: usize, service: u32, say: impl FnOnce(&mut Vec<u32>)) -> PendingReply<'_> {
        let number = self.shared.next.fetch_add(1, Relaxed);
        self.shared.send(to, Lane::Draws, kind::ASK, service, number, say);
        PendingReply { post: self, to, number }
    }

    /// Puts words in a rank's box of that number.
    pub fn put(&self, to: usize, number: u64, say: impl FnOnce(&mut Vec<u32>)) {
        self.shared.send(to, Lane::Urgent, kind::PUT, 0, number, say);
    }

    /// Takes from this rank's box of that number what `from` has put there, in the order in which it did, waiting for it. The words begin
    /// behind the first [`HEADER`].
    ///
    /// # Errors
    /// The rank has failed, has ended, or was silent for too long.
    pub fn take(&self, from: usize, number: u64) -> Result<Vec<u32>> {
        self.shared.wait(from, kind::PUT, number)
    }

    /// What this rank has sent as, and to, that service (0: what was put in boxes).
    pub fn sent(&self, service: u32) -> Sent {
        let [messages, bytes] = &self.shared.sent[service as usize % COUNTERS];
        Sent { messages: messages.load(Relaxed), bytes: bytes.load(Relaxed) }
    }

    /// Tells all other ranks that this one has failed, and why.
    pub fn fail(&self, why: &str) {
        for to in self.others() {
            self.shared.send(to, Lane::Urgent, kind::FAULT, 0, 0, |words| say_text(why, words));
        }
    }

    /// Ends the conversation: all that was to be said was said, by all ranks ([`crate::Collective::barrier`] makes sure).
    pub fn close(&self) {
        self.end(Ending::Closed);
    }

    /// Ends the conversation for all: told why first, and where ranks are processes they are ended too.
    pub fn abort(&self, why: &str) {
        self.fail(why);
        self.end(Ending::Aborted);
    }

    fn end(&self, how: Ending) {
        if !self.shared.ended.swap(true, Relaxed) {
            let _ = lock(&self.shared.out).send(Outgoing::End(how));
        }
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Messenger {
    fn drop(&mut self) {
        if !self.shared.ended.load(Relaxed) {
            // a rank that ends because another failed passes that on: whoever hears of this one first is told the cause
            let heard =
                |(rank, why): (&usize, &String)| (why != ENDED).then(|| (*rank as u64 + 1, why.clone()));
            let cause = lock(&self.shared.boxes).gone.iter().find_map(heard);
            let (of, why) = cause.unwrap_or_else(|| (0, "it has ended before its work was done".to_string()));
            for to in self.others() {
                self.shared.send(to, Lane::Urgent, kind::FAULT, 0, of, |words| say_text(&why, words));
            }
        }
        self.end(Ending::Failed);
    }
}

/// A question that was asked.
#[must_use]
pub struct PendingReply<'p> {
    post: &'p Messenger,
    to: usize,
    number: u64,
}

impl PendingReply<'_> {
    /// The answer, behind the first [`HEADER`] words.
    ///
    /// # Errors
    /// The rank cannot answer, has failed, or was silent for too long.
    pub fn wait(self) -> Result<Vec<u32>> {
        self.post.shared.wait(self.to, kind::ANSWER, self.number)
    }
}

impl Shared {
    fn send(
        &self,
        to: usize,
        lane: Lane,
        kind: u32,
        service: u32,
        number: u64,
        say: impl FnOnce(&mut Vec<u32>),
    ) {
        let mut words = header(kind, service, number);
        say(&mut words);
        self.send_words(to, lane, service, words);
    }

    /// Sends words that begin with a header of that service.
    fn send_words(&self, to: usize, lane: Lane, service: u32, words: Vec<u32>) {
        let [messages, bytes] = &self.sent[service as usize % COUNTERS];
        messages.fetch_add(1, Relaxed);
        bytes.fetch_add(4 * words.len() as u64, Relaxed);
        // a post that has ended sends nothing; whoever waits is told by `broken`
        let _ = lock(&self.out).send(Outgoing::Message(to, lane, words));
    }

    fn wait(&self, from: usize, kind: u32, number: u64) -> Result<Vec<u32>> {
        let peer = |message: String| Error::Peer { rank: from, message };
        let began = Instant::now();
        let mut boxes = lock(&self.boxes);
        loop {
            let found = match boxes.mail.get_mut(&(from, kind, number)) {
                Some(queue) => {
                    let first = queue.pop_front();
                    if queue.is_empty() {
                        boxes.mail.remove(&(from, kind, number));
                    }
                    first
                }
                None => None,
            };
            if let Some(words) = found {
                return Ok(words);
            }
            if kind == kind::ANSWER
                && let Some(mut refusal) = boxes.mail.remove(&(from, kind::REFUSAL, number))
            {
                return Err(peer(refusal.pop_front().map_or_else(String::new, |words| text(&words))));
            }
            // the rank that failed first is the one to name, whoever is waited for
            let fault = boxes.gone.iter().filter(|(rank, why)| **rank == from || why.as_str() != ENDED);
            if let Some((&rank, why)) = fault.min_by_key(|(rank, why)| (why.as_str() == ENDED, **rank)) {
                return Err(Error::Peer { rank, message: why.clone() });
            }
            if let Some(why) = &boxes.broken {
                return Err(Error::invalid(format!("the connection to other ranks is lost: {why}")));
            }
            let patience = self.options.patience;
            let heard = self.began + Duration::from_millis(self.heard[from].load(Relaxed));
            let silent = heard.max(began).elapsed();
            if silent >= patience {
                return Err(peer(format!(
                    "nothing was heard of it for {:.1} seconds: it, its machine or the network between is down or hangs; --resume \
                     goes on from the last checkpoint, and --peer-timeout says how long to wait",
                    silent.as_secs_f64()
                )));
            }
            let rest = (patience - silent).min(patience / 4);
            boxes = self.arrived.wait_timeout(boxes, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The first words of a message.
fn header(kind: u32, service: u32, number: u64) -> Vec<u32> {
    vec![kind | service << 8, number as u32, (number >> 32) as u32]
}

/// What became of a rank that closed its post.
const ENDED: &str = "it has ended its run: the ranks do not all do the same";

/// Text as words, its length first.
fn say_text(text: &str, words: &mut Vec<u32>) {
    words.push(text.len() as u32);
    words.extend(text.as_bytes().chunks(4).map(|bytes| {
        let mut word = [0; 4];
        word[..bytes.len()].copy_from_slice(bytes);
        u32::from_le_bytes(word)
    }));
}

/// The text of a message.
fn text(words: &[u32]) -> String {
    let Some((&len, words)) = words.get(HEADER..).and_then(<[u32]>::split_first) else {
        return String::new();
    };
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take(len as usize).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
pub(crate) mod tests;
