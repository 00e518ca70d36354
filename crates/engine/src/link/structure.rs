//! The graph whose structure around pairs a decoder reads, and the runs that have none.

use std::sync::Arc;

use graphmill_core::{Graph, options::one_of};
use graphmill_data::typed::TypedDataset;
use graphmill_nn::link::{
    decoder::{self, decoders_that},
    structure::PairStructure,
};

use crate::{Error, Result, TrainConfig, config::link::LinkOptions};

/// Returns true if the decoder of a configuration of links reads the structure of the graph around
/// pairs.
pub(crate) fn reads_structure(config: &TrainConfig) -> bool {
    let name = config.own.get::<LinkOptions>().decoder;
    decoder::TABLE.get(&name).is_some_and(|row| row.make.reads_structure)
}

/// Structure of the graph that batches read, if the decoder reads it.
///
/// # Errors
/// Memory runs out.
pub(crate) fn of_graph(config: &TrainConfig, graph: &Graph) -> Result<Option<Arc<PairStructure>>> {
    let made = reads_structure(config).then(|| PairStructure::new(graph)).transpose()?;
    Ok(made.map(Arc::new))
}

/// Structure of a graph of this number of nodes without edges, if the decoder reads one: for steps
/// whose shapes are counted and whose results are not.
///
/// # Errors
/// Memory runs out.
pub(crate) fn without_edges(config: &TrainConfig, nodes: usize) -> Result<Option<Arc<PairStructure>>> {
    let made = reads_structure(config).then(|| PairStructure::without_edges(nodes)).transpose()?;
    Ok(made.map(Arc::new))
}

/// Error of a run without such a graph: `why`, and how to learn without the decoder.
pub(crate) fn refused(config: &TrainConfig, why: &str) -> Error {
    let name = config.own.get::<LinkOptions>().decoder;
    let others = one_of(&decoders_that(|kind| !kind.reads_structure));
    Error::usage(format!("--decoder {name}: {why}, or use --decoder {others}"))
}

/// Refuses a decoder that reads structure with NVIDIA devices, and with several node types or edge
/// types in `data`.
///
/// # Errors
/// Wrong usage, with the reason and the remedy.
pub(crate) fn check(config: &TrainConfig, data: Option<&TypedDataset>) -> Result<()> {
    if !reads_structure(config) {
        return Ok(());
    }
    if !config.cuda_devices().is_empty() {
        let why = format!(
            "the processor searches the graph around each pair, and --devices {} computes elsewhere; use \
             --devices virtual:N",
            config.devices
        );
        return Err(refused(config, &why));
    }
    let counts = data.map_or([1, 1], |data| [data.nodes.len(), data.edges.len()]);
    if counts != [1, 1] {
        let [nodes, edges] = counts;
        let why = format!(
            "it reads one graph around each pair, of one node type and one edge type, and the dataset has \
             {nodes} and {edges}; import one edge type as a dataset of its own"
        );
        return Err(refused(config, &why));
    }
    Ok(())
}
