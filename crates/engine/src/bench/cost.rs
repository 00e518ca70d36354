//! Cost model of a training batch: bytes moved at the rate of the memory, plus operations at the
//! rate of the cores. Its only input are the sizes of the sampled blocks:
//!
//! ```text
//! sample    E_all reads / random reads per second
//! extract   4 S F bytes of random rows, 4 S F bytes written; nothing on the fast path
//! train     sum over layers F -> O with D, S, E of the layer's block:
//!   aggregate first, forward    4 F (E + D) bytes; on the fast path, 4 F E of them are random rows
//!                    backward   4 F (E + S) bytes, except in the bottom layer
//!   transform first, forward    4 O (E + D) bytes
//!                    backward   4 O (E + S) bytes
//!   products                    2 R F O operations per weight, R = D, or S for rows transformed
//!                               first; once forward, once for the weight's gradient, and once for
//!                               the input's gradient except in the bottom layer
//!   bias, activation, dropout   5 x 4 D O bytes (2 forward, 3 backward), except in the last layer
//! ```
//!
//! Rows count once per edge although caches hold some of them. Operands of products, loss,
//! optimiser and labels are left out, and nothing overlaps. The model is therefore not a strict
//! bound, but the time of the hot paths if each ran at its limit.

use graphmill_core::Block;
use graphmill_nn::{
    ProductOrder,
    layer::{NormKind, Products},
    model::{Model, ModelConfig, ResidualKind},
};

use crate::{TrainConfig, build::model_config, config::Switch};

/// Rates of the machine per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    /// Random reads of single values per second.
    pub(super) reads: f64,
    /// Bytes read and written per second.
    pub(super) copy: f64,
    /// Bytes of random feature rows per second.
    pub(super) rows: f64,
    /// Floating-point operations per second.
    pub(super) peak: f64,
}

/// Mean size of a layer's blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Size {
    pub(super) dst: f64,
    pub(super) src: f64,
    pub(super) edges: f64,
}

impl Size {
    /// Adds the size of a local block divided by `of`.
    pub(super) fn add(&mut self, block: &Block, of: usize) {
        self.dst += block.num_dst as f64 / of as f64;
        self.src += block.num_src as f64 / of as f64;
        self.edges += block.num_edges() as f64 / of as f64;
    }
}

/// Seconds of a batch by stage.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Seconds {
    pub(super) sample: f64,
    pub(super) extract: f64,
    pub(super) train: f64,
}

impl Seconds {
    /// Seconds of all stages.
    pub(super) fn sum(&self) -> f64 {
        self.sample + self.extract + self.train
    }
}

/// Numbers of products with neighbours' rows and with own rows in each layer; `None` if the model
/// has other operations.
fn weights(config: &TrainConfig, model: &Model) -> Option<(f64, f64)> {
    let ModelConfig { norm, residual, .. } = model_config(config);
    let plain = norm == NormKind::None && residual == ResidualKind::None && config.input_dropout == 0.0;
    let bare = !config.input_layer && config.head_layers == 0;
    let Products { neighbors, own } = model.layer_products(0).filter(|_| plain && bare)?;
    Some((neighbors as f64, own as f64))
}

/// Predicts the seconds of a batch with blocks of these sizes, bottom block first; `None` for
/// models that the cost model does not cover.
pub(super) fn predict(
    config: &TrainConfig,
    model: &Model,
    orders: &[ProductOrder],
    sizes: &[Size],
    rates: Rates,
) -> Option<Seconds> {
    let (neighbors, own) = weights(config, model)?;
    let fused = config.fused != Switch::Off && model.can_read_table(orders);
    let mut seconds = Seconds::default();
    let (mut bytes, mut random, mut operations) = (0.0, 0.0, 0.0);
    for (l, (size, order)) in sizes.iter().zip(orders).enumerate() {
        let Size { dst, src, edges } = *size;
        let (f, o) = (model.layer_in_dim(l) as f64, model.layer_out_dim(l) as f64);
        let (bottom, last) = (l == 0, l + 1 == sizes.len());
        seconds.sample += edges / rates.reads;
        let first = *order == ProductOrder::AggregateFirst;
        let (width, transformed) = if first { (f, dst) } else { (o, src) };
        if bottom && fused {
            random += 4.0 * width * edges;
        } else {
            bytes += 4.0 * width * edges;
        }
        bytes += 4.0 * width * dst;
        if !(first && bottom) {
            bytes += 4.0 * width * (edges + src);
        }
        let passes = if bottom { 2.0 } else { 3.0 };
        operations += passes * 2.0 * f * o * (neighbors * transformed + own * dst);
        if !last {
            bytes += 20.0 * dst * o;
        }
    }
    if !fused {
        let rows = 4.0 * sizes[0].src * model.layer_in_dim(0) as f64;
        seconds.extract = rows / rates.rows + rows / rates.copy;
    }
    seconds.train = bytes / rates.copy + random / rates.rows + operations / rates.peak;
    Some(seconds)
}

