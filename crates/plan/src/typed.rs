//! Profile of a run on several types: the costs of its minibatches, with those of each node type.

use graphmill_data::TypedDataset;
use graphmill_engine::{
    Error, Result, TrainConfig, bench::machine::Machine, strategy::reuse::NONE, typed::cost,
};

use crate::{
    measure::{RATIOS, last, policy},
    profile::{Profile, Seconds, Sizes},
};

/// Profiles a run on several types with these options, as [`measure`](crate::measure()) does one on
/// one type.
///
/// # Errors
/// As for training; an unknown `--cache`; a reuse of rows, which is not counted.
pub fn measure_types(config: &TrainConfig, data: &TypedDataset) -> Result<Profile> {
    if config.reuse != NONE {
        return Err(Error::usage(format!(
            "--reuse {}: plans of several types do not count reused rows; use --reuse none here, and compare \
             short runs",
            config.reuse
        )));
    }
    let costs = cost::measure(config, data, &RATIOS)?;
    let batches = costs.seeds.div_ceil(costs.batch_size) as u64;
    let [sample, gather, train] = costs.seconds;
    let [blocks, rows] = costs.largest;
    let fanout = if config.fanout_by_name.is_empty() {
        config.fanout.to_string()
    } else {
        format!("{};{}", config.fanout, config.fanout_by_name)
    };
    Ok(Profile {
        name: format!("{}, {} {} {fanout}", data.name, config.model, config.sampler),
        batches,
        last_batch: last(costs.seeds, costs.batch_size, batches),
        cores: rayon::current_num_threads() as f64,
        bandwidth: Some(1e9 * Machine::new(3).copy()?),
        seconds: Seconds { sample, sample_host: None, gather, near: gather, train },
        bytes: Sizes {
            topology: costs.topology,
            features: costs.features,
            maps: 0.0,
            row_maps: 0.0,
            device_maps: None,
            batch_rows: rows,
            next_rows: Some(costs.next_rows),
            batch: blocks,
            sample: costs.sample_thread,
            sample_thread: Some(costs.sample_thread),
            train: costs.step,
            train_gradients: costs.step_of_gradients,
            parameters: costs.parameters,
        }
        .with_maps(policy(config), &costs.tables)?,
        hit_rates: costs.hit_rates.iter().map(|&[ratio, rate]| crate::HitRate { ratio, rate }).collect(),
        reuse: None,
        layered: None,
        without_reuse: None,
        types: costs.types,
    })
}
