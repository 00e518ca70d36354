//! Parts of a run that outlive an epoch, made from its configuration and dataset, and the tables
//! that they read.

use std::sync::Arc;

use graphmill_core::{Graph, block::Aggregation, keyed, progress::Progress, table};
use graphmill_data::Dataset;
use graphmill_distributed::NodeOwnership;
use graphmill_loader::{
    Feature, MinibatchSampler, Seeds, Workspace, feature::Link, link::LinkSource, order::SeedOrder,
};
use graphmill_nn::{
    ProductOrder, cost::BlockShape, metric::Metric, model::Model, optim::Optimizer, schedule::Schedule,
};

use super::Inputs;
use crate::{
    Error, Result, TrainConfig,
    accelerator::{Gpu, Samplers, SamplingDevices, topology_share},
    bottom::{self, Stacked},
    build,
    config::link_task::is_link,
    config::{Bottom, Switch},
    distributed::{RankDataset, RankTiers},
    label_inputs::LabelColumns,
    learner::Learner,
    link::step::LinkObjective,
    memory::{self, MemoryPlacement, MemoryPlacements},
    options::label_columns,
    reuse::{ReusePlan, RowExchange},
    stage::{Loader, RowAccess},
    stages::target_loss::TargetLoss,
    strategy::{self, AllReduce, Chosen, Nvidia, RoundOptions, StrategyContext},
    tiers::{AllRows, Batches, BuiltTiers, GpuTiers, LateCache, Plan, counted_epochs},
};

/// Parts that options name. Making them checks all options, before any long work.
pub(crate) struct Parts<'d> {
    /// Metric of labels; `None` in a run that learns links.
    pub(crate) metric: Option<&'static table::Entry<Metric>>,
    pub(crate) sampler: Box<dyn MinibatchSampler>,
    pub(crate) order: Box<dyn SeedOrder + 'd>,
    pub(crate) strategy: Chosen,
    pub(crate) optimizer: Box<dyn Optimizer>,
    pub(crate) schedule: Schedule,
    pub(crate) model: Model,
    /// Aggregation of the stored bottom hop, with `--bottom exact`.
    pub(crate) bottom: Option<Aggregation>,
    /// Labels that follow the feature rows, if the run has some.
    pub(crate) labels: Option<LabelColumns>,
}

impl<'d> Parts<'d> {
    /// Makes the parts of a run.
    ///
    /// # Errors
    /// An option is unknown or impossible, the dataset is not suitable for training, or `progress`
    /// stops the work.
    pub(crate) fn new(config: &TrainConfig, data: &'d Dataset, progress: &'d dyn Progress) -> Result<Self> {
        let order = || build::order_of(config, data, None, progress);
        Self::with(config, data, None, order, || strategy::sampler_watched(config, data, progress))
    }

    /// [`Parts::new`] with the order and the sampler that `order` and `sampler` make, of a run in
    /// one process or with a rank's `view` of the dataset.
    ///
    /// # Errors
    /// As [`Parts::new`].
    pub(crate) fn with(
        config: &TrainConfig,
        data: &'d Dataset,
        view: Option<&RankDataset>,
        order: impl FnOnce() -> Result<Box<dyn SeedOrder + 'd>>,
        sampler: impl FnOnce() -> Result<Box<dyn MinibatchSampler>>,
    ) -> Result<Self> {
        config.check()?;
        counted_epochs(config)?;
        let model = build::model(config, data)?;
        let bottom = bottom::aggregation(config, data, &model, view)?;
        if data.split.train.is_empty() {
            return Err(Error::without(
                &data.name,
                "training nodes",
                "--split random:0.6,0.2,0.2",
                "train_mask=",
            ));
        }
        if config.label_inputs > 0.0 {
            let flag = format!("--label-inputs {}", config.label_inputs);
            label_columns(config).map_err(|reason| Error::usage(format!("{flag}: {reason}")))?;
        }
        let parts = Self {
            labels: LabelColumns::for_training(config, data, build::batch_size(config, data))?,
            metric: if is_link(config) { None } else { Some(build::metric(config, data)?) },
            strategy: Chosen::find(config)?,
            optimizer: build::optimizer(config)?,
            schedule: build::schedule(config)?,
            model,
            // these may take long
            order: order()?,
            sampler: bottom::sampler(bottom, sampler()?, data)?,
            bottom,
        };
        parts.strategy.check(config, &*parts.sampler)?;
        Ok(parts)
    }
}

