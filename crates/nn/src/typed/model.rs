//! A stack of typed layers, with the input rows, norms and dense layers around them.
//!
//! ```text
//! features of each type ── projection ──┬── layer 0 ── ... ── layer L-1 ── head ── scores
//! learned rows of others ───────────────┘   (block 0)         (block L-1)  (rows of the target)
//! ```

use graphmill_core::{
    Error as CoreError, NodeId,
    block::Aggregation,
    keyed,
    typed::{Schema, TypedBlock},
};

use super::{
    LearnedRows, Projected, ProjectionGrad, TABLE, Target, TypedActivations, TypedInput, TypedLayerConfig,
    TypedModelConfig,
    activations::StageActs,
    input::{TypeInput, TypedInputs},
    stage::TypedStage,
};
use crate::{
    Backend, Epilogue, Error, Matrix, Param, Pass, Result, Reused, View,
    backend::Activation,
    layer::{Linear, site},
    optim::SparseAdam,
};

/// Part numbers ([`Pass::part`]) of everything except layers.
pub(super) mod part {
    pub(in super::super) const INPUT: u64 = 1 << 32;
    pub(super) const HEAD: u64 = 2 << 32;
}

/// A typed minibatch as a model reads it.
#[derive(Clone, Copy, Debug)]
pub struct TypedStep<'a> {
    /// Blocks of the layers from the bottom up, or a single block for all; transposed for a
    /// backward pass.
    pub blocks: &'a [TypedBlock],
    /// Features of the bottom block's sources, `S_t x F_t` each; ignored for types with learned
    /// rows, or if those have the rows of own nodes alone
    /// ([`TypedModelConfig::own_nodes`]), the learned rows of the sources, `S_t x hidden`.
    pub features: &'a [Matrix],
    /// Rows of the edges of each block and relation, `E_r x K_r`; empty for models that do not read
    /// them.
    pub edges: &'a [Vec<Matrix>],
    /// Local ids of the bottom block's sources of each type; a node may repeat.
    pub nodes: &'a [Vec<NodeId>],
    /// Number of scored rows: the first destinations of the target type.
    pub num_targets: usize,
    /// Constant rows of each type that follow those that the first layer computes
    /// ([`TypedModel::bottom_rows`]); empty if there are none.
    pub reused: &'a [Reused<'a>],
}

impl<'a> TypedStep<'a> {
    /// Input of layer `l` from the rows `x` below it.
    pub(super) fn input(
        &self,
        schema: &'a Schema,
        l: usize,
        x: &'a [Matrix],
        projected: &'a [Option<Projected<'a>>],
    ) -> TypedInput<'a> {
        let at = if self.blocks.len() == 1 { 0 } else { l };
        let edges = self.edges.get(at).map_or(&[][..], Vec::as_slice);
        let projected = if l == 0 { projected } else { &[] };
        TypedInput { schema, block: &self.blocks[at], x, edges, projected }
    }
}

/// A typed graph neural network; the [module page](super) describes it.
#[derive(Clone)]
pub struct TypedModel {
    pub(super) schema: Schema,
    pub(super) inputs: TypedInputs,
    pub(super) stages: Vec<TypedStage>,
    head: Vec<Linear>,
    activation: Activation,
    dropout: f32,
    target: Option<Target>,
    /// Width of the rows of each relation's edges; empty if no layer reads them.
    edge_dims: Vec<usize>,
    /// Full names of the parameters in visiting order.
    names: Vec<String>,
}

