//! Nodes of each type by their budgets, as PyTorch Geometric's `HGTLoader` draws them: the loader's
//! sampler chooses the nodes, and all edges between them make the batch.

use graphmill_core::typed::{self, NodeType, Schema, TypedGraph};
use graphmill_loader::{
    BatchKey,
    typed::{Hgt, TypedFanout, TypedOptions, TypedRequest, TypedSampler, TypedSeeds, TypedWorkspace},
};

use super::{Seeds, TypedDrawn, TypedMethod, TypedScratch, TypedTopology, subgraph};

/// Method that draws a number of nodes of each type.
pub struct TypedBudgets {
    graph: TypedGraph,
    sampler: Hgt,
}

impl TypedBudgets {
    /// Creates the method for `samples` nodes of each type per hop.
    ///
    /// # Errors
    /// A number is out of range, or the graph's types are inconsistent.
    pub fn new(topology: &TypedTopology, samples: &[Vec<i64>]) -> Result<Self, String> {
        let types = topology.types.iter().map(|(name, count)| NodeType::new(name.clone(), *count)).collect();
        let relations = topology.relations.iter().enumerate();
        let relations =
            relations.map(|(r, relation)| typed::Relation::new(relation.src, r.to_string(), relation.dst));
        let schema = Schema::new(types, relations.collect()).map_err(|e| e.to_string())?;
        let graphs = topology.relations.iter().map(|relation| relation.topology.graph().clone()).collect();
        let graph = TypedGraph::new(schema, graphs).map_err(|e| e.to_string())?;
        let first = samples.first().cloned().unwrap_or_default();
        let fanout = topology.types.iter().zip(samples);
        let fanout =
            fanout.fold(TypedFanout::new(first), |all, ((name, _), of)| all.with(name.clone(), of.clone()));
        let options = TypedOptions { fanout, ..TypedOptions::default() };
        let sampler = Hgt::new(&options, graph.schema()).map_err(|e| format!("num_samples: {e}"))?;
        Ok(Self { graph, sampler })
    }
}

impl TypedMethod for TypedBudgets {
    fn draw(
        &self,
        topology: &TypedTopology,
        key: BatchKey,
        seeds: &Seeds,
        scratch: &mut TypedScratch,
        out: &mut TypedDrawn,
    ) -> Result<(), String> {
        out.clear(topology.types.len(), topology.relations.len());
        let schema = self.graph.schema();
        let workspace = scratch.workspace.get_or_insert_with(|| {
            let mut workspace = TypedWorkspace::new(schema);
            workspace.set_parallel(false);
            workspace
        });
        let request = TypedRequest::new(&self.graph, key);
        let seeds = TypedSeeds::new(key.batch, seeds.nodes.clone());
        let drawn = self.sampler.sample(&request, workspace, seeds).map_err(|e| e.to_string())?;
        scratch.places.start(false);
        for (t, nodes) in drawn.input_nodes.into_iter().enumerate() {
            for (place, &v) in (0..).zip(&nodes) {
                scratch.places.insert(t, 0, v, place);
            }
            out.nodes[t] = nodes;
        }
        subgraph::induce(topology, &Seeds::default(), &scratch.places, out);
        for (relation, to) in topology.relations.iter().zip(&mut out.relations) {
            relation.topology.number(&mut to.edges);
        }
        Ok(())
    }
}