#[cfg(test)]
mod tests {
    use graphmill_nn::model::ModelConfig;

    use super::*;
    use ProductOrder::{AggregateFirst, TransformFirst};

    const RATES: Rates = Rates { reads: 10.0, copy: 100.0, rows: 50.0, peak: 1000.0 };

    fn seconds(model: &str, orders: &[ProductOrder], fused: &str) -> Seconds {
        let config = TrainConfig {
            model: model.into(),
            hidden: 5,
            layers: orders.len(),
            fused: fused.parse().unwrap(),
            ..TrainConfig::default()
        };
        let of =
            ModelConfig { model: model.into(), hidden: 5, layers: orders.len(), ..ModelConfig::default() };
        let sizes = [Size { dst: 3.0, src: 7.0, edges: 11.0 }, Size { dst: 1.0, src: 3.0, edges: 2.0 }];
        let model = Model::new(&of, 4, 2, 0).unwrap();
        predict(&config, &model, orders, &sizes[..orders.len()], RATES).unwrap()
    }

    #[test]
    fn aggregate_first_on_the_fast_path_reads_random_rows() {
        let s = seconds("gcn", &[AggregateFirst], "auto");
        // 11 random rows of 4 values, 3 rows written; 3 x 4 x 2 forward and for the gradient
        let train = 4.0 * 4.0 * 11.0 / 50.0 + 4.0 * 4.0 * 3.0 / 100.0 + 2.0 * 2.0 * 3.0 * 4.0 * 2.0 / 1000.0;
        assert!((s.train - train).abs() < 1e-12 && s.extract == 0.0 && s.sample == 1.1, "{s:?}");
    }

    #[test]
    fn transform_first_gathers_rows_and_aggregates_gradients() {
        let s = seconds("gcn", &[TransformFirst], "auto");
        assert!((s.extract - 4.0 * 7.0 * 4.0 * (1.0 / 50.0 + 1.0 / 100.0)).abs() < 1e-12);
        let train = 4.0 * 2.0 * (11.0 + 3.0 + 11.0 + 7.0) / 100.0 + 2.0 * 2.0 * 7.0 * 4.0 * 2.0 / 1000.0;
        assert!((s.train - train).abs() < 1e-12, "{s:?}");
    }

    #[test]
    fn costs_of_two_layers_with_two_weights_add_up() {
        let s = seconds("sage", &[AggregateFirst, AggregateFirst], "off");
        let bottom = 4.0 * 4.0 * (11.0 + 3.0) + 20.0 * 3.0 * 5.0;
        let top = 4.0 * 5.0 * (2.0 + 1.0 + 2.0 + 3.0);
        let operations = 2.0 * 2.0 * 4.0 * 5.0 * 6.0 + 3.0 * 2.0 * 5.0 * 2.0 * 2.0;
        assert!((s.train - (bottom + top) / 100.0 - operations / 1000.0).abs() < 1e-12, "{s:?}");
        assert!((s.sample - 1.3).abs() < 1e-12);
    }

    #[test]
    fn models_with_attention_have_no_prediction() {
        let of = ModelConfig { model: "gat".into(), ..ModelConfig::default() };
        let model = Model::new(&of, 4, 2, 0).unwrap();
        let config = TrainConfig { model: "gat".into(), ..TrainConfig::default() };
        assert_eq!(predict(&config, &model, &[TransformFirst; 2], &[Size::default(); 2], RATES), None);
    }
}
