//! The train stage: a batch of events in, one update of the model out, and the memory after it.

use graphmill_core::{
    NodeId, keyed,
    memory::{demand_append, demand_extend},
};
use graphmill_loader::BatchKey;
use graphmill_nn::{
    Matrix, Pass,
    backend::Cpu,
    optim::{self, Optimizer},
    temporal::{MemoryEvents, MemoryState, MemoryUpdater, NodeMemory},
};

use super::{
    batch::{Neighborhood, Rows, Sampling},
    model::{EventModel, PassState},
    stream::EventStream,
};
use crate::{
    Result, TrainConfig,
    build::{optimizer, processor},
    learner::SeedLabels,
    record::BatchOutcome,
};

/// Part of the keys of dropout.
const DROPOUT: u64 = 0x6472_6f70;

/// Model, optimiser, memory and scratch of the train stage.
pub(super) struct EventLearner<'a> {
    stream: &'a EventStream,
    backend: &'static Cpu,
    pub(super) model: EventModel,
    pub(super) optimizer: Box<dyn Optimizer>,
    /// Memory after the batches of the epoch so far.
    pub(super) memory: Option<NodeMemory>,
    /// True if the memory is not that of the start of an epoch, which a checkpoint leaves out.
    pub(super) has_seen_events: bool,
    weight_decay: f32,
    clip: f32,
    seed: u64,
    /// Number of updates so far, on which dropout depends.
    pub(super) step: u64,
    /// True if the model is that of the last update, false while an update is incomplete.
    pub(super) is_whole: bool,
    state: PassState,
    ends: BatchEnds,
    /// Targets of a batch.
    labels: SeedLabels,
}

impl<'a> EventLearner<'a> {
    /// Creates the learner of a run before its first update.
    ///
    /// # Errors
    /// An option of the model or the optimiser is impossible, or the disk has too little space.
    pub(super) fn new(config: &TrainConfig, stream: &'a EventStream) -> Result<Self> {
        let model = EventModel::new(config, stream)?;
        Ok(Self {
            stream,
            backend: processor(config),
            memory: model.memory(stream)?,
            has_seen_events: false,
            model,
            optimizer: optimizer(config)?,
            weight_decay: config.weight_decay as f32,
            clip: config.clip as f32,
            seed: config.seed,
            step: 0,
            is_whole: true,
            state: PassState::default(),
            ends: BatchEnds::default(),
            labels: SeedLabels::default(),
        })
    }

    /// Forgets all events, as at the start of an epoch.
    ///
    /// # Errors
    /// The disk has too little space for a memory in files.
    pub(super) fn forget(&mut self) -> Result<()> {
        self.has_seen_events = false;
        let start = self.stream.start();
        self.memory.iter_mut().try_for_each(|memory| Ok(memory.clear(start)?))
    }

    /// Forward, loss, backward, update of the model and of the memory. If the loss is not finite,
    /// nothing changes. The first pairs of `rows` are the `events`; for links, as many negatives
    /// follow.
    ///
    /// # Errors
    /// None in practice: nodes are those of the stream.
    pub(super) fn train(
        &mut self,
        events: &[u32],
        rows: &Rows,
        near: &Neighborhood,
        lr: f64,
    ) -> Result<BatchOutcome> {
        rayon::scope(|_| self.learn(events, rows, near, lr))
    }

    fn learn(&mut self, events: &[u32], rows: &Rows, near: &Neighborhood, lr: f64) -> Result<BatchOutcome> {
        self.read(rows, near)?;
        let outcome = self.compute(events, rows, near);
        if outcome.loss.is_finite() {
            self.update(events, lr)?;
        }
        Ok(outcome)
    }

    /// Reads the memory and the features of a batch's nodes, the first part of
    /// [`EventLearner::train`].
    ///
    /// # Errors
    /// As for [`EventLearner::train`].
    pub(super) fn read(&mut self, rows: &Rows, near: &Neighborhood) -> Result<()> {
        self.model.read(self.stream, self.memory.as_ref(), (rows, near), &mut self.state)
    }

