//! Bottom-layer rows are reused however old they are: what bounded staleness is compared with
//! (GNNAutoScale).
//!
//! ```text
//!   all   b0: pull what was ever pushed, compute the rest, train, push its own nodes' rows | b1: pull, compute, train, push | ..
//! ```
//!
//! As in GNNAutoScale (Fey et al., ICML 2021, section 2) a batch computes the rows of its own
//! nodes, those that the layer above reads as its own, and pushes them to a table; it pulls the
//! rows of their neighbours from there, from whenever these were a batch's own nodes last. Here
//! that is done for the bottom layer, and a row that was never pushed is computed, not zero.
//! Nothing bounds how old rows are, and a checkpoint does not hold them: a resumed run begins to
//! collect anew. It is made to be compared with, not to be fast: pushed rows are made a second
//! time, with the updated parameters.

use std::sync::Arc;

use graphmill_core::{Matrix, NodeId};
use graphmill_loader::Workspace;

use super::{
    interface::{Epoch, Flow, Setting, Strategy},
    sequential::Sequential,
    worker::attempt,
};
use crate::{
    Error, Result,
    learner::Learner,
    record::ReuseRecord,
    reuse::{Ahead, Embeddings, History, Maker, Reuse, RowVersion},
    stage::Loader,
    timeline::Stage,
};

/// See the module's text.
pub struct Historical {
    inner: Sequential,
    space: [Workspace; 1],
    maker: Option<Maker>,
    ahead: Arc<Ahead>,
    /// The pushed rows, in the order in which their nodes were pushed first.
    rows: Arc<Embeddings>,
    pushed: Vec<NodeId>,
    /// Where each node's row stands, and after how many updates it was pushed last.
    places: Vec<Option<(u32, u64)>>,
    /// Updates of the whole run: no row can be older.
    bound: u64,
    record: ReuseRecord,
}

impl Historical {
    /// With nothing pushed yet.
    ///
    /// # Errors
    /// Options that this strategy cannot work with.
    pub fn new(with: Setting) -> Result<Self> {
        if with.sampler.properties().subgraphs.is_some() || with.sampler.properties().num_layers < 2 {
            return Err(Error::usage(
                "--strategy historical: a layer above the bottom one pulls the rows of neighbours that are drawn hop by hop; use --layers 2 \
                 or more, and a sampler such as neighbor",
            ));
        }
        let nodes = with.data.num_nodes();
        Ok(Self {
            inner: Sequential::new(nodes),
            space: [Workspace::new(nodes)],
            maker: None,
            ahead: Arc::default(),
            rows: Arc::default(),
            pushed: Vec::new(),
            places: vec![None; nodes],
            bound: 0,
            record: ReuseRecord::default(),
        })
    }

    /// Draws a batch but for its bottom block, with all that was pushed to be pulled. Returns its
    /// own nodes, and how old the oldest row is that it pulls.
    fn draw(&mut self, epoch: &Epoch, number: u64) -> (Vec<NodeId>, u64) {
        let ahead = Arc::get_mut(&mut self.ahead).expect("nobody keeps a batch that is done");
        let batches = number..number + 1;
        ahead.draw(epoch.loader, epoch.order, epoch.number, batches, false, &mut self.space);
        let (mut own, mut oldest) = (Vec::new(), epoch.learner.step);
        ahead.nodes(&mut |of_batch, others| {
            own.extend_from_slice(of_batch);
            for (_, version) in others.iter().filter_map(|&v| self.places[v as usize]) {
                oldest = oldest.min(version);
                self.record.reused_rows += 1;
            }
            self.record.asked_rows += others.len() as u64;
        });
        ahead.slots.set(self.places.len(), self.pushed.iter().copied());
        (own, epoch.learner.step - oldest)
    }

    /// Makes the rows of these nodes with the model as it is, and puts them where they belong.
    fn push(&mut self, epoch: &Epoch, number: u64, nodes: &[NodeId]) -> Result<()> {
        let Learner { model, passes, step, .. } = &*epoch.learner;
        let num_nodes = self.places.len();
        let maker = self.maker.get_or_insert_with(|| Maker::new(model, num_nodes));
        let history = History::default();
        history.publish(*step, model, 0);
        let Some(snapshot) = history.wait(*step) else { return Ok(()) };
        let mut fresh = Embeddings::default();
        let width = model.layer_out_dim(0);
        fresh.rows.resize(nodes.len(), width);
        attempt(Stage::Embed, number, || {
            maker.edges = 0;
            let from = RowVersion { batch: (epoch.number, number), version: *step, snapshot: &snapshot };
            maker.make(epoch.loader, passes, from, nodes, 0, &mut fresh)
        })?;
        self.record.made_rows += nodes.len() as u64;
        self.record.made_edges += maker.edges;
        for &v in nodes {
            let new = self.pushed.len() as u32;
            let place = self.places[v as usize].get_or_insert_with(|| {
                self.pushed.push(v);
                (new, 0)
            });
            place.1 = *step;
        }
        let table = Arc::get_mut(&mut self.rows).expect("nobody keeps rows between batches");
        if table.rows.num_rows() < self.pushed.len() {
            let mut larger = Matrix::zeros((2 * self.pushed.len()).min(num_nodes), width);
            let have = table.rows.view().host();
            larger.view_mut().host()[..have.len()].copy_from_slice(have);
            table.rows = larger;
        }
        let all = table.rows.view_mut().host();
        for (&v, row) in nodes.iter().zip(fresh.rows.view().host().chunks_exact(width)) {
            if let Some((place, _)) = self.places[v as usize] {
                let at = place as usize * width;
                all[at..at + width].copy_from_slice(row);
            }
        }
        Ok(())
    }
}

impl Strategy for Historical {
    fn run(&mut self, mut epoch: Epoch) -> Result<Flow> {
        self.record = ReuseRecord { split: 1.0, super_batch: 1.0, ..ReuseRecord::default() };
        let to = epoch.to;
        self.bound = (epoch.number + 1) * epoch.loader.num_batches();
        for number in epoch.from..to {
            let (own, age) = self.draw(&epoch, number);
            epoch.learner.staleness = epoch.learner.staleness.max(age);
            epoch.learner.passes.reuse = Some(Reuse { ahead: self.ahead.clone(), rows: self.rows.clone() });
            let reading = Loader { ahead: Some(self.ahead.clone()), ..epoch.loader.clone() };
            let flow = self.inner.run(Epoch { loader: &reading, from: number, ..epoch.until(number + 1) });
            epoch.learner.passes.reuse = None;
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
