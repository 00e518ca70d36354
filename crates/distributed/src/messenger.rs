//! Requests and replies between ranks, with timeouts.
//!
//! One thread drives the transport (`driver.rs`) and sends urgent messages first (`queue.rs`). It
//! passes requests to the services, which run on separate threads that never block (so that two
//! ranks that send each other requests cannot deadlock), and puts all other messages into
//! mailboxes, from which waiting threads take them.
//!
//! An idle rank sends heartbeats, several within the time that others wait for it. A rank that
//! waits for another that was silent for [`MessengerOptions::patience`] returns an error that names
//! it; a failing rank sends the reason to all others, which then fail at once.

#![forbid(unsafe_code)]

mod driver;
mod queue;
mod seal;
#[cfg(test)]
mod simulation;
mod time;
mod window;

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use driver::{Driver, Ending, Outgoing, may_spin_here};
use graphmill_core::{Error, Result};
use time::{Machine, Time};
pub use window::bytes_in_flight;

use crate::{Transport, transport::Lane};

/// Number of words before the payload of a message: kind and service, number, and its place among
/// the messages of its lane and its checksum, which the receiver verifies.
pub const HEADER: usize = 5;
/// Time that ranks have to meet at least: a launcher may start them one after the other.
pub const JOIN_TIME: Duration = Duration::from_secs(60);
/// Kinds of a message, in the low byte of its first word.
mod kind {
    pub(super) const REQUEST: u32 = 1;
    pub(super) const REPLY: u32 = 2;
    pub(super) const REFUSAL: u32 = 3;
    pub(super) const PUT: u32 = 4;
    pub(super) const FAULT: u32 = 5;
    pub(super) const BEAT: u32 = 6;
    pub(super) const BYE: u32 = 7;
}

/// Service that replies to requests of other ranks.
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
/// ranks.iter().try_for_each(|rank| rank.close())?;
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub trait Service: Send + Sync {
    /// Appends the reply to `words`, a request of rank `from`, to `answer`. Must not wait for
    /// another rank.
    ///
    /// # Errors
    /// The request is invalid: the requesting rank gets the error, and the partial reply is
    /// dropped.
    fn answer(&self, from: usize, words: &[u32], answer: &mut Vec<u32>) -> Result<()>;

    /// Lane of the replies, which determines their priority.
    fn lane(&self) -> Lane {
        Lane::Draws
    }
}

/// Settings of a messenger.
#[derive(Clone, Copy, Debug)]
pub struct MessengerOptions {
    /// Time after which a silent rank is declared dead while another waits for it.
    pub patience: Duration,
    /// Number of service threads.
    pub threads: usize,
    /// True to poll without pauses for a short time after a message, on a machine with two cores or
    /// more for each of its ranks. False if its ranks compute with more threads than it has cores.
    pub may_spin: bool,
    /// Time that frames of waiting lanes may take to another rank. As many are in flight as the
    /// link carries in this time, at least 8 and at most 256 to all ranks together, and at least 2
    /// to each: with a longer time a fast link is busier between two polls, and urgent messages
    /// wait longer behind them. Zero keeps the minimum. It does not affect results.
    pub delay: Duration,
}

impl Default for MessengerOptions {
    fn default() -> Self {
        Self { patience: Duration::from_secs(60), threads: 1, may_spin: true, delay: window::DELAY }
    }
}

/// Traffic sent by one rank, headers included, without heartbeats and good-byes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Number of messages.
    pub messages: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// Number of counters of [`Messenger::sent`]: one per service for its requests and replies, and one
/// for mailboxes.
const COUNTERS: usize = 256;

/// Number of a service like `service` for the table or relation `number` of a graph of several
/// types. Their traffic is counted with that of `service`.
///
/// # Panics
/// `number` is above 65,534.
pub fn service_of_type(service: u32, number: usize) -> u32 {
    assert!(number < usize::from(u16::MAX), "at most {} types of a service", u16::MAX);
    service + COUNTERS as u32 * (number as u32 + 1)
}

