//! Layers with edge features on graphs of one or several types.
//!
//! # Algorithm
//!
//! Each relation has a layer of [`edge::TABLE`], and the layers of the relations into a type add
//! up. A type that no relation enters has a dense layer of its own:
//!
//! ```text
//! out[v] = sum over relations r into type(v) of layer_r(x[v], {(x[u], edge[e]) : edges e = (u, v) by r})
//! out[v] = x[v] W_type(v) + b_type(v)        if no relation enters type(v)
//! ```
//!
//! With one node type and one relation, the layer is that of the table.
//!
//! # Source
//!
//! The sources of the layers; the sum over relations is that of PyTorch Geometric's `HeteroConv`.
//!
//! # Cost
//!
//! That of the layers. A relation between two types copies the rows of its ends, because a layer
//! reads destinations and sources from one matrix.
//!
//! # Deviations
//!
//! A relation without edge features has rows without columns, so its layer has no weights for them.

use std::ops::Range;

use graphmill_core::{Result as CoreResult, block::Aggregation, keyed};

use super::{
    Scope, TypedGrads, TypedInput, TypedLayer, TypedLayerConfig, TypedLayerSpec, heads::backward_linear,
    layer::resize_outputs, stacked::Stacked,
};
use crate::{
    Epilogue, Matrix, Param, Pass, Result, Saved, ViewMut,
    backend::ops::Add,
    layer::{
        LayerConfig, Linear,
        edge::{self, EdgeGrads, EdgeInput, EdgeLayer, EdgeLayerConfig},
    },
};

/// Makes the layer `gine`.
pub(super) fn gine(config: &TypedLayerConfig) -> Result<Box<dyn TypedLayer>> {
    RelationEdges::make("gine", config)
}

/// Makes the layer `gatv2-edge`.
pub(super) fn gatv2(config: &TypedLayerConfig) -> Result<Box<dyn TypedLayer>> {
    RelationEdges::make("gatv2", config)
}

/// Makes the layer `sage-edge`.
pub(super) fn sage(config: &TypedLayerConfig) -> Result<Box<dyn TypedLayer>> {
    RelationEdges::make("sage", config)
}

/// Makes the layer `edge-gated`.
pub(super) fn gated(config: &TypedLayerConfig) -> Result<Box<dyn TypedLayer>> {
    RelationEdges::make("edge-gated", config)
}

/// The sum over relations of layers with rows of edges; the head of its source file has the
/// formula.
///
/// # Shapes
/// - in `S_t x F`, edges `E_r x K_r`, out `D_t x O`
#[derive(Clone)]
pub struct RelationEdges {
    spec: TypedLayerSpec,
    /// Layer of each relation.
    layers: Vec<Box<dyn EdgeLayer>>,
    /// True for a relation that is the first into its type.
    is_first: Vec<bool>,
    /// Dense layers of the types that no relation enters.
    own: Vec<(usize, Linear)>,
}

/// Matrices of a pass.
#[derive(Clone, Debug, Default)]
struct State {
    relations: Vec<OfRelation>,
    /// Output of a relation that is not the first into its type, and gradient of an input.
    scratch: Matrix,
}

/// Matrices of a relation in a pass.
#[derive(Clone, Debug, Default)]
struct OfRelation {
    /// Edges, and rows of the destinations and the sources, of a relation between two types.
    stacked: Stacked,
    x: Matrix,
    saved: Saved,
}

impl OfRelation {
    /// Copies the rows of the ends of a relation between two types.
    fn stack(&mut self, pass: &Pass, input: &TypedInput, r: usize) -> CoreResult<()> {
        let [src, dst] = input.ends(r);
        if src == dst {
            return Ok(());
        }
        self.stacked.join(pass, input, dst, [r].into_iter())?;
        self.x.resize(self.stacked.num_rows(), input.x[src].num_cols());
        let own = self.stacked.own();
        let sources = own.end..self.stacked.num_rows();
        pass.backend.copy(input.own_rows(dst), self.x.rows_mut(own));
        if !sources.is_empty() {
            pass.backend.copy(input.x[src].view(), self.x.rows_mut(sources));
        }
        Ok(())
    }
}

/// Input of the layer of relation `r`: the slice itself if both its ends are of one type.
fn layer_input<'a>(input: &TypedInput<'a>, r: usize, stacked: &'a Stacked, x: &'a Matrix) -> EdgeInput<'a> {
    let ([src, dst], edges) = (input.ends(r), input.edges[r].view());
    if src == dst {
        EdgeInput { block: &input.block.relations[r], x: input.x[src].view(), edges }
    } else {
        EdgeInput { block: &stacked.block, x: x.view(), edges }
    }
}

