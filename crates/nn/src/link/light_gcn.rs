//! LightGCN: embeddings that are propagated over the graph of users and items, without weights and
//! without activations.
//!
//! # Algorithm
//!
//! `z = (x + A x + ... + A^L x) / (L + 1)` with `A[v, u] = 1 / sqrt(d_u d_v)`. Horner's rule needs
//! two matrices for any `L`: `y = x`, then `L` times `y = x + A y`. Because `A` is symmetric, the
//! gradient of `x` is the same polynomial of the gradient of `z`.
//!
//! A step of training reads few rows of `z`. Their last product is computed for these rows alone,
//! and the first product of the gradient reads the edges of these rows alone, so that `2 (L - 1)`
//! of `2 L` products are whole.
//!
//! # Source
//!
//! He, Deng, Wang, Li, Zhang and Wang, *LightGCN: simplifying and powering graph convolution
//! network for recommendation*, SIGIR 2020, equations 3, 4 and 8.
//!
//! # Cost
//!
//! O(L E F).
//!
//! # Memory
//!
//! Two matrices of the size of the embeddings, and 8 bytes for each direction of an edge.

use graphmill_core::{Block, EdgeOptions, NodeId, build};
use rayon::prelude::*;

use crate::{
    Backend, Error, Matrix, Result, View,
    backend::{
        AggregationWeights, EdgeWeight, OwnWeight,
        ops::{Aggregate, AggregateTransposed},
    },
};

/// Coefficients of the block, without own rows.
const WEIGHTS: AggregationWeights = AggregationWeights { edge: EdgeWeight::Stored, own: OwnWeight::None };

/// Propagation over a graph.
///
/// ```
/// use graphmill_nn::{Matrix, backend::Cpu, link::light_gcn::LightGcn};
///
/// // user 0 is linked to the items 1 and 2: every edge weighs 1 / sqrt(2)
/// let mut propagation = LightGcn::new(3, &[0, 0], &[1, 2], 1)?;
/// let (x, mut z) = (Matrix::from_slice(3, 1, &[0.0, 1.0, 1.0]), Matrix::default());
/// propagation.forward(&Cpu::default(), &x, &mut z);
/// let half_root = 0.5f32.sqrt();
/// assert_eq!(z.view().host(), [half_root, 0.5, 0.5]);
/// # Ok::<(), graphmill_nn::Error>(())
/// ```
#[derive(Debug)]
pub struct LightGcn {
    /// `A`: every edge in both directions.
    all: Block,
    layers: usize,
    /// Rows of `A` of the last [`LightGcn::forward_rows`], transposed.
    some: Block,
    /// `y` of Horner's rule, and the next.
    values: [Matrix; 2],
}

impl LightGcn {
    /// Creates the propagation by `layers` hops over undirected edges between `nodes` nodes.
    /// Repeated edges count once. O(E).
    ///
    /// # Errors
    /// The lists have different lengths, a node is not below `nodes`, or a block cannot number the
    /// edges.
    pub fn new(nodes: usize, source: &[NodeId], destination: &[NodeId], layers: usize) -> Result<Self> {
        let graph = build(nodes, source, destination, EdgeOptions::UNDIRECTED)?;
        let edges = graph.indices().len();
        if u32::try_from(edges).is_err() {
            let message = "must be below 2^32: LightGCN propagates over one block; split the graph";
            return Err(Error::config("edges in both directions", edges, message));
        }
        let root: Vec<f32> =
            (0..nodes).map(|v| (graph.in_neighbors(v as NodeId).len() as f32).sqrt().recip()).collect();
        let of_node = |v: usize| {
            let (root, of_v) = (&root, root[v]);
            graph.in_neighbors(v as NodeId).par_iter().map(move |&u| root[u as usize] * of_v)
        };
        let all = Block {
            num_dst: nodes,
            num_src: nodes,
            indptr: graph.indptr().iter().map(|&e| e as u32).collect(),
            indices: graph.indices().to_vec(),
            edge_weight: (0..nodes).into_par_iter().flat_map(of_node).collect(),
            ..Block::default()
        };
        Ok(Self { all, layers, some: Block::default(), values: Default::default() })
    }

    /// Number of nodes.
    pub fn num_nodes(&self) -> usize {
        self.all.num_dst
    }

    /// Number of edges, both directions counted.
    pub fn num_edges(&self) -> usize {
        self.all.num_edges()
    }

    /// Number of hops.
    pub fn num_layers(&self) -> usize {
        self.layers
    }

