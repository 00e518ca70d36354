//! Thread that drives the transport.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, PoisonError,
        atomic::Ordering::Relaxed,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use graphmill_core::Result;
use rayon::ThreadPool;

use super::{
    ENDED, HEADER, Shared, header, kind, lock,
    queue::{Queue, Reassembly},
    say_text, text,
};
use crate::{
    Transport,
    transport::{Frame, Lane},
};

/// Minimum and maximum time between two polls: each poll takes a core from computations, on virtual
/// machines for tens of microseconds, and frames of 1 Gbit/s arrive every half a millisecond.
const POLL_INTERVAL: [Duration; 2] = [Duration::from_micros(200), Duration::from_millis(1)];
/// Between these limits, the pause is this fraction of the idle time, so that no receiver waits
/// longer by more than this fraction.
const IDLE_DIVISOR: u32 = 4;
/// Number of frames received before others are sent.
const RECEIVE_BATCH: usize = 16;
/// Time for which a failed rank tries to report the failure.
const FAILURE_REPORT_TIME: Duration = Duration::from_secs(1);
/// Number of heartbeats within the timeout of other ranks.
const HEARTBEATS: u32 = 8;

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

/// Driver of a transport.
pub(super) struct Driver<T> {
    shared: Arc<Shared>,
    transport: T,
    threads: Arc<ThreadPool>,
    outbox: Receiver<Outgoing>,
    queue: Queue,
    arriving: Reassembly,
}

impl<T: Transport> Driver<T> {
    /// Creates the driver of a messenger that sends messages through `outbox`, with `threads`
    /// service threads.
    pub(super) fn new(
        shared: Arc<Shared>,
        transport: T,
        threads: Arc<ThreadPool>,
        outbox: Receiver<Outgoing>,
    ) -> Self {
        let queue = Queue::new(shared.size);
        Self { shared, transport, threads, outbox, queue, arriving: Reassembly::default() }
    }

    /// Runs until the messenger ends or fails.
    pub(super) fn drive(mut self) {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.talk()));
        let why = match &outcome {
            Ok(Ok(())) => "this rank has closed it".to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "a fault of the program; please report this".to_string(),
        };
        lock(&self.shared.boxes).broken = Some(why.clone());
        self.shared.arrived.notify_all();
        if !matches!(outcome, Ok(Ok(()))) {
            // The remaining transport may deliver the reason; a regular end could block forever.
            let farewell = catch_unwind(AssertUnwindSafe(|| {
                self.queue.drop_replies();
                self.send_to_all(kind::FAULT, |words| say_text(&why, words));
                let began = Instant::now();
                while self.is_busy() && began.elapsed() < FAILURE_REPORT_TIME {
                    let _ = self.hand_over();
                    std::thread::sleep(POLL_INTERVAL[1]);
                }
            }));
            drop(farewell);
            std::mem::forget(self.transport);
        }
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<T> {
        let rank = self.shared.rank;
        (0..self.shared.size).filter(move |&to| to != rank)
    }

    /// Sends a message that belongs to no service to all others.
    fn send_to_all(&mut self, kind: u32, say: impl Fn(&mut Vec<u32>)) {
        for to in self.others() {
            let mut words = vec![kind, 0, 0];
            say(&mut words);
            self.queue.push(to, Lane::Urgent, words);
        }
    }

    /// Sends the messages that may be sent now. Returns true if any was sent.
    fn hand_over(&mut self) -> Result<bool> {
        let mut any = false;
        for to in self.others() {
            while !self.queue.is_empty()
                && let Some(frame) = self.queue.next(to, self.transport.in_flight(to))
            {
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

    fn talk(&mut self) -> Result<()> {
        let beat = self.shared.options.patience / HEARTBEATS;
        let mut beaten = Instant::now();
        let mut active = Instant::now();
        loop {
            let mut idle = true;
            for _ in 0..RECEIVE_BATCH {
                let Some((from, frame)) = self.transport.poll()? else { break };
                self.arrive(from, frame);
                idle = false;
            }
            if beaten.elapsed() >= beat {
                beaten = Instant::now();
                self.send_to_all(kind::BEAT, |_| {});
            }
            idle &= !self.hand_over()?;
            if !idle {
                active = Instant::now();
            }
            // A single rank receives no messages.
            let pause = if self.shared.size > 1 {
                (active.elapsed() / IDLE_DIVISOR).clamp(POLL_INTERVAL[0], POLL_INTERVAL[1])
            } else {
                beat
            };
            // Collect all messages queued meanwhile, so that urgent ones go first.
            let mut next = self.outbox.recv_timeout(pause);
            loop {
                match next {
                    Ok(Outgoing::Message(to, lane, words)) => self.queue.push(to, lane, words),
                    Ok(Outgoing::End(how)) => return self.end(how),
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                }
                active = Instant::now();
                next = self.outbox.try_recv().map_err(|_| RecvTimeoutError::Timeout);
            }
        }
    }

    /// Waits until the sent messages have been taken, within the timeout; terminates the job if it
    /// is to end with an error.
    fn end(&mut self, how: Ending) -> Result<()> {
        let most = if how == Ending::Closed { self.shared.options.patience } else { FAILURE_REPORT_TIME };
        let began = Instant::now();
        let mut is_farewell_sent = how != Ending::Closed;
        if is_farewell_sent {
            self.queue.drop_replies();
        }
        loop {
            self.hand_over()?;
            let is_over = began.elapsed() >= most;
            if self.is_busy() && !is_over {
                // Other ranks end only after their messages were received.
                while self.transport.poll()?.is_some() {}
                std::thread::sleep(POLL_INTERVAL[1]);
            } else if is_farewell_sent {
                break;
            } else {
                self.send_to_all(kind::BYE, |_| {});
                is_farewell_sent = true;
            }
        }
        if how == Ending::Aborted {
            self.transport.abort();
        }
        Ok(())
    }

    fn arrive(&mut self, from: usize, frame: Frame) {
        let shared = &self.shared;
        let now = shared.began.elapsed().as_millis();
        // Any frame is a sign of life.
        shared.last_seen[from].store(u64::try_from(now).unwrap_or(u64::MAX), Relaxed);
        let Some(words) = self.arriving.add(from, frame) else { return };
        let Some(&[first, low, high]) = words.first_chunk::<HEADER>() else { return };
        let (kind, service) = (first & 0xff, first >> 8);
        let number = u64::from(high) << 32 | u64::from(low);
        match kind {
            kind::BEAT => {}
            kind::REQUEST => {
                let shared = shared.clone();
                self.threads.spawn(move || shared.answer(from, service, number, &words));
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
                    Err(_) => Err("a fault of the program while it answered; please report this".into()),
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
