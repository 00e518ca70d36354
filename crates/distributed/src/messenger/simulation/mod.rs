//! A whole cluster in one process, whose time, network and failures are drawn from a seed.
//!
//! ```text
//!   seed ─► faults ─► network: delays, partitions, lost, repeated, exchanged and damaged frames
//!                 └─► ranks: deaths, stalls                    │
//!                       program (thread) ◄─► messenger ◄─► driver, turn by turn
//! ```
//!
//! The ranks run the real messenger, services, distributed sampler, remote rows and sums
//! ([`program`]). Their programs are threads of which one runs at a time: it runs until it waits,
//! and the cluster resumes it when a message has arrived or its time is over. Time passes from
//! event to event, so a minute of silence takes no time, and a seed repeats its run exactly.
//!
//! What must hold for every seed: all ranks end within a bound of time; a rank that ends without an
//! error has the model of an undisturbed run, to the bit; other ranks end with an error that names
//! a rank or the connection; and a job that is started again from its checkpoint has that model at
//! last.

mod faults;
mod network;
mod program;
mod tests;

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use faults::Faults;
use graphmill_core::keyed::Stream;
use network::{End, Network};

use super::{Driver, Mailboxes, Messenger, MessengerOptions, Shared, Time, lock};

/// Time after which ranks of a simulated cluster declare a silent one dead.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest time that a job may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Shortest time between two turns of a driver: a turn takes some time.
const SHORTEST_TURN: Duration = Duration::from_micros(1);

/// State of a program that does not run.
enum Paused {
    /// It waits for messages, until this time at most.
    Until(Duration),
    /// It has ended.
    Over,
}

/// Simulated clock, in nanoseconds.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Relaxed))
    }
}

/// A program's side of its turns.
struct Turns {
    clock: Clock,
    paused: Mutex<Sender<Paused>>,
    resume: Mutex<Receiver<()>>,
    /// Set when the rank is dead.
    is_dead: AtomicBool,
}

impl Turns {
    /// Lets the cluster go on until `time`, or until a message has arrived.
    fn pause(&self, time: Duration) {
        let _ = lock(&self.paused).send(Paused::Until(time));
        if lock(&self.resume).recv().is_err() {
            self.is_dead.store(true, Relaxed);
        }
    }

    /// Computes for this long.
    fn compute(&self, duration: Duration) {
        let end = self.clock.now() + duration;
        while self.clock.now() < end && !self.is_dead.load(Relaxed) {
            self.pause(end);
        }
    }
}

impl Time for Arc<Turns> {
    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn wait<'m>(
        &self,
        mailboxes: &'m Mutex<Mailboxes>,
        boxes: MutexGuard<'m, Mailboxes>,
        _: &Condvar,
        most: Duration,
    ) -> MutexGuard<'m, Mailboxes> {
        drop(boxes);
        self.pause(self.clock.now() + most);
        let mut boxes = lock(mailboxes);
        if self.is_dead.load(Relaxed) {
            boxes.broken = Some("the rank is dead".into());
        }
        boxes
    }
}

type Answer = Box<dyn FnOnce() + Send>;

/// A rank of the cluster.
struct Rank<T> {
    shared: Arc<Shared>,
    /// `None` when it has ended.
    driver: Option<Driver<End>>,
    /// Time of the driver's next turn.
    turn: Duration,
    /// Replies that the driver has started, and the time of the first.
    answers: Arc<Mutex<Vec<Answer>>>,
    answer: Option<Duration>,
    paused: Paused,
    pauses: Receiver<Paused>,
    resume: Option<Sender<()>>,
    program: Option<JoinHandle<T>>,
}

/// A cluster that runs one job.
struct Cluster<T> {
    clock: Clock,
    network: Arc<Mutex<Network>>,
    faults: Faults,
    ranks: Vec<Rank<T>>,
    stream: Stream,
}