/// Messenger of one rank. Dropping the last clone of its [`Arc`] without [`Messenger::close`]
/// reports a failure of this rank to the others.
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
    time: Box<dyn Time>,
    /// Time of each rank's last frame, in milliseconds.
    last_seen: Vec<AtomicU64>,
    sent: Vec<[AtomicU64; 2]>,
    /// Nanoseconds by service: those of its replies here, and those of waiting for replies.
    spent: Vec<[AtomicU64; 2]>,
    ended: AtomicBool,
}

#[derive(Default)]
struct Mailboxes {
    /// Messages by sender, kind and number.
    mail: HashMap<(usize, u32, u64), VecDeque<Vec<u32>>>,
    /// Final state of the ranks that have left.
    gone: HashMap<usize, String>,
    /// Failure of this rank's messenger.
    broken: Option<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Messenger {
    /// Starts the thread that drives the transport, which `join` creates on that thread.
    ///
    /// # Errors
    /// The transport or the thread cannot be created, or the ranks have not met within the patience
    /// or [`JOIN_TIME`], whichever is longer.
    pub fn start<T: Transport>(
        options: MessengerOptions,
        join: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<Arc<Self>> {
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(options.threads.max(1))
            .thread_name(|i| format!("answer {i}"))
            .build()
            .map_err(|error| Error::invalid(format!("cannot start the service threads: {error}")))?;
        let (out, outbox) = channel();
        let (ready, made) = channel();
        let thread = std::thread::Builder::new().name("post".into()).spawn(move || {
            let transport = match join() {
                Ok(transport) => transport,
                Err(error) => return drop(ready.send(Err(error))),
            };
            let time = Box::new(Machine::start());
            let shared = Arc::new(Shared::new(transport.rank(), transport.size(), options, out, time));
            let _ = ready.send(Ok(shared.clone()));
            let spawn = Box::new(move |answer: Box<dyn FnOnce() + Send>| threads.spawn(answer));
            let spins = options.may_spin && may_spin_here(&transport);
            Driver::new(shared, transport, spawn, outbox).spinning(spins).drive();
        });
        let thread = thread.map_err(|e| Error::invalid(format!("cannot start the transport thread: {e}")))?;
        let most = options.patience.max(JOIN_TIME);
        let shared = made.recv_timeout(most).map_err(|error| match error {
            RecvTimeoutError::Timeout => Error::invalid(format!(
                "the ranks did not meet within {:.0} seconds: one of their processes did not start, hangs, \
                 or cannot reach the others; see the output of the other ranks and of mpirun",
                most.as_secs_f64()
            )),
            RecvTimeoutError::Disconnected => Error::invalid("the transport thread ended before it began"),
        })??;
        Ok(Arc::new(Self { shared, thread: Mutex::new(Some(thread)) }))
    }

    /// Number of this rank.
    pub fn rank(&self) -> usize {
        self.shared.rank
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.shared.size
    }

    /// Other ranks, beginning with the next.
    pub fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, size) = (self.rank(), self.size());
        (1..size).map(move |i| (rank + i) % size)
    }

    /// Registers the service for requests to `number`: below 256, or of [`service_of_type`].
    pub fn serve(&self, number: u32, service: Arc<dyn Service>) {
        let mut services = self.shared.services.write().unwrap_or_else(PoisonError::into_inner);
        services.insert(number, service);
    }

