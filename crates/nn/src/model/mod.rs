//! A stack of graph layers, with the dense layers, dropout and norms around them.
//!
//! ```text
//! features ── dropout ──┬── input layer ──┬── layer 0 ── ... ── layer L-1 ──┬── head ──┬── scores
//!                       └─────────────────┘   (block 0)         (block L-1) └──────────┘
//! ```
//!
//! Block 0 is the bottom block: its sources are the input nodes. The destinations of each block are
//! the sources of the next, and the destinations of the last are the seeds. A single block may
//! serve all layers (a sampled subgraph, whose sources are its destinations).
//!
//! A layer of several hops ([`layer::hops`]) reads one block per hop and counts as one layer per
//! hop in this picture. From here on, "layer" means one of those.
//!
//! Training calls [`Model::forward`] and [`Model::backward`] (`train.rs`). Evaluation over all
//! neighbours runs layer by layer in chunks of nodes, so its memory is one table per layer
//! (`infer.rs`). Rows of the bottom layer may have been computed earlier, for many batches at once
//! (`reuse.rs`).

#![forbid(unsafe_code)]

mod activations;
mod config;
mod infer;
mod reuse;
mod reused;
mod stage;
mod stage_reuse;
mod train;

use graphmill_core::{block::Aggregation, keyed};

pub use activations::Activations;
pub use config::{ModelConfig, ResidualKind};
pub use reuse::{BottomRows, ProjectedRows};
pub use reused::{Projected, Reused};
use stage::{Residual, Stage};
pub use train::StepInput;

use crate::{
    Backend, Error, LayerConfig, Param, ProductOrder, Result,
    backend::Activation,
    cost::{self, BlockShape, Purpose},
    layer::{self, Linear, NormKind},
    link::decoder::Decoder,
};

/// Part numbers ([`Pass::part`]) of everything except layers.
mod part {
    pub(super) const FEATURES: u64 = 1 << 32;
    pub(super) const INPUT: u64 = 2 << 32;
    pub(super) const HEAD: u64 = 3 << 32;
}

/// Part of a model whose gradient completes in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The dense layer before the convolutions.
    Input,
    /// A convolution with its residual and norm.
    Layer(usize),
    /// The dense layers after the convolutions, and the decoder.
    Head,
}

/// A graph neural network: its layers and their parameters. The [module page](self) describes a
/// pass.
#[derive(Clone)]
pub struct Model {
    input_dropout: f32,
    input: Option<Linear>,
    stages: Vec<Stage>,
    /// Number of stages below the first hop of the last layer.
    below_last: usize,
    head: Vec<Linear>,
    /// Decoder of pairs of output rows, in a model of links.
    decoder: Option<Box<dyn Decoder>>,
    activation: Activation,
    dropout: f32,
    /// Full names of the parameters in visiting order.
    names: Vec<String>,
}

impl Model {
    /// Creates a model that turns rows of `in_dim` features into scores of `classes` classes. Its
    /// random weights depend only on the arguments.
    ///
    /// # Errors
    /// A name is unknown (the known ones are listed), a number is outside its range, or widths are
    /// incompatible.
    pub fn new(config: &ModelConfig, in_dim: usize, classes: usize, seed: u64) -> Result<Self> {
        config.check()?;
        for (field, value) in [("feature_dim", in_dim), ("classes", classes)] {
            if value == 0 {
                return Err(Error::config(
                    field,
                    value,
                    "must be at least 1; use a dataset with features and labels",
                ));
            }
        }
        let hidden = config.hidden;
        let key = |part: u64| keyed::key(&[seed, part]);
        let activation = config.activation;
        let input = config.input_layer.then(|| Linear::new(in_dim, hidden, true, key(part::INPUT)));
        let hops = layer::hops(&config.model, &config.own);
        let mut stages = Vec::with_capacity(config.num_blocks());
        for l in 0..config.layers {
            let from = if l == 0 && input.is_none() { in_dim } else { hidden };
            let classifies = l + 1 == config.layers && config.head_layers == 0;
            let to = if classifies { classes } else { hidden };
            for hop in 1..=hops {
                let key = key(stages.len() as u64);
                let position = StagePosition { l, classifies, hop, hops };
                stages.push(make_stage(config, activation, position, [from, to], key)?);
            }
        }
        let head = (0..config.head_layers)
            .map(|i| {
                let to = if i + 1 == config.head_layers { classes } else { hidden };
                Linear::new(hidden, to, true, key(part::HEAD + i as u64))
            })
            .collect();
        let (dropout, input_dropout) = (config.dropout, config.input_dropout);
        let below_last = stages.len() - hops;
        let mut model = Self {
            input_dropout,
            input,
            stages,
            below_last,
            head,
            decoder: None,
            activation,
            dropout,
            names: Vec::new(),
        };
        model.names = model.make_names();
        // a factor of 1 for the default initialization
        model.visit_mut(&mut |_, p| p.rescale(config.init));
        Ok(model)
    }