impl<T: Send + 'static> Cluster<T> {
    /// Starts `program` on every rank of a cluster with these faults.
    fn start(
        faults: Faults,
        seed: u64,
        program: impl Fn(Arc<Messenger>, Arc<Turns>) -> T + Clone + Send + 'static,
    ) -> Self {
        let clock = Clock::default();
        let size = faults.size;
        // Windows of constant size, of the default delay, and of a delay that never shrinks them.
        let delays = [Duration::ZERO, MessengerOptions::default().delay, LIMIT];
        let delay = delays[(seed % 3) as usize];
        let network = Arc::new(Mutex::new(Network::new(faults.clone(), clock.clone(), seed)));
        let mut ranks: Vec<Rank<T>> = (0..size)
            .map(|rank| Self::join([rank, size], delay, &clock, &network, program.clone()))
            .collect();
        // The drivers of every second seed poll without pauses after a message.
        for rank in &mut ranks {
            rank.driver = rank.driver.take().map(|driver| driver.spinning(seed & 1 == 1));
        }
        Self { clock, network, faults, ranks, stream: Stream::new(seed ^ 1) }
    }

    fn join(
        [rank, size]: [usize; 2],
        delay: Duration,
        clock: &Clock,
        network: &Arc<Mutex<Network>>,
        program: impl Fn(Arc<Messenger>, Arc<Turns>) -> T + Send + 'static,
    ) -> Rank<T> {
        let (out, outbox) = channel();
        let (paused, pauses) = channel();
        let (resume, resumed) = channel();
        let turns = Arc::new(Turns {
            clock: clock.clone(),
            paused: Mutex::new(paused),
            resume: Mutex::new(resumed),
            is_dead: AtomicBool::new(false),
        });
        let options = MessengerOptions { patience: PATIENCE, delay, ..MessengerOptions::default() };
        let shared = Arc::new(Shared::new(rank, size, options, out, Box::new(turns.clone())));
        let answers: Arc<Mutex<Vec<Answer>>> = Arc::default();
        let started = answers.clone();
        let spawn = Box::new(move |answer| lock(&started).push(answer));
        let end = End::new(rank, network.clone());
        let driver = Driver::new(shared.clone(), end, spawn, outbox);
        let messenger = Arc::new(Messenger { shared: shared.clone(), thread: Mutex::new(None) });
        let program = std::thread::spawn(move || {
            turns.pause(Duration::ZERO);
            let result = program(messenger, turns.clone());
            let _ = lock(&turns.paused).send(Paused::Over);
            result
        });
        let first = pauses.recv().expect("a program pauses at its start");
        Rank {
            shared,
            driver: Some(driver),
            turn: Duration::ZERO,
            answers,
            answer: None,
            paused: first,
            pauses,
            resume: Some(resume),
            program: Some(program),
        }
    }

    /// Runs the cluster until all ranks have ended. Returns their results; `None` of dead ones.
    ///
    /// # Panics
    /// A rank does not end.
    fn run(mut self) -> Vec<Option<T>> {
        while self.ranks.iter().any(|rank| !rank.is_over()) {
            let now = self.next_event();
            assert!(now < LIMIT, "the job hangs: {:?}", self.faults);
            self.clock.0.store(u64::try_from(now.as_nanos()).expect("minutes"), Relaxed);
            let arrived = lock(&self.network).deliver(now);
            for rank in arrived {
                // Drivers look for frames at intervals.
                let until = now + Duration::from_micros(self.stream.below(1000));
                let turn = &mut self.ranks[rank].turn;
                *turn = (*turn).min(until);
            }
            for rank in 0..self.ranks.len() {
                if self.faults.dies(rank, now) {
                    self.ranks[rank].die();
                } else if !self.faults.is_stalled(rank, now) {
                    self.ranks[rank].act(now, &mut self.stream);
                }
            }
        }
        self.ranks.into_iter().map(Rank::result).collect()
    }

    /// Time of the next event.
    fn next_event(&mut self) -> Duration {
        let faults = &self.faults;
        let ranks = self.ranks.iter().enumerate().filter(|(_, rank)| !rank.is_over());
        let ranks = ranks.filter_map(|(i, rank)| {
            let due = faults.after_stall(i, rank.due()?);
            Some(faults.death(i).map_or(due, |death| due.min(death)))
        });
        let frame = lock(&self.network).next_delivery();
        ranks.chain(frame).min().unwrap_or(LIMIT).max(self.clock.now())
    }
}

impl<T> Rank<T> {
    fn is_over(&self) -> bool {
        self.driver.is_none() && matches!(self.paused, Paused::Over)
    }

    /// Time of its next action.
    fn due(&self) -> Option<Duration> {
        let turn = self.driver.as_ref().map(|_| self.turn);
        let paused = match self.paused {
            Paused::Until(time) => Some(time),
            Paused::Over => None,
        };
        [turn, self.answer, paused].into_iter().flatten().min()
    }

    /// Does all that is due.
    fn act(&mut self, now: Duration, stream: &mut Stream) {
        let mut has_news = matches!(self.paused, Paused::Until(time) if time <= now);
        if self.answer.is_some_and(|time| time <= now) {
            self.answer = None;
            let answers = std::mem::take(&mut *lock(&self.answers));
            answers.into_iter().for_each(|answer| answer());
            self.turn = now;
        }
        if self.turn <= now
            && let Some(driver) = &mut self.driver
        {
            let before = contents(&self.shared);
            let pause = driver.turn();
            has_news |= contents(&self.shared) != before;
            match pause {
                None => self.driver = None,
                Some(_) if driver.is_idle() => self.turn = driver.next_beat(),
                Some(pause) => self.turn = now + pause.max(SHORTEST_TURN),
            }
            if self.answer.is_none() && !lock(&self.answers).is_empty() {
                self.answer = Some(now + Duration::from_micros(stream.below(3000)));
            }
        }
        if has_news && matches!(self.paused, Paused::Until(_)) {
            self.resume();
            self.turn = now;
        }
    }

    /// Runs the program until it pauses again.
    fn resume(&mut self) {
        if let Some(resume) = &self.resume {
            let _ = resume.send(());
            self.paused = self.pauses.recv().unwrap_or(Paused::Over);
        }
    }

    /// Ends without a word.
    fn die(&mut self) {
        self.driver = None;
        self.resume = None;
        // Its program ends by itself, as every wait fails.
        while let Paused::Until(_) = self.paused {
            self.paused = self.pauses.recv().unwrap_or(Paused::Over);
        }
        if let Some(program) = self.program.take() {
            let _ = program.join();
        }
        lock(&self.shared.boxes).mail.clear();
    }

    fn result(mut self) -> Option<T> {
        self.program.take().map(|program| program.join().expect("no panic in a rank's program"))
    }
}

/// Numbers of messages and of ended ranks, and whether the connection is lost.
fn contents(shared: &Shared) -> (usize, usize, bool) {
    let boxes = lock(&shared.boxes);
    (boxes.mail.values().map(VecDeque::len).sum(), boxes.gone.len(), boxes.broken.is_some())
}
