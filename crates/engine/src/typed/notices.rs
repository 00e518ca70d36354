//! Notes for the user about choices of a run on several types.

use graphmill_core::{Features, features::FeatureData};
use graphmill_data::typed::TypedDataset;
use graphmill_loader::{
    time::{TimeDraw, TimeOptions},
    typed::{TABLE as SAMPLERS, TypedSampler, unreached_types},
};

use super::{
    learner::TypedLearner,
    task::{TypedTask, unread_columns},
};
use crate::{TrainConfig, config::FeaturePrecision, run::notices::emulated};

/// Notes for the user about choices of the run.
pub(super) fn notes(
    config: &TrainConfig,
    data: &TypedDataset,
    task: &TypedTask,
    sampler: &dyn TypedSampler,
    learner: &TypedLearner,
) -> Vec<String> {
    let schema = task.graph.schema();
    let mut notes: Vec<String> = emulated(config).map(str::to_string).into_iter().collect();
    let unreached = unreached_types(sampler, schema, &[task.node_type]);
    if !unreached.is_empty() {
        notes.push(format!(
            "no path of {} hops leads from nodes of type {} to a training node, so they are not read",
            sampler.num_hops(),
            unreached.join(", ")
        ));
    }
    let learned: Vec<&str> = learner.model.learned_rows().map(|(t, _)| &schema.types()[t].name[..]).collect();
    notes.extend(note_of_learned(&learned, task));
    notes.extend(note_of_sparse(config, task));
    notes.extend(unread_columns(data, task));
    let draws: TimeOptions = config.own.get();
    let by_weight = SAMPLERS.get(&config.sampler).is_some_and(|row| row.make.draws_by_weight)
        && task.graph.relations().iter().any(|relation| relation.edge_weight().is_some());
    if by_weight || task.times.is_some() && draws.time_draw == TimeDraw::Recency {
        notes.push("scores use all neighbours with equal weights".into());
    }
    notes
}

/// Note on sparse rows that `--feature-precision` does not round, if there are some.
pub(super) fn note_of_sparse(config: &TrainConfig, task: &TypedTask) -> Option<String> {
    if config.feature_precision == FeaturePrecision::Auto {
        return None;
    }
    let types = task.graph.schema().types().iter().zip(&task.features);
    let is_sparse = |features: &Features| matches!(features.data, FeatureData::Csr(_));
    let sparse = types.filter(|(_, features)| features.as_ref().is_some_and(is_sparse));
    let sparse: Vec<&str> = sparse.map(|(node, _)| &node.name[..]).collect();
    (!sparse.is_empty()).then(|| format!("the sparse feature rows of {} stay in f32", sparse.join(", ")))
}

/// Note on the rows of nodes of these types, if there are some.
pub(super) fn note_of_learned(types: &[&str], task: &TypedTask) -> Option<String> {
    let place = if task.learned_in.is_some() { ", in files" } else { "" };
    (!types.is_empty()).then(|| {
        format!(
            "nodes of type {} have no features: a learned row for each{place}, by Adam on the rows of a \
             batch and without weight decay",
            types.join(", ")
        )
    })
}
