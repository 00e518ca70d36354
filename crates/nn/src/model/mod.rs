//! A stack of graph layers, with what stands before, between and after them.
//!
//! ```text
//! features ── dropout ──┬── input layer ──┬── layer 0 ── ... ── layer L-1 ──┬── head ──┬── scores
//!                       └─────────────────┘   (block 0)         (block L-1) └──────────┘
//! ```
//!
//! Block 0 is the bottom one: its sources are the input nodes; the destinations of each block are
//! the sources of the next; the destinations of the last are the seeds. A single block stands for
//! all layers (a sampled subgraph, whose sources are its destinations).
//!
//! A layer of several hops ([`layer::hops`]) reads a block for each, and is a layer of the picture
//! for each: "layer" means one of those from here on.
//!
//! Training goes through [`Model::forward`] and [`Model::backward`] (`train.rs`). Evaluation over
//! all neighbours goes layer by layer in chunks of nodes, so its memory is a table per layer
//! (`infer.rs`). Rows of the bottom layer may have been computed earlier, for many batches at once
//! (`reuse.rs`).

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
};

/// The part numbers ([`Pass::part`]) of what is not a layer.
mod part {
    pub(super) const FEATURES: u64 = 1 << 32;
    pub(super) const INPUT: u64 = 2 << 32;
    pub(super) const HEAD: u64 = 3 << 32;
}

/// A part of a model whose gradient is complete at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The dense layer before the convolutions.
    Input,
    /// A convolution with what belongs to it.
    Layer(usize),
    /// The dense layers behind the convolutions.
    Head,
}

/// A graph neural network. See the module's page for how it is used.
#[derive(Clone)]
pub struct Model {
    input_dropout: f32,
    input: Option<Linear>,
    stages: Vec<Stage>,
    /// How many stages are below the last layer's first hop.
    below_last: usize,
    head: Vec<Linear>,
    activation: Activation,
    dropout: f32,
    /// Full names of the parameters in the order of visiting.
    names: Vec<String>,
}