impl TypedModel {
    /// Creates a model for graphs of this schema whose types have `feature_dims` features each; a
    /// type with 0 features has learned rows. Without a target, the rows of the last layer are
    /// embeddings of width `hidden` ([`TypedActivations::rows`]).
    ///
    /// # Errors
    /// A name is unknown (the known ones are listed), a number is outside its range, widths are
    /// incompatible, or a disk has too little space for the learned rows.
    pub fn new(
        config: &TypedModelConfig,
        schema: &Schema,
        feature_dims: &[usize],
        target: impl Into<Option<Target>>,
        seed: u64,
    ) -> Result<Self> {
        let target = target.into();
        config.check(schema, target)?;
        if feature_dims.len() != schema.num_types() {
            let message = format!("{} widths for {} node types", feature_dims.len(), schema.num_types());
            return Err(Error::config("feature_dims", feature_dims.len(), message));
        }
        let (hidden, key) = (config.hidden, |part: u64| keyed::key(&[seed, part]));
        let types = feature_dims.iter().enumerate().map(|(t, &dim)| -> Result<TypeInput> {
            let key = keyed::key(&[key(part::INPUT), t as u64]);
            let count = schema.types()[t].count;
            if dim > 0 {
                return Ok(TypeInput::Projected(Box::new(Linear::new(dim, hidden, true, key))));
            }
            let rows = match (&config.own_nodes, &config.learned_in) {
                (Some(own), _) => LearnedRows::of_nodes(&own[t], hidden, key),
                (None, Some(dir)) => LearnedRows::in_file(count, hidden, key, dir)?,
                (None, None) => LearnedRows::new(count, hidden, key),
            };
            Ok(TypeInput::Learned(Box::new(rows)))
        });
        let inputs = TypedInputs {
            types: types.collect::<Result<_>>()?,
            activation: config.input_activation,
            dropout: config.input_dropout,
            dim: hidden,
        };
        let make = TABLE.find(&config.model)?.make.make;
        let mut stages = Vec::with_capacity(config.layers);
        for number in 0..config.layers {
            let is_last = number + 1 == config.layers && config.head_layers == 0;
            let scored = target.filter(|_| is_last);
            let conv = make(&TypedLayerConfig {
                schema,
                edge_dims: &config.edge_dims,
                in_dim: hidden,
                out_dim: scored.map_or(hidden, |target| target.outputs),
                number,
                scores: scored.is_some(),
                key: key(number as u64),
                own: &config.own,
            })?;
            let norms = if is_last {
                Vec::new()
            } else {
                (0..schema.num_types()).filter_map(|_| config.norm.make(hidden)).collect()
            };
            let activation = if is_last { Activation::Identity } else { config.activation };
            let dropout = if is_last { 0.0 } else { config.dropout };
            stages.push(TypedStage { conv, norms, activation, dropout });
        }
        let outputs = target.map_or(hidden, |target| target.outputs);
        let head = (0..config.head_layers).map(|i| {
            let to = if i + 1 == config.head_layers { outputs } else { hidden };
            Linear::new(hidden, to, true, key(part::HEAD + i as u64))
        });
        let (schema, head) = (schema.clone(), head.collect());
        let (activation, dropout) = (config.activation, config.dropout);
        let (edge_dims, names) = (config.edge_dims.clone(), Vec::new());
        let mut model = Self { schema, inputs, stages, head, activation, dropout, target, edge_dims, names };
        model.names = model.make_names();
        Ok(model)
    }

