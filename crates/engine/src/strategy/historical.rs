//! Reuse of bottom-layer rows of any age: the baseline for bounded staleness.
//!
//! # Algorithm
//!
//! ```text
//!   all   b0: pull pushed rows, compute the others, train, push rows of own nodes | b1: pull, compute, train, push | ..
//! ```
//!
//! A batch computes the rows of its own nodes, which are the destinations of the layer above, and
//! pushes them to a table. It pulls the rows of their neighbours, as they were pushed last. The age
//! of rows is not bounded. A checkpoint does not hold them: a resumed run starts with an empty
//! table.
//!
//! Over ranks, each rank pushes the rows of its shares of the batches, and all ranks have the same
//! table. A node that another share of the batch computes is pulled as it was pushed last.
//!
//! # Source
//!
//! Fey et al., *GNNAutoScale: Scalable and Expressive Graph Neural Networks via Historical
//! Embeddings*, ICML 2021, section 2.
//!
//! # Cost
//!
//! Pushed rows are computed twice: once to train, and again with the updated parameters. Over ranks
//! each batch sends its pushed rows to every rank. The strategy is a baseline and not fast.
//!
//! # Memory
//!
//! The table holds a row per pushed node, of all ranks; each node of the graph has a slot and a
//! version.
//!
//! # Deviations
//!
//! Only the bottom layer reuses rows, and rows that were never pushed are computed instead of zero.

use std::sync::Arc;

use graphmill_core::{Matrix, NodeId};
use graphmill_loader::Workspace;

use super::{
    interface::{Epoch, Flow, Strategy, StrategyContext},
    sequential::Sequential,
    worker::attempt,
};
use crate::{
    Error, Result,
    learner::Learner,
    record::ReuseRecord,
    reuse::{Embeddings, GatheredRows, History, Lookahead, Reuse, RowExchange, RowMaker, RowVersion},
    stage::Loader,
    timeline::Stage,
};

/// Strategy that reuses bottom-layer rows of any age.
pub struct Historical<'a> {
    inner: Sequential,
    /// The other ranks, if there are several.
    exchange: Option<&'a dyn RowExchange>,
    space: [Workspace; 1],
    maker: Option<RowMaker>,
    ahead: Arc<Lookahead>,
    /// The pushed rows, in the order in which their nodes were first pushed.
    rows: Arc<Embeddings>,
    pushed: Vec<NodeId>,
    /// Slot of each node's row, and the version of the parameters at its last push.
    versions: Vec<Option<(u32, u64)>>,
    /// Updates of the run up to the end of the epoch: no row can be older.
    bound: u64,
    record: ReuseRecord,
}

impl<'a> Historical<'a> {
    /// Strategy with an empty table.
    ///
    /// # Errors
    /// The sampler draws all blocks at once, or the model has a single layer.
    pub fn new(context: StrategyContext<'a>) -> Result<Self> {
        if context.sampler.split().is_none() || context.sampler.properties().num_layers < 2 {
            return Err(Error::usage(
                "--strategy historical: it needs a layer above the bottom one and a sampler that draws the \
                 bottom block separately; use --layers 2 or more, and a sampler such as neighbor",
            ));
        }
        let nodes = context.data.num_nodes();
        Ok(Self {
            inner: Sequential::new(nodes),
            exchange: context.exchange,
            space: [Workspace::new(nodes)],
            maker: None,
            ahead: Arc::default(),
            rows: Arc::default(),
            pushed: Vec::new(),
            versions: vec![None; nodes],
            bound: 0,
            record: ReuseRecord::default(),
        })
    }

    /// Draws a batch without its bottom block, and selects all pushed rows for it to pull. Returns
    /// its own nodes, and the age of the oldest row that a rank pulls.
    fn draw(&mut self, epoch: &Epoch, number: u64) -> Result<(Vec<NodeId>, u64)> {
        let ahead = Arc::get_mut(&mut self.ahead).expect("no stage holds a completed batch");
        let batches = number..number + 1;
        ahead.draw(epoch.loader, epoch.order, epoch.number, batches, false, &mut self.space);
        let (mut own, mut oldest) = (Vec::new(), epoch.learner.step);
        let [mut asked, mut reused] = [0; 2];
        ahead.nodes(&mut |of_batch, others| {
            own.extend_from_slice(of_batch);
            for (_, version) in others.iter().filter_map(|&v| self.versions[v as usize]) {
                oldest = oldest.min(version);
                reused += 1;
            }
            asked += others.len() as u64;
        });
        ahead.slots.set(self.versions.len(), self.pushed.iter().copied());
        let mut age = epoch.learner.step - oldest;
        if let Some(exchange) = self.exchange {
            let mut sums = [asked as f64, reused as f64];
            exchange.sum(&mut sums)?;
            [asked, reused] = sums.map(|sum| sum as u64);
            age = exchange.greatest(age as f64)? as u64;
        }
        self.record.asked_rows += asked;
        self.record.reused_rows += reused;
        Ok((own, age))
    }