    /// Forward, loss and backward, the second part of [`EventLearner::train`].
    pub(super) fn compute(&mut self, events: &[u32], rows: &Rows, near: &Neighborhood) -> BatchOutcome {
        let key = keyed::key(&[self.seed, self.step, DROPOUT]);
        let pass = Pass { backend: self.backend, training: true, key };
        let (model, state) = (&mut self.model, &mut self.state);
        model.compute(&pass, (rows, near), state);
        let loss = match &self.stream.targets {
            Some(targets) => {
                let of_events = (events, &mut self.labels);
                targets.loss(self.backend, of_events, &state.scores, &mut state.scores_grad)
            }
            None => loss(&state.scores, &mut state.scores_grad),
        };
        let mut outcome = BatchOutcome { loss, grad_norm: None, seeds: events.len() };
        if !loss.is_finite() {
            return outcome;
        }
        model.visit_mut(&mut |_, param| param.zero_grad(self.backend));
        model.backward(&pass, (rows, near), state);
        if self.clip > 0.0 {
            let visit =
                |see: &mut dyn FnMut(&mut graphmill_nn::Param)| model.visit_mut(&mut |_, param| see(param));
            outcome = outcome.with_norm(Some(optim::clip(self.backend, self.clip, visit)));
        }
        outcome
    }

    /// Updates the memory and the model, the last part of [`EventLearner::train`].
    ///
    /// # Errors
    /// As for [`EventLearner::train`].
    pub(super) fn update(&mut self, events: &[u32], lr: f64) -> Result<()> {
        self.is_whole = false;
        self.has_seen_events = true;
        let (model, state) = (&mut self.model, &self.state);
        if let Some(memory) = &mut self.memory {
            // the memory of the forward pass, before the update
            self.ends.advance_from(&state.memory, self.stream, events, memory)?;
        }
        self.optimizer.begin(lr as f32);
        let (optimizer, backend, decay, mut index) =
            (&mut self.optimizer, self.backend, self.weight_decay, 0);
        model.visit_mut(&mut |_, param| {
            optimizer.update(backend, index, param, decay);
            index += 1;
        });
        self.step += 1;
        self.is_whole = true;
        Ok(())
    }

    /// Stores the messages of these events alone, as if they had just come.
    ///
    /// # Errors
    /// None in practice: nodes are those of the stream.
    pub(super) fn push(&mut self, events: &[u32]) -> Result<()> {
        self.has_seen_events = true;
        match &mut self.memory {
            Some(memory) => self.ends.push(self.stream, events, memory),
            None => Ok(()),
        }
    }

    /// Allocates the state of the optimiser, so that a checkpoint can be read into it.
    pub(super) fn prepare(&mut self) {
        let (optimizer, mut index) = (&mut self.optimizer, 0);
        self.model.visit(&mut |_, param| {
            optimizer.prepare(index, param);
            index += 1;
        });
    }
}

/// Sum of the mean cross-entropies of events and negatives, which are the two halves of `scores`,
/// and its gradient.
fn loss(scores: &Matrix, grad: &mut Matrix) -> f64 {
    let scores = scores.view().host();
    grad.resize(scores.len(), 1);
    let (half, to) = (scores.len() / 2, grad.view_mut().host());
    let mut sums = [0.0; 2];
    for (i, (&x, to)) in scores.iter().zip(to).enumerate() {
        let (x, sign) = (f64::from(x), if i < half { -1.0 } else { 1.0 });
        let z = sign * x;
        // softplus(z) and its derivative, without overflow
        let e = (-z.abs()).exp();
        sums[usize::from(i >= half)] += z.max(0.0) + e.ln_1p();
        let sigmoid = if z >= 0.0 { 1.0 / (1.0 + e) } else { e / (1.0 + e) };
        *to = (sign * sigmoid / half.max(1) as f64) as f32;
    }
    (sums[0] + sums[1]) / half.max(1) as f64
}

/// Pairs of a training batch: its events, then for links a negative for each.
pub(super) fn training_rows(
    stream: &EventStream,
    of: BatchKey,
    events: &[u32],
    rows: &mut Rows,
) -> Result<()> {
    rows.clear();
    let (source, destination, time) =
        (stream.events.source(), stream.events.destination(), stream.events.time());
    for &e in events {
        let e = e as usize;
        rows.push(source[e], destination[e], time[e]);
    }
    if stream.targets.is_some() {
        return Ok(());
    }
    let known = &stream.destinations[0];
    for &e in events {
        let e = e as usize;
        let drawn = stream.events.negatives(e..e + 1, &(0..known.len() as NodeId), 1, of)?;
        drawn.iter().for_each(|&at| rows.push(source[e], known[at as usize], time[e]));
    }
    Ok(())
}

