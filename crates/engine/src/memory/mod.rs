//! Memory of a run against that of the machine. A run that is certain to exceed the memory is
//! refused before it starts, and a dataset that does not fit twice is read in place instead of
//! copied.

#![forbid(unsafe_code)]

mod feature_table;

use graphmill_core::{features::FeatureData, memory::available, units::decimal_bytes};
use graphmill_data::Dataset;

use crate::{Error, Result, TrainConfig, label_inputs};
pub use feature_table::precision;
pub(crate) use feature_table::{
    chosen_type, keeps_sparse, keeps_sparse_rows, processor, row_format, table_bytes, table_type,
};

/// Memory that topology or features are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryPlacement {
    /// A copy in huge pages, with fewer TLB misses of random reads.
    HugePages,
    /// The dataset's own memory: for a dataset on disk the mapped file, whose unused pages the
    /// system may evict.
    Mapped,
}

/// Placements of topology and features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlacements {
    /// The topology.
    pub graph: MemoryPlacement,
    /// The feature rows.
    pub features: MemoryPlacement,
}

impl MemoryPlacements {
    /// The same placement for topology and features.
    pub fn both(placement: MemoryPlacement) -> Self {
        Self { graph: placement, features: placement }
    }
}

/// Placements that fit into the free memory of this machine.
///
/// Copies in huge pages must fit beside the memory that the run needs in any case. An eighth of the
/// free memory stays for batches and for pages of the dataset that are read in place. The topology
/// takes precedence, because sampling reads it at random. Results do not depend on placements.
pub fn placements(config: &TrainConfig, data: &Dataset) -> MemoryPlacements {
    available().map_or(MemoryPlacements::both(MemoryPlacement::HugePages), |available| {
        placements_within(0.875 * available as f64, config, data)
    })
}

/// [`placements`] within `budget` bytes.
fn placements_within(budget: f64, config: &TrainConfig, data: &Dataset) -> MemoryPlacements {
    let (graph, table) = (topology(data), table(config, data));
    let needed = needed(config, data);
    let place = |fits: bool| if fits { MemoryPlacement::HugePages } else { MemoryPlacement::Mapped };
    let graph_fits = needed + graph <= budget;
    let taken = if graph_fits { needed + graph } else { needed };
    MemoryPlacements { graph: place(graph_fits), features: place(graph_fits && taken + table <= budget) }
}

/// Bytes of a copy of the topology.
pub fn topology(data: &Dataset) -> f64 {
    let graph = &data.graph;
    let weights = graph.edge_weight().map_or(0, <[f32]>::len);
    (8 * graph.indptr().len() + 4 * graph.num_edges() + 4 * weights) as f64
}

/// Bytes of the features' copy under [`MemoryPlacement::HugePages`]; 0 if every placement copies
/// them.
fn table(config: &TrainConfig, data: &Dataset) -> f64 {
    if keeps_sparse(config, data) {
        return data.features.bytes() as f64;
    }
    (table_type(config, data).width() * data.features.len()) as f64 - converted(config, data)
}

/// Refuses a run whose memory, by a lower bound, exceeds that of the machine.
///
/// # Errors
/// Wrong usage, naming `--hidden`; or the dataset, if the feature rows alone do not fit.
pub(crate) fn check(config: &TrainConfig, data: &Dataset) -> Result<()> {
    // if the system does not report it, 64 TiB, which no machine has
    let available = available().unwrap_or(1 << 46) as f64;
    let (wide, needed) = (converted(config, data), needed(config, data));
    let size = |bytes: f64| decimal_bytes(bytes as u64);
    if wide > available {
        let (what, remedy) = match data.features.data {
            FeatureData::Csr(_) => ("as a dense table", "--sparse on"),
            _ => ("in another precision than the stored one", "--feature-precision auto"),
        };
        let (wide, available) = (size(wide), size(available));
        let message =
            format!("its features need {wide} of memory {what}, but {available} are available; use {remedy}");
        return Err(Error::dataset(&data.name, message));
    }
    if needed <= available {
        return Ok(());
    }
    Err(Error::usage(format!(
        "--hidden {}: with {} layers and {} nodes, training needs at least {} of memory, but {} are \
         available; lower --hidden, or score fewer nodes with --eval-nodes",
        config.hidden,
        config.layers,
        data.num_nodes(),
        size(needed),
        size(available)
    )))
}