    /// Sends a request to a rank's service. `say` writes the words.
    pub fn ask(&self, to: usize, service: u32, say: impl FnOnce(&mut Vec<u32>)) -> PendingReply<'_> {
        let number = self.shared.next.fetch_add(1, Relaxed);
        self.shared.send(to, Lane::Draws, kind::REQUEST, service, number, say);
        PendingReply { post: self, to, service, number }
    }

    /// Puts words into a rank's mailbox `number`.
    pub fn put(&self, to: usize, number: u64, say: impl FnOnce(&mut Vec<u32>)) {
        self.shared.send(to, Lane::Urgent, kind::PUT, 0, number, say);
    }

    /// Takes the next message that `from` put into mailbox `number` of this rank, in sending order,
    /// waiting for it. The payload begins after the first [`HEADER`] words.
    ///
    /// # Errors
    /// The rank has failed, has ended, or was silent for too long.
    pub fn take(&self, from: usize, number: u64) -> Result<Vec<u32>> {
        self.shared.wait(from, kind::PUT, number)
    }

    /// Traffic of this rank by service, both requests and replies (0: mailboxes).
    pub fn sent(&self, service: u32) -> Sent {
        let [messages, bytes] = &self.shared.sent[service as usize % COUNTERS];
        Sent { messages: messages.load(Relaxed), bytes: bytes.load(Relaxed) }
    }

    /// Time that this rank's service of that number spent on replies, and that this rank waited
    /// for replies of others.
    pub fn spent(&self, service: u32) -> [Duration; 2] {
        self.shared.spent[service as usize % COUNTERS]
            .each_ref()
            .map(|n| Duration::from_nanos(n.load(Relaxed)))
    }

    /// Reports a failure of this rank to all others, with the reason.
    pub fn fail(&self, why: &str) {
        for to in self.others() {
            self.shared.send(to, Lane::Urgent, kind::FAULT, 0, 0, |words| say_text(why, words));
        }
    }

    /// Closes the messenger after all ranks have finished their communication
    /// ([`crate::Collective::barrier`] ensures that).
    ///
    /// # Errors
    /// Another rank did not close its messenger within the patience of this one.
    pub fn close(&self) -> Result<()> {
        if self.end(Ending::Closed) {
            return Ok(());
        }
        Err(Error::invalid(
            "all work is complete and saved, but another rank does not end: its process or machine hangs; \
             end it, and the job with it",
        ))
    }

    /// Ends communication for all ranks: sends the reason, and terminates the others if ranks are
    /// processes.
    pub fn abort(&self, why: &str) {
        self.fail(why);
        self.end(Ending::Aborted);
    }

    /// Ends the transport thread. Returns false if it waits for another rank that does not end.
    fn end(&self, how: Ending) -> bool {
        if !self.shared.ended.swap(true, Relaxed) {
            let _ = lock(&self.shared.out).send(Outgoing::End(how));
        }
        let Some(thread) = lock(&self.thread).take() else { return true };
        // Until all messages are taken, and until all ranks have left the transport.
        let (began, most) = (Instant::now(), 2 * self.shared.options.patience);
        while !thread.is_finished() {
            if began.elapsed() > most {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = thread.join();
        true
    }
}

impl Drop for Messenger {
    fn drop(&mut self) {
        if !self.shared.ended.load(Relaxed) {
            // A rank that ends because another failed forwards the original reason.
            let cause_of =
                |(rank, why): (&usize, &String)| (why != ENDED).then(|| (*rank as u64 + 1, why.clone()));
            let cause = lock(&self.shared.boxes).gone.iter().find_map(cause_of);
            let (of, why) = cause.unwrap_or_else(|| (0, "it ended before its work was complete".to_string()));
            for to in self.others() {
                self.shared.send(to, Lane::Urgent, kind::FAULT, 0, of, |words| say_text(&why, words));
            }
        }
        self.end(Ending::Failed);
    }
}

/// Pending reply to a request.
#[must_use]
pub struct PendingReply<'p> {
    post: &'p Messenger,
    to: usize,
    service: u32,
    number: u64,
}

