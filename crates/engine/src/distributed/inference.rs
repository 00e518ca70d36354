//! Full-neighbour inference over ranks.
//!
//! Each rank computes each layer's rows of its own nodes, and fetches the rows of their remote
//! neighbours from their owners, chunk by chunk, as feature rows. The last layer computes only the
//! rows of the wanted nodes. If stored aggregates follow the features, the first layer reads those
//! of its destinations, which are own nodes, and requests no row.
//!
//! Memory: the rows of own nodes in two layers, and a chunk of neighbours' rows. If a layer
//! transforms its rows first, also the transformed rows of own nodes and of all their neighbours.
//! Rows are stored between layers, because other ranks read them.

use graphmill_core::{Matrix, NodeId};
use graphmill_distributed::NodeOwnership;
use graphmill_loader::Feature;
use graphmill_nn::{Pass, model::Model};

use super::{Ranks, ranks::MESSAGE_WORDS};
use crate::{
    Result,
    inference::{Above, Added, Inference, Layer, NodeSet, RowSource, StreamedRows},
};

impl Ranks {
    /// Writes the scores of the nodes `wanted` (each below `V`) to `out`, one row per node in this
    /// order, the same on all ranks. `feature` reads the features of all nodes. All ranks call this
    /// with the same arguments.
    ///
    /// # Errors
    /// A rank did not take part, or features cannot be read.
    pub(crate) fn infer(
        &self,
        inference: &mut Inference,
        feature: &dyn Feature,
        model: &Model,
        wanted: &[NodeId],
        out: &mut Matrix,
    ) -> Result<()> {
        let trained = self.trained(model)?;
        let model = trained.as_ref().unwrap_or(model);
        let book = self.book();
        let pass = Pass { backend: inference.layers.backend, training: false, key: 0 };
        let own = NodeSet::of(book.num_nodes(), book.own());
        let mut last: Vec<NodeId> = wanted.iter().copied().filter(|&v| book.is_own(v)).collect();
        let num_wanted = last.len();
        last.sort_unstable();
        last.dedup();
        let few = NodeSet::of(book.num_nodes(), last.iter().copied());
        let own_edges = own.ids().iter().map(|&v| inference.layers.graph.in_degree(v)).sum();
        let mut orders = model.inference_orders(own.len(), own_edges);
        model.start_with_product(&mut orders);
        let reads_stored = inference.reads_stored(model);
        if reads_stored {
            orders[0] = model.exact_bottom_order(own.len());
        }
        let layers = model.num_layers();
        let mut published = 0;
        let mut below: Option<Box<dyn Feature>> = None;
        if model.has_input_layer() {
            let (table, rows) = self.layer(published, model.layer_in_dim(0));
            let above = Above::stored(model, &pass, &own);
            StreamedRows(feature).input_rows(&mut inference.layers, &above)?;
            publish(table, &mut inference.layers.outputs.rows);
            self.meet()?;
            below = Some(rows);
            published += 1;
        }
        for (l, &order) in orders.iter().enumerate() {
            let is_last = l + 1 == layers;
            let destinations = if is_last { &few } else { &own };
            let rows: &dyn Feature = below.as_deref().unwrap_or(feature);
            let layer = Layer::alone(model, &pass, l, order);
            if l == 0 && reads_stored {
                inference.layers.stored_layer(&StreamedRows(rows), &layer, destinations)?;
            } else {
                let sources = self.sources(inference, destinations, layers - 1 - l, model)?;
                inference.layers.streamed_layer(rows, &layer, &sources, destinations)?;
            }
            if is_last {
                break;
            }
            let (table, rows) = self.layer(published, model.layer_out_dim(l));
            publish(table, &mut inference.layers.outputs.rows);
            // after the barrier no rank reads the layer below, whose table the next layer
            // overwrites
            self.meet()?;
            below = Some(rows);
            published += 1;
        }

        let mut mine: Vec<NodeId> = Vec::with_capacity(num_wanted);
        mine.extend(wanted.iter().filter(|&&v| book.is_own(v)));
        few.number(&mut mine);
        let scores = inference.layers.head(model, &pass, &mine);
        out.resize(wanted.len(), model.classes());
        self.gather_rows(book, scores.view().host(), wanted, (out.view_mut().host(), model.classes()))
    }

    /// Writes the rows of the nodes `wanted`, of `width` values, to `rows` in this order, the same
    /// on all ranks. `own` are those of this rank's nodes among them, by `owners`. Messages are of
    /// bounded size. All ranks call this at the same time.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn gather_rows(
        &self,
        owners: &NodeOwnership,
        own: &[f32],
        wanted: &[NodeId],
        (rows, width): (&mut [f32], usize),
    ) -> Result<()> {
        let width = width.max(1);
        let mut places: Vec<Vec<usize>> = vec![Vec::new(); self.size()];
        wanted.iter().enumerate().for_each(|(i, &v)| places[owners.owner(v)].push(i));
        let most = places.iter().map(Vec::len).max().unwrap_or(0);
        let each = (MESSAGE_WORDS / width).max(1);
        for from in (0..most).step_by(each) {
            let [start, end] = [from, from + each].map(|row| own.len().min(row * width));
            let gathered = self.gather(bytemuck::cast_slice(&own[start..end]))?;
            for (words, places) in gathered.iter().zip(&places) {
                for (row, &place) in words.chunks_exact(width).zip(places.iter().skip(from)) {
                    rows[place * width..][..width].copy_from_slice(bytemuck::cast_slice(row));
                }
            }
        }
        Ok(())
    }

    /// Nodes whose rows a layer reads to compute the rows of `destinations`.
    fn sources(
        &self,
        inference: &mut Inference,
        destinations: &NodeSet,
        hop: usize,
        model: &Model,
    ) -> Result<NodeSet> {
        let mut added = Added::new(self.book().num_nodes());
        added.add(destinations.ids().iter().copied());
        inference.layers.add_neighbors(destinations, hop, model.aggregation(), &mut added)?;
        Ok(added.set())
    }
}

/// Publishes `rows` to the other ranks.
fn publish(table: &std::sync::RwLock<Matrix>, rows: &mut Matrix) {
    std::mem::swap(&mut *table.write().unwrap_or_else(std::sync::PoisonError::into_inner), rows);
}