    /// Computes the propagated rows of all nodes: `V x F` to `V x F`.
    ///
    /// # Panics
    /// `x` has another number of rows than the graph has nodes: a bug in the caller.
    pub fn forward(&mut self, backend: &dyn Backend, x: &Matrix, z: &mut Matrix) {
        z.resize(x.num_rows(), x.num_cols());
        backend.copy(x.view(), z.view_mut());
        self.horner(backend, x.view(), self.layers, z);
        backend.scale(self.share(), z.view_mut());
    }

    /// Computes the propagated rows of the distinct nodes `rows`, in their order: `V x F` to
    /// `R x F`.
    ///
    /// # Panics
    /// As [`LightGcn::forward`], or a row is not a node.
    pub fn forward_rows(&mut self, backend: &dyn Backend, x: &Matrix, rows: &[NodeId], z: &mut Matrix) {
        self.select(rows);
        let cols = x.num_cols();
        z.resize(rows.len(), cols);
        let lines = z.view_mut().host().par_chunks_mut(cols.max(1)).zip(rows);
        let own = x.view().host();
        lines.for_each(|(to, &v)| to.copy_from_slice(&own[v as usize * cols..][..cols]));
        if self.layers > 0 {
            let mut values = std::mem::take(&mut self.values[1]);
            values.resize(x.num_rows(), cols);
            backend.copy(x.view(), values.view_mut());
            self.horner(backend, x.view(), self.layers - 1, &mut values);
            let dst = z.view_mut();
            Aggregate { block: &self.some, weights: WEIGHTS, src: values.view(), beta: 1.0, dst }
                .run(backend);
            self.values[1] = values;
        }
        backend.scale(self.share(), z.view_mut());
    }

    /// Computes the gradient of `x` (`V x F`) from that of the rows of the last
    /// [`LightGcn::forward_rows`], `R x F`; resizes and overwrites `x_grad`.
    ///
    /// # Panics
    /// The gradient has another number of rows: a bug in the caller.
    pub fn backward_rows(&mut self, backend: &dyn Backend, rows: &[NodeId], grad: View, x_grad: &mut Matrix) {
        assert_eq!((rows.len(), rows.len()), (self.some.num_dst, grad.num_rows()), "rows of a gradient");
        let (nodes, cols) = (self.num_nodes(), grad.num_cols());
        // the gradient of z, zero but for these rows
        let mut own = std::mem::take(&mut self.values[1]);
        own.resize(nodes, cols);
        backend.fill(0.0, own.view_mut());
        let to = own.view_mut().host();
        for (row, &v) in grad.host().chunks_exact(cols.max(1)).zip(rows) {
            to[v as usize * cols..][..cols].copy_from_slice(row);
        }
        x_grad.resize(nodes, cols);
        backend.copy(own.view(), x_grad.view_mut());
        if self.layers > 0 {
            let src_grad = x_grad.view_mut();
            let block = &self.some;
            AggregateTransposed { block, weights: WEIGHTS, dst_grad: grad, beta: 1.0, src_grad }.run(backend);
            self.horner(backend, own.view(), self.layers - 1, x_grad);
        }
        self.values[1] = own;
        backend.scale(self.share(), x_grad.view_mut());
    }

    /// Replaces `y` by `x + A y`, `times` times.
    fn horner(&mut self, backend: &dyn Backend, x: View, times: usize, y: &mut Matrix) {
        let next = &mut self.values[0];
        for _ in 0..times {
            next.resize(x.num_rows(), x.num_cols());
            backend.copy(x, next.view_mut());
            let dst = next.view_mut();
            Aggregate { block: &self.all, weights: WEIGHTS, src: y.view(), beta: 1.0, dst }.run(backend);
            std::mem::swap(next, y);
        }
    }

    /// Factor of the mean over the layers.
    fn share(&self) -> f32 {
        1.0 / (self.layers + 1) as f32
    }

