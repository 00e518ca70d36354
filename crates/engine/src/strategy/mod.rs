//! Who runs which stage, where, and how far ahead. The stages themselves do not know.

pub mod allocate;
pub mod factored;
pub mod historical;
mod interface;
pub mod layered;
mod options;
pub mod pipelined;
pub mod scheduler;
pub mod sequential;
mod slots;
mod worker;

use graphmill_core::{
    options::OptionGroup,
    table::{Entry, Table},
};

pub use factored::{FactoredOptions, Toggle};
pub(crate) use interface::Nvidia;
pub use interface::{Done, Epoch, Flow, Setting, Strategy};
pub use layered::{HotGradient, LayeredOptions};
pub use options::{AllReduce, QueueOptions, RoundOptions, UpdateOptions, Updates};
pub use pipelined::{Cores, PipelinedOptions};

use crate::{Result, TrainConfig, config::Devices};

/// Makes a strategy.
pub type Make = for<'a> fn(Setting<'a>) -> Result<Box<dyn Strategy + 'a>>;

/// The formula that predicts how long an epoch takes (`graphmill plan`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Stages one after the other.
    Sequential,
    /// Stages side by side.
    Pipelined,
    /// Devices that each sample and train.
    TimeSharing,
    /// Devices that sample, and devices that train.
    Factored,
    /// None, for this reason.
    Unknown(&'static str),
}

/// A row of the [`TABLE`].
#[derive(Clone, Copy)]
pub struct Kind {
    /// The constructor.
    pub make: Make,
    /// Whether each device samples or trains for itself, and has a cache of its own.
    pub by_device: fn(&TrainConfig) -> bool,
    /// Options that it reads if devices work for themselves, beside those of its row.
    pub options_by_device: &'static [OptionGroup],
    /// Devices that do not train, in a synchronous round.
    pub non_trainers: fn(&TrainConfig) -> usize,
    /// Whether it runs over several ranks.
    pub over_ranks: bool,
    /// Whether batches are drawn in parts, which the processor does.
    pub draws_in_parts: bool,
    /// The formula that predicts an epoch.
    pub cost: Cost,
    /// Replaces options that are chosen by others, so that a resumed run has the same.
    pub settle: fn(&mut TrainConfig),
    /// Why the options of a run leave an option without effect that the strategy reads, and the
    /// remedy.
    pub unused: fn(&TrainConfig, &str) -> Option<String>,
}

impl Kind {
    /// A strategy on one device, or on all devices as one, without further capabilities.
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

/// Every strategy there is.
pub static TABLE: Table<Kind> = Table::new(
    "strategy",
    &[
        Entry {
            name: "sequential",
            summary: "order, sample, extract, train, one after the other; the reference for correctness",
            source: "",
            options: &[],
            make: Kind {
                over_ranks: true,
                cost: Cost::Sequential,
                ..Kind::new(|with| Ok(Box::new(sequential::Sequential::new(with.data.num_nodes()))))
            },
        },
        Entry {
            name: "pipelined",
            summary: "stages of several batches side by side, cores by the min-max allocation over profiled stage times",
            source: "Liu et al., BGL: GPU-efficient GNN training, NSDI 2023, resource isolation",
            options: &[OptionGroup::of::<PipelinedOptions>(), QUEUE],
            make: Kind {
                over_ranks: true,
                cost: Cost::Pipelined,
                ..Kind::new(|with| {
                    Ok(Box::new(pipelined::Pipelined::new(with.config, with.data.num_nodes())?))
                })
            },
        },
        Entry {
            name: "factored",
            summary: "devices that sample and devices that train, linked by one queue, with dynamic switching",
            source: "Yang et al., GNNLab (FGNN), EuroSys 2022, section 5",
            options: &[QUEUE, UPDATES, ROUNDS, OptionGroup::of::<FactoredOptions>()],
            make: Kind {
                by_device: |_| true,
                non_trainers: |config| config.own.get::<FactoredOptions>().num_samplers.max(1),
                cost: Cost::Factored,
                unused: options::unused_in_rounds,
                ..Kind::new(|with| Ok(Box::new(factored::Factored::new(with, factored::Design::Factored))))
            },
        },
        Entry {
            name: "time-sharing",
            summary: "every device samples and trains: what factored is compared with",
            source: "Yang et al., GNNLab (FGNN), EuroSys 2022, section 2",
            options: &[QUEUE, UPDATES, ROUNDS],
            make: Kind {
                by_device: |_| true,
                cost: Cost::TimeSharing,
                unused: options::unused_in_rounds,
                ..Kind::new(|with| Ok(Box::new(factored::Factored::new(with, factored::Design::TimeSharing))))
            },
        },
        Entry {
            name: "layered",
            summary: "bottom-layer rows of hot nodes computed once for several batches, with bounded staleness",
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
                ..Kind::new(|with| Ok(Box::new(layered::Layered::new(with)?)))
            },
        },
        Entry {
            name: "historical",
            summary: "bottom-layer rows reused however old they are: what layered is compared with",
            source: "Fey et al., GNNAutoScale, ICML 2021, section 2",
            options: &[],
            make: Kind {
                draws_in_parts: true,
                cost: Cost::Unknown("the profile does not count how many rows are reused"),
                ..Kind::new(|with| Ok(Box::new(historical::Historical::new(with)?)))
            },
        },
    ],
);

/// The row of a configuration's strategy, if there is one.
pub(crate) fn of(config: &TrainConfig) -> Option<&'static Entry<Kind>> {
    TABLE.get(&config.strategy)
}

/// Whether each device of the strategy works for itself.
pub(crate) fn is_by_device(config: &TrainConfig) -> bool {
    of(config).is_some_and(|entry| (entry.make.by_device)(config))
}

/// Whether the strategy draws batches in parts.
pub(crate) fn draws_in_parts(config: &TrainConfig) -> bool {
    of(config).is_some_and(|entry| entry.make.draws_in_parts)
}

/// The options of the strategies' own that a configuration's strategy reads.
pub(crate) fn options_of(config: &TrainConfig) -> Vec<OptionGroup> {
    let Some(Entry { options, make, .. }) = of(config) else { return Vec::new() };
    let by_device = if (make.by_device)(config) { make.options_by_device } else { &[] };
    [*options, by_device].concat()
}

/// The name of every strategy, with all options of its own.
pub(crate) fn options_of_all() -> Vec<(&'static str, Vec<OptionGroup>)> {
    let all = |entry: &Entry<Kind>| [entry.options, entry.make.options_by_device].concat();
    TABLE.iter().map(|entry| (entry.name, all(entry))).collect()
}

/// Batches of a synchronous update. A function of the options alone: how many devices turn out to
/// sample depends on how fast they are today, and groups of cores on the machine.
pub(crate) fn round(config: &TrainConfig) -> u64 {
    let given = config.own.get::<RoundOptions>().batches_per_update;
    if given > 0 {
        return given as u64;
    }
    let sample = of(config).map_or(0, |entry| (entry.make.non_trainers)(config));
    config.num_devices().saturating_sub(sample).max(1) as u64
}

/// Replaces options that follow from others, so that a resumed run has the same on other devices.
pub(crate) fn settle(config: &mut TrainConfig) {
    if is_by_device(config) && config.own.get::<RoundOptions>().batches_per_update == 0 {
        let round = usize::try_from(round(config)).unwrap_or(1);
        config.own.get_mut::<RoundOptions>().batches_per_update = round;
    }
    if let Some(entry) = of(config) {
        (entry.make.settle)(config);
    }
}
