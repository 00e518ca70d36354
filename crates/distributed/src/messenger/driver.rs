//! Thread that drives the transport.

use std::{
    num::NonZero,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, PoisonError,
        atomic::Ordering::Relaxed,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use graphmill_core::{Error, Result, memory};

use super::{
    ENDED, HEADER, Shared, header, kind, lock,
    queue::{Queue, Reassembly},
    say_text,
    seal::Seals,
    text,
};
use crate::{
    Transport,
    transport::{Frame, Lane},
};

/// Minimum and maximum time between two polls: each poll takes a core from computations, on virtual
/// machines for tens of microseconds, and frames of 1 Gbit/s arrive every half a millisecond.
const POLL_INTERVAL: [Duration; 2] = [Duration::from_micros(200), Duration::from_millis(1)];
/// Time after the last message in which a driver polls without a pause, if it has a core for that:
/// the reply to a request, and the next message of an exchange, are often there by then.
const SPIN_TIME: Duration = Duration::from_micros(50);
/// Between these limits, the pause is this fraction of the idle time, so that no receiver waits
/// longer by more than this fraction.
const IDLE_DIVISOR: u32 = 4;
/// Number of frames received before others are sent.
const RECEIVE_BATCH: usize = 16;
/// Time for which a failed rank tries to report the failure.
const FAILURE_REPORT_TIME: Duration = Duration::from_secs(1);
/// Number of heartbeats within the timeout of other ranks.
const HEARTBEATS: u32 = 8;

/// Returns true if the `ranks` ranks of a machine with `cores` cores may poll without pauses: each
/// has a second core for its computations. With more ranks than cores, a rank that polled would
/// keep the core from the rank whose message it waits for.
pub(super) fn may_spin(cores: usize, ranks: usize) -> bool {
    cores / 2 >= ranks
}

/// Returns true if the driver of `transport` may poll without pauses on this machine. Cores count
/// that the affinity and the quota of this process allow: a rank that its launcher bound to one
/// core does not spin, however many cores the machine has.
pub(super) fn may_spin_here(transport: &impl Transport) -> bool {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    may_spin(cores, transport.ranks_on_host())
}

/// Command to the driver.
pub(super) enum Outgoing {
    /// Message to a rank.
    Message(usize, Lane, Vec<u32>),
    /// No more messages: end when all have been taken.
    End(Ending),
}

/// Way in which a rank ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Regular end, with a good-bye after all messages.
    Closed,
    /// Failure that has been reported.
    Failed,
    /// Failure that also terminates the processes of the other ranks.
    Aborted,
}

/// Starts the reply to a request on a service thread.
pub(super) type Spawn = Box<dyn Fn(Box<dyn FnOnce() + Send>) + Send>;

/// State of a driver.
enum Phase {
    Talking,
    /// Waits until the sent messages have been taken.
    Ending {
        how: Ending,
        since: Duration,
        is_farewell_sent: bool,
    },
    /// Reports that the transport failed.
    Reporting {
        since: Duration,
    },
    Over,
}

/// Driver of a transport.
pub(super) struct Driver<T> {
    shared: Arc<Shared>,
    transport: T,
    spawn: Spawn,
    outbox: Receiver<Outgoing>,
    queue: Queue,
    seals: Seals,
    arriving: Reassembly,
    phase: Phase,
    /// Time of the last heartbeat.
    beaten: Duration,
    /// Time of the last message in either direction.
    active: Duration,
    /// True if the driver polls without pauses for [`SPIN_TIME`] after a message.
    spins: bool,
    has_failed: bool,
}

impl<T: Transport> Driver<T> {
    /// Creates the driver of a messenger that sends messages through `outbox`, whose services run
    /// by `spawn`.
    pub(super) fn new(shared: Arc<Shared>, transport: T, spawn: Spawn, outbox: Receiver<Outgoing>) -> Self {
        let now = shared.time.now();
        Self {
            transport,
            spawn,
            outbox,
            queue: Queue::new(shared.size, shared.options.delay),
            seals: Seals::new(shared.rank, shared.size),
            arriving: Reassembly::new(memory::total().unwrap_or(u64::MAX)),
            phase: Phase::Talking,
            beaten: now,
            active: now,
            spins: false,
            has_failed: false,
            shared,
        }
    }

    /// The same driver, which polls without pauses for a short time after a message if `spins` is
    /// set.
    pub(super) fn spinning(self, spins: bool) -> Self {
        Self { spins, ..self }
    }