impl Model {
    /// A model that turns rows of `in_dim` features into scores of `classes` classes, with random
    /// weights that depend on nothing but the arguments.
    ///
    /// # Errors
    /// An unknown name (the known ones are listed), a number outside its range, or widths that do
    /// not fit together.
    pub fn new(config: &ModelConfig, in_dim: usize, classes: usize, seed: u64) -> Result<Self> {
        config.check()?;
        for (field, value) in [("feature_dim", in_dim), ("classes", classes)] {
            if value == 0 {
                return Err(Error::config(field, value, "a model needs at least 1; the dataset has none"));
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
                let place = Place { l, classifies, hop, hops };
                stages.push(make_stage(config, activation, place, [from, to], key)?);
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
        let mut model =
            Self { input_dropout, input, stages, below_last, head, activation, dropout, names: Vec::new() };
        model.names = model.make_names();
        // by 1 where they are as they should be
        model.visit_mut(&mut |_, p| p.spread(config.init));
        Ok(model)
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
        names
    }

    /// How many convolutions there are: as many as blocks.
    pub fn num_layers(&self) -> usize {
        self.stages.len()
    }

    /// How many of them make the embeddings, the rows that become scores: all where there is a
    /// head, else those below the layer that gives the classes.
    pub fn num_embedding_layers(&self) -> usize {
        if self.head.is_empty() { self.below_last } else { self.stages.len() }
    }

    /// Width of the rows that layer `l` reads.
    pub fn layer_in_dim(&self, l: usize) -> usize {
        self.stages[l].conv.spec().in_dim
    }

    /// Width of the rows that layer `l` gives.
    pub fn layer_out_dim(&self, l: usize) -> usize {
        self.stages[l].conv.spec().out_dim
    }

    /// The products that the convolution of layer `l` is the sum of, if it is nothing else.
    pub fn layer_products(&self, l: usize) -> Option<layer::Products> {
        self.stages[l].conv.spec().products
    }

    /// Width of the scores, `C`.
    pub fn classes(&self) -> usize {
        self.head.last().map_or_else(|| self.layer_out_dim(self.stages.len() - 1), Linear::out_dim)
    }

    /// Shows every parameter with its full name ("conv.0.neigh.weight"), always in the same order:
    /// input layer, then convolution, residual and norm of each layer from the bottom up, then the
    /// head. Running statistics are among them, with [`Param::trainable`] false.
    pub fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a str, &'a Param)) {
        let mut names = self.names.iter();
        let mut see = |p: &'a Param| see(names.next().expect("as many names as parameters"), p);
        if let Some(input) = &self.input {
            input.visit(&mut see);
        }
        for stage in &self.stages {
            stage.visit(&mut |_, p| see(p));
        }
        for linear in &self.head {
            linear.visit(&mut see);
        }
    }

    /// Shows every parameter for change, in the order of [`Model::visit`].
    pub fn visit_mut(&mut self, see: &mut dyn FnMut(&str, &mut Param)) {
        let mut names = self.names.iter();
        let mut see = |p: &mut Param| see(names.next().expect("as many names as parameters"), p);
        if let Some(input) = &mut self.input {
            input.visit_mut(&mut see);
        }
        for stage in &mut self.stages {
            stage.visit_mut(&mut see);
        }
        for linear in &mut self.head {
            linear.visit_mut(&mut see);
        }
    }

    /// Shows the parameters of a part for change: [`Part::Input`], each [`Part::Layer`] and
    /// [`Part::Head`] together are those of [`Model::visit_mut`], in its order.
    pub fn visit_part_mut(&mut self, part: Part, see: &mut dyn FnMut(&mut Param)) {
        match part {
            Part::Input => self.input.iter_mut().for_each(|input| input.visit_mut(see)),
            Part::Layer(l) => self.stages[l].visit_mut(see),
            Part::Head => self.head.iter_mut().for_each(|linear| linear.visit_mut(see)),
        }
    }

    /// How many numbers are learned.
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

    /// What its layers, which are all of a kind, make of the neighbours' rows.
    pub fn aggregation(&self) -> Aggregation {
        self.stages[0].conv.spec().aggregation
    }

    /// Whether the loader must fill the blocks' symmetric-normalisation weights.
    pub fn wants_symmetric_weights(&self) -> bool {
        self.aggregation() == Aggregation::Symmetric
    }

    /// The cheapest order of each layer for training on blocks of these sizes, or on a single one
    /// that stands for all ([`cost`]). Any batch's sizes will do for a whole run: only their
    /// proportions matter.
    pub fn orders(&self, shapes: &[BlockShape]) -> Vec<ProductOrder> {
        self.choose(shapes, |model, l| {
            if model.wants_input_grad(l) { Purpose::InnerLayer } else { Purpose::BottomLayer }
        })
    }

    /// Makes the bottom layer transform first where it reads the features themselves: the one order
    /// in which they may be sparse. Says whether it can.
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
            let (shape, purpose) = (*of_layer(shapes, l), purpose(self, l));
            cost::cheapest(stage.conv.spec().orders, |order| stage.conv.cost(order, shape, purpose))
        };
        self.stages.iter().enumerate().map(choose).collect()
    }

    /// Whether the gradient of layer `l`'s input rows leads to any parameter.
    fn wants_input_grad(&self, l: usize) -> bool {
        l > 0 || self.input.is_some()
    }

    /// Whether the backward pass of layer `l` reads the transpose of its block.
    pub fn needs_transposed(&self, orders: &[ProductOrder], l: usize) -> bool {
        layer::needs_transposed(orders[l], self.wants_input_grad(l))
    }

    /// Whether the backward pass of layer `l` needs no gradients of its sources but those that it
    /// hands down, and the layer below none but its own computed rows': its block may then leave
    /// sources out ([`graphmill_core::Block::grad_src`]). Not where it transforms first, nor over a
    /// norm that has parameters.
    pub fn may_restrict(&self, orders: &[ProductOrder], l: usize) -> bool {
        l > 0
            && orders[l] == ProductOrder::AggregateFirst
            && self.stages[l - 1].norm.as_ref().is_none_or(|norm| !norm.needs_all_rows())
    }

    /// Whether the bottom block may be global, its rows read in place from the whole table of
    /// features: the bottom layer aggregates first, and nothing happens to the rows before.
    pub fn can_read_table(&self, orders: &[ProductOrder]) -> bool {
        orders[0] == ProductOrder::AggregateFirst && self.input.is_none() && self.input_dropout == 0.0
    }
}

/// What belongs to layer `l`, where a single one stands for all.
fn of_layer<T>(of_layers: &[T], l: usize) -> &T {
    if of_layers.len() == 1 { &of_layers[0] } else { &of_layers[l] }
}

/// Where a stage stands.
#[derive(Clone, Copy)]
struct Place {
    /// The layer of the configuration.
    l: usize,
    /// Whether that layer gives the classes.
    classifies: bool,
    /// Which of its hops, from 1.
    hop: usize,
    hops: usize,
}

fn make_stage(
    config: &ModelConfig,
    activation: Activation,
    Place { l, classifies, hop, hops }: Place,
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
        // what follows a layer follows its last hop
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
                format!("layer {l} makes rows of {to} from rows of {from}; use 'linear', or an input layer");
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