/// Lower bound on the bytes of a run under any placement: parameters and gradients, the rows or
/// transformed rows that full-neighbour inference stores between two layers (of all nodes, or of
/// `--eval-nodes`), and features converted to another type.
fn needed(config: &TrainConfig, data: &Dataset) -> f64 {
    let classes = data.labels.classes();
    let f = (data.features.dim + label_inputs::width(config, classes)) as f64;
    let (v, c) = (data.num_nodes() as f64, classes as f64);
    let h = config.hidden as f64;
    let v = if config.eval_nodes > 0 { v.min(config.eval_nodes as f64) } else { v };
    let wide = config.layers + config.head_layers + usize::from(config.input_layer);
    if wide < 2 {
        return converted(config, data);
    }
    let params = f * h + (wide - 2) as f64 * h * h + h * c;
    // layers of the graph that compute hidden rows from hidden rows, in whichever order: the input
    // of the last layer, or of a head, may be as narrow as the scores
    let inner = config.layers + usize::from(config.input_layer) + usize::from(config.head_layers > 0);
    let stored = if inner > 2 { h } else { h.min(c) };
    8.0 * params + 4.0 * v * stored + converted(config, data)
}

/// Bytes of a feature table of another type than the stored one.
fn converted(config: &TrainConfig, data: &Dataset) -> f64 {
    if keeps_sparse(config, data) {
        return 0.0;
    }
    let kind = table_type(config, data);
    if Some(kind) == data.features.data.kind() { 0.0 } else { (kind.width() * data.features.len()) as f64 }
}

#[cfg(test)]
mod tests {
    use graphmill_core::{EdgeOptions, Features, Labels, SparseRows, build};

    use super::*;

    fn data() -> Dataset {
        Dataset {
            graph: build(1000, &[0, 1], &[1, 2], EdgeOptions::DIRECTED).unwrap(),
            features: Features::f32(10, vec![0.0; 10_000]),
            labels: Labels::Single { class: vec![0; 1000].into(), classes: 4 },
            ..Dataset::default()
        }
    }

    #[test]
    fn memory_bound_counts_weights_and_hidden_rows() {
        let config = TrainConfig { hidden: 100, layers: 3, ..TrainConfig::default() };
        let weights = 10 * 100 + 100 * 100 + 100 * 4;
        assert_eq!(needed(&config, &data()), (8 * weights + 4 * 1000 * 100) as f64);
        // a chunk of rows may become the products of the last layer as soon as it is computed
        let two = TrainConfig { layers: 2, ..config.clone() };
        assert_eq!(needed(&two, &data()), (8 * (10 * 100 + 100 * 4) + 4 * 1000 * 4) as f64);
        let linear = TrainConfig { layers: 1, ..config };
        assert_eq!(needed(&linear, &data()), 0.0);
    }

    #[test]
    fn copies_count_topology_and_feature_table() {
        let config = TrainConfig::default();
        assert_eq!((topology(&data()), table(&config, &data())), ((8 * 1001 + 4 * 2) as f64, 40_000.0));
        let half = vec![Default::default(); 10_000].into();
        let half = Dataset {
            features: Features { dim: 10, data: graphmill_core::features::FeatureData::F16(half) },
            ..data()
        };
        assert_eq!((table(&config, &half), converted(&config, &half)), (20_000.0, 0.0));
        let wide = TrainConfig { feature_precision: "f32".parse().unwrap(), ..config.clone() };
        assert_eq!((table(&wide, &half), converted(&wide, &half)), (0.0, 40_000.0));
        // one value per row, stored sparse or as a dense table
        let rows =
            SparseRows::from_dense(10, &[1., 0., 0., 0., 0., 0., 0., 0., 0., 0.].repeat(1000)).unwrap();
        let sparse = Dataset { features: Features::csr(rows), ..data() };
        let of = |sparse: &str| TrainConfig { sparse: sparse.parse().unwrap(), ..config.clone() };
        assert_eq!((table(&of("on"), &sparse), converted(&of("on"), &sparse)), (16_008.0, 0.0));
        assert_eq!((table(&of("off"), &sparse), converted(&of("off"), &sparse)), (0.0, 40_000.0));
    }
}
