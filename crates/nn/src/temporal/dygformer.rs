//! DyGFormer: a transformer over the histories of both nodes of a pair.

use graphmill_core::{keyed, memory};
use rayon::prelude::*;

use super::{
    TimeEncoding,
    channel::{Channel, CountEncoding, CountState},
    pair_tokens::{PairInput, PairTokens},
    transformer::{TransformerLayer, TransformerState},
};
use crate::{Epilogue, Matrix, Param, Pass, View, layer::Linear};

/// Number of patches or rows of a task.
const MIN_TASK_LEN: usize = 16;
/// Channels of a patch: nodes, events, times and common neighbours.
const CHANNELS: usize = 4;
const NODES: usize = 0;
const EVENTS: usize = 1;
const TIMES: usize = 2;
const COUNTS: usize = 3;

/// Configuration of a [`DygFormer`].
#[derive(Clone, Copy, Debug)]
pub struct DygFormerConfig {
    /// Width of the features of nodes, `F`; may be 0.
    pub node_dim: usize,
    /// Width of the features of events, `K`; may be 0.
    pub edge_dim: usize,
    /// Width of the time encoding, `T`.
    pub time_dim: usize,
    /// Width of a channel, `C`.
    pub channel_dim: usize,
    /// Tokens of a patch.
    pub patch: usize,
    /// Number of layers.
    pub layers: usize,
    /// Number of heads; divides `4 C`.
    pub heads: usize,
    /// Width of the output rows, `O`.
    pub out_dim: usize,
    /// Dropout of attention weights, hidden units and added rows.
    pub dropout: f32,
    /// Root of the random streams for the initial weights.
    pub key: u64,
}

/// Transformer over the last events of both nodes of a pair, with the number of times that each
/// neighbour occurs in either history.
///
/// # Algorithm
///
/// The history of a node is the node itself and the nodes of its last events. A token `i` of the
/// pair `(u, v)` is node `n` at an event `e`, a time `d` ago, and occurs `a` times in the history
/// of `u` and `b` times in that of `v`:
///
/// ```text
/// token[i] = [x[n] | edge[e] | phi(d) | f(a) + f(b)],   f(c) = relu(c w + b_0) W_1 + b_1
/// patch = the parts of its tokens side by side; each part times its own matrix to C columns, joined
/// rows = layers of a transformer over all patches of u and v together
/// out[u] = (mean of the rows of u's patches) W + b,   out[v] = likewise
/// ```
///
/// # Source
///
/// Yu, Sun, Du and Lv, *Towards better dynamic graph learning: new architecture and unified
/// library*, NeurIPS 2023, section 3; details are those of the authors' code (DyGLib).
///
/// # Cost
///
/// O(P L C (C + L)) multiplications for `P` pairs with `L` patches.
///
/// # Memory
///
/// O(P L (C + H L)) values for `H` heads.
///
/// # Deviations
///
/// A history has as many patches as it needs. The authors' code fills all histories of a batch up
/// to the longest one and attends to the filling, so its scores depend on the other pairs of a
/// batch. Tokens that fill the last patch are zeros in every channel.
#[derive(Clone, Debug)]
pub struct DygFormer {
    config: DygFormerConfig,
    encoding: TimeEncoding,
    counts: CountEncoding,
    channels: [Channel; CHANNELS],
    layers: Vec<TransformerLayer>,
    out: Linear,
}

/// Matrices that a forward pass saves for its backward pass.
#[derive(Clone, Debug, Default)]
pub struct DygFormerState {
    tokens: PairTokens,
    since: Vec<f64>,
    encoded: Matrix,
    counts: CountState,
    /// Input of each channel, `N x (patch width)`, its result, `N x C`, and gradients.
    inputs: [Matrix; CHANNELS],
    parts: [Matrix; CHANNELS],
    input_grad: Matrix,
    part_grad: Matrix,
    /// Rows of patches before the first layer, and after each, `N x 4 C`.
    rows: Vec<Matrix>,
    layers: Vec<TransformerState>,
    /// Mean of the patches of each history, the sources first, `2 P x 4 C`.
    means: Matrix,
    means_grad: Matrix,
    out_grad: Matrix,
    grad: Matrix,
}

impl DygFormer {
    /// Creates a model.
    ///
    /// # Errors
    /// A patch or channel is empty, or the heads do not divide the four channels.
    pub fn new(config: DygFormerConfig) -> crate::Result<Self> {
        let DygFormerConfig { node_dim, edge_dim, time_dim, channel_dim, patch, .. } = config;
        let width = CHANNELS * channel_dim;
        if patch == 0 {
            return Err(crate::Error::config("patch_size", patch, "a patch has tokens; use 1 or more"));
        }
        if config.heads == 0 || width == 0 || !width.is_multiple_of(config.heads) {
            let message =
                format!("it does not divide the {width} columns of {CHANNELS} channels; use a divisor");
            return Err(crate::Error::config("event_heads", config.heads, message));
        }
        let key = |part| keyed::key(&[config.key, part]);
        let widths = [node_dim, edge_dim, time_dim, channel_dim].map(|width| width * patch);
        const NAMES: [[&str; 2]; CHANNELS] = [
            ["channels.node.weight", "channels.node.bias"],
            ["channels.event.weight", "channels.event.bias"],
            ["channels.since.weight", "channels.since.bias"],
            ["channels.common.weight", "channels.common.bias"],
        ];
        let channel = |i: usize| Channel::new(NAMES[i], widths[i], channel_dim, key(i as u64));
        let layer = |l: usize| TransformerLayer::new(width, config.heads, config.dropout, key(8 + l as u64));
        Ok(Self {
            config,
            encoding: TimeEncoding::new(time_dim),
            counts: CountEncoding::new(channel_dim, key(4)),
            channels: [NODES, EVENTS, TIMES, COUNTS].map(channel),
            layers: (0..config.layers).map(layer).collect(),
            out: Linear::named(["out.weight", "out.bias"], width, config.out_dim, true, key(5)),
        })
    }