    /// Computes the rows of these nodes with the current model, and writes them and those of the
    /// other ranks to the table.
    fn push(&mut self, epoch: &Epoch, number: u64, nodes: &[NodeId]) -> Result<()> {
        let Learner { model, context, step, .. } = &*epoch.learner;
        let maker = self.maker.get_or_insert_with(|| RowMaker::new(model, self.versions.len()));
        let history = History::default();
        history.publish(*step, model, 0);
        let Some(snapshot) = history.wait(*step) else { return Ok(()) };
        let (mut fresh, width) = (Embeddings::default(), model.layer_out_dim(0));
        fresh.rows.resize(nodes.len(), width);
        let made = attempt(Stage::Embed, number, || {
            maker.edges = 0;
            let rank = self.exchange.map_or(0, RowExchange::rank);
            let from =
                RowVersion { batch: (epoch.number, number), version: *step, snapshot: &snapshot, rank };
            maker.make(epoch.loader, context, from, nodes, 0, &mut fresh)?;
            let rows = fresh.rows.view().host().to_vec();
            let own = GatheredRows { nodes: nodes.to_vec(), rows, edges: maker.edges };
            match self.exchange {
                None => Ok(own),
                Some(exchange) => exchange.gather_rows(&own, width),
            }
        })?;
        self.record.made_rows += made.nodes.len() as u64;
        self.record.made_edges += made.edges;
        self.write(&made, width, *step);
        Ok(())
    }

    /// Writes rows of `width` values, made after `step` updates, to the table.
    fn write(&mut self, GatheredRows { nodes, rows, .. }: &GatheredRows, width: usize, step: u64) {
        for &v in nodes {
            let new = self.pushed.len() as u32;
            let (_, version) = self.versions[v as usize].get_or_insert_with(|| {
                self.pushed.push(v);
                (new, 0)
            });
            *version = step;
        }
        let table = Arc::get_mut(&mut self.rows).expect("no stage holds rows between batches");
        if table.rows.num_rows() < self.pushed.len() {
            let mut larger = Matrix::zeros((2 * self.pushed.len()).min(self.versions.len()), width);
            let have = table.rows.view().host();
            larger.view_mut().host()[..have.len()].copy_from_slice(have);
            table.rows = larger;
        }
        let all = table.rows.view_mut().host();
        for (&v, row) in nodes.iter().zip(rows.chunks_exact(width)) {
            if let Some((slot, _)) = self.versions[v as usize] {
                let at = slot as usize * width;
                all[at..at + width].copy_from_slice(row);
            }
        }
    }
}

impl Strategy for Historical<'_> {
    fn run(&mut self, mut epoch: Epoch) -> Result<Flow> {
        self.record = ReuseRecord { split: 1.0, super_batch: 1.0, ..ReuseRecord::default() };
        let to = epoch.to;
        self.bound = (epoch.number + 1) * epoch.loader.num_batches();
        for number in epoch.from..to {
            let (own, age) = self.draw(&epoch, number)?;
            epoch.learner.staleness = epoch.learner.staleness.max(age);
            epoch.learner.context.reuse = Some(Reuse { ahead: self.ahead.clone(), rows: self.rows.clone() });
            let reading = Loader { ahead: Some(self.ahead.clone()), ..epoch.loader.clone() };
            let flow = self.inner.run(Epoch { loader: &reading, from: number, ..epoch.until(number + 1) });
            epoch.learner.context.reuse = None;
            drop(reading);
            if flow? == Flow::Stop {
                return Ok(Flow::Stop);
            }
            self.push(&epoch, number, &own)?;
        }
        self.record.hot_nodes = self.pushed.len() as f64;
        Ok(Flow::Continue)
    }

    fn reuse(&mut self) -> Option<ReuseRecord> {
        Some(std::mem::take(&mut self.record))
    }

    fn staleness_bound(&self) -> u64 {
        self.bound
    }
}
