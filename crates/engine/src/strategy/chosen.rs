//! The strategy of a run together with its reuse of rows: their combined capabilities, and the
//! combinations that cannot run.

use graphmill_core::{options::OptionGroup, table::Entry};
use graphmill_loader::MinibatchSampler;

use super::{
    Kind, RoundOptions, SamplingDevices, TABLE, UpdateOptions,
    interface::{Strategy, StrategyContext},
    reuse::{self, ReuseKind},
    serving::SERVING,
};
use crate::{Error, Result, TrainConfig, config::Devices};

/// Name of a strategy that stands for another one, with a reuse or with that of the options.
#[derive(Clone, Copy)]
pub struct Alias {
    /// Returns the name of the strategy.
    pub strategy: fn(&TrainConfig) -> &'static str,
    /// Name of the reuse, if it stands for one.
    pub reuse: Option<&'static str>,
}

impl Alias {
    /// Earlier spelling of `--reuse layered` around `time-sharing` on devices, else around
    /// `sequential`.
    pub(super) const LAYERED: Self = Self {
        strategy: |config| if *config.devices == Devices::Cpu { "sequential" } else { "time-sharing" },
        reuse: Some(reuse::LAYERED),
    };

    /// The strategy for the devices. A function of the options alone, because rounds of several
    /// devices are part of the result. `pipelined` compares its allocations with stages in turn
    /// while it trains, and its result is that of `sequential`.
    pub(super) const AUTO: Self = Self {
        strategy: |config| match &*config.devices {
            Devices::Virtual(1) => "time-sharing",
            _ if config.num_devices() > 1 => "factored",
            _ => "pipelined",
        },
        reuse: None,
    };
}

/// Strategy and reuse of a run.
#[derive(Clone, Copy)]
pub struct Chosen {
    /// Row of the strategy; never an alias.
    pub strategy: &'static Entry<Kind>,
    /// Row of the reuse.
    pub reuse: &'static Entry<ReuseKind>,
}

impl Chosen {
    /// Strategy and reuse that the options name.
    ///
    /// # Errors
    /// A name is not in its table.
    pub fn find(config: &TrainConfig) -> Result<Self> {
        let named = super::find(config)?;
        let find = |reuse: &str| reuse::TABLE.find(reuse).map_err(Error::name);
        match named.make.alias {
            Some(Alias { strategy, reuse }) => Ok(Self {
                strategy: TABLE.find(strategy(config)).map_err(Error::name)?,
                reuse: find(reuse.unwrap_or(&config.reuse))?,
            }),
            None => Ok(Self { strategy: named, reuse: find(&config.reuse)? }),
        }
    }

    /// Strategy of a rank that holds the graph and does not train, which reuses no rows.
    pub(crate) fn serving() -> Self {
        Self { strategy: &SERVING, reuse: &reuse::WITHOUT }
    }

    /// [`Chosen::find`], or `None` for unknown names.
    pub fn of(config: &TrainConfig) -> Option<Self> {
        Self::find(config).ok()
    }

    /// Returns true if batches reuse rows.
    pub fn reuses_rows(&self) -> bool {
        self.reuse.make.wrap.is_some()
    }

    /// Returns true if each device samples or trains for itself and has its own cache.
    pub fn is_by_device(&self, config: &TrainConfig) -> bool {
        (self.strategy.make.by_device)(config)
    }

    /// Returns true if the upper blocks and the bottom block of a batch are drawn separately.
    pub fn draws_in_parts(&self) -> bool {
        self.strategy.make.draws_in_parts || self.reuse.make.draws_in_parts
    }

    /// Number of devices that do not train in a synchronous round.
    pub fn non_trainers(&self, config: &TrainConfig) -> usize {
        (self.strategy.make.non_trainers)(config)
    }

    /// Devices that only sample, at least for a part of each epoch; `None` if all devices sample.
    pub fn sampling_devices(&self, config: &TrainConfig) -> Option<SamplingDevices> {
        (self.strategy.make.sampling_devices)(config)
    }

