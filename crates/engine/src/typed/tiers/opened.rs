//! The tiers of several types for programs that make minibatches by other means.

use std::sync::Arc;

use graphmill_core::{NodeId, progress::Progress, typed::TypedGraph};
use graphmill_data::typed::{NodeData, TableData, TypedDataset, Values};
use graphmill_loader::{
    BatchKey, Feature,
    typed::{TypedSampler, TypedSeeds},
};

use super::{
    super::{
        batches::{Learned, RunBatches},
        build,
        stages::SeedSource,
        task::{TypedTask, features},
    },
    TypedTiers,
};
use crate::{
    Error, Result, TrainConfig,
    run::{notices::ALL_IN_HOST, tiers},
};

/// Feature rows of several types in tiers.
pub struct OpenTypedTiers {
    /// Rows of each type, read as f32 from any tier and storage type. `None` for a type without
    /// features, and for one whose rows are sparse or not stored as f16 or f32: no tier holds them.
    pub tables: Vec<Option<Arc<dyn Feature>>>,
    /// Description of the tiers and of their contents.
    pub description: String,
    /// True if simulated devices hold the nearest tier.
    pub has_devices: bool,
}

/// Seeds of a program's minibatches.
pub struct ProgramSeeds {
    /// Types and ids of the nodes of one seed after those of another.
    pub nodes: Vec<(usize, NodeId)>,
    /// Number of nodes of a seed: 1 for nodes, 2 for edges.
    pub each: usize,
}

impl ProgramSeeds {
    /// Number of seeds.
    fn len(&self) -> usize {
        self.nodes.len() / self.each.max(1)
    }
}

/// Seeds with the graph of their types.
struct SeedsOf<'s> {
    seeds: &'s ProgramSeeds,
    task: &'s TypedTask,
}

impl SeedSource for SeedsOf<'_> {
    /// Nodes of the seeds with these numbers, each once.
    fn fill(&self, key: BatchKey, part: &[NodeId], memory: TypedSeeds) -> Result<TypedSeeds> {
        let (nodes, each) = (&self.seeds.nodes, self.seeds.each);
        let mut lists = vec![Vec::new(); self.task.graph.schema().num_types()];
        for &number in part {
            for &(t, v) in &nodes[number as usize * each..][..each] {
                lists[t].push(v);
            }
        }
        for list in &mut lists {
            list.sort_unstable();
            list.dedup();
        }
        let lists: Vec<&[NodeId]> = lists.iter().map(Vec::as_slice).collect();
        Ok(memory.refill(key.batch, &lists))
    }

    fn types(&self) -> Vec<usize> {
        let is_seed = |t: &usize| self.seeds.nodes.iter().any(|(of, _)| of == t);
        (0..self.task.graph.schema().num_types()).filter(is_seed).collect()
    }

    fn train(&self) -> Vec<NodeId> {
        let schema = self.task.graph.schema();
        let mut all: Vec<NodeId> = self.seeds.nodes.iter().map(|&(t, v)| schema.global(t, v)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Opens the tiers from which a run with these options on `data`, whose graph is `graph`, reads the
/// rows of its minibatches: those of `--batch-size` of the `seeds`, drawn by `sampler`.
///
/// # Errors
/// The options contradict each other or the dataset, or name NVIDIA devices, a device's budget or
/// counts of training, which only runs support; there are no rows, or more than 2^32 seeds; the
/// rows cannot be read; a cache cannot be allocated; `watch` cancels the work.
pub fn open_tiers(
    config: &TrainConfig,
    (data, graph): (&TypedDataset, TypedGraph),
    (seeds, sampler): (&ProgramSeeds, &dyn TypedSampler),
    watch: &dyn Progress,
) -> Result<OpenTypedTiers> {
    tiers::check(config)?;
    let (task, has_devices) = (rows_of(data, graph)?, config.num_devices() > 0);
    let count = NodeId::try_from(seeds.len()).map_err(|_| {
        Error::usage(format!("tiers are filled for at most 2^32 seeds, not {}; pass a part", seeds.len()))
    })?;
    let numbers: Vec<NodeId> = (0..count).collect();
    let (source, order) = (SeedsOf { seeds, task: &task }, build::order_of(config, &numbers, &task.labels)?);
    let learned =
        Learned { task: &task, sampler, source: &source, models: &task, order, seeds: numbers.len() };
    let batches = RunBatches::new(config, learned);
    let TypedTiers { tables, description, .. } = TypedTiers::new(data, &batches, (None, None), watch)?;
    let in_place = data.nodes.iter().filter(|nodes| nodes.features.is_some() && !is_held(nodes));
    let in_place: Vec<&str> = in_place.map(|nodes| &nodes.name[..]).collect();
    let mut description = description.unwrap_or_else(|| ALL_IN_HOST.into());
    if !in_place.is_empty() {
        description += &format!(
            "; rows of {} are read in place, because they are sparse or not stored as f16 or f32",
            in_place.join(", ")
        );
    }
    Ok(OpenTypedTiers { tables, description, has_devices })
}

/// Returns true if tiers hold the rows of a type.
fn is_held(nodes: &NodeData) -> bool {
    let data = nodes.features.as_ref().map(|table| &table.data);
    matches!(data, Some(TableData::Dense(Values::F16(_) | Values::F32(_))))
}

/// The rows that tiers hold, as those of a task without targets.
///
/// # Errors
/// No type has such rows.
fn rows_of(data: &TypedDataset, graph: TypedGraph) -> Result<TypedTask> {
    if !data.nodes.iter().any(is_held) {
        return Err(Error::dataset(
            &data.name,
            "no node type has features that are stored as f16 or f32, so tiers have nothing to hold; leave \
             out the tier options",
        ));
    }
    let held = |nodes: &NodeData| if is_held(nodes) { features(data, nodes) } else { Ok(None) };
    let features = data.nodes.iter().map(held).collect::<Result<_>>()?;
    Ok(TypedTask::without_targets(data, "", graph, features))
}