impl PendingReply<'_> {
    /// Waits for the reply, after the first [`HEADER`] words.
    ///
    /// # Errors
    /// The rank rejects the request, has failed, or was silent for too long.
    pub fn wait(self) -> Result<Vec<u32>> {
        let began = Instant::now();
        let reply = self.post.shared.wait(self.to, kind::REPLY, self.number);
        self.post.shared.spend(self.service, 1, began);
        reply
    }
}

impl Shared {
    fn new(
        rank: usize,
        size: usize,
        options: MessengerOptions,
        out: Sender<Outgoing>,
        time: Box<dyn Time>,
    ) -> Self {
        Self {
            rank,
            size,
            options,
            out: Mutex::new(out),
            boxes: Mutex::default(),
            arrived: Condvar::new(),
            services: RwLock::default(),
            next: AtomicU64::new(0),
            time,
            last_seen: (0..size).map(|_| AtomicU64::new(0)).collect(),
            sent: (0..COUNTERS).map(|_| Default::default()).collect(),
            spent: (0..COUNTERS).map(|_| Default::default()).collect(),
            ended: AtomicBool::new(false),
        }
    }

    /// Adds the time since `began` to a service's: of replies (`side` 0), or of waiting (1).
    fn spend(&self, service: u32, side: usize, began: Instant) {
        let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.spent[service as usize % COUNTERS][side].fetch_add(nanos, Relaxed);
    }

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
        // A closed messenger sends nothing; waiting threads find the reason in `broken`.
        let _ = lock(&self.out).send(Outgoing::Message(to, lane, words));
    }

    fn wait(&self, from: usize, kind: u32, number: u64) -> Result<Vec<u32>> {
        let peer = |message: String| Error::Peer { rank: from, message };
        let began = self.time.now();
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
            if kind == kind::REPLY
                && let Some(mut refusal) = boxes.mail.remove(&(from, kind::REFUSAL, number))
            {
                return Err(peer(refusal.pop_front().map_or_else(String::new, |words| text(&words))));
            }
            // The error names the rank that failed first, regardless of the rank waited for.
            let fault = boxes.gone.iter().filter(|(rank, why)| **rank == from || why.as_str() != ENDED);
            if let Some((&rank, why)) = fault.min_by_key(|(rank, why)| (why.as_str() == ENDED, **rank)) {
                return Err(Error::Peer { rank, message: why.clone() });
            }
            if let Some(why) = &boxes.broken {
                return Err(Error::invalid(format!("the connection to other ranks is lost: {why}")));
            }
            let patience = self.options.patience;
            let seen = Duration::from_millis(self.last_seen[from].load(Relaxed));
            let silent = self.time.now().saturating_sub(seen.max(began));
            if silent >= patience {
                return Err(peer(format!(
                    "it was silent for {:.1} seconds: the process, its machine or the network is down or \
                     hangs; \
                     --resume continues from the last checkpoint, and --peer-timeout sets the time to wait",
                    silent.as_secs_f64()
                )));
            }
            let rest = (patience - silent).min(patience / 4);
            boxes = self.time.wait(&self.boxes, boxes, &self.arrived, rest);
        }
    }
}

/// First words of a message. The queue writes the last two.
fn header(kind: u32, service: u32, number: u64) -> Vec<u32> {
    vec![kind | service << 8, number as u32, (number >> 32) as u32, 0, 0]
}

/// Final state of a rank that closed its messenger.
const ENDED: &str = "it has ended its run: the ranks run different operations";

/// Appends text as words, preceded by its length.
fn say_text(text: &str, words: &mut Vec<u32>) {
    words.push(text.len() as u32);
    words.extend(text.as_bytes().chunks(4).map(|bytes| {
        let mut word = [0; 4];
        word[..bytes.len()].copy_from_slice(bytes);
        u32::from_le_bytes(word)
    }));
}

/// Decodes the text of a message.
fn text(words: &[u32]) -> String {
    let Some((&len, words)) = words.get(HEADER..).and_then(<[u32]>::split_first) else {
        return String::new();
    };
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take(len as usize).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
pub(crate) mod tests;
