//! Construction of datasets from arrays in memory.

use graphmill_core::{
    EdgeOptions, Error, Features, Graph, Labels, NodeId, Result, Split, build, build_weighted,
    keyed::{self, Stream},
    memory,
};

use super::Dataset;

/// Builder of a [`Dataset`] from edges, feature rows, labels and a split.
///
/// ```
/// use graphmill_data::DatasetBuilder;
///
/// let data = DatasetBuilder::new(4)
///     .undirected_edges([(0, 1), (1, 2), (2, 3)])
///     .features(2, vec![1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0])
///     .classes(vec![0, 0, 1, 1])
///     .split([0, 3], [1], [2])
///     .build()?;
/// assert_eq!(data.to_string(), "arrays: 4 nodes, 6 edges, 2 features, 2 classes, split 2/1/1");
/// # Ok::<(), graphmill_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct DatasetBuilder {
    name: String,
    num_nodes: usize,
    topology: Topology,
    features: Features,
    labels: Option<Labels>,
    split: Parts,
}

/// Source of the edges.
#[derive(Clone, Debug)]
enum Topology {
    Edges { src: Vec<NodeId>, dst: Vec<NodeId>, weight: Option<Vec<f32>>, options: EdgeOptions },
    Graph(Graph),
}

/// Source of the split.
#[derive(Clone, Debug)]
enum Parts {
    Nodes([Vec<NodeId>; 3]),
    Random { train: f64, valid: f64, seed: u64 },
}

impl DatasetBuilder {
    /// Creates a dataset of `num_nodes` nodes, without edges, features, labels and split.
    pub fn new(num_nodes: usize) -> Self {
        let (src, dst) = Default::default();
        Self {
            name: "arrays".into(),
            num_nodes,
            topology: Topology::Edges { src, dst, weight: None, options: EdgeOptions::DIRECTED },
            features: Features::default(),
            labels: None,
            split: Parts::Nodes(Default::default()),
        }
    }

    /// Sets the dataset's name for records and messages.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets the edges `(source, destination)`: messages flow from source to destination. Duplicates
    /// are stored once.
    #[must_use]
    pub fn edges(self, edges: impl IntoIterator<Item = (NodeId, NodeId)>) -> Self {
        self.with_edges(edges, EdgeOptions::DIRECTED)
    }

    /// Sets edges that are stored in both directions, without duplicates and self-loops.
    #[must_use]
    pub fn undirected_edges(self, edges: impl IntoIterator<Item = (NodeId, NodeId)>) -> Self {
        self.with_edges(edges, EdgeOptions::UNDIRECTED)
    }

    fn with_edges(self, edges: impl IntoIterator<Item = (NodeId, NodeId)>, options: EdgeOptions) -> Self {
        let (src, dst) = edges.into_iter().unzip();
        Self { topology: Topology::Edges { src, dst, weight: None, options }, ..self }
    }

    /// Sets the weights of the edges given before, in their order.
    #[must_use]
    pub fn weights(mut self, weights: Vec<f32>) -> Self {
        match &mut self.topology {
            Topology::Edges { weight, .. } => *weight = Some(weights),
            Topology::Graph(_) => {}
        }
        self
    }

    /// Sets a finished graph instead of edges and weights.
    #[must_use]
    pub fn graph(self, graph: Graph) -> Self {
        Self { topology: Topology::Graph(graph), ..self }
    }

    /// Sets the feature rows of all nodes, `V x dim`, row by row.
    #[must_use]
    pub fn features(self, dim: usize, rows: Vec<f32>) -> Self {
        Self { features: Features::f32(dim, rows), ..self }
    }

    /// Sets one class per node, from 0; -1 if unknown.
    #[must_use]
    pub fn classes(self, class: Vec<i32>) -> Self {
        let classes = class.iter().max().map_or(0, |&max| (max + 1).max(0) as usize);
        Self { labels: Some(Labels::Single { class: class.into(), classes }), ..self }
    }

    /// Sets a set of classes per node: `V x classes` zeros and ones, row by row.
    #[must_use]
    pub fn class_sets(self, classes: usize, member: Vec<u8>) -> Self {
        Self { labels: Some(Labels::Multi { member: member.into(), classes }), ..self }
    }

    /// Sets `width` values per node to predict: `V x width`, row by row; NaN if unknown. A
    /// random split leaves out nodes without a known value.
    #[must_use]
    pub fn values(self, width: usize, values: Vec<f32>) -> Self {
        Self { labels: Some(Labels::Values { values: values.into(), width }), ..self }
    }

    /// Sets the nodes that train the model, select its best epoch, and score it at the end.
    #[must_use]
    pub fn split(
        self,
        train: impl Into<Vec<NodeId>>,
        valid: impl Into<Vec<NodeId>>,
        test: impl Into<Vec<NodeId>>,
    ) -> Self {
        Self { split: Parts::Nodes([train.into(), valid.into(), test.into()]), ..self }
    }

