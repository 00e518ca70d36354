//! A custom layer, which is registered by name and used in a model.
//!
//! Run it with `cargo run --release --example 03-own-layer`.

use graphmill::{
    dataset::generate::{GenerateOptions, generate},
    graph::{block::Aggregation, table::Entry},
    nn::{
        Epilogue, LayerConfig, Param, Result, Saved, View, ViewMut,
        backend::{AggregationWeights, EdgeWeight, OwnWeight},
        layer::{self, LayerGrads, LayerInput, LayerKind, LayerSpec, Linear, LinearPropagation},
    },
    prelude::*,
};

/// Sum of a node's own row and the mean of its neighbours' rows, multiplied by one weight:
///
/// ```text
/// out[v] = (x[v] + mean over in-neighbours u of x[u]) W + b
/// ```
///
/// # Shapes
/// - `weight`: `F x O`; `bias`: `1 x O`
/// - in `S x F`, out `D x O`
#[derive(Clone)]
pub struct OwnAndMean {
    spec: LayerSpec,
    sum: LinearPropagation,
}

/// Weights of `x[v] + mean x[u]`. If the sampler stored edge weights, the mean uses them.
fn weights(block: &Block) -> AggregationWeights<'static> {
    let edge = layer::stored_or(block, EdgeWeight::Mean);
    AggregationWeights { edge, own: OwnWeight::Constant(1.0) }
}

impl OwnAndMean {
    /// Makes a layer from width `F` to `O`.
    pub fn make(config: &LayerConfig) -> Result<Box<dyn Layer>> {
        let &LayerConfig { in_dim, out_dim, bias, key, .. } = config;
        let spec = LayerSpec {
            aggregation: Aggregation::Mean,
            // the transformed rows include the own rows
            combines_own_rows: false,
            ..LayerSpec::both_orders(in_dim, out_dim, vec![out_dim])
        };
        Ok(Box::new(Self { spec, sum: LinearPropagation::new(Linear::new(in_dim, out_dim, bias, key)) }))
    }
}

impl Layer for OwnAndMean {
    fn spec(&self) -> &LayerSpec {
        &self.spec
    }

    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        self.sum.linear.visit(see);
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.sum.linear.visit_mut(see);
    }

    fn transform(&self, pass: &Pass, x: View, at: usize, tables: &mut [Matrix]) {
        self.sum.transform(pass, x, at, &mut tables[0]);
    }

    fn forward(&self, pass: &Pass, input: &LayerInput, epilogue: Epilogue, saved: &mut Saved, out: ViewMut) {
        self.sum.forward(pass, input, weights(input.block), epilogue, saved.state(), out);
    }

    fn backward(
        &mut self,
        pass: &Pass,
        input: &LayerInput,
        epilogue: Epilogue,
        saved: &mut Saved,
        LayerGrads { y, grad, x_grad }: LayerGrads,
    ) {
        epilogue.backward(pass.backend, self.sum.linear.bias_mut(), y, grad.view_mut());
        self.sum.backward(pass, input, weights(input.block), grad.view(), saved.state(), x_grad);
    }
}

/// Row of the table of layers.
pub const OWN_AND_MEAN: Entry<LayerKind> = Entry {
    name: "own-and-mean",
    summary: "own row plus the mean of the neighbours, with one weight",
    source: "",
    options: &[],
    make: LayerKind::new(OwnAndMean::make),
};

/// Trains a model of this layer and one of GraphSAGE layers.
pub fn main() -> graphmill::Result<()> {
    layer::TABLE.register(OWN_AND_MEAN)?;
    let options = GenerateOptions { nodes: 3000, classes: 4, dim: 16, signal: 0.4, ..Default::default() };
    let data = generate("sbm", &options)?;
    for model in ["sage", "own-and-mean"] {
        let config =
            TrainConfig { model: model.into(), epochs: 5, batch_size: 128, hidden: 32, ..Default::default() };
        let trained = graphmill::train(&config, &data)?;
        let (score, parameters) = (trained.summary().test.score.unwrap_or(0.0), trained.num_params());
        println!("{model:12}: {parameters} parameters, test accuracy {score:.3}");
    }
    Ok(())
}
