//! The thread that drives the transport.

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
    queue::{Arriving, Queue},
    say_text, text,
};
use crate::{
    Transport,
    transport::{Frame, Lane},
};

/// Least and most time between two looks for frames: each look takes a core from whoever computes there, on virtual machines for tens of
/// microseconds, and frames of 1 Gbit/s come every half a millisecond.
const LOOKS: [Duration; 2] = [Duration::from_micros(200), Duration::from_millis(1)];
/// Between these, this part of the time for which there have been none: beyond the least, nobody waits longer by more than this part.
const LOOKED: u32 = 4;
/// Frames that are taken before others are sent.
const TURN: usize = 16;
/// How long a rank that has failed tries to say so.
const FAREWELL: Duration = Duration::from_secs(1);
/// How often a rank says that it is there in the time that others wait.
const BEATS: u32 = 8;

/// What the driver is told.
pub(super) enum Outgoing {
    /// A message for a rank.
    Message(usize, Lane, Vec<u32>),
    /// All is said: end when it has been taken.
    End(Ending),
}

/// How a rank ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// In good order, with a good-bye behind everything else.
    Closed,
    /// By a failure of its own, which it has told.
    Failed,
    /// As `Failed`, for all: the processes of the others are ended too.
    Aborted,
}

/// What drives a transport.
pub(super) struct Driver<T> {
    shared: Arc<Shared>,
    transport: T,
    threads: Arc<ThreadPool>,
    outbox: Receiver<Outgoing>,
    queue: Queue,
    arriving: Arriving,
}

impl<T: Transport> Driver<T> {
    /// Of a post that hands over messages by `outbox`; `threads` answer.
    pub(super) fn new(
        shared: Arc<Shared>,
        transport: T,
        threads: Arc<ThreadPool>,
        outbox: Receiver<Outgoing>,
    ) -> Self {
        let queue = Queue::new(shared.size);
        Self { shared, transport, threads, outbox, queue, arriving: Arriving::default() }
    }

    /// Until the post ends, or fails.
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
            // what is left of the transport may tell the others; to end it in good order may take for ever
            let told = catch_unwind(AssertUnwindSafe(|| {
                self.queue.forget_answers();
                self.tell_all(kind::FAULT, |words| say_text(&why, words));
                let began = Instant::now();
                while self.is_busy() && began.elapsed() < FAREWELL {
                    let _ = self.hand_over();
                    std::thread::sleep(LOOKS[1]);
                }
            }));
            drop(told);
            std::mem::forget(self.transport);
        }
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<T> {
        let rank = self.shared.rank;
        (0..self.shared.size).filter(move |&to| to != rank)
    }

    /// Says something that belongs to no service to all others.
    fn tell_all(&mut self, kind: u32, say: impl Fn(&mut Vec<u32>)) {
        for to in self.others() {
            let mut words = vec![kind, 0, 0];
            say(&mut words);
            self.queue.push(to, Lane::Urgent, words);
        }
    }

    /// Hands over what may go now. Returns whether anything went.
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

    /// Whether anything is still to be sent or taken.
    fn is_busy(&mut self) -> bool {
        !self.queue.is_empty() || self.others().any(|to| self.transport.in_flight(to) > 0)
    }

    fn talk(&mut self) -> Result<()> {
        let beat = self.shared.options.patience / BEATS;
        let mut beaten = Instant::now();
        let mut active = Instant::now();
        loop {
            let mut idle = true;
            for _ in 0..TURN {
                let Some((from, frame)) = self.transport.poll()? else { break };
                self.arrive(from, frame);
                idle = false;
            }
            if beaten.elapsed() >= beat {
                beaten = Instant::now();
                self.tell_all(kind::BEAT, |_| {});
            }
            idle &= !self.hand_over()?;
            if !idle {
                active = Instant::now();
            }
            // who is alone hears of nobody
            let pause = if self.shared.size > 1 {
                (active.elapsed() / LOOKED).clamp(LOOKS[0], LOOKS[1])
            } else {
                beat
            };
            // all that was said meanwhile, so that the urgent of it goes first
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

    /// Waits until what was said has been taken, for as long as others may wait; and where the job is to end with an error, ends it.
    fn end(&mut self, how: Ending) -> Result<()> {
        let most = if how == Ending::Closed { self.shared.options.patience } else { FAREWELL };
        let began = Instant::now();
        let mut is_told = how != Ending::Closed;
        if is_told {
            self.queue.forget_answers();
        }
        loop {
            self.hand_over()?;
            let is_over = began.elapsed() >= most;
            if self.is_busy() && !is_over {
                // others end only when they have been listened to
                while self.transport.poll()?.is_some() {}
                std::thread::sleep(LOOKS[1]);
            } else if is_told {
                break;
            } else {
                self.tell_all(kind::BYE, |_| {});
                is_told = true;
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
        // a piece of a message is a sign of life
        shared.heard[from].store(u64::try_from(now).unwrap_or(u64::MAX), Relaxed);
        let Some(words) = self.arriving.add(from, frame) else { return };
        let Some(&[first, low, high]) = words.first_chunk::<HEADER>() else { return };
        let (kind, service) = (first & 0xff, first >> 8);
        let number = u64::from(high) << 32 | u64::from(low);
        match kind {
            kind::BEAT => {}
            kind::ASK => {
                let shared = shared.clone();
                self.threads.spawn(move || shared.answer(from, service, number, &words));
            }
            kind::FAULT | kind::BYE => {
                let why = if kind == kind::BYE { ENDED.to_string() } else { text(&words) };
                // the number of a fault that is passed on is one more than the rank whose it is
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
        // written where it is sent from: an answer may be megabytes
        let mut said = header(kind::ANSWER, service, number);
        let answer = match found {
            None => Err(format!("it has no service {service}: the ranks do not all run the same")),
            Some(found) => {
                let answer = || found.answer(from, &words[HEADER..], &mut said);
                match catch_unwind(AssertUnwindSafe(answer)) {
                    Ok(answer) => answer.map_err(|error| error.to_string()),
                    Err(_) => Err("a fault of the program while it answered; please report this".into()),
                }
            }
        };
        match answer {
            Ok(()) => self.send_words(from, lane, service, said),
            Err(why) => self.send(from, lane, kind::REFUSAL, service, number, |words| say_text(&why, words)),
        }
    }
}
