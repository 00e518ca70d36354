//! Plan of a run's super-batches: their length, their hot nodes, and the shape of the reused rows.
//! It draws super-batches before a run starts, so that the memory of a step and the reads of a
//! cache are those of a run that reuses rows.

use std::{ops::Range, sync::Arc};

use graphmill_core::{Matrix, NodeId};
use graphmill_loader::Workspace;
use graphmill_nn::ProductOrder;

use super::{Embeddings, HotQueue, Lookahead, Ranking, Reuse, RowExchange};
use crate::{Result, stage::Loader};

/// Number of super-batches whose hot nodes are counted in advance.
const COUNTED: u64 = 8;
/// Factor for later super-batches, which may have more hot nodes.
const MARGIN: f64 = 1.1;

/// Shape of a reused row.
#[derive(Clone, Debug, Default)]
pub struct RowShape {
    /// Width of the bottom layer's output.
    pub width: usize,
    /// Widths of the aggregates that are stored with a row.
    pub kept: Vec<usize>,
    /// Directions in which rows follow the parameters.
    pub basis: Arc<Vec<Matrix>>,
    /// True if gradients flow through these directions.
    pub learns: bool,
}

impl RowShape {
    /// Number of directions.
    pub fn rank(&self) -> usize {
        self.basis.first().map_or(0, Matrix::num_rows)
    }

    /// Bytes of a row with its coordinates and aggregates.
    pub fn bytes(&self) -> u64 {
        4 * (self.width + self.rank() + self.kept.iter().sum::<usize>()) as u64
    }

    /// Gives `rows` memory for `count` rows of at most `bound` updates of age, which are not made.
    pub fn resize(&self, rows: &mut Embeddings, count: usize, bound: u64) {
        rows.rows.resize(count, self.width);
        rows.aggregates.resize_with(self.kept.len(), Default::default);
        rows.aggregates.iter_mut().zip(&self.kept).for_each(|(kept, &width)| kept.resize(count, width));
        rows.coordinates.resize(count, self.rank());
        rows.basis = self.basis.clone();
        rows.learns = self.learns;
        rows.slices.clear();
        rows.bound = bound;
    }
}

/// Plan of a run's super-batches.
#[derive(Clone, Debug)]
pub struct ReusePlan {
    /// Batches per super-batch.
    pub length: u64,
    /// Order of the nodes in the hot queue.
    pub ranking: Arc<Ranking>,
    /// Least number of batches that request a hot node's row.
    pub min_batches: u16,
    /// Largest number of hot nodes.
    pub max_hot: usize,
    /// True if gradients of reused rows are not needed.
    pub restrict: bool,
    /// Number of tables of rows in memory at once.
    pub tables: u64,
    /// Shape of the rows.
    pub shape: RowShape,
    /// Order of the products of each layer.
    pub orders: Vec<ProductOrder>,
}

/// A super-batch whose rows are not made.
pub struct Preview {
    /// Its batches.
    pub batches: Range<u64>,
    /// Rows that its batches reuse, all zero.
    pub reuse: Reuse,
}

impl ReusePlan {
    /// Bytes of the tables that a device holds.
    pub fn table_bytes(&self) -> u64 {
        (self.tables * self.max_hot as u64).saturating_mul(self.shape.bytes())
    }

    /// The same plan with at most `max_hot` hot nodes.
    #[must_use]
    pub fn with_max_hot(&self, max_hot: usize) -> Self {
        Self { max_hot, ..self.clone() }
    }

    /// Draws these batches of an epoch without their bottom blocks, and selects their hot nodes, by
    /// the requests of all ranks if there are several.
    ///
    /// # Errors
    /// A rank did not take part.
    pub fn draw_over(
        &self,
        exchange: Option<&dyn RowExchange>,
        loader: &Loader,
        order: &[NodeId],
        (epoch, batches): (u64, Range<u64>),
        (ahead, queue): (&mut Lookahead, &mut HotQueue),
        spaces: &mut [Workspace],
    ) -> Result<()> {
        let nodes = loader.graph.num_nodes();
        ahead.draw(loader, order, epoch, batches, self.restrict, spaces);
        queue.count(nodes, |count| ahead.candidates(&|nodes| count(0, nodes)));
        if let Some(exchange) = exchange {
            queue.add_up(exchange)?;
        }
        queue.pick(&self.ranking, self.min_batches, self.max_hot);
        ahead.slots.set(nodes, queue.nodes().iter().copied());
        Ok(())
    }