    fn make_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for (t, input) in self.inputs.types.iter().enumerate() {
            if let TypeInput::Projected(linear) = input {
                let name = &self.schema.types()[t].name;
                linear.visit(&mut |p| names.push(format!("input.{name}.{}", p.name)));
            }
        }
        for (l, stage) in self.stages.iter().enumerate() {
            let schema = &self.schema;
            let mut bases = 0;
            stage.visit(&mut |kind, scope, p| {
                let mut name = format!("{kind}.{l}.{}", scope.name(schema, p.name));
                if names.contains(&name) {
                    bases += 1;
                    name = format!("{name}.{bases}");
                }
                names.push(name);
            });
        }
        for (i, linear) in self.head.iter().enumerate() {
            linear.visit(&mut |p| names.push(format!("head.{i}.{}", p.name)));
        }
        names
    }

    /// Number of layers.
    pub fn num_layers(&self) -> usize {
        self.stages.len()
    }

    /// Aggregation of the neighbours' rows, equal in all layers, for samplers that weight edges.
    pub fn aggregation(&self) -> Aggregation {
        self.stages[0].conv.spec().aggregation
    }

    /// Node types and relations.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Node type whose scores the model computes.
    pub fn target(&self) -> Option<Target> {
        self.target
    }

    /// Visits every parameter with its full name (`conv.0.author:writes:paper.weight`), always in
    /// the same order. Learned rows are not included ([`TypedModel::learned_rows`]).
    pub fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a str, &'a Param)) {
        let mut names = self.names.iter();
        let mut see = |p: &'a Param| see(names.next().expect("names and parameters have equal length"), p);
        for input in &self.inputs.types {
            if let TypeInput::Projected(linear) = input {
                linear.visit(&mut see);
            }
        }
        self.stages.iter().for_each(|stage| stage.visit(&mut |_, _, p| see(p)));
        self.head.iter().for_each(|linear| linear.visit(&mut see));
    }

    /// Visits every parameter mutably, in the order of [`TypedModel::visit`].
    pub fn visit_mut(&mut self, see: &mut dyn FnMut(&str, &mut Param)) {
        let mut names = self.names.iter();
        let mut see = |p: &mut Param| see(names.next().expect("names and parameters have equal length"), p);
        for input in &mut self.inputs.types {
            if let TypeInput::Projected(linear) = input {
                linear.visit_mut(&mut see);
            }
        }
        self.stages.iter_mut().for_each(|stage| stage.visit_mut(&mut see));
        self.head.iter_mut().for_each(|linear| linear.visit_mut(&mut see));
    }

    /// Learned rows of the types without features, with the numbers of the types.
    pub fn learned_rows(&self) -> impl Iterator<Item = (usize, &LearnedRows)> {
        self.inputs.types.iter().enumerate().filter_map(|(t, input)| match input {
            TypeInput::Learned(rows) => Some((t, &**rows)),
            TypeInput::Projected(_) => None,
        })
    }

    /// Learned rows, mutably.
    pub fn learned_rows_mut(&mut self) -> impl Iterator<Item = (usize, &mut LearnedRows)> {
        self.inputs.types.iter_mut().enumerate().filter_map(|(t, input)| match input {
            TypeInput::Learned(rows) => Some((t, &mut **rows)),
            TypeInput::Projected(_) => None,
        })
    }

    /// Number of learned values, those of learned rows included.
    pub fn num_params(&self) -> usize {
        let mut count = 0;
        let mut add = |x: &Matrix| count += x.num_rows() * x.num_cols();
        self.visit(&mut |_, p| {
            if p.trainable {
                add(&p.value);
            }
        });
        self.learned_rows().for_each(|(_, rows)| add(rows.table()));
        count
    }

    /// Sets every gradient to zero.
    pub fn zero_grad(&mut self, backend: &dyn Backend) {
        self.visit_mut(&mut |_, p| p.zero_grad(backend));
    }

    /// Returns true if a batch has rows of its edges exactly if the layers read them.
    fn fits_edges(&self, step: &TypedStep) -> bool {
        let has_rows = |(block, edges): (&TypedBlock, &Vec<Matrix>)| {
            let of_slice = block.relations.iter().zip(edges).zip(&self.edge_dims);
            edges.len() == block.relations.len() && { of_slice }
                .all(|((slice, rows), &dim)| [rows.num_rows(), rows.num_cols()] == [slice.num_edges(), dim])
        };
        let blocks = if self.edge_dims.is_empty() { 0 } else { step.blocks.len() };
        step.edges.len() == blocks && step.blocks.iter().zip(step.edges).all(has_rows)
    }

    /// Checks the sizes of a batch against the model.
    pub(super) fn check(&self, step: &TypedStep) -> graphmill_core::Result<()> {
        let (types, layers) = (self.schema.num_types(), self.stages.len());
        let invalid = |what: String| Err(CoreError::invalid(format!("typed batch: {what}")));
        if step.blocks.len() != layers && step.blocks.len() != 1 {
            return invalid(format!(
                "{} blocks for {layers} layers; sample as many hops as the model has layers",
                step.blocks.len()
            ));
        }
        if step.features.len() != types || step.nodes.len() != types {
            return invalid(format!(
                "{} feature matrices and {} lists of nodes for {types} node types; pass one of each",
                step.features.len(),
                step.nodes.len()
            ));
        }
        let fits = |block: &TypedBlock| block.relations.len() == self.schema.num_relations();
        if !step.blocks.iter().all(fits) {
            return invalid("a block has other relations than the model; use the schema of the model".into());
        }
        let (nodes, sources) = (step.nodes.iter().map(Vec::len), &step.blocks[0].num_src);
        if !nodes.eq(sources.iter().copied()) {
            return invalid(format!("{sources:?} sources in the bottom block, but other numbers of nodes"));
        }
        if !self.fits_edges(step) {
            return invalid(format!(
                "rows of edges of {} blocks that do not fit the edges and the widths {:?} of the model; pass \
                 a matrix for each block and relation if the model reads edge features",
                step.edges.len(),
                self.edge_dims
            ));
        }
        step.check_reused()?;
        let top = &step.blocks[step.blocks.len() - 1];
        if let Some(target) = self.target
            && step.num_targets > top.num_dst[target.node_type]
        {
            return invalid(format!(
                "{} targets among {} destinations; pass the number of seeds",
                step.num_targets, top.num_dst[target.node_type]
            ));
        }
        Ok(())
    }

    /// Computes the scores of a minibatch, `B x C`, in `acts.logits()`.
    ///
    /// # Errors
    /// The batch does not fit the model, or a block is too large.
    pub fn forward(
        &self,
        pass: &Pass,
        step: &TypedStep,
        acts: &mut TypedActivations,
    ) -> graphmill_core::Result<()> {
        self.check(step)?;
        acts.stages.resize_with(self.stages.len(), StageActs::default);
        acts.target = (self.target.map_or(0, |target| target.node_type), step.num_targets);
        let (features, nodes) = (step.features, step.nodes);
        let projected = self.inputs.projected(features, self.reads_projections());
        let part = pass.part(part::INPUT);
        self.inputs.forward(&part, &self.schema, features, nodes, &projected, &mut acts.input)?;
        for (l, stage) in self.stages.iter().enumerate() {
            let (below, this) = acts.stages.split_at_mut(l);
            let x = below.last().map_or(&acts.input.out, |below| &below.rows.out);
            let reused = if l == 0 { step.reused } else { &[] };
            let input = step.input(&self.schema, l, x, &projected);
            stage.forward(&pass.part(l as u64), &input, reused, &mut this[0])?;
        }
        let top = acts.stages.last_mut().expect("a model has at least one layer");
        if pass.training {
            for (out, grad) in top.rows.out.iter().zip(&mut top.rows.grad) {
                grad.resize(out.num_rows(), out.num_cols());
                pass.backend.fill(0.0, grad.view_mut());
            }
        }
        if !self.head.is_empty() {
            self.head_forward(pass, top.rows.out[acts.target.0].rows(0..acts.target.1), &mut acts.head);
        }
        Ok(())
    }

    /// Returns true if the first layer reads projections, not rows. The rows below an only layer
    /// are those of [`TypedActivations::hidden`].
    pub(super) fn reads_projections(&self) -> bool {
        let is_only = self.stages.len() == 1 && self.head.is_empty();
        !is_only && self.stages[0].conv.reads_projections()
    }

    /// Computes the outputs of the head's layers from the rows `x` of the last typed layer.
    fn head_forward<'a>(&self, pass: &Pass, mut x: View<'a>, head: &'a mut Vec<[Matrix; 2]>) {
        head.resize_with(self.head.len(), Default::default);
        for (i, (linear, [out, grad])) in self.head.iter().zip(head).enumerate() {
            out.resize(x.num_rows(), linear.out_dim());
            grad.resize(x.num_rows(), linear.out_dim());
            linear.forward(pass, x, 0.0, self.head_epilogue(pass, i), out.view_mut());
            x = out.view();
        }
    }

    /// Computes the input rows of `nodes` of type `t` from their features, `N x F`, as those of a
    /// [`TypedStep`]. `out` is resized to `N x hidden`.
    ///
    /// # Errors
    /// Features have another width than the model, or another number of rows than nodes.
    pub fn input_rows(
        &self,
        pass: &Pass,
        t: usize,
        features: &Matrix,
        nodes: &[NodeId],
        out: &mut Matrix,
    ) -> graphmill_core::Result<()> {
        self.inputs.forward_type(&pass.part(part::INPUT), &self.schema, t, features, nodes, out)
    }

    /// Computes the rows of layer `l` alone, for inference: for the destinations of `block` in
    /// every type, from the rows `x` of its sources and the rows of its edges.
    ///
    /// # Errors
    /// The block is too large.
    pub fn layer_rows<'a>(
        &self,
        pass: &Pass,
        l: usize,
        block: &TypedBlock,
        [x, edges]: [&[Matrix]; 2],
        acts: &'a mut TypedActivations,
    ) -> graphmill_core::Result<&'a [Matrix]> {
        acts.stages.resize_with(self.stages.len(), StageActs::default);
        let input = TypedInput { schema: &self.schema, block, x, edges, projected: &[] };
        self.stages[l].forward(&pass.part(l as u64), &input, &[], &mut acts.stages[l])?;
        Ok(&acts.stages[l].rows.out)
    }

    /// Returns true if dense layers follow the typed layers ([`TypedModel::head_rows`]).
    pub fn has_head(&self) -> bool {
        !self.head.is_empty()
    }

    /// Computes the scores of rows of the last typed layer, for inference of a model with a head.
    ///
    /// # Panics
    /// The model has no head.
    pub fn head_rows<'a>(&self, pass: &Pass, x: View, acts: &'a mut TypedActivations) -> View<'a> {
        self.head_forward(pass, x, &mut acts.head);
        acts.head.last().expect("the model has a head")[0].view()
    }

    /// Adds to every parameter's gradient, from the gradient of the scores
    /// ([`TypedActivations::logits_and_grad`]). The arguments are those of the last training
    /// [`TypedModel::forward`].
    pub fn backward(&mut self, pass: &Pass, step: &TypedStep, acts: &mut TypedActivations) {
        let (target, count) = acts.target;
        for i in (0..self.head.len()).rev() {
            let epilogue = self.head_epilogue(pass, i);
            let (below, this) = acts.head.split_at_mut(i);
            let [out, grad] = &mut this[0];
            match below.last_mut() {
                Some([x, x_grad]) => {
                    self.head[i].backward(pass, x.view(), out.view(), epilogue, grad, Some(x_grad));
                }
                None => {
                    let rows = &mut acts.stages.last_mut().expect("a model has at least one layer").rows;
                    let x = rows.out[target].rows(0..count);
                    self.head[i].backward(pass, x, out.view(), epilogue, grad, None);
                    let x_grad = rows.grad[target].rows_mut(0..count);
                    self.head[i].input_grad(pass, grad.view(), 0.0, x_grad);
                }
            }
        }
        let reads_projections = self.reads_projections();
        let projected = self.inputs.projected(step.features, reads_projections);
        acts.projections.resize_with(self.schema.num_types(), ProjectionGrad::default);
        for (grad, of) in acts.projections.iter_mut().zip(&projected) {
            of.iter().for_each(|&of| grad.clear(pass, of));
        }
        let schema = &self.schema;
        for (l, stage) in self.stages.iter_mut().enumerate().rev() {
            let (below, this) = acts.stages.split_at_mut(l);
            let rows = below.last_mut().map_or(&mut acts.input, |below| &mut below.rows);
            let input = step.input(schema, l, &rows.out, &projected);
            let projections = &mut acts.projections;
            stage.backward(&pass.part(l as u64), &input, &mut this[0], &mut rows.grad, projections);
        }
        let is_projected: Vec<bool> = projected.iter().map(Option::is_some).collect();
        let of_projections = (&is_projected[..], &acts.projections[..]);
        self.inputs.backward(&pass.part(part::INPUT), step.features, &mut acts.input, of_projections);
    }

    /// Updates the learned rows of the batch from the gradients of the last
    /// [`TypedModel::backward`]. Call [`SparseAdam::begin`] first.
    pub fn update_learned_rows(
        &mut self,
        optimizer: &mut SparseAdam,
        nodes: &[Vec<NodeId>],
        acts: &TypedActivations,
    ) {
        for (t, rows) in self.learned_rows_mut() {
            rows.update(optimizer, t, &nodes[t], acts.input_grad(t));
        }
    }

    /// Activation and dropout after layer `i` of the head: none after the last.
    fn head_epilogue(&self, pass: &Pass, i: usize) -> Epilogue {
        if i + 1 == self.head.len() {
            return Epilogue::NONE;
        }
        let dropout = pass.part(part::HEAD + i as u64).dropout(self.dropout, site::OUTPUT);
        Epilogue { activation: self.activation, dropout }
    }
}
