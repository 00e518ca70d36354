//! Strategies: which worker runs each stage, on which device, and how far ahead. The stages do not
//! know.

pub mod allocate;
mod batch_states;
pub mod chosen;
pub mod factored;
pub mod historical;
mod interface;
pub mod layered;
mod options;
pub mod pipelined;
pub mod reuse;
pub mod scheduler;
pub mod sequential;
mod serving;
mod single_trainer;
mod worker;

use graphmill_core::{
    options::OptionGroup,
    progress::{Progress, Quiet},
    table::{Entry, Table},
};
use graphmill_data::Dataset;
use graphmill_loader::MinibatchSampler;

pub(crate) use batch_states::{BatchKind, BatchTask, Scheduler, Slot, Timed, Trained};
pub use chosen::{Alias, Chosen};
pub use factored::{FactoredOptions, TimeSharingOptions, Toggle};
pub(crate) use factored::{ModelLink, add_shares};
pub(crate) use interface::Nvidia;
pub use interface::{CompletedBatch, Epoch, Flow, Strategy, StrategyContext};
pub use layered::{HotGradient, HotSplit, LayeredOptions, reuse_plan};
pub(crate) use layered::{REQUESTS, reuse_plan_of};
pub use options::{AllReduce, QueueOptions, RoundOptions, UpdateOptions, Updates};
pub use pipelined::{Cores, PipelinedOptions};
pub(crate) use single_trainer::{SingleTrainer, busy_slots, scheduled};
pub(crate) use worker::{CloseOnDrop, Done, GradientSource, Worker, attempt};

pub use crate::accelerator::SamplingDevices;
use crate::{Error, Result, TrainConfig, accelerator::draws_on_devices, build, config::Devices};

/// Constructor of a strategy.
pub type Make = for<'a> fn(StrategyContext<'a>) -> Result<Box<dyn Strategy + 'a>>;

/// Formula that predicts the time of an epoch (`graphmill plan`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Stages one after the other.
    Sequential,
    /// Stages run concurrently.
    Pipelined,
    /// Devices that each sample and train.
    TimeSharing,
    /// Devices that sample, and devices that train.
    Factored,
    /// No formula, for this reason.
    Unknown(&'static str),
}

/// Order of the stages of a run on several node or edge types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypedOrder {
    /// One stage after the other.
    Sequential,
    /// Sampling and extraction of later batches during training.
    Pipelined,
    /// The same, on devices: the last ones train and extract, the others sample.
    Factored,
    /// Devices that each do all stages in turn.
    TimeSharing,
}

impl TypedOrder {
    /// Returns true if the stages run on simulated devices.
    pub fn is_on_devices(self) -> bool {
        matches!(self, Self::Factored | Self::TimeSharing)
    }
}

/// Numbers of the simulated devices of a strategy on several types whose devices work
/// independently: of those that only sample, the first ones, and of those that train.
///
/// # Errors
/// The reason and the fix if none trains, or if there are none.
pub(crate) fn simulated(config: &TrainConfig) -> Result<[usize; 2], String> {
    let Devices::Virtual(count) = *config.devices else {
        return Err("it runs on simulated devices; use --devices virtual:N, or --strategy pipelined".into());
    };
    let is_factored = of(config).and_then(|row| row.make.over_types) == Some(TypedOrder::Factored);
    let samplers = if is_factored { FactoredOptions::samplers_of_types(config) } else { 0 };
    match count.saturating_sub(samplers) {
        0 => Err(format!(
            "devices that sample do not train, and --num-samplers {samplers} leaves none of {count} that \
             trains; lower it"
        )),
        trainers => Ok([samplers, trainers]),
    }
}

/// Row of the [`TABLE`].
#[derive(Clone, Copy)]
pub struct Kind {
    /// The constructor.
    pub make: Make,
    /// Returns true if each device samples or trains for itself and has its own cache.
    pub by_device: fn(&TrainConfig) -> bool,
    /// Number of devices that do not train in a synchronous round.
    pub non_trainers: fn(&TrainConfig) -> usize,
    /// Devices that only sample, at least for a part of each epoch; `None` if all devices sample.
    /// NVIDIA devices place the graph and the cached rows accordingly.
    pub sampling_devices: fn(&TrainConfig) -> Option<SamplingDevices>,
    /// True if it runs over several ranks.
    pub over_ranks: bool,
    /// True if the upper blocks and the bottom block of a batch are drawn separately, which only
    /// the processor does.
    pub draws_in_parts: bool,
    /// Reason why it cannot train on batches whose rows are reused, if it cannot.
    pub without_reuse: Option<&'static str>,
    /// Order of the stages on several types, if it trains on them.
    pub over_types: Option<TypedOrder>,
    /// True if it trains on links of one type.
    pub over_links: bool,
    /// Strategy and reuse for which the name stands, if it is another spelling.
    pub alias: Option<Alias>,
    /// Formula that predicts an epoch.
    pub cost: Cost,
    /// Resolves options that follow from others, so that a resumed run has the same values.
    pub derive_options: fn(&mut TrainConfig),
    /// Returns the reason and the fix if the other options of a run leave an option of the strategy
    /// without effect.
    pub unused: fn(&TrainConfig, &str) -> Option<String>,
}

