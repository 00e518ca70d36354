//! Simulation of the factored strategy.
//!
//! # Algorithm
//!
//! Samplers and Trainers are separate devices with a bounded queue between them.
//!
//! ```text
//!   Samplers:  sample b0 | b1 | b2 ..  ─►  queue  ─►  Trainers:  extract b1 | extract b2 | ..
//!                                                                train b0   | train b1   | ..
//! ```
//!
//! A Trainer extracts the rows of one batch while it trains on another; an extracted batch waits
//! only for the training. When all batches are sampled, a Sampler's device becomes a standby
//! Trainer: it takes a batch if [`profit`] is positive. It overlaps stages as Trainers do, so the
//! estimated duration of one more task includes its unfinished batches. Batches are extracted in
//! the order of their numbers, and one that may not train on the current parameters waits for the
//! update before it. One Sampler and one Trainer without standby also model the pipelined strategy.
//!
//! # Source
//!
//! Yang et al., *GNNLab: a factored system for sample-based GNN training over GPUs*, EuroSys 2022,
//! section 5.
//!
//! # Cost
//!
//! O(B log B) for B batches.

use std::collections::{BTreeSet, VecDeque};

use graphmill_engine::allocate::samplers::profit;

use super::{
    Batches, Epoch, Trainer, Updates,
    clock::{Clock, Next},
    updates::Model,
};

/// Roles and durations of the executors.
#[derive(Clone, Copy, Debug)]
pub struct Factored {
    /// Number of devices that sample; at least one.
    pub samplers: usize,
    /// Seconds of a Sampler for a batch.
    pub sample: f64,
    /// Number of devices that train.
    pub trainers: usize,
    /// Durations of each of them.
    pub trainer: Trainer,
    /// Durations of a Sampler's device as a standby Trainer, if allowed; required without Trainers.
    pub standby: Option<Trainer>,
    /// Capacity of the queue in batches, at least one; all of them without Trainers.
    pub queue: u64,
    /// Number of gathers that the host serves at full speed.
    pub gathers: f64,
    /// Batches that train on the same parameters.
    pub updates: Updates,
}

impl Factored {
    /// Devices that each train, as `trainer` says, beside the extraction of their next batch, with
    /// sampling included in their training.
    pub fn turns(trainers: usize, trainer: Trainer, gathers: f64, updates: Updates) -> Self {
        let (samplers, sample, standby, queue) = (1, 0.0, None, u64::MAX);
        Self { samplers, sample, trainers, trainer, standby, queue, gathers, updates }
    }
}

enum Event {
    Sampled(usize),
    Copied(usize),
    Trained(usize),
}

/// Trainer or standby Trainer.
#[derive(Clone, Copy, Default)]
struct Executor {
    /// True if it may take batches.
    awake: bool,
    /// Number of the batch whose rows it extracts, and the start time.
    extracting: Option<(u64, f64)>,
    /// Number of the batch that waits for training.
    extracted: Option<u64>,
    /// Number of the batch that it trains on.
    training: Option<u64>,
}

impl Executor {
    /// Number of its batches.
    fn has(&self) -> usize {
        usize::from(self.extracting.is_some())
            + usize::from(self.extracted.is_some())
            + usize::from(self.training.is_some())
    }
}

struct Simulation {
    setting: Factored,
    batches: Batches,
    clock: Clock<Event>,
    /// Trainers, then the standby Trainer of each Sampler.
    executors: Vec<Executor>,
    /// Numbers of the batches that Samplers process or hold.
    sampling: Vec<u64>,
    /// Samplers that wait for queue capacity.
    blocked: VecDeque<usize>,
    queue: BTreeSet<u64>,
    /// The next batch to sample, and the next one to extract.
    next: u64,
    unclaimed: u64,
    model: Model,
    epoch: Epoch,
}

/// Simulates an epoch.
pub fn factored(batches: Batches, setting: Factored) -> Epoch {
    let Factored { samplers, trainers, .. } = setting;
    assert!(trainers > 0 || setting.standby.is_some(), "someone trains");
    let queue = if trainers == 0 { batches.count } else { setting.queue.max(1) };
    let mut run = Simulation {
        setting: Factored { queue, ..setting },
        batches,
        clock: Clock::new(setting.gathers),
        executors: vec![Executor::default(); trainers + samplers],
        sampling: vec![0; samplers],
        blocked: VecDeque::new(),
        queue: BTreeSet::new(),
        next: 0,
        unclaimed: 0,
        model: Model::new(setting.updates, batches.count),
        epoch: Epoch::default(),
    };
    run.executors[..trainers].iter_mut().for_each(|trainer| trainer.awake = true);
    run.run()
}