    /// The same model with a decoder, whose parameters follow those of the head. The output rows
    /// are then embeddings, and the decoder scores pairs of them; its width is that of the rows.
    #[must_use]
    pub fn with_decoder(mut self, decoder: Box<dyn Decoder>) -> Self {
        self.decoder = Some(decoder);
        self.names = self.make_names();
        self
    }

    /// The decoder, if the model has one.
    pub fn decoder(&self) -> Option<&dyn Decoder> {
        self.decoder.as_deref()
    }

    /// The decoder for a backward pass, if the model has one.
    pub fn decoder_mut(&mut self) -> Option<&mut (dyn Decoder + 'static)> {
        self.decoder.as_deref_mut()
    }

    fn make_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        if let Some(input) = &self.input {
            input.visit(&mut |p| names.push(format!("input.{}", p.name)));
        }
        for (l, stage) in self.stages.iter().enumerate() {
            stage.visit(&mut |part, p| names.push(format!("{part}.{l}.{}", p.name)));
        }
        for (i, linear) in self.head.iter().enumerate() {
            linear.visit(&mut |p| names.push(format!("head.{i}.{}", p.name)));
        }
        if let Some(decoder) = &self.decoder {
            decoder.visit(&mut |p| names.push(format!("decoder.{}", p.name)));
        }
        names
    }

    /// Number of convolutions, which is also the number of blocks.
    pub fn num_layers(&self) -> usize {
        self.stages.len()
    }

    /// Number of convolutions that compute embeddings, the rows that become scores: all of them if
    /// the model has a head, else those below the layer that computes the scores.
    pub fn num_embedding_layers(&self) -> usize {
        if self.head.is_empty() { self.below_last } else { self.stages.len() }
    }

    /// Width of the input rows of layer `l`.
    pub fn layer_in_dim(&self, l: usize) -> usize {
        self.stages[l].conv.spec().in_dim
    }

    /// Width of the output rows of layer `l`.
    pub fn layer_out_dim(&self, l: usize) -> usize {
        self.stages[l].conv.spec().out_dim
    }

    /// Products whose sum is the convolution of layer `l`, if the convolution is such a sum.
    pub fn layer_products(&self, l: usize) -> Option<layer::Products> {
        self.stages[l].conv.spec().products
    }

    /// Width of the scores, `C`.
    pub fn classes(&self) -> usize {
        self.head.last().map_or_else(|| self.layer_out_dim(self.stages.len() - 1), Linear::out_dim)
    }

    /// Visits every parameter with its full name ("conv.0.neigh.weight"), always in the same order:
    /// input layer, then convolution, residual and norm of each layer from the bottom up, then the
    /// head and the decoder. Includes running statistics, with [`Param::trainable`] false.
    pub fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a str, &'a Param)) {
        let mut names = self.names.iter();
        let mut see = |p: &'a Param| see(names.next().expect("names and parameters have equal length"), p);
        if let Some(input) = &self.input {
            input.visit(&mut see);
        }
        for stage in &self.stages {
            stage.visit(&mut |_, p| see(p));
        }
        for linear in &self.head {
            linear.visit(&mut see);
        }
        if let Some(decoder) = &self.decoder {
            decoder.visit(&mut see);
        }
    }

    /// Visits every parameter mutably, in the order of [`Model::visit`].
    pub fn visit_mut(&mut self, see: &mut dyn FnMut(&str, &mut Param)) {
        let mut names = self.names.iter();
        let mut see = |p: &mut Param| see(names.next().expect("names and parameters have equal length"), p);
        if let Some(input) = &mut self.input {
            input.visit_mut(&mut see);
        }
        for stage in &mut self.stages {
            stage.visit_mut(&mut see);
        }
        for linear in &mut self.head {
            linear.visit_mut(&mut see);
        }
        if let Some(decoder) = &mut self.decoder {
            decoder.visit_mut(&mut see);
        }
    }

    /// Visits the parameters of a part mutably. [`Part::Input`], each [`Part::Layer`] and
    /// [`Part::Head`] together are the parameters of [`Model::visit_mut`], in its order.
    pub fn visit_part_mut(&mut self, part: Part, see: &mut dyn FnMut(&mut Param)) {
        match part {
            Part::Input => self.input.iter_mut().for_each(|input| input.visit_mut(see)),
            Part::Layer(l) => self.stages[l].visit_mut(see),
            Part::Head => {
                self.head.iter_mut().for_each(|linear| linear.visit_mut(see));
                self.decoder.iter_mut().for_each(|decoder| decoder.visit_mut(see));
            }
        }
    }

    /// Number of learned values.
    pub fn num_params(&self) -> usize {
        let mut count = 0;
        self.visit(&mut |_, p| {
            if p.trainable {
                count += p.value.num_rows() * p.value.num_cols();
            }
        });
        count
    }

    /// Sets every gradient to zero.
    pub fn zero_grad(&mut self, backend: &dyn Backend) {
        self.visit_mut(&mut |_, p| p.zero_grad(backend));
    }

    /// Aggregation of the neighbours' rows, equal in all layers.
    pub fn aggregation(&self) -> Aggregation {
        self.stages[0].conv.spec().aggregation
    }

    /// Aggregation of the features by the bottom layer, if it does not depend on parameters: the
    /// layer's coefficients are fixed, and no other operation precedes it. `None` otherwise.
    pub fn fixed_bottom(&self) -> Option<Aggregation> {
        let is_first = self.input.is_none() && self.input_dropout == 0.0;
        let spec = self.stages[0].conv.spec();
        (is_first && spec.has_fixed_aggregation).then_some(spec.aggregation)
    }

    /// Returns true if the loader must fill the blocks' symmetric-normalization weights.
    pub fn needs_symmetric_weights(&self) -> bool {
        self.aggregation() == Aggregation::Symmetric
    }

    /// Cheapest order of each layer for training on blocks of these sizes, or on a single block for
    /// all layers ([`cost`]). The sizes of any one batch suffice for a whole run, because only
    /// their proportions matter.
    pub fn orders(&self, shapes: &[BlockShape]) -> Vec<ProductOrder> {
        self.choose(shapes, |model, l| {
            if model.needs_input_grad(l) { Purpose::InnerLayer } else { Purpose::BottomLayer }
        })
    }

    /// Cost of the bottom layer on a block of these sizes, in bytes moved ([`cost`]), with the
    /// products of own rows and of an input layer. If it `trains`, includes the gradients.
    pub fn bottom_cost(&self, order: ProductOrder, shape: BlockShape, trains: bool) -> f64 {
        let stage = &self.stages[0];
        let spec = stage.conv.spec();
        let (purpose, times) = match (trains, self.needs_input_grad(0)) {
            (false, _) => (Purpose::Inference, 1.0),
            // the gradient of a matrix is a product of the same sizes
            (true, false) => (Purpose::BottomLayer, 2.0),
            (true, true) => (Purpose::InnerLayer, 2.0),
        };
        let own = spec.products.map_or(0, |products| products.own) + stage.residual_aggregates();
        let of_own = cost::product((own * shape.dst) as f64, spec.in_dim as f64, spec.out_dim as f64);
        let of_input = self.input.as_ref().map_or(0.0, |input| {
            cost::product(shape.src as f64, input.in_dim() as f64, input.out_dim() as f64)
        });
        stage.conv.cost(order, shape, purpose) + times * (of_own + of_input)
    }

    /// Sets the bottom layer to transform first if it reads the features themselves, the only order
    /// that supports sparse features. Returns false if the layer does not support it.
    pub fn start_with_product(&self, orders: &mut [ProductOrder]) -> bool {
        if self.input.is_some() {
            return true;
        }
        let knows = self.stages[0].conv.spec().orders.contains(&ProductOrder::TransformFirst);
        if knows {
            orders[0] = ProductOrder::TransformFirst;
        }
        knows
    }

    fn choose(&self, shapes: &[BlockShape], purpose: impl Fn(&Self, usize) -> Purpose) -> Vec<ProductOrder> {
        let choose = |(l, stage): (usize, &Stage)| {
            let (shape, purpose) = (*entry_of(shapes, l), purpose(self, l));
            cost::cheapest(stage.conv.spec().orders, |order| stage.conv.cost(order, shape, purpose))
        };
        self.stages.iter().enumerate().map(choose).collect()
    }

    /// Returns true if a parameter depends on the input rows of layer `l`.
    fn needs_input_grad(&self, l: usize) -> bool {
        l > 0 || self.input.is_some()
    }

    /// Returns true if the backward pass of layer `l` reads the transpose of its block.
    pub fn needs_transposed(&self, orders: &[ProductOrder], l: usize) -> bool {
        layer::needs_transposed(orders[l], self.needs_input_grad(l))
    }

    /// Returns true if the block of layer `l` may leave sources out of its gradients
    /// ([`graphmill_core::Block::grad_src`]): the backward pass of layer `l` needs no source
    /// gradients except those that it passes down, and the layer below needs only those of its own
    /// computed rows. False if the layer transforms first, or if the norm below it reads all rows.
    pub fn may_restrict(&self, orders: &[ProductOrder], l: usize) -> bool {
        l > 0
            && orders[l] == ProductOrder::AggregateFirst
            && self.stages[l - 1].norm.as_ref().is_none_or(|norm| !norm.needs_all_rows())
    }

    /// Returns true if the bottom block may be global, with rows read in place from the whole
    /// feature table: the bottom layer aggregates first, and no other operation precedes it.
    pub fn can_read_table(&self, orders: &[ProductOrder]) -> bool {
        orders[0] == ProductOrder::AggregateFirst && self.input.is_none() && self.input_dropout == 0.0
    }
}