/// Refuses `--all-reduce nccl` for a run that does not sum gradients of several NVIDIA devices.
///
/// # Errors
/// The devices or the strategy do not need sums.
pub(crate) fn check_all_reduce(config: &TrainConfig) -> Result<()> {
    if config.own.get::<RoundOptions>().all_reduce != AllReduce::Nccl {
        return Ok(());
    }
    let devices = config.cuda_devices().len();
    if devices < 2 {
        return Err(Error::usage(format!(
            "--all-reduce nccl: it sums the gradients of several NVIDIA devices, and --devices {} names \
             {devices}; name more (--devices cuda:0,1), or leave it out",
            config.devices
        )));
    }
    if !strategy::is_by_device(config) {
        return Err(Error::usage(format!(
            "--all-reduce nccl: --strategy {} uses one device, so there is nothing to all-reduce; use \
             --strategy time-sharing or factored, or leave it out",
            config.strategy
        )));
    }
    Ok(())
}

/// Tables that training reads at random.
pub(crate) struct Tables {
    pub(crate) graph: Graph,
    /// The feature rows, for the extract stage.
    pub(crate) feature: Arc<dyn Feature>,
    /// The same rows, for layers that read them in place and for inference; label columns follow,
    /// or stored aggregates, if the run has some.
    pub(crate) whole: AllRows,
    /// Description of the tiers, if there are several.
    pub(crate) tiers: Option<String>,
    /// Why layers cannot read rows where the nearest tier holds them, if there are tiers.
    not_in_place: Option<&'static str>,
    /// Links of simulated devices in front of the rows.
    links: Vec<Arc<Link>>,
    /// Caches in front of the rows that are filled during the run.
    pub(crate) late: Vec<LateCache>,
    /// The rows as NVIDIA devices read them, if any.
    pub(crate) on_gpus: Option<GpuTiers>,
    /// The owners of nodes, if the rows are spread over ranks.
    own: Option<Arc<NodeOwnership>>,
    /// The dataset with stored aggregates, if the run has some.
    stacked: Option<Dataset>,
}

