//! What a run needs to hold, against what the machine has: a run that would only end in the system
//! killing the process is refused, and one whose dataset does not fit twice reads it where it is.

mod feature_table;

use graphmill_core::{features::FeatureData, memory::available};
use graphmill_data::Dataset;

use crate::{Error, Result, TrainConfig};
pub use feature_table::precision;
pub(crate) use feature_table::{keeps_sparse, table_type};

/// Where something is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryPlacement {
    /// A copy in huge pages: random reads miss the TLB less.
    HugePages,
    /// The dataset's own memory, for a dataset on disk its map: no copy, and pages that are not
    /// used give way.
    Mapped,
}

/// Where topology and features are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlacements {
    /// The topology.
    pub graph: MemoryPlacement,
    /// The feature rows.
    pub features: MemoryPlacement,
}

impl MemoryPlacements {
    /// Both alike.
    pub fn both(residence: MemoryPlacement) -> Self {
        Self { graph: residence, features: residence }
    }
}

/// Huge pages for what fits beside what the run needs anyway, with an eighth of the memory left for
/// batches and for the pages of the dataset that are still read in place: the topology first, as
/// sampling is nothing but random reads of it. What is computed does not depend on it.
pub fn residence(config: &TrainConfig, data: &Dataset) -> MemoryPlacements {
    available().map_or(MemoryPlacements::both(MemoryPlacement::HugePages), |available| {
        residence_within(0.875 * available as f64, config, data)
    })
}

/// [`residence`] where that many bytes may be taken.
fn residence_within(room: f64, config: &TrainConfig, data: &Dataset) -> MemoryPlacements {
    let (graph, table) = (topology(data), table(config, data));
    let needed = needed(config, data);
    let place = |fits: bool| if fits { MemoryPlacement::HugePages } else { MemoryPlacement::Mapped };
    let graph_fits = needed + graph <= room;
    let taken = if graph_fits { needed + graph } else { needed };
    MemoryPlacements { graph: place(graph_fits), features: place(graph_fits && taken + table <= room) }
}

/// Bytes of a copy of the topology.
pub fn topology(data: &Dataset) -> f64 {
    let graph = &data.graph;
    let weights = graph.edge_weight().map_or(0, <[f32]>::len);
    (8 * graph.indptr().len() + 4 * graph.num_edges() + 4 * weights) as f64
}

/// Bytes of a copy of the features that only [`MemoryPlacement::HugePages`] makes.
fn table(config: &TrainConfig, data: &Dataset) -> f64 {
    if keeps_sparse(config, data) {
        return data.features.bytes() as f64;
    }
    (table_type(config, data).width() * data.features.len()) as f64 - converted(config, data)
}

/// Refuses what needs more memory than there is, by a lower bound on the need.
///
/// # Errors
/// Wrong usage, naming `--hidden`; or the dataset, where its rows alone do not fit.
pub(crate) fn check(config: &TrainConfig, data: &Dataset) -> Result<()> {
    // where the system does not say, refuse at least what no machine has
    let available = available().unwrap_or(1 << 46) as f64;
    let (wide, needed) = (converted(config, data), needed(config, data));
    let gb = |bytes: f64| format!("{:.1} GB", bytes / 1e9);
    if wide > available {
        let (what, mend) = match data.features.data {
            FeatureData::Csr(_) => ("as a dense table", "--sparse on"),
            _ => ("in another precision than the stored one", "--feature-precision auto"),
        };
        let (wide, available) = (gb(wide), gb(available));
        let message =
            format!("its features need {wide} of memory {what}, but {available} are available; use {mend}");
        return Err(Error::dataset(&data.name, message));
    }
    if needed <= available {
        return Ok(());
    }
    Err(Error::usage(format!(
        "--hidden {}: with {} layers and {} nodes this needs at least {} of memory, and {} are available; choose a \
         smaller width, or score fewer nodes with --eval-nodes",
        config.hidden,
        config.layers,
        data.num_nodes(),
        gb(needed),
        gb(available)
    )))
}

/// Bytes that a run takes wherever its dataset lies, a lower bound: parameters and gradients, one
/// layer's hidden rows of all nodes (what full-neighbour inference keeps; of the nodes to be
/// scored, where those are few), and features converted to another precision.
fn needed(config: &TrainConfig, data: &Dataset) -> f64 {
    let (v, f, c) = (data.num_nodes() as f64, data.features.dim as f64, data.labels.classes() as f64);
    let h = config.hidden as f64;
    let v = if config.eval_nodes > 0 { v.min(config.eval_nodes as f64) } else { v };
    let wide = config.layers + config.head_layers + usize::from(config.input_layer);
    if wide < 2 {
        return converted(config, data);
    }
    let params = f * h + (wide - 2) as f64 * h * h + h * c;
    8.0 * params + 4.0 * v * h + converted(config, data)
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
    fn the_bound_counts_weights_and_rows() {
        let config = TrainConfig { hidden: 100, layers: 3, ..TrainConfig::default() };
        let weights = 10 * 100 + 100 * 100 + 100 * 4;
        assert_eq!(needed(&config, &data()), (8 * weights + 4 * 1000 * 100) as f64);
        let linear = TrainConfig { layers: 1, ..config };
        assert_eq!(needed(&linear, &data()), 0.0);
    }

    #[test]
    fn copies_are_of_everything_that_training_reads() {
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
        // one value in each row: kept sparse, or as wide as the table
        let rows =
            SparseRows::from_dense(10, &[1., 0., 0., 0., 0., 0., 0., 0., 0., 0.].repeat(1000)).unwrap();
        let sparse = Dataset { features: Features::csr(rows), ..data() };
        let of = |sparse: &str| TrainConfig { sparse: sparse.parse().unwrap(), ..config.clone() };
        assert_eq!((table(&of("on"), &sparse), converted(&of("on"), &sparse)), (16_008.0, 0.0));
        assert_eq!((table(&of("off"), &sparse), converted(&of("off"), &sparse)), (0.0, 40_000.0));
    }
}