    /// Sets a random split of the labelled nodes: the given fractions train and validate, the rest
    /// test.
    #[must_use]
    pub fn random_split(self, train: f64, valid: f64, seed: u64) -> Self {
        Self { split: Parts::Random { train, valid, seed }, ..self }
    }

    /// Builds the dataset.
    ///
    /// # Errors
    /// Arrays are inconsistent, or a value is out of range; the error names the position.
    pub fn build(self) -> Result<Dataset> {
        let nodes = self.num_nodes;
        let graph = match self.topology {
            Topology::Edges { src, dst, weight: None, options } => build(nodes, &src, &dst, options)?,
            Topology::Edges { src, dst, weight: Some(weight), options } => {
                build_weighted(nodes, &src, &dst, &weight, options)?
            }
            Topology::Graph(graph) if graph.num_nodes() == nodes => graph,
            Topology::Graph(graph) => {
                let message = format!("a graph of {} nodes for a dataset of {nodes}", graph.num_nodes());
                return Err(Error::invalid(message));
            }
        };
        let labels = match self.labels {
            Some(labels) => labels,
            None => Labels::Single { class: memory::filled(-1, nodes)?.into(), classes: 0 },
        };
        let parts = match self.split {
            Parts::Nodes(parts) => parts,
            Parts::Random { train, valid, seed } => {
                let count = match &labels {
                    Labels::Single { class, .. } => class.len(), // compared with the nodes below
                    Labels::Multi { .. } | Labels::Columns { .. } | Labels::Values { .. } => nodes,
                };
                let labelled = (0..count as NodeId).filter(|&v| labels.is_labelled(v)).collect();
                random_parts(labelled, [train, valid], seed)
            }
        };
        let [train, valid, test] = parts.map(|mut ids| {
            ids.sort_unstable();
            ids.into()
        });
        let split = Split { train, valid, test };
        let data =
            Dataset { name: self.name, graph, features: self.features, labels, split, ..Dataset::default() };
        data.validate()?;
        Ok(data)
    }
}

/// Splits a shuffle into two parts of the given fractions and the rest.
fn random_parts(mut nodes: Vec<NodeId>, fractions: [f64; 2], seed: u64) -> [Vec<NodeId>; 3] {
    Stream::new(keyed::key(&[seed, 0x7370_6c69])).shuffle(&mut nodes);
    let count = |fraction: f64| (nodes.len() as f64 * fraction.clamp(0.0, 1.0)).round() as usize;
    let [train, valid] = fractions.map(count);
    let mut rest = nodes.split_off(train);
    let test = rest.split_off(valid.min(rest.len()));
    [nodes, rest, test]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_splits_cover_the_labelled_nodes_once() {
        let class = (0..50).map(|v| if v % 5 == 4 { -1 } else { v % 3 }).collect();
        let data = DatasetBuilder::new(50).classes(class).random_split(0.5, 0.25, 7).build().unwrap();
        let [train, valid, test] = data.split.parts().map(|(_, ids)| ids.to_vec());
        assert_eq!([train.len(), valid.len(), test.len()], [20, 10, 10]);
        let mut all = [train, valid, test].concat();
        all.sort_unstable();
        assert!(all.into_iter().eq((0..50).filter(|v| v % 5 != 4)));
    }

    #[test]
    fn nodes_without_a_value_are_not_split_and_those_with_some_are() {
        let known = |v: i32, step: i32| if v % step == 0 { f32::NAN } else { 1.0 };
        let values: Vec<f32> = (0..20).flat_map(|v| [known(v, 4), known(v, 2)]).collect();
        let data = DatasetBuilder::new(20).values(2, values).random_split(0.5, 0.2, 1).build().unwrap();
        assert_eq!(data.split.parts().map(|(_, ids)| ids.len()).iter().sum::<usize>(), 15);
    }

    #[test]
    fn inconsistent_arrays_are_errors() {
        let fails = |builder: DatasetBuilder, why: &str| {
            let error = builder.build().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        let two = || DatasetBuilder::new(2);
        fails(two().edges([(0, 2)]), "edge 0 joins nodes 0 and 2");
        fails(two().features(3, vec![0.0; 5]), "features hold 5 values");
        fails(two().classes(vec![0]).random_split(0.5, 0.5, 1), "1 labels for 2 nodes");
        fails(two().edges([(0, 1)]).weights(vec![]), "0 edge weights for 1 edges");
        fails(
            two().graph(build(3, &[], &[], EdgeOptions::DIRECTED).unwrap()),
            "a graph of 3 nodes for a dataset of 2",
        );
    }
}
