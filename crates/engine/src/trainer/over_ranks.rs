//! Training as one of several ranks.

use std::sync::Arc;

use graphmill_data::partition::PartitionDir;
use graphmill_distributed::Messenger;

use super::{RunContext, run};
use crate::{
    Error, Result, TrainConfig,
    accelerator::ComputeDevices,
    bottom, build,
    distributed::{self, RankDataset},
    memory::{MemoryPlacement, MemoryPlacements},
    record::Summary,
    run::{
        Inputs, Preparation,
        setup::{self, Parts},
    },
    strategy::{self, Chosen},
    tiers::Presampling,
};

/// Trains on a partitioned dataset, as one of several ranks. All ranks call this with the same
/// arguments except `context`: rank 0 has the run directory, and [`RunContext::run`] of the others
/// is `None`. A failure ends all ranks, and each reports the rank that failed first. If ranks are
/// processes, [`Messenger::abort`] then ends those that do not respond.
///
/// # Errors
/// As [`crate::train`]; a rank did not take part; an option needs more of the graph than a rank
/// has.
pub fn train(
    config: &TrainConfig,
    dir: &PartitionDir,
    post: Arc<Messenger>,
    context: RunContext,
) -> Result<Summary> {
    let outcome = train_and_meet(config, dir, &post, context);
    match &outcome {
        Ok(_) | Err(Error::Interrupted { .. }) => post.close()?,
        Err(error) => post.fail(&error.to_string()),
    }
    outcome
}

/// Trains, and waits for the other ranks unless this rank failed: rank 0 may still be writing.
fn train_and_meet(
    config: &TrainConfig,
    dir: &PartitionDir,
    post: &Arc<Messenger>,
    context: RunContext,
) -> Result<Summary> {
    let config = &distributed::agree(config, post)?;
    distributed::check(config)?;
    let view = RankDataset::open(config, dir, post.clone())?;
    let outcome = train_on(config, &view, context);
    if matches!(outcome, Ok(_) | Err(Error::Interrupted { .. })) {
        view.ranks.meet()?;
    }
    outcome
}

/// Trains on a rank's view of the dataset.
fn train_on(config: &TrainConfig, view: &RankDataset, context: RunContext) -> Result<Summary> {
    setup::check_all_reduce(config)?;
    let trains = view.ranks.book().trains();
    // a graph store computes on the processor, also if the others train on devices
    let computing = match trains {
        true => config.clone(),
        false => TrainConfig { devices: TrainConfig::default().devices, ..config.clone() },
    };
    let devices = &ComputeDevices::open(&computing)?;
    let progress = &Preparation::new(&*context.observer);
    let links = view.links(config)?;
    links.iter().flat_map(|links| &links.notes).for_each(|note| context.observer.note(note));
    let data = links.as_ref().map_or(&view.data, |links| &links.data);
    let resumed = context.run.filter(|_| context.resume);
    let (config, note) = bottom::chosen(config, data, Some(view), resumed)?;
    note.iter().for_each(|note| context.observer.note(note));
    let config = &*config;
    let mut parts = match links {
        // a rank has all edges, and draws for itself
        Some(_) => Parts::with(
            config,
            data,
            Some(view),
            || build::order_of(config, data, None, progress),
            || strategy::sampler_watched(config, data, progress),
        )?,
        None => Parts::with(config, data, Some(view), || view.order(config), || view.sampler(config))?,
    };
    if !trains {
        parts.strategy = Chosen::serving();
    }
    let placements = MemoryPlacements::both(MemoryPlacement::Mapped);
    run(
        Inputs {
            links: links.as_ref(),
            config,
            data,
            devices,
            placements,
            presampling: &Presampling::default(),
            view: Some(view),
            progress,
        },
        parts,
        context,
    )
}