    /// Copies the rows of `A`, and transposes them.
    fn select(&mut self, rows: &[NodeId]) {
        let (all, some) = (&self.all, &mut self.some);
        some.clear();
        (some.num_dst, some.num_src) = (rows.len(), all.num_src);
        some.indptr.push(0);
        for &v in rows {
            let edges = all.edges(v as usize);
            some.indices.extend_from_slice(&all.indices[edges.clone()]);
            some.edge_weight.extend_from_slice(&all.edge_weight[edges]);
            some.indptr.push(some.indices.len() as u32);
        }
        some.par_transpose();
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::keyed::{Stream, key};
    use proptest::prelude::*;

    use super::*;
    use crate::{backend::Cpu, testing::random};

    const NODES: usize = 9;
    const F: usize = 3;

    /// The propagated rows by the definition, in 64 bits.
    fn plain(edges: &[(u32, u32)], layers: usize, x: &[f64]) -> Vec<f64> {
        let linked = |u: usize, v: usize| {
            let pair = (u as u32, v as u32);
            u != v && (edges.contains(&pair) || edges.contains(&(pair.1, pair.0)))
        };
        let degree = |v: usize| (0..NODES).filter(|&u| linked(u, v)).count() as f64;
        let (mut layer, mut sum) = (x.to_vec(), x.to_vec());
        for _ in 0..layers {
            let mut next = vec![0.0; x.len()];
            for v in 0..NODES {
                for u in (0..NODES).filter(|&u| linked(u, v)) {
                    for f in 0..F {
                        next[v * F + f] += layer[u * F + f] / (degree(u) * degree(v)).sqrt();
                    }
                }
            }
            sum.iter_mut().zip(&next).for_each(|(sum, x)| *sum += x);
            layer = next;
        }
        sum.iter().map(|x| x / (layers + 1) as f64).collect()
    }

    fn propagation(edges: &[(u32, u32)], layers: usize) -> LightGcn {
        let (source, destination): (Vec<u32>, Vec<u32>) = edges.iter().copied().unzip();
        LightGcn::new(NODES, &source, &destination, layers).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn rows_and_gradients_are_those_of_the_definition(
            edges in prop::collection::vec((0u32..9, 0u32..9), 0..25),
            layers in 0usize..4,
            chosen in prop::collection::btree_set(0u32..9, 1..9),
        ) {
            let (mut propagation, backend) = (propagation(&edges, layers), Cpu::default());
            let x = random(NODES, F, 1);
            let wide: Vec<f64> = x.view().host().iter().map(|&x| f64::from(x)).collect();
            let expected = plain(&edges, layers, &wide);
            let (mut z, mut some, mut grad) = Default::default();
            propagation.forward(&backend, &x, &mut z);
            let near = |a: &[f32], b: &[f64]| a.iter().zip(b).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-5);
            prop_assert!(near(z.view().host(), &expected));
            let rows: Vec<u32> = chosen.into_iter().collect();
            propagation.forward_rows(&backend, &x, &rows, &mut some);
            let weight = random(rows.len(), F, 2);
            let mut of_all = vec![0.0; NODES * F];
            for (i, &v) in rows.iter().enumerate() {
                let at = v as usize * F;
                prop_assert!(near(some.rows(i..i + 1).host(), &expected[at..at + F]));
                let row = weight.rows(i..i + 1);
                of_all[at..at + F].iter_mut().zip(row.host()).for_each(|(to, &x)| *to = f64::from(x));
            }
            propagation.backward_rows(&backend, &rows, weight.view(), &mut grad);
            // the map is linear and symmetric
            prop_assert!(near(grad.view().host(), &plain(&edges, layers, &of_all)));
            // finite differences of the weighted sum of the rows
            let sum = |x: &[f64]| -> f64 {
                plain(&edges, layers, x).iter().zip(&of_all).map(|(z, w)| z * w).sum()
            };
            for i in [0, 4, NODES * F - 1] {
                let mut moved = wide.clone();
                moved[i] += 1.0;
                let slope = sum(&moved) - sum(&wide);
                prop_assert!((slope - f64::from(grad.view().host()[i])).abs() < 1e-5);
            }
        }
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        let mut stream = Stream::new(key(&[4]));
        let nodes = 400;
        let mut draw = || (0..4000).map(|_| stream.below(nodes) as u32).collect::<Vec<u32>>();
        let (source, destination) = (draw(), draw());
        let x = random(nodes as usize, 64, 5);
        let rows: Vec<u32> = (0..nodes as u32).step_by(3).collect();
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let mut of = LightGcn::new(nodes as usize, &source, &destination, 3).unwrap();
                let (backend, mut z, mut grad) = (Cpu::default(), Matrix::default(), Matrix::default());
                of.forward_rows(&backend, &x, &rows, &mut z);
                of.backward_rows(&backend, &rows, z.view(), &mut grad);
                [z.view().host().to_vec(), grad.view().host().to_vec()]
            })
        };
        assert_eq!(run(1), run(3));
    }
}