impl Tables {
    /// Tables of a run, alone or as one of several ranks. Rows that `sampler` and `order` read
    /// often are cached, in a run on links with the batches of `links`. With `bottom`, aggregates
    /// follow the rows.
    ///
    /// # Errors
    /// An allocation fails, or another rank did not take part.
    pub(crate) fn new(
        inputs: &Inputs,
        (sampler, order): (&dyn MinibatchSampler, &dyn SeedOrder),
        links: Option<&LinkSource>,
        bottom: Option<Aggregation>,
    ) -> Result<Self> {
        let Inputs { config, data, devices, placements, presampling, view, progress, .. } = *inputs;
        let cost = Some(&presampling.cost);
        if let Some(view) = view {
            return Self::of_rank(inputs, view, (sampler, order), links, bottom);
        }
        let graph = match placements.graph {
            MemoryPlacement::HugePages => data.graph.to_huge_pages()?,
            MemoryPlacement::Mapped => data.graph.clone(),
        };
        let chosen = Chosen::find(config)?;
        let plan_rows = |divides: bool, rows: &Dataset| -> Result<Option<ReusePlan>> {
            let plan = || strategy::reuse_plan(config, rows, sampler, order);
            (divides && chosen.reuses_rows()).then(plan).transpose()
        };
        if !devices.gpus().is_empty() {
            let reuse = plan_rows(config.cache_ratio.0.is_none(), data)?;
            let reuse = reuse.as_ref();
            let (own, links) = (None, None);
            let batches = Batches { config, data, sampler, order, reuse, own, links, cost, progress };
            let mut on = GpuTiers::new(devices, batches, placements.features, sampling_devices(inputs))?;
            let (feature, whole) = (on.feature.clone(), on.whole.clone());
            let (tiers, late) = (Some(on.description.clone()), std::mem::take(&mut on.late));
            return Ok(Self {
                tiers,
                not_in_place: Some("no kernel of NVIDIA devices reads rows from several tiers"),
                late,
                on_gpus: Some(on),
                ..Self::of(graph, feature, whole)
            });
        }
        let stacked = bottom.map(|aggregation| Stacked::new(config, data, aggregation)).transpose()?;
        let rows = stacked.as_ref().map_or(data, |stacked| &stacked.data);
        if let Some(plan) = Plan::new(config, rows)? {
            let by_device = chosen.is_by_device(config);
            let file = stacked.as_ref().and_then(|stacked| stacked.file.clone());
            let mut plan = plan.by_device(by_device).of_file(file);
            // by device, the strategy divides the memory of each device
            let reuse = plan_rows(!by_device && config.device_budget.0 > 0, rows)?;
            let reuse = reuse.as_ref();
            let own = None;
            let batches = Batches { config, data: rows, sampler, order, reuse, own, links, cost, progress };
            let placements = match &stacked {
                Some(of) => {
                    MemoryPlacements { features: of.placement(config, placements.features), ..placements }
                }
                None => placements,
            };
            let BuiltTiers { feature, mut whole, links, late } = plan.build(batches, placements)?;
            if let Some(aggregation) = bottom {
                whole = whole.with_aggregates(aggregation);
            }
            let (tiers, not_in_place) = (Some(plan.to_string()), plan.not_in_place());
            let stacked = stacked.map(|stacked| stacked.data);
            return Ok(Self { tiers, not_in_place, links, late, stacked, ..Self::of(graph, feature, whole) });
        }
        let placement = match &stacked {
            Some(stacked) => stacked.placement(config, placements.features),
            None => placements.features,
        };
        let (feature, table) = build::features(config, rows, placement)?;
        let (feature, mut whole) = (Arc::new(feature), AllRows::Table(table));
        if let Some(aggregation) = bottom {
            whole = whole.with_aggregates(aggregation);
        }
        Ok(Self { stacked: stacked.map(|stacked| stacked.data), ..Self::of(graph, feature, whole) })
    }

    /// Tables without tiers.
    fn of(graph: Graph, feature: Arc<dyn Feature>, whole: AllRows) -> Self {
        Self {
            graph,
            feature,
            whole,
            tiers: None,
            not_in_place: None,
            links: Vec::new(),
            late: Vec::new(),
            on_gpus: None,
            own: None,
            stacked: None,
        }
    }

    /// The same tables with label columns, if the run has some.
    #[must_use]
    pub(crate) fn with_labels(self, labels: Option<LabelColumns>) -> Self {
        Self { whole: self.whole.with_labels(labels), ..self }
    }

    /// Tables of a rank.
    fn of_rank(
        inputs: &Inputs,
        view: &RankDataset,
        drawing: (&dyn MinibatchSampler, &dyn SeedOrder),
        pairs: Option<&LinkSource>,
        bottom: Option<Aggregation>,
    ) -> Result<Self> {
        let Inputs { config, data, devices, presampling, progress, .. } = *inputs;
        let mut whole = view.layout();
        if let Some(aggregation) = bottom {
            bottom::add_over_ranks(config, view, aggregation)?;
            whole = whole.with_aggregates(aggregation);
        }
        let RankTiers { feature, late, on_gpus, text } = view.tiers(
            (config, data),
            drawing,
            pairs,
            (presampling, progress),
            (devices, sampling_devices(inputs)),
        )?;
        let own = Some(view.ranks.book().clone());
        let graph = data.graph.clone();
        let (tiers, not_in_place) = (Some(text), Some("rows of other ranks arrive in a batch's own rows"));
        Ok(Self { tiers, not_in_place, late, on_gpus, own, ..Self::of(graph, feature, whole) })
    }
}