/// Memory of the nodes of a batch's events, and scratch for it.
#[derive(Default)]
pub(super) struct BatchEnds {
    /// Distinct nodes of the events, ascending.
    nodes: Vec<NodeId>,
    /// Their places in an update.
    positions: Vec<u32>,
    state: MemoryState,
    ends: [Vec<NodeId>; 2],
    time: Vec<i64>,
    edges: Matrix,
}

impl BatchEnds {
    /// Applies the waiting messages of the nodes of these events, and stores the events' own
    /// messages, which wait for the next batch.
    pub(super) fn advance(
        &mut self,
        pass: &Pass,
        stream: &EventStream,
        events: &[u32],
        updater: &MemoryUpdater,
        memory: &mut NodeMemory,
    ) -> Result<()> {
        let mut state = std::mem::take(&mut self.state);
        self.list(stream, events);
        let done = updater.update(pass, memory, &self.nodes, &mut state);
        let all = 0..self.nodes.len() as u32;
        let done = done.map_err(Into::into).and_then(|()| self.store(&state, all, memory));
        self.state = state;
        done
    }

    /// [`BatchEnds::advance`] with the rows of an update that holds all nodes of these events:
    /// those of the forward pass, which are not computed again.
    pub(super) fn advance_from(
        &mut self,
        update: &MemoryState,
        stream: &EventStream,
        events: &[u32],
        memory: &mut NodeMemory,
    ) -> Result<()> {
        self.list(stream, events);
        let nodes = std::mem::take(&mut self.nodes);
        let is_end = |(_, v): &(u32, &NodeId)| nodes.binary_search(v).is_ok();
        let done = self.store(update, (0..).zip(&update.nodes).filter(is_end).map(|(at, _)| at), memory);
        self.nodes = nodes;
        done
    }

    /// Stores the messages of these events alone.
    pub(super) fn push(
        &mut self,
        stream: &EventStream,
        events: &[u32],
        memory: &mut NodeMemory,
    ) -> Result<()> {
        self.list(stream, events);
        self.store(&MemoryState::default(), std::iter::empty(), memory)
    }

    /// Lists the ends, times and features of events, and their distinct nodes.
    fn list(&mut self, stream: &EventStream, events: &[u32]) {
        let Self { ends: [source, destination], nodes, time, edges, .. } = self;
        let all = &stream.events;
        for (to, from) in [(&mut *source, all.source()), (&mut *destination, all.destination())] {
            to.clear();
            demand_extend(to, events.iter().map(|&e| from[e as usize]));
        }
        nodes.clear();
        [source, destination].into_iter().for_each(|ends| demand_append(nodes, ends));
        nodes.sort_unstable();
        nodes.dedup();
        time.clear();
        demand_extend(time, events.iter().map(|&e| all.time()[e as usize]));
        stream.features.copy(events.iter().map(|&e| e as usize), edges);
    }

    /// Stores the rows at these places of an update, and the messages of the listed events.
    fn store(
        &mut self,
        update: &MemoryState,
        places: impl Iterator<Item = u32>,
        memory: &mut NodeMemory,
    ) -> Result<()> {
        let Self { ends: [source, destination], positions, time, edges, .. } = self;
        positions.clear();
        demand_extend(positions, places);
        memory.persist(update, positions)?;
        memory.push(&MemoryEvents { source, destination, time, edges: edges.view() })?;
        Ok(())
    }
}

/// Scratch that training and evaluation use for one batch after the other.
pub(super) struct BatchScratch<'a> {
    pub(super) rows: Rows,
    pub(super) near: Neighborhood,
    pub(super) sampling: Sampling<'a>,
}

impl<'a> BatchScratch<'a> {
    /// Prepares the sampler of a configuration.
    ///
    /// # Errors
    /// The fanout or an option is invalid.
    pub(super) fn new(config: &TrainConfig, stream: &'a EventStream) -> Result<Self> {
        let sampling = Sampling::new(config, stream)?;
        Ok(Self { rows: Rows::default(), near: Neighborhood::default(), sampling })
    }

    /// Draws the neighbourhoods of the rows.
    ///
    /// # Errors
    /// As for [`Sampling::draw`].
    pub(super) fn draw(&mut self, of: BatchKey, is_training: bool) -> Result<()> {
        self.sampling.draw(&self.rows, of, is_training, &mut self.near)
    }
}