    /// Runs until the messenger ends or fails.
    pub(super) fn drive(mut self) {
        while let Some(pause) = self.turn() {
            if !matches!(self.phase, Phase::Talking) {
                std::thread::sleep(pause);
                continue;
            }
            match self.outbox.recv_timeout(pause) {
                Ok(command) => self.accept(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.finish("this rank has closed it"),
            }
        }
        if self.has_failed {
            self.transport.abandon();
        }
    }

    /// Receives and sends what can be received and sent now, and returns the time until the next
    /// turn; `None` at the end.
    pub(super) fn turn(&mut self) -> Option<Duration> {
        let outcome = catch_unwind(AssertUnwindSafe(|| match self.phase {
            Phase::Talking => self.talk(),
            Phase::Ending { how, since, is_farewell_sent } => self.end(how, since, is_farewell_sent),
            Phase::Reporting { since } => Ok(self.report(since)),
            Phase::Over => Ok(None),
        }));
        match outcome {
            Ok(Ok(pause)) => pause,
            Ok(Err(error)) => self.fail(&error.to_string()),
            Err(payload) => match memory::refusal(&*payload) {
                Some(refused) => self.fail(&refused.to_string()),
                None => self.fail("a fault of the program; please report this"),
            },
        }
    }

    /// Returns true if a turn does nothing before a message arrives or a heartbeat is due.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Talking) && self.queue.is_empty()
    }

    /// Time of the next heartbeat.
    #[cfg(test)]
    pub(super) fn next_beat(&self) -> Duration {
        self.beaten + self.beat_interval()
    }

    /// Ends the waiting of this rank's threads, with the reason.
    fn finish(&mut self, why: &str) {
        self.phase = Phase::Over;
        lock(&self.shared.boxes).broken = Some(why.to_string());
        self.shared.arrived.notify_all();
    }

    /// Ends with a failure of the transport. What is left of it may deliver the reason.
    fn fail(&mut self, why: &str) -> Option<Duration> {
        let is_first = !self.has_failed;
        self.has_failed = true;
        self.finish(why);
        if is_first {
            self.queue.drop_replies();
            self.send_to_all(kind::FAULT, |_, words| say_text(why, words));
            self.phase = Phase::Reporting { since: self.shared.time.now() };
        }
        is_first.then_some(Duration::ZERO)
    }

