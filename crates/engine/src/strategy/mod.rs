//! Who runs which stage, where, and how far ahead. The stages themselves do not know.

pub mod allocate;
pub mod factored;
pub mod historical;
mod interface;
pub mod layered;
pub mod pipelined;
pub mod scheduler;
pub mod sequential;
mod slots;
mod worker;

use graphmill_core::table::{Entry, Table};

use crate::{Result, TrainConfig, config::Devices};

pub(crate) use interface::Nvidia;
pub use interface::{Done, Epoch, Flow, Setting, Strategy};

/// Makes a strategy.
pub type Make = for<'a> fn(Setting<'a>) -> Result<Box<dyn Strategy + 'a>>;

/// A row of the [`TABLE`].
#[derive(Clone, Copy)]
pub struct Kind {
    /// The constructor.
    pub make: Make,
    /// Whether each device samples or trains for itself, and has a cache of its own.
    pub by_device: fn(&TrainConfig) -> bool,
    /// Options that it reads where devices work for themselves, beside those of its row.
    pub options_by_device: &'static [&'static str],
}

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
                make: |with| Ok(Box::new(sequential::Sequential::new(with.data.num_nodes()))),
                by_device: |_| false,
                options_by_device: &[],
            },
        },
        Entry {
            name: "pipelined",
            summary: "stages of several batches side by side, cores by the min-max allocation over profiled stage times",
            source: "Liu et al., BGL: GPU-efficient GNN training, NSDI 2023, resource isolation",
            options: &["allocation", "queue"],
            make: Kind {
                make: |with| Ok(Box::new(pipelined::Pipelined::new(with.config, with.data.num_nodes())?)),
                by_device: |_| false,
                options_by_device: &[],
            },
        },
        Entry {
            name: "factored",
            summary: "devices that sample and devices that train, linked by one queue, with dynamic switching",
            source: "Yang et al., GNNLab (FGNN), EuroSys 2022, section 5",
            options: &[
                "queue",
                "updates",
                "batches_per_update",
                "staleness",
                "all_reduce",
                "num_samplers",
                "switching",
            ],
            make: Kind {
                make: |with| Ok(Box::new(factored::Factored::new(with, factored::Design::Factored))),
                by_device: |_| true,
                options_by_device: &[],
            },
        },
        Entry {
            name: "time-sharing",
            summary: "every device samples and trains: what factored is compared with",
            source: "Yang et al., GNNLab (FGNN), EuroSys 2022, section 2",
            options: &["queue", "updates", "batches_per_update", "staleness", "all_reduce"],
            make: Kind {
                make: |with| Ok(Box::new(factored::Factored::new(with, factored::Design::TimeSharing))),
                by_device: |_| true,
                options_by_device: &[],
            },
        },
        Entry {
            name: "layered",
            summary: "bottom-layer rows of hot nodes computed once for several batches, with bounded staleness",
            source: "Ai et al., NeutronOrch, VLDB 2024, section 4",
            options: &[
                "hot_ratio",
                "super_batch",
                "hot_by",
                "hot_rank",
                "hot_gradient",
                "hot_ahead",
                "hot_split",
                "max_variation",
            ],
            make: Kind {
                make: |with| Ok(Box::new(layered::Layered::new(with)?)),
                by_device: |config| *config.devices != Devices::Cpu,
                options_by_device: &["queue", "batches_per_update", "all_reduce"],
            },
        },
        Entry {
            name: "historical",
            summary: "bottom-layer rows reused however old they are: what layered is compared with",
            source: "Fey et al., GNNAutoScale, ICML 2021, section 2",
            options: &[],
            make: Kind {
                make: |with| Ok(Box::new(historical::Historical::new(with)?)),
                by_device: |_| false,
                options_by_device: &[],
            },
        },
    ],
);

/// Whether each device of the strategy works for itself.
pub(crate) fn is_by_device(config: &TrainConfig) -> bool {
    TABLE.iter().any(|entry| entry.name == config.strategy && (entry.make.by_device)(config))
}

/// Whether the strategy of a configuration reads an option of that name.
pub(crate) fn reads(config: &TrainConfig, option: &str) -> bool {
    TABLE.iter().filter(|entry| entry.name == config.strategy).any(|Entry { options, make, .. }| {
        options.contains(&option) || (make.by_device)(config) && make.options_by_device.contains(&option)
    })
}