    /// Visits every parameter with its name in the model, always in the same order.
    pub fn visit<'a>(&'a self, see: &mut dyn FnMut(&str, &'a Param)) {
        self.encoding.visit(&mut |param| see(param.name, param));
        self.counts.visit(&mut |param| see(param.name, param));
        self.channels.iter().for_each(|channel| channel.visit(&mut |param| see(param.name, param)));
        for (l, layer) in self.layers.iter().enumerate() {
            layer.visit(&mut |param| see(&format!("layers.{l}.{}", param.name), param));
        }
        self.out.visit(&mut |param| see(param.name, param));
    }

    /// Visits every parameter mutably, in the order of [`DygFormer::visit`].
    pub fn visit_mut(&mut self, see: &mut dyn FnMut(&str, &mut Param)) {
        self.encoding.visit_mut(&mut |param| see(param.name, param));
        self.counts.visit_mut(&mut |param| see(param.name, param));
        self.channels.iter_mut().for_each(|channel| channel.visit_mut(&mut |param| see(param.name, param)));
        for (l, layer) in self.layers.iter_mut().enumerate() {
            layer.visit_mut(&mut |param| see(&format!("layers.{l}.{}", param.name), param));
        }
        self.out.visit_mut(&mut |param| see(param.name, param));
    }

    /// Computes the rows of both ends of `P` pairs; `out` is resized to `2 P x O`, the sources
    /// first.
    ///
    /// # Panics
    /// The rows have other shapes, or the block is global: a bug in the caller.
    pub fn forward(&self, pass: &Pass, input: &PairInput, state: &mut DygFormerState, out: &mut Matrix) {
        let DygFormerConfig { node_dim, edge_dim, channel_dim, patch, .. } = self.config;
        let block = input.block;
        let shape = |x: View| (x.num_rows(), x.num_cols());
        assert!(block.dst_ids.is_none() && shape(input.x) == (block.num_src, node_dim), "features of nodes");
        assert_eq!(shape(input.edges), (block.num_edges(), edge_dim), "features of events");
        assert_eq!(input.differences.len(), block.num_edges(), "times since events");
        assert_eq!(input.nodes.len(), block.num_src, "nodes of rows");
        state.tokens.fill(input, patch, pass.training);
        self.fill_channels(pass, input, state);
        let width = CHANNELS * channel_dim;
        let DygFormerState { tokens, inputs, parts, rows, layers, means, .. } = state;
        for ((channel, input), part) in self.channels.iter().zip(&*inputs).zip(&mut *parts) {
            channel.forward(pass, input.view(), part);
        }
        rows.resize_with(self.layers.len() + 1, Matrix::default);
        layers.resize_with(self.layers.len(), TransformerState::default);
        rows[0].resize(tokens.sequence.len(), width);
        let from = parts.each_ref().map(|part| part.view().host());
        let to = rows[0].view_mut().host().par_chunks_mut(width).enumerate();
        to.with_min_len(MIN_TASK_LEN).for_each(|(i, row)| {
            for (to, from) in row.chunks_exact_mut(channel_dim).zip(from) {
                to.copy_from_slice(&from[i * channel_dim..(i + 1) * channel_dim]);
            }
        });
        for (l, layer) in self.layers.iter().enumerate() {
            let (below, above) = rows.split_at_mut(l + 1);
            layer.forward(
                &pass.part(l as u64),
                &tokens.block,
                below[l].view(),
                &mut layers[l],
                &mut above[0],
            );
        }
        let (pairs, top) = (input.source.len(), rows[self.layers.len()].view().host());
        means.resize(2 * pairs, width);
        let to = means.view_mut().host().par_chunks_mut(width).enumerate();
        to.with_min_len(MIN_TASK_LEN).for_each(|(r, mean)| {
            let patches = tokens.patches(sequence(r, pairs));
            mean.fill(0.0);
            for row in top[patches.start * width..patches.end * width].chunks_exact(width) {
                mean.iter_mut().zip(row).for_each(|(m, x)| *m += x);
            }
            mean.iter_mut().for_each(|m| *m /= patches.len() as f32);
        });
        out.resize(2 * pairs, self.out.out_dim());
        self.out.forward(pass, means.view(), 0.0, Epilogue::NONE, out.view_mut());
    }

