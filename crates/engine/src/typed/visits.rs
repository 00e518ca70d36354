//! Hotness of the nodes of several types, from the minibatches of a run or from its graph.

use std::cell::{Cell, RefCell};

use graphmill_core::{Error as GraphError, NodeId, progress::Progress};
use graphmill_distributed::NodeOwnership;
use graphmill_loader::{
    BatchKey,
    hotness::{self, Setting, Visits},
    order::SeedOrder,
    typed::{TypedRequest, TypedSampler, TypedSeeds, TypedWorkspace},
};
use rayon::prelude::*;

use super::{build, task::TypedTask};
use crate::{Error, Result, TrainConfig, cache_kind::expects_nodes};

/// Minibatches of a run on several types, drawn in parallel and visited in order. Nodes have global
/// ids.
pub(super) struct TypedVisits<'v> {
    task: &'v TypedTask,
    sampler: &'v dyn TypedSampler,
    order: Box<dyn SeedOrder + 'v>,
    batch_size: usize,
    seed: u64,
    watch: &'v dyn Progress,
    /// Owners of the seeds, if several ranks share each batch.
    owners: Option<&'v NodeOwnership>,
    slots: RefCell<Vec<(TypedWorkspace, TypedSeeds, Vec<NodeId>)>>,
    drawn: Cell<u64>,
}

/// Number of seeds in a batch of a run on this task.
pub(super) fn batch_size(config: &TrainConfig, task: &TypedTask) -> usize {
    if config.batch_size == 0 { task.split.train.len() } else { config.batch_size }
}

/// Seeds of the batches of an epoch with this order of the training nodes. Subgraphs choose their
/// own: an empty list for each.
pub(super) fn batches<'o>(sampler: &dyn TypedSampler, order: &'o [NodeId], size: usize) -> Vec<&'o [NodeId]> {
    match sampler.subgraphs() {
        Some(count) => vec![&[]; count as usize],
        None => order.chunks(size.max(1)).collect(),
    }
}

impl<'v> TypedVisits<'v> {
    /// Visits the batches of a run, unless `watch` stops the work.
    ///
    /// # Errors
    /// The order of the seeds is unknown or reads edges of one type.
    pub(super) fn new(
        config: &TrainConfig,
        task: &'v TypedTask,
        sampler: &'v dyn TypedSampler,
        watch: &'v dyn Progress,
    ) -> Result<Self> {
        Ok(Self {
            task,
            sampler,
            order: build::order(config, task)?,
            batch_size: batch_size(config, task),
            seed: config.seed,
            watch,
            owners: None,
            slots: RefCell::default(),
            drawn: Cell::new(0),
        })
    }

    /// The same batches, of each of which this rank visits the seeds that it owns.
    pub(super) fn of_rank(self, owners: &'v NodeOwnership) -> Self {
        Self { owners: Some(owners), ..self }
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
        let Self { task, sampler, seed, owners, .. } = *self;
        let (graph, mut order) = (&task.graph, Vec::new());
        let schema = graph.schema();
        self.order.order(epoch, &mut order);
        let batches = batches(sampler, &order, self.batch_size);
        let mut slots = self.slots.borrow_mut();
        let parallel = rayon::current_num_threads().min(batches.len()).max(1);
        slots.resize_with(parallel, || (TypedWorkspace::new(schema), TypedSeeds::default(), Vec::new()));
        for (group, seeds) in batches.chunks(parallel).enumerate() {
            self.watch.check()?;
            let first = (group * parallel) as u64;
            slots.par_iter_mut().zip(seeds).enumerate().try_for_each(|(i, (slot, seeds))| {
                let (workspace, memory, nodes) = slot;
                let key = BatchKey { seed, epoch, batch: first + i as u64 };
                let own: Vec<NodeId>;
                let seeds = match owners {
                    Some(owners) => {
                        own = seeds.iter().copied().filter(|&v| owners.is_own(v)).collect();
                        &own
                    }
                    None => *seeds,
                };
                let seeds = std::mem::take(memory).refill(key.batch, &task.seeds(seeds));
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
    config: &TrainConfig,
    task: &TypedTask,
    visits: &dyn Visits,
    watch: &dyn Progress,
) -> Result<Vec<f64>> {
    check_metric(name)?;
    let (union, schema) = (task.graph.union()?, task.graph.schema());
    let train: Vec<NodeId> = task.split.train.iter().map(|&v| schema.global(task.node_type, v)).collect();
    let setting = Setting {
        graph: &union,
        train: &train,
        fanout: &config.fanout,
        batch_size: batch_size(config, task),
        seed: config.seed,
        epochs: config.epochs as u64,
        visits,
    };
    let scores = hotness::score(name, &setting);
    // an error may stem from batches that were not drawn
    watch.check()?;
    scores.map_err(Error::usage)
}