impl Simulation {
    fn run(mut self) -> Epoch {
        (0..self.setting.samplers).for_each(|sampler| self.sample(sampler));
        while let Some(next) = self.clock.next() {
            match next {
                Next::Event(Event::Sampled(sampler)) => {
                    self.blocked.push_back(sampler);
                    self.dispatch();
                }
                Next::Gathered(who) => {
                    let (number, since) = self.executors[who].extracting.expect("it gathered");
                    let copy = self.batches.size(number) * self.pace(who).copy;
                    if who < self.setting.trainers || self.setting.trainers == 0 {
                        self.epoch.gather += self.clock.now() - since;
                        self.epoch.copy += copy;
                    }
                    self.clock.after(copy, Event::Copied(who));
                }
                Next::Event(Event::Copied(who)) => {
                    let extracted = self.executors[who].extracting.take();
                    self.executors[who].extracted = extracted.map(|(number, _)| number);
                    self.train(who);
                    self.dispatch();
                }
                Next::Event(Event::Trained(who)) => {
                    let trained = self.executors[who].training.take();
                    self.epoch.switched += u64::from(who >= self.setting.trainers);
                    if trained.is_some_and(|number| self.model.add(number)) {
                        (0..self.executors.len()).for_each(|other| self.train(other));
                    }
                    self.train(who);
                    self.dispatch();
                }
            }
        }
        self.finish()
    }

    /// Starts the Sampler's next batch, or makes it a standby Trainer.
    fn sample(&mut self, sampler: usize) {
        if self.next == self.batches.count {
            self.executors[self.setting.trainers + sampler].awake = self.setting.standby.is_some();
            return;
        }
        let seconds = self.batches.size(self.next) * self.setting.sample;
        self.sampling[sampler] = self.next;
        self.next += 1;
        self.epoch.sample += seconds;
        self.clock.after(seconds, Event::Sampled(sampler));
    }

    /// Moves batches from Samplers to the queue and from there to Trainers, as far as possible. A
    /// batch has a place in the queue by its number, so that the next one to extract always has.
    fn dispatch(&mut self) {
        loop {
            let end = self.unclaimed.saturating_add(self.setting.queue);
            while let Some(at) = self.blocked.iter().position(|&sampler| self.sampling[sampler] < end) {
                let sampler = self.blocked.remove(at).expect("its place was just found");
                self.queue.insert(self.sampling[sampler]);
                self.sample(sampler);
            }
            if self.queue.first() != Some(&self.unclaimed) {
                return;
            }
            let Some(who) = (0..self.executors.len()).find(|&who| self.takes(who)) else { return };
            let number = self.unclaimed;
            self.queue.pop_first();
            self.unclaimed += 1;
            self.executors[who].extracting = Some((number, self.clock.now()));
            self.clock.gather(who, self.batches.size(number) * self.pace(who).gather);
        }
    }

    /// Returns true if that executor takes a batch from the queue.
    fn takes(&self, who: usize) -> bool {
        let Factored { trainers, trainer, .. } = self.setting;
        let executor = &self.executors[who];
        if !executor.awake || executor.extracting.is_some() || executor.extracted.is_some() {
            return false;
        }
        let standby = self.pace(who).overlapped() * (1 + executor.has()) as f64;
        who < trainers || profit(self.queue.len(), trainer.overlapped(), trainers, standby) > 0.0
    }

    /// Starts training on an extracted batch, if there is one that may train and the executor is
    /// idle.
    fn train(&mut self, who: usize) {
        let executor = &mut self.executors[who];
        if executor.training.is_none()
            && let Some(number) = executor.extracted.take_if(|number| self.model.may_train(*number))
        {
            executor.training = Some(number);
            let seconds = self.batches.size(number) * self.pace(who).train;
            if who < self.setting.trainers || self.setting.trainers == 0 {
                self.epoch.train += seconds;
            }
            self.clock.after(seconds, Event::Trained(who));
        }
    }

    /// Durations of that executor.
    fn pace(&self, who: usize) -> Trainer {
        match self.setting.standby {
            Some(standby) if who >= self.setting.trainers => standby,
            _ => self.setting.trainer,
        }
    }

    fn finish(self) -> Epoch {
        let Factored { samplers, trainers, .. } = self.setting;
        let mut epoch = Epoch { seconds: self.clock.now(), ..self.epoch };
        let all = |executors: usize| (epoch.seconds * executors as f64).max(f64::MIN_POSITIVE);
        let (of_samplers, of_trainers) =
            (all(samplers), all(if trainers == 0 { samplers } else { trainers }));
        epoch.sample /= of_samplers;
        for part in [&mut epoch.gather, &mut epoch.copy, &mut epoch.train] {
            *part /= of_trainers;
        }
        epoch
    }
}