impl Kind {
    /// Row of a strategy that uses one device, or all devices as one, without further capabilities.
    pub const fn new(make: Make) -> Self {
        Self {
            make,
            by_device: |_| false,
            non_trainers: |_| 0,
            sampling_devices: |_| None,
            over_ranks: false,
            draws_in_parts: false,
            without_reuse: None,
            over_types: None,
            over_links: false,
            alias: None,
            cost: Cost::Unknown("its row of the table has no formula"),
            derive_options: |_| {},
            unused: |_, _| None,
        }
    }
}

const QUEUE: OptionGroup = OptionGroup::of::<QueueOptions>();
const UPDATES: OptionGroup = OptionGroup::of::<UpdateOptions>();
const ROUNDS: OptionGroup = OptionGroup::of::<RoundOptions>();

/// Table of all strategies.
pub static TABLE: Table<Kind> = Table::new(
    "strategy",
    &[
        Entry {
            name: "sequential",
            summary: "one stage after the other; the reference for correctness",
            source: "",
            options: &[],
            make: Kind {
                over_ranks: true,
                over_types: Some(TypedOrder::Sequential),
                over_links: true,
                cost: Cost::Sequential,
                ..Kind::new(|context| Ok(Box::new(sequential::Sequential::new(context.data.num_nodes()))))
            },
        },
        Entry {
            name: "pipelined",
            summary: "concurrent stages of several batches, with cores allocated from profiled stage times",
            source: "Liu et al., BGL: GPU-efficient GNN training, NSDI 2023, resource isolation",
            options: &[OptionGroup::of::<PipelinedOptions>(), QUEUE],
            make: Kind {
                over_ranks: true,
                over_types: Some(TypedOrder::Pipelined),
                over_links: true,
                cost: Cost::Pipelined,
                ..Kind::new(|context| {
                    Ok(Box::new(pipelined::Pipelined::new(context.config, context.data.num_nodes())?))
                })
            },
        },
        Entry {
            name: "factored",
            summary: "sampling and training devices, linked by one queue, with dynamic switching",
            source: "Yang et al., GNNLab (FGNN), EuroSys 2022, section 5",
            options: &[QUEUE, UPDATES, ROUNDS, OptionGroup::of::<FactoredOptions>()],
            make: Kind {
                over_ranks: true,
                by_device: |_| true,
                non_trainers: FactoredOptions::non_trainers,
                sampling_devices: FactoredOptions::sampling_devices,
                over_types: Some(TypedOrder::Factored),
                over_links: true,
                derive_options: FactoredOptions::derive,
                cost: Cost::Factored,
                unused: options::unused_in_rounds,
                ..Kind::new(|context| {
                    Ok(Box::new(factored::Factored::new(context, factored::Design::Factored)))
                })
            },
        },
        Entry {
            name: "time-sharing",
            summary: "every device samples and trains; the baseline for factored",
            source: "Yang et al., GNNLab (FGNN), EuroSys 2022, section 2",
            options: &[QUEUE, UPDATES, ROUNDS, OptionGroup::of::<TimeSharingOptions>()],
            make: Kind {
                over_ranks: true,
                by_device: |_| true,
                over_types: Some(TypedOrder::TimeSharing),
                over_links: true,
                cost: Cost::TimeSharing,
                unused: options::unused_in_rounds,
                ..Kind::new(|context| {
                    let design = factored::Design::time_sharing(context.config);
                    Ok(Box::new(factored::Factored::new(context, design)))
                })
            },
        },
        Entry {
            name: "auto",
            summary: "pipelined; on one simulated device time-sharing, on several devices factored",
            source: "",
            options: &[],
            make: Kind {
                alias: Some(Alias::AUTO),
                cost: Cost::Unknown("it stands for another strategy"),
                ..Kind::new(|context| Chosen::find(context.config)?.make(context))
            },
        },
        Entry {
            name: "layered",
            summary: "earlier spelling of --reuse layered with sequential, or time-sharing on devices",
            source: "Ai et al., NeutronOrch, VLDB 2024, section 4",
            options: &[],
            make: Kind {
                alias: Some(Alias::LAYERED),
                cost: Cost::Unknown("it stands for another strategy with --reuse layered"),
                ..Kind::new(|context| Chosen::find(context.config)?.make(context))
            },
        },
        Entry {
            name: "historical",
            summary: "bottom-layer rows of any age are reused; the baseline for --reuse layered",
            source: "Fey et al., GNNAutoScale, ICML 2021, section 2",
            options: &[],
            make: Kind {
                over_ranks: true,
                draws_in_parts: true,
                without_reuse: Some("reuses rows itself, whatever their age"),
                unused: options::unused_in_parts,
                cost: Cost::Unknown(
                    "which rows it reuses follows from all batches before, and a profile has only a few",
                ),
                ..Kind::new(|context| Ok(Box::new(historical::Historical::new(context)?)))
            },
        },
    ],
);