impl RelationEdges {
    /// Creates a layer from the row `name` of [`edge::TABLE`].
    ///
    /// # Errors
    /// The name is unknown, or the widths are incompatible.
    pub fn make(name: &str, config: &TypedLayerConfig) -> Result<Box<dyn TypedLayer>> {
        let &TypedLayerConfig { schema, edge_dims, in_dim, out_dim, scores, key, .. } = config;
        let make = edge::TABLE.find(name)?.make;
        let of_relation = |r: usize| {
            let nodes = LayerConfig {
                in_dim,
                out_dim,
                concat: !scores,
                classifies: scores,
                key: keyed::key(&[key, 0, r as u64]),
                own: config.own.clone(),
                ..LayerConfig::default()
            };
            let edge_dim = edge_dims.get(r).copied().unwrap_or(0);
            make(&EdgeLayerConfig { nodes, edge_dim, ..EdgeLayerConfig::default() })
        };
        let is_first = |r: usize| schema.into_type(schema.relations()[r].dst).next() == Some(r);
        let own = |t: usize| {
            let key = keyed::key(&[key, 1, t as u64]);
            (t, Linear::named(["own.weight", "bias"], in_dim, out_dim, true, key))
        };
        let relations = 0..schema.num_relations();
        let unentered = (0..schema.num_types()).filter(|&t| schema.into_type(t).next().is_none());
        Ok(Box::new(Self {
            spec: TypedLayerSpec { in_dim, out_dim, aggregation: Aggregation::Other },
            layers: relations.clone().map(of_relation).collect::<Result<_>>()?,
            is_first: relations.map(is_first).collect(),
            own: unentered.map(own).collect(),
        }))
    }
}

impl TypedLayer for RelationEdges {
    fn spec(&self) -> TypedLayerSpec {
        self.spec
    }

    fn visit<'a>(&'a self, see: &mut dyn FnMut(Scope, &'a Param)) {
        self.own.iter().for_each(|(t, own)| own.visit(&mut |p| see(Scope::Type(*t), p)));
        for (r, layer) in self.layers.iter().enumerate() {
            layer.visit(&mut |p| see(Scope::Relation(r), p));
        }
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(Scope, &mut Param)) {
        self.own.iter_mut().for_each(|(t, own)| own.visit_mut(&mut |p| see(Scope::Type(*t), p)));
        for (r, layer) in self.layers.iter_mut().enumerate() {
            layer.visit_mut(&mut |p| see(Scope::Relation(r), p));
        }
    }

    fn forward(
        &self,
        pass: &Pass,
        input: &TypedInput,
        saved: &mut Saved,
        out: &mut [Matrix],
    ) -> CoreResult<()> {
        let State { relations, scratch } = saved.state();
        relations.resize_with(self.layers.len(), OfRelation::default);
        resize_outputs(pass, input, self.spec.out_dim, false, out);
        for (t, own) in &self.own {
            own.forward(pass, input.own_rows(*t), 0.0, Epilogue::NONE, out[*t].view_mut());
        }
        for (r, (layer, of)) in self.layers.iter().zip(relations).enumerate() {
            let out = &mut out[input.ends(r)[1]];
            if out.num_rows() == 0 {
                continue;
            }
            of.stack(pass, input, r)?;
            let OfRelation { stacked, x, saved } = of;
            let (part, read) = (pass.part(r as u64), layer_input(input, r, stacked, x));
            if self.is_first[r] {
                layer.forward(&part, &read, Epilogue::NONE, saved, out.view_mut());
            } else {
                scratch.resize(out.num_rows(), self.spec.out_dim);
                layer.forward(&part, &read, Epilogue::NONE, saved, scratch.view_mut());
                Add { alpha: 1.0, x: scratch.view(), y: out.view_mut() }.run(pass.backend);
            }
        }
        Ok(())
    }

    fn backward(&mut self, pass: &Pass, input: &TypedInput, saved: &mut Saved, mut grads: TypedGrads) {
        grads.clear_input(pass, input);
        let TypedGrads { y, grad, x_grad, .. } = grads;
        let State { relations, scratch } = saved.state();
        for (t, own) in &mut self.own {
            let (t, rows) = (*t, 0..grad[*t].num_rows());
            backward_linear(pass, own, input.own_rows(t), grad[t].view(), x_grad[t].rows_mut(rows));
        }
        for (r, (layer, of)) in self.layers.iter_mut().zip(relations).enumerate() {
            let [src, dst] = input.ends(r);
            if grad[dst].num_rows() == 0 {
                continue;
            }
            let OfRelation { stacked, x, saved } = of;
            let (part, read) = (pass.part(r as u64), layer_input(input, r, stacked, x));
            let (y, grad) = (y[dst].view(), &mut grad[dst]);
            let of_layer = EdgeGrads { y, grad, x_grad: Some(&mut *scratch), edge_grad: None };
            layer.backward(&part, &read, Epilogue::NONE, saved, of_layer);
            let add = |rows: Range<usize>, to: ViewMut| {
                Add { alpha: 1.0, x: scratch.rows(rows), y: to }.run(pass.backend);
            };
            let rows = read.block.num_src;
            if src == dst {
                add(0..rows, x_grad[src].view_mut());
                continue;
            }
            let own = 0..read.block.num_dst;
            add(own.clone(), x_grad[dst].rows_mut(own.clone()));
            if rows > own.end {
                add(own.end..rows, x_grad[src].view_mut());
            }
        }
    }
}