    /// Sends the reason of a failure, for a limited time.
    fn report(&mut self, since: Duration) -> Option<Duration> {
        if self.is_busy() && self.shared.time.now() - since < FAILURE_REPORT_TIME {
            let _ = self.hand_over();
            return Some(POLL_INTERVAL[1]);
        }
        self.phase = Phase::Over;
        None
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<T> {
        let rank = self.shared.rank;
        (0..self.shared.size).filter(move |&to| to != rank)
    }

    /// Queues a message.
    fn push(&mut self, to: usize, lane: Lane, mut words: Vec<u32>) {
        self.seals.seal(to, lane, &mut words);
        self.queue.push(to, lane, words);
    }

    /// Sends a message that belongs to no service to all others.
    fn send_to_all(&mut self, kind: u32, say: impl Fn(usize, &mut Vec<u32>)) {
        for to in self.others() {
            let mut words = header(kind, 0, 0);
            say(to, &mut words);
            self.push(to, Lane::Urgent, words);
        }
    }

    /// Sends heartbeats with the numbers of sent messages.
    fn beat(&mut self) {
        let sent: Vec<_> = (0..self.shared.size).map(|to| self.seals.sent(to)).collect();
        self.send_to_all(kind::BEAT, |to, words| words.extend(sent[to]));
    }

    /// Sends the messages that may be sent now. Returns true if any was sent.
    fn hand_over(&mut self) -> Result<bool> {
        let mut any = false;
        for to in self.others() {
            while self.queue.is_active(to)
                && let Some(frame) = self.queue.next(to, self.transport.in_flight(to), self.shared.time.now())
            {
                if frame.is_last {
                    self.seals.count_sent(to, frame.lane);
                }
                self.transport.send(to, frame)?;
                any = true;
            }
        }
        Ok(any)
    }

    /// Returns true if messages are still to be sent or received.
    fn is_busy(&mut self) -> bool {
        !self.queue.is_empty() || self.others().any(|to| self.transport.in_flight(to) > 0)
    }

    /// Time between two heartbeats.
    fn beat_interval(&self) -> Duration {
        self.shared.options.patience / HEARTBEATS
    }

    /// Executes a command.
    fn accept(&mut self, command: Outgoing) {
        match command {
            Outgoing::Message(to, lane, words) => self.push(to, lane, words),
            Outgoing::End(how) => {
                let is_farewell_sent = how != Ending::Closed;
                if is_farewell_sent {
                    self.queue.drop_replies();
                }
                self.phase = Phase::Ending { how, since: self.shared.time.now(), is_farewell_sent };
            }
        }
        self.active = self.shared.time.now();
    }

    fn talk(&mut self) -> Result<Option<Duration>> {
        // All messages queued meanwhile, so that urgent ones go first.
        while matches!(self.phase, Phase::Talking) {
            match self.outbox.try_recv() {
                Ok(command) => self.accept(command),
                Err(_) => break,
            }
        }
        if !matches!(self.phase, Phase::Talking) {
            return Ok(Some(Duration::ZERO));
        }
        let mut received = 0;
        while received < RECEIVE_BATCH
            && let Some((from, frame)) = self.transport.poll()?
        {
            self.arrive(from, frame)?;
            received += 1;
        }
        let mut idle = received == 0;
        let now = self.shared.time.now();
        if now - self.beaten >= self.beat_interval() {
            self.beaten = now;
            self.beat();
        }
        idle &= !self.hand_over()?;
        if !idle {
            self.active = now;
        }
        // A single rank receives no messages.
        if self.shared.size == 1 {
            return Ok(Some(self.beat_interval()));
        }
        let quiet = now - self.active;
        // More frames may have arrived than one batch.
        if received == RECEIVE_BATCH || self.spins && quiet < SPIN_TIME {
            return Ok(Some(Duration::ZERO));
        }
        Ok(Some((quiet / IDLE_DIVISOR).clamp(POLL_INTERVAL[0], POLL_INTERVAL[1])))
    }

    /// Waits until the sent messages have been taken, within the timeout; terminates the job if it
    /// is to end with an error.
    fn end(&mut self, how: Ending, since: Duration, is_farewell_sent: bool) -> Result<Option<Duration>> {
        let most = if how == Ending::Closed { self.shared.options.patience } else { FAILURE_REPORT_TIME };
        self.hand_over()?;
        let is_over = self.shared.time.now() - since >= most;
        if self.is_busy() && !is_over {
            // Other ranks end only after their messages were received.
            while self.transport.poll()?.is_some() {}
            return Ok(Some(POLL_INTERVAL[1]));
        }
        if !is_farewell_sent {
            self.send_to_all(kind::BYE, |_, _| {});
            self.phase = Phase::Ending { how, since, is_farewell_sent: true };
            return Ok(Some(Duration::ZERO));
        }
        if how == Ending::Aborted {
            self.transport.abort();
        }
        self.finish("this rank has closed it");
        Ok(None)
    }

    fn arrive(&mut self, from: usize, frame: Frame) -> Result<()> {
        let shared = &self.shared;
        let now = shared.time.now().as_millis();
        // Any frame is a sign of life.
        shared.last_seen[from].store(u64::try_from(now).unwrap_or(u64::MAX), Relaxed);
        let lane = frame.lane;
        let Some(words) = self.arriving.add(from, frame)? else { return Ok(()) };
        let peer = |message| Error::Peer { rank: from, message };
        self.seals.open(from, lane, &words).map_err(peer)?;
        let Some(&[first, low, high, ..]) = words.first_chunk::<HEADER>() else { return Ok(()) };
        let (kind, service) = (first & 0xff, first >> 8);
        let number = u64::from(high) << 32 | u64::from(low);
        match kind {
            kind::BEAT => self.seals.compare(from, &words[HEADER..]).map_err(peer)?,
            kind::REQUEST => {
                let shared = shared.clone();
                (self.spawn)(Box::new(move || shared.answer(from, service, number, &words)));
            }
            kind::FAULT | kind::BYE => {
                let why = if kind == kind::BYE { ENDED.to_string() } else { text(&words) };
                // The number of a forwarded fault is one more than the rank that caused it.
                let of = usize::try_from(number).ok().and_then(|n| n.checked_sub(1));
                let of = of.filter(|&rank| kind == kind::FAULT && rank < shared.size).unwrap_or(from);
                let mut boxes = lock(&shared.boxes);
                boxes.gone.entry(of).or_insert(why);
                boxes.gone.entry(from).or_insert_with(|| ENDED.to_string());
                drop(boxes);
                shared.arrived.notify_all();
            }
            _ => {
                lock(&shared.boxes).mail.entry((from, kind, number)).or_default().push_back(words);
                shared.arrived.notify_all();
            }
        }
        Ok(())
    }
}

impl Shared {
    fn answer(&self, from: usize, service: u32, number: u64, words: &[u32]) {
        let found = self.services.read().unwrap_or_else(PoisonError::into_inner).get(&service).cloned();
        let lane = found.as_ref().map_or(Lane::Draws, |found| found.lane());
        // Written into the message itself, because a reply may be megabytes.
        let mut said = header(kind::REPLY, service, number);
        let began = Instant::now();
        let answer = match found {
            None => Err(format!("it has no service {service}: the ranks run different programs")),
            Some(found) => {
                let answer = || found.answer(from, &words[HEADER..], &mut said);
                match catch_unwind(AssertUnwindSafe(answer)) {
                    Ok(answer) => answer.map_err(|error| error.to_string()),
                    Err(payload) => Err(match memory::refusal(&*payload) {
                        Some(refused) => refused.to_string(),
                        None => "a fault of the program while it answered; please report this".into(),
                    }),
                }
            }
        };
        self.spend(service, 0, began);
        match answer {
            Ok(()) => self.send_words(from, lane, service, said),
            Err(why) => self.send(from, lane, kind::REFUSAL, service, number, |words| say_text(&why, words)),
        }
    }
}