    /// [`ReusePlan::draw_over`] by the requests of this process alone.
    pub fn draw(
        &self,
        loader: &Loader,
        order: &[NodeId],
        batches: (u64, Range<u64>),
        to: (&mut Lookahead, &mut HotQueue),
        spaces: &mut [Workspace],
    ) {
        let drawn = self.draw_over(None, loader, order, batches, to, spaces);
        debug_assert!(drawn.is_ok(), "only an exchange fails");
    }

    /// [`ReusePlan::preview_over`] by the requests of this process alone. On a rank, its hot nodes
    /// are some of those of all ranks, so its batches have larger bottom blocks than in the run.
    pub fn preview(&self, loader: &Loader, order: &[NodeId], epoch: u64, first: u64) -> Preview {
        let batches = self.batches_from(loader, first);
        let (mut ahead, mut queue) = (Lookahead::default(), HotQueue::default());
        let to = (&mut ahead, &mut queue);
        self.draw(loader, order, (epoch, batches.clone()), to, &mut workspaces(loader));
        self.unmade(batches, ahead, &queue)
    }

    /// Draws the super-batch of an epoch that begins with batch `first`, whose hot nodes are
    /// selected by the requests of all ranks if there are several.
    ///
    /// # Errors
    /// A rank did not take part.
    pub fn preview_over(
        &self,
        exchange: Option<&dyn RowExchange>,
        loader: &Loader,
        order: &[NodeId],
        (epoch, first): (u64, u64),
    ) -> Result<Preview> {
        let batches = self.batches_from(loader, first);
        let (mut ahead, mut queue) = (Lookahead::default(), HotQueue::default());
        let (drawn, to) = ((epoch, batches.clone()), (&mut ahead, &mut queue));
        self.draw_over(exchange, loader, order, drawn, to, &mut workspaces(loader))?;
        Ok(self.unmade(batches, ahead, &queue))
    }

    /// Batches of the super-batch that begins with batch `first`.
    pub(super) fn batches_from(&self, loader: &Loader, first: u64) -> Range<u64> {
        first..(first + self.length.max(1)).min(loader.num_batches())
    }

    /// A drawn super-batch whose rows are all zero.
    fn unmade(&self, batches: Range<u64>, ahead: Lookahead, queue: &HotQueue) -> Preview {
        let mut rows = Embeddings::default();
        self.shape.resize(&mut rows, queue.nodes().len(), u64::MAX);
        rows.rows.view_mut().host().fill(0.0);
        rows.coordinates.view_mut().host().fill(0.0);
        rows.aggregates.iter_mut().for_each(|kept| kept.view_mut().host().fill(0.0));
        Preview { batches, reuse: Reuse { ahead: Arc::new(ahead), rows: Arc::new(rows) } }
    }

    /// Number of rows that a super-batch holds: the most in the first super-batches of the first
    /// epoch, with a margin, and at most [`ReusePlan::max_hot`]. A function of the draws alone, and
    /// the same on all ranks, whose requests are added up if there are several.
    ///
    /// # Errors
    /// A rank did not take part.
    pub fn held_rows(&self, exchange: Option<&dyn RowExchange>, loader: &Loader) -> Result<usize> {
        let (mut order, mut most) = (Vec::new(), 0);
        loader.order(0, &mut order);
        let (mut ahead, mut queue) = (Lookahead::default(), HotQueue::default());
        let mut spaces = workspaces(loader);
        let firsts = (0..loader.num_batches()).step_by(self.length.max(1) as usize);
        for first in firsts.take(COUNTED as usize) {
            let (batches, to) = ((0, self.batches_from(loader, first)), (&mut ahead, &mut queue));
            self.draw_over(exchange, loader, &order, batches, to, &mut spaces)?;
            most = most.max(queue.nodes().len());
        }
        Ok(((most as f64 * MARGIN).ceil() as usize).min(self.max_hot))
    }
}

/// A workspace per thread.
pub(super) fn workspaces(loader: &Loader) -> Vec<Workspace> {
    (0..rayon::current_num_threads()).map(|_| Workspace::new(loader.graph.num_nodes())).collect()
}