/// NVIDIA devices of a run that only sample and hold the graph; the others hold feature rows and no
/// graph. `None` if all devices hold both. If the number of devices is balanced later, that is so
/// only for a graph that fits on one device with its alias tables, because several devices share a
/// larger one.
pub(crate) fn sampling_devices(inputs: &Inputs) -> Option<SamplingDevices> {
    let Inputs { config, data, devices, .. } = *inputs;
    let budget = devices.gpus().iter().map(Gpu::budget).min()?;
    let graph = memory::topology(data) + 8.0 * data.graph.num_edges() as f64;
    let fits = |of: &SamplingDevices| graph <= topology_share(Some(*of)) * budget as f64;
    strategy::sampling_devices(config).filter(|of| of.count.is_some() || fits(of))
}

/// Read-only stages of a run, and the order of each layer's products. Both hold for the whole run.
/// The sizes of the first batch decide the order of the products, the blocks that are transposed
/// for the backward pass, and the use of the feature table in place by the bottom layer.
///
/// # Errors
/// `--fused on` with a model or tiers that cannot be read in place, or sparse rows with a model
/// that cannot multiply them first.
pub(crate) fn loader<'a>(
    inputs: &Inputs<'a>,
    tables: &'a Tables,
    sampler: &'a dyn MinibatchSampler,
    order: &'a dyn SeedOrder,
    links: Option<&'a LinkSource>,
    model: &Model,
) -> Result<(Loader<'a>, Vec<ProductOrder>)> {
    let Inputs { config, data, .. } = *inputs;
    let mut loader = Loader {
        graph: &tables.graph,
        train: &data.split.train,
        links,
        seed: config.seed,
        batch_size: build::batch_size(config, data),
        max_batches: config.max_batches,
        order,
        sampler,
        feature: &*tables.feature,
        rows: RowAccess::Gathered,
        transposed: 0,
        symmetric: build::symmetric(model, data),
        aggregation: model.aggregation(),
        own: tables.own.clone(),
        labels: tables.whole.labels().cloned(),
        ahead: None,
    };
    let mut orders = model.orders(&first_shapes(&loader)?);
    if tables.whole.is_sparse() && !model.start_with_product(&mut orders) {
        return Err(Error::usage(format!(
            "--sparse {}: this model's bottom layer aggregates before it multiplies, so it cannot read \
             sparse rows; use --sparse off",
            config.sparse
        )));
    }
    let subgraphs = loader.sampler.properties().subgraphs.is_some();
    if config.fused == Switch::On && subgraphs {
        return Err(Error::usage(format!(
            "--fused on: --sampler {} draws subgraphs, of which every layer reads all rows; use --fused auto",
            config.sampler
        )));
    }
    if let (Switch::On, Some(reason)) = (config.fused, tables.not_in_place) {
        return Err(Error::usage(format!("--fused on: {reason}; use --fused auto")));
    }
    let holds_inputs = !subgraphs && config.bottom != Bottom::Exact && loader.labels.is_none();
    let possible = model.can_read_table(&orders) && holds_inputs;
    if config.fused == Switch::On && !possible {
        let reason = why_gathered(config, loader.labels.is_some());
        return Err(Error::usage(format!(
            "--fused on: {reason}, so the bottom layer cannot read the rows in place; use --fused auto"
        )));
    }
    loader.rows = match (config.fused, tables.tiers.is_some()) {
        (Switch::On | Switch::Auto, false) if possible => RowAccess::InTable,
        // auto gathers over tiers, because no measurement shows that rows in place are faster there
        (Switch::On, true) if possible => RowAccess::BySlot,
        _ => RowAccess::Gathered,
    };
    loader.transposed =
        (0..orders.len()).filter(|&l| model.needs_transposed(&orders, l)).fold(0, |bits, l| bits | 1 << l);
    Ok((loader, orders))
}

