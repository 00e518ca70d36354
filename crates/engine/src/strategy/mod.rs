//! Strategies: which worker runs each stage, on which device, and how far ahead. The stages do not
//! know.

pub mod allocate;
mod batch_states;
pub mod factored;
pub mod historical;
mod interface;
pub mod layered;
mod options;
pub mod pipelined;
pub mod scheduler;
pub mod sequential;
mod worker;

use graphmill_core::{
    options::OptionGroup,
    table::{Entry, Table},
};

pub use factored::{FactoredOptions, TimeSharingOptions, Toggle};
pub(crate) use interface::Nvidia;
pub use interface::{CompletedBatch, Epoch, Flow, Strategy, StrategyContext};
pub use layered::{HotGradient, LayeredOptions};
pub use options::{AllReduce, QueueOptions, RoundOptions, UpdateOptions, Updates};
pub use pipelined::{Cores, PipelinedOptions};

use crate::{Result, TrainConfig, config::Devices};

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

/// Row of the [`TABLE`].
#[derive(Clone, Copy)]
pub struct Kind {
    /// The constructor.
    pub make: Make,
    /// Returns true if each device samples or trains for itself and has its own cache.
    pub by_device: fn(&TrainConfig) -> bool,
    /// Options that it reads if `by_device` is true, besides those of its row.
    pub options_by_device: &'static [OptionGroup],
    /// Number of devices that do not train in a synchronous round.
    pub non_trainers: fn(&TrainConfig) -> usize,
    /// True if it runs over several ranks.
    pub over_ranks: bool,
    /// True if the upper blocks and the bottom block of a batch are drawn separately, which only
    /// the processor does.
    pub draws_in_parts: bool,
    /// Formula that predicts an epoch.
    pub cost: Cost,
    /// Resolves options that follow from others, so that a resumed run has the same values.
    pub settle: fn(&mut TrainConfig),
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
            options_by_device: &[],
            non_trainers: |_| 0,
            over_ranks: false,
            draws_in_parts: false,
            cost: Cost::Unknown("its row of the table has no formula"),
            settle: |_| {},
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
                non_trainers: |config| config.own.get::<FactoredOptions>().num_samplers.max(1),
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
                cost: Cost::TimeSharing,
                unused: options::unused_in_rounds,
                ..Kind::new(|context| {
                    let design = factored::Design::time_sharing(context.config);
                    Ok(Box::new(factored::Factored::new(context, design)))
                })
            },
        },
        Entry {
            name: "layered",
            summary: "hot bottom-layer rows computed once for several batches, with bounded staleness",
            source: "Ai et al., NeutronOrch, VLDB 2024, section 4",
            options: &[OptionGroup::of::<LayeredOptions>()],
            make: Kind {
                by_device: |config| *config.devices != Devices::Cpu,
                options_by_device: &[QUEUE, ROUNDS],
                draws_in_parts: true,
                cost: Cost::Unknown(
                    "the profile does not count how many rows of hot nodes a super-batch reuses",
                ),
                settle: layered::settle,
                unused: layered::unused,
                ..Kind::new(|context| Ok(Box::new(layered::Layered::new(context)?)))
            },
        },
        Entry {
            name: "historical",
            summary: "bottom-layer rows of any age are reused; the baseline for layered",
            source: "Fey et al., GNNAutoScale, ICML 2021, section 2",
            options: &[],
            make: Kind {
                draws_in_parts: true,
                cost: Cost::Unknown("the profile does not count how many rows are reused"),
                ..Kind::new(|context| Ok(Box::new(historical::Historical::new(context)?)))
            },
        },
    ],
);

/// Row of a configuration's strategy, if its name is in the table.
pub(crate) fn of(config: &TrainConfig) -> Option<&'static Entry<Kind>> {
    TABLE.get(&config.strategy)
}

/// Returns true if each device of the strategy samples or trains for itself.
pub(crate) fn is_by_device(config: &TrainConfig) -> bool {
    of(config).is_some_and(|entry| (entry.make.by_device)(config))
}

/// Returns true if the strategy draws batches in parts.
pub(crate) fn draws_in_parts(config: &TrainConfig) -> bool {
    of(config).is_some_and(|entry| entry.make.draws_in_parts)
}

/// Strategy-specific options that a configuration's strategy reads.
pub(crate) fn options_of(config: &TrainConfig) -> Vec<OptionGroup> {
    let Some(Entry { options, make, .. }) = of(config) else { return Vec::new() };
    let by_device = if (make.by_device)(config) { make.options_by_device } else { &[] };
    [*options, by_device].concat()
}

/// Name of every strategy with all its specific options.
pub(crate) fn options_of_all() -> Vec<(&'static str, Vec<OptionGroup>)> {
    let all = |entry: &Entry<Kind>| [entry.options, entry.make.options_by_device].concat();
    TABLE.iter().map(|entry| (entry.name, all(entry))).collect()
}

/// Batches per synchronous update. A function of the options alone, because the number of sampling
/// devices depends on measured times, and groups of cores on the machine.
pub(crate) fn round(config: &TrainConfig) -> u64 {
    let given = config.own.get::<RoundOptions>().batches_per_update;
    if given > 0 {
        return given as u64;
    }
    let sample = of(config).map_or(0, |entry| (entry.make.non_trainers)(config));
    config.num_devices().saturating_sub(sample).max(1) as u64
}

/// Resolves options that follow from others, so that a resumed run has the same values on other
/// devices.
pub(crate) fn settle(config: &mut TrainConfig) {
    if is_by_device(config) && config.own.get::<RoundOptions>().batches_per_update == 0 {
        let round = usize::try_from(round(config)).unwrap_or(1);
        config.own.get_mut::<RoundOptions>().batches_per_update = round;
    }
    if let Some(entry) = of(config) {
        (entry.make.settle)(config);
    }
}