    /// Batches per synchronous update. A function of the options alone, because the number of
    /// sampling devices depends on measured times, and groups of cores on the machine.
    pub fn round(&self, config: &TrainConfig) -> u64 {
        let given = config.own.get::<RoundOptions>().batches_per_update;
        if given > 0 {
            return given as u64;
        }
        config.num_devices().saturating_sub(self.non_trainers(config)).max(1) as u64
    }

    /// Batches per update, synchronous or not.
    pub fn batches_per_update(&self, config: &TrainConfig) -> u64 {
        let is_single = !self.is_by_device(config) || self.update_bound(config).is_some();
        if is_single { 1 } else { self.round(config) }
    }

    /// Largest staleness of a gradient if updates are asynchronous.
    pub fn update_bound(&self, config: &TrainConfig) -> Option<u64> {
        let updates = config.own.get::<UpdateOptions>();
        let reads = self.strategy.options.contains(&OptionGroup::of::<UpdateOptions>());
        (reads && updates.is_asynchronous()).then(|| updates.bound())
    }

    /// Returns the reason and the fix if the other options leave an option without effect.
    pub fn unused(&self, config: &TrainConfig, option: &str) -> Option<String> {
        let by_reuse = || (self.reuse.make.unused)(config, option);
        (self.strategy.make.unused)(config, option).or_else(by_reuse)
    }

    /// Resolves options that follow from others.
    pub(super) fn derive_options(&self, config: &mut TrainConfig) {
        if self.is_by_device(config) && config.own.get::<RoundOptions>().batches_per_update == 0 {
            let round = usize::try_from(self.round(config)).unwrap_or(1);
            config.own.get_mut::<RoundOptions>().batches_per_update = round;
        }
        (self.strategy.make.derive_options)(config);
        (self.reuse.make.derive_options)(config);
    }

    /// Refuses a combination that cannot run.
    ///
    /// # Errors
    /// The strategy reuses rows itself, the reuse refuses the other options, or the sampler or the
    /// model has no rows to reuse.
    pub fn check(&self, config: &TrainConfig, sampler: &dyn MinibatchSampler) -> Result<()> {
        let Self { strategy, reuse } = self;
        if !self.reuses_rows() {
            return Ok(());
        }
        let flag = if config.reuse == reuse.name {
            format!("--reuse {}", reuse.name)
        } else {
            format!("--strategy {}", config.strategy)
        };
        if let Some(why) = strategy.make.without_reuse {
            return Err(Error::usage(format!(
                "{flag}: --strategy {} {why}; use --reuse none, or another strategy such as sequential",
                strategy.name
            )));
        }
        if let Some(why) = (reuse.make.refuses)(config) {
            return Err(Error::usage(format!("{flag}: {why}")));
        }
        let properties = sampler.properties();
        if reuse.make.draws_in_parts && sampler.split().is_none() {
            return Err(Error::usage(format!(
                "{flag}: --sampler {} draws all blocks of a batch at once, and the bottom block of a batch \
                 that reuses rows is drawn separately; use a sampler such as neighbor",
                config.sampler
            )));
        }
        if reuse.make.needs_layers && properties.num_layers < 2 {
            return Err(Error::usage(format!(
                "{flag}: a model with one layer has no layer above the bottom one that could reuse its rows; \
                 use --layers 2 or more"
            )));
        }
        Ok(())
    }

    /// Makes the strategy, with the reuse around it.
    ///
    /// # Errors
    /// As [`Chosen::check`], or the strategy's own.
    pub fn make<'a>(&self, context: StrategyContext<'a>) -> Result<Box<dyn Strategy + 'a>> {
        self.check(context.config, context.sampler)?;
        let inner = (self.strategy.make.make)(context)?;
        match self.reuse.make.wrap {
            Some(wrap) => wrap(context, inner),
            None => Ok(inner),
        }
    }
}
