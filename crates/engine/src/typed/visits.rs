//! Hotness of the nodes of several types, from the minibatches of a run or from its graph.

use std::cell::{Cell, RefCell};

use graphmill_core::{Error as GraphError, NodeId, progress::Progress};
use graphmill_loader::{
    BatchKey,
    hotness::{self, Setting, Visits},
    typed::{TypedRequest, TypedSeeds, TypedWorkspace},
};
use rayon::prelude::*;

use super::batches::RunBatches;
use crate::{Error, Result, cache_kind::expects_nodes};

/// Minibatches of a run on several types, drawn in parallel and visited in order. Nodes have global
/// ids.
pub(super) struct TypedVisits<'v> {
    of: &'v RunBatches<'v>,
    watch: &'v dyn Progress,
    slots: RefCell<Vec<(TypedWorkspace, TypedSeeds, Vec<NodeId>)>>,
    drawn: Cell<u64>,
}

impl<'v> TypedVisits<'v> {
    /// Visits these batches, unless `watch` stops the work.
    pub(super) fn new(of: &'v RunBatches<'v>, watch: &'v dyn Progress) -> Self {
        Self { of, watch, slots: RefCell::default(), drawn: Cell::new(0) }
    }

    /// The batches.
    pub(super) fn of(&self) -> &'v RunBatches<'v> {
        self.of
    }

    /// Progress that watches the visits.
    pub(super) fn watch(&self) -> &'v dyn Progress {
        self.watch
    }

    /// Number of batches drawn so far.
    pub(super) fn drawn(&self) -> u64 {
        self.drawn.get()
    }
}

impl Visits for TypedVisits<'_> {
    fn visit(&self, epoch: u64, see: &mut dyn FnMut(&[NodeId])) -> graphmill_core::Result<()> {
        let of = self.of;
        let RunBatches { config, task, sampler, .. } = of;
        let (graph, mut order) = (&task.graph, Vec::new());
        let schema = graph.schema();
        of.order(epoch, 0, &mut order);
        let batches = of.divide(&order);
        let mut slots = self.slots.borrow_mut();
        let parallel = rayon::current_num_threads().min(batches.len()).max(1);
        slots.resize_with(parallel, || (TypedWorkspace::new(schema), TypedSeeds::default(), Vec::new()));
        for (group, seeds) in batches.chunks(parallel).enumerate() {
            self.watch.check()?;
            let first = (group * parallel) as u64;
            slots.par_iter_mut().zip(seeds).enumerate().try_for_each(|(i, (slot, seeds))| {
                let (workspace, memory, nodes) = slot;
                let key = BatchKey { seed: config.seed, epoch, batch: first + i as u64 };
                let seeds = of.fill(key, seeds, std::mem::take(memory)).map_err(of_seeds)?;
                let sampled = sampler.sample(&TypedRequest::new(graph, key), workspace, seeds)?;
                nodes.clear();
                for (t, of) in sampled.input_nodes.iter().enumerate() {
                    nodes.extend(of.iter().map(|&v| schema.global(t, v)));
                }
                *memory = sampled.recycle();
                Ok::<_, GraphError>(())
            })?;
            self.drawn.set(self.drawn.get() + seeds.len() as u64);
            slots[..seeds.len()].iter().for_each(|(_, _, nodes)| see(nodes));
        }
        Ok(())
    }
}

/// Error of seeds, for visitors that know errors of graphs.
fn of_seeds(error: Error) -> GraphError {
    match error {
        Error::Graph(error) => error,
        other => GraphError::invalid(other.to_string()),
    }
}

/// Refuses a metric that is not defined for several types.
pub(super) fn check_metric(name: &str) -> Result<()> {
    if expects_nodes(name) {
        return Err(Error::usage(format!(
            "hotness {name} expects one fanout for all neighbours of a node, and on several types each edge \
             type has its own; use presc:2"
        )));
    }
    Ok(())
}

/// Score of every node by the metric `name`, by global id.
///
/// # Errors
/// The metric is unknown or is not defined for several types, its argument is invalid, or the watch
/// of `visits` stops the work.
pub(super) fn scores(
    name: &str,
    of: &RunBatches,
    visits: &dyn Visits,
    watch: &dyn Progress,
) -> Result<Vec<f64>> {
    check_metric(name)?;
    let (union, train) = (of.task.graph.union()?, of.source.train());
    let setting = Setting {
        graph: &union,
        train: &train,
        fanout: &of.config.fanout,
        draws_subgraphs: of.sampler.subgraphs().is_some(),
        batch_size: of.size(),
        seed: of.config.seed,
        epochs: of.config.epochs as u64,
        visits,
    };
    let scores = hotness::score(name, &setting);
    // an error may stem from batches that were not drawn
    watch.check()?;
    scores.map_err(Error::usage)
}