/// Row of the strategy that a configuration names. It is an alias if the name stands for a reuse as
/// well.
///
/// # Errors
/// The name is not in the table.
pub(crate) fn find(config: &TrainConfig) -> Result<&'static Entry<Kind>> {
    let named = TABLE.find(&config.strategy).map_err(Error::name)?;
    match named.make.alias {
        Some(Alias { strategy, reuse: None }) => TABLE.find(strategy(config)).map_err(Error::name),
        _ => Ok(named),
    }
}

/// [`find`], or `None` for an unknown name.
pub(crate) fn of(config: &TrainConfig) -> Option<&'static Entry<Kind>> {
    find(config).ok()
}

/// Returns true if each device of the strategy samples or trains for itself.
pub(crate) fn is_by_device(config: &TrainConfig) -> bool {
    Chosen::of(config).is_some_and(|chosen| chosen.is_by_device(config))
}

/// Returns true if batches are drawn in parts.
pub(crate) fn draws_in_parts(config: &TrainConfig) -> bool {
    Chosen::of(config).is_some_and(|chosen| chosen.draws_in_parts())
}

/// Sampler of a run. If it reuses rows, a sampler of subgraphs also draws the neighbours of their
/// nodes.
///
/// # Errors
/// An unknown name or an impossible option.
pub fn sampler(config: &TrainConfig, data: &Dataset) -> Result<Box<dyn MinibatchSampler>> {
    sampler_watched(config, data, &Quiet)
}

/// [`sampler()`], whose precomputations `progress` watches.
///
/// # Errors
/// As [`sampler()`], or `progress` stops the work.
pub(crate) fn sampler_watched(
    config: &TrainConfig,
    data: &Dataset,
    progress: &dyn Progress,
) -> Result<Box<dyn MinibatchSampler>> {
    if draws_in_parts(config) {
        build::sampler_in_parts(config, data, progress)
    } else {
        build::sampler_watched(config, data, progress)
    }
}

/// Batches per synchronous update.
pub(crate) fn round(config: &TrainConfig) -> u64 {
    Chosen::of(config).map_or(1, |chosen| chosen.round(config))
}

/// Batches per update of a run, synchronous or not.
pub(crate) fn batches_per_update(config: &TrainConfig) -> u64 {
    Chosen::of(config).map_or(1, |chosen| chosen.batches_per_update(config))
}

/// Largest staleness of a gradient, in updates; 0 if updates are synchronous.
pub(crate) fn update_bound(config: &TrainConfig) -> u64 {
    Chosen::of(config).and_then(|chosen| chosen.update_bound(config)).unwrap_or_default()
}

/// Number of devices of a run that do not train in a synchronous round.
fn non_trainers(config: &TrainConfig) -> usize {
    Chosen::of(config).map_or(0, |chosen| chosen.non_trainers(config))
}

/// NVIDIA devices that hold the graph and no rows, because they only sample; the others hold rows
/// and no graph. `None` if all devices hold both, or the processor draws.
pub(crate) fn sampling_devices(config: &TrainConfig) -> Option<SamplingDevices> {
    let chosen = Chosen::of(config)?;
    let draw =
        !config.cuda_devices().is_empty() && draws_on_devices(&config.sampler) && !chosen.draws_in_parts();
    chosen.sampling_devices(config).filter(|_| draw)
}

/// Resolves options that follow from others, so that a resumed run has the same values on other
/// devices, and a strategy that the devices choose.
pub(crate) fn derive_options(config: &mut TrainConfig) {
    if let Some(named) = of(config).filter(|named| named.name != config.strategy) {
        config.strategy = named.name.into();
    }
    if let Some(chosen) = Chosen::of(config) {
        chosen.derive_options(config);
    }
}