/// Entry of layer `l`, if a single entry does not serve all layers.
fn entry_of<T>(entries: &[T], l: usize) -> &T {
    if entries.len() == 1 { &entries[0] } else { &entries[l] }
}

/// Position of a stage in the model.
#[derive(Clone, Copy)]
struct StagePosition {
    /// Layer of the configuration.
    l: usize,
    /// True if that layer computes the scores.
    classifies: bool,
    /// Hop within the layer, from 1.
    hop: usize,
    hops: usize,
}

fn make_stage(
    config: &ModelConfig,
    activation: Activation,
    StagePosition { l, classifies, hop, hops }: StagePosition,
    [from, to]: [usize; 2],
    key: u64,
) -> Result<Stage> {
    let conv = (layer::TABLE.find(&config.model)?.make.make)(&LayerConfig {
        in_dim: from,
        out_dim: to,
        concat: !classifies,
        bias: true,
        batch_norm: config.norm == NormKind::Batch,
        activation,
        classifies,
        hops,
        hop,
        key: keyed::key(&[key, 0]),
        own: config.own.clone(),
    })?;
    if hop < hops {
        // norm, activation and dropout of a layer follow its last hop
        return Ok(Stage {
            conv,
            residual: None,
            norm: None,
            activation: Activation::Identity,
            dropout: 0.0,
        });
    }
    let activation = if conv.spec().is_activated { Activation::Identity } else { activation };
    let residual = match config.residual {
        ResidualKind::Linear => {
            Some(Residual::Linear(Box::new(Linear::new(from, to, false, keyed::key(&[key, 1])))))
        }
        ResidualKind::Identity if from == to => Some(Residual::Identity),
        ResidualKind::Identity if !classifies => {
            let message =
                format!("layer {l} changes the width from {from} to {to}; use 'linear' or an input layer");
            return Err(Error::config("residual", config.residual, message));
        }
        ResidualKind::Identity | ResidualKind::None => None,
    };
    Ok(if classifies {
        Stage { conv, residual, norm: None, activation: Activation::Identity, dropout: 0.0 }
    } else {
        Stage { conv, residual, norm: config.norm.make(to), activation, dropout: config.dropout }
    })
}