    /// Fills the inputs of the channels: the tokens' parts, side by side in each patch.
    fn fill_channels(&self, pass: &Pass, input: &PairInput, state: &mut DygFormerState) {
        let DygFormerConfig { node_dim, edge_dim, time_dim, channel_dim, patch, .. } = self.config;
        let DygFormerState { tokens, since, encoded, counts, inputs, .. } = state;
        let patches = tokens.sequence.len();
        since.clear();
        memory::demand_extend(since, tokens.tokens.iter().map(|token| token.since));
        self.encoding.forward(since, encoded);
        self.counts.forward(pass, tokens.max_count(), counts);
        let widths = [node_dim, edge_dim, time_dim, channel_dim];
        let (x, edges, times) = (input.x.host(), input.edges.host(), encoded.view().host());
        for (channel, (to, width)) in inputs.iter_mut().zip(widths).enumerate() {
            to.resize(patches, patch * width);
            let lines = to.view_mut().host().par_chunks_mut(width.max(1)).zip(&tokens.tokens).enumerate();
            lines.with_min_len(MIN_TASK_LEN * 8).for_each(|(i, (line, token))| {
                let row = |from: &[f32], r: usize, line: &mut [f32]| {
                    line.copy_from_slice(&from[r * width..(r + 1) * width]);
                };
                match (channel, token.node(), token.edge()) {
                    (NODES, Some(node), _) => row(x, node, line),
                    (EVENTS, _, Some(edge)) => row(edges, edge, line),
                    (TIMES, Some(_), _) => row(times, i, line),
                    (COUNTS, Some(_), _) => counts.sum(token.counts, line),
                    _ => line.fill(0.0),
                }
            });
        }
    }

    /// Adds to the gradient of every parameter. `grad` is that of the output `out`, `2 P x O`.
    pub fn backward(&mut self, pass: &Pass, state: &mut DygFormerState, [out, grad]: [View; 2]) {
        let DygFormerState { tokens, rows, layers, means, means_grad, out_grad, grad: of_rows, .. } = state;
        out_grad.resize(grad.num_rows(), grad.num_cols());
        pass.backend.copy(grad, out_grad.view_mut());
        self.out.backward(pass, means.view(), out, Epilogue::NONE, out_grad, Some(means_grad));
        let (pairs, width) = (means.num_rows() / 2, means.num_cols());
        of_rows.resize(tokens.sequence.len(), width);
        let from = means_grad.view().host();
        let to = of_rows.view_mut().host().par_chunks_mut(width).zip(&tokens.sequence);
        to.with_min_len(MIN_TASK_LEN).for_each(|(to, &s)| {
            let (s, count) = (s as usize, tokens.patches(s as usize).len() as f32);
            let grad = &from[(s % 2 * pairs + s / 2) * width..][..width];
            to.iter_mut().zip(grad).for_each(|(to, g)| *to = g / count);
        });
        for (l, layer) in self.layers.iter_mut().enumerate().rev() {
            layer.backward(&pass.part(l as u64), &tokens.block, rows[l].view(), &mut layers[l], of_rows);
        }
        for channel in 0..CHANNELS {
            self.backward_channel(pass, channel, state);
        }
    }

    /// Gradients of a channel and of the encodings before it.
    fn backward_channel(&mut self, pass: &Pass, channel: usize, state: &mut DygFormerState) {
        let DygFormerConfig { time_dim, channel_dim, .. } = self.config;
        let DygFormerState { tokens, since, counts, inputs, input_grad, part_grad, grad, .. } = state;
        part_grad.resize(grad.num_rows(), channel_dim);
        let lines = grad.view().host().chunks_exact(CHANNELS * channel_dim);
        let to = part_grad.view_mut().host().chunks_exact_mut(channel_dim);
        to.zip(lines)
            .for_each(|(to, line)| to.copy_from_slice(&line[channel * channel_dim..][..channel_dim]));
        let mut is_learned = channel == COUNTS;
        if channel == TIMES {
            self.encoding.visit(&mut |param| is_learned |= param.trainable);
        }
        let wanted = is_learned.then_some(&mut *input_grad);
        self.channels[channel].backward(pass, inputs[channel].view(), part_grad.view(), wanted);
        if !is_learned {
            return;
        }
        if channel == COUNTS {
            self.counts.backward(pass, &tokens.tokens, input_grad.view(), counts);
        } else {
            // a line for each token; padding has no encoding
            let lines = input_grad.view().host();
            let of_tokens = &mut state.encoded;
            of_tokens.resize(since.len(), time_dim);
            let to = of_tokens.view_mut().host();
            to.copy_from_slice(lines);
            for (line, token) in to.chunks_exact_mut(time_dim).zip(&tokens.tokens) {
                if token.node().is_none() {
                    line.fill(0.0);
                }
            }
            self.encoding.backward(since, of_tokens.view());
        }
    }
}

/// Sequence of row `r` of the means, which list all sources before all destinations.
fn sequence(r: usize, pairs: usize) -> usize {
    if r < pairs { 2 * r } else { 2 * (r - pairs) + 1 }
}