/// Reason why a batch has copies of its feature rows, with or without columns of labels.
fn why_gathered(config: &TrainConfig, has_labels: bool) -> &'static str {
    if config.bottom == Bottom::Exact {
        "--bottom exact reads stored aggregates instead"
    } else if has_labels {
        "labels are appended to a batch's copies of the feature rows"
    } else if config.input_dropout > 0.0 {
        "--input-dropout changes a batch's copies of the feature rows"
    } else if config.input_layer {
        "--input-layer transforms the feature rows first"
    } else {
        "this model's bottom layer transforms the feature rows before it aggregates them"
    }
}

/// Train stage of a run. It reads the feature table in place if `loader` does, and sums
/// gradients over ranks if there are several.
pub(crate) fn learner<'a>(
    inputs: &Inputs<'a>,
    tables: &Tables,
    loader: &Loader,
    orders: Vec<ProductOrder>,
    model: Model,
    optimizer: Box<dyn Optimizer>,
) -> Result<Learner<'a>> {
    let Inputs { config, data, devices, view, .. } = *inputs;
    let mut learner = Learner::new(devices.training(), model, optimizer, &data.labels, orders, config);
    if let (true, AllRows::Table(table)) = (loader.rows == RowAccess::InTable, &tables.whole) {
        learner.context.table = Some(table.clone());
    }
    if let Some(view) = view {
        if strategy::is_by_device(config) {
            // copies of the model draw dropout masks by row, which must differ between ranks
            learner.context.seed = keyed::key(&[config.seed, view.ranks.rank() as u64]);
        }
        learner.exchange = Some(view.ranks.clone());
    }
    learner.context.targets = Arc::new(TargetLoss::new(config, data)?);
    if let Some(links) = inputs.links {
        learner.hard = links.hard(config);
        learner.context.links = Some(LinkObjective::new(config, data.num_nodes())?);
    }
    Ok(learner)
}

/// Inputs of a strategy: the parts of the run, in a run on links its edges to learn (`pairs`), and
/// the parts on NVIDIA devices if it uses some.
pub(crate) fn strategy_context<'a>(
    inputs: &Inputs<'a>,
    tables: &'a Tables,
    samplers: &'a Samplers,
    (sampler, order): (&'a dyn MinibatchSampler, &'a dyn SeedOrder),
    pairs: Option<&'a LinkSource>,
) -> StrategyContext<'a> {
    let Inputs { config, data, devices, presampling, view, progress, .. } = *inputs;
    let nvidia = tables.on_gpus.as_ref().map(|rows| Nvidia { devices, samplers, rows });
    let (links, own) = (&tables.links, tables.own.as_ref());
    let exchange = view.map(|view| &*view.ranks as &dyn RowExchange);
    // devices that cache rows cache those of aggregates, too
    let data = tables.stacked.as_ref().unwrap_or(data);
    let context = StrategyContext::new(config, data, sampler, order, &tables.feature);
    let presampling = Some(presampling);
    StrategyContext { nvidia, links, pairs, own, exchange, presampling, progress, ..context }
}

/// Sizes of the first batch's blocks.
fn first_shapes(loader: &Loader) -> Result<Vec<BlockShape>> {
    let mut order = Vec::new();
    loader.first(0, 1, &mut order);
    let mut workspace = Workspace::new(loader.graph.num_nodes());
    let batch = loader.sample(0, &mut workspace, loader.pick(0, &order, 0, Seeds::default())?)?;
    Ok(batch.blocks.iter().map(BlockShape::from).collect())
}
