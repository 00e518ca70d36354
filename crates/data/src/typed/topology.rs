//! The graph of a typed dataset, without its other columns.

use graphmill_core::{
    Graph, Result,
    typed::{self, NodeType, Relation, TypedGraph},
};

use super::TypedDataset;

impl TypedDataset {
    /// The node types and a CSC graph for each edge type, with weights, for samplers and models.
    /// The arrays are shared, not copied. O(E), parallel.
    ///
    /// # Errors
    /// The types are invalid, as for [`TypedDataset::schema`], or an edge names a node that does
    /// not exist.
    pub fn graph(&self) -> Result<TypedGraph> {
        let schema = self.schema()?;
        let types = self.nodes.iter().map(|nodes| NodeType::new(&nodes.name, nodes.count)).collect();
        let relations = self.edges.iter().enumerate().map(|(e, edges)| {
            let (src, dst) = schema.ends(e);
            Relation::new(src, &edges.edge_type.name, dst)
        });
        let typed = typed::Schema::new(types, relations.collect())?;
        let graphs = self.edges.iter().map(|edges| {
            let (indptr, indices) = (edges.indptr.clone(), edges.indices.clone());
            Graph::of_sound_edges(indptr, indices, edges.weights.clone())
        });
        TypedGraph::new(typed, graphs.collect::<Result<_>>()?)
    }
}

#[cfg(test)]
mod tests {
    use crate::typed::TypedBuilder;

    #[test]
    fn the_graph_has_the_edges_and_weights_of_the_dataset() {
        let mut builder = TypedBuilder::new("library");
        builder.node_type("author", 3);
        builder.node_type("paper", 2);
        builder
            .edge_type("author", "writes", "paper")
            .edges(vec![2, 0, 1], vec![1, 1, 0])
            .weights(vec![0.5, 1.0, 2.0])
            .with_reverse("written-by");
        let data = builder.build().unwrap();
        let graph = data.graph().unwrap();
        let writes = graph.schema().find_relation("author:writes:paper").unwrap();
        assert_eq!(graph.relation(writes).in_neighbors(1), [2, 0]);
        assert_eq!(graph.relation(writes).edge_weight(), Some(&[2.0, 0.5, 1.0][..]));
        let reverse = graph.schema().find_relation("written-by").unwrap();
        assert_eq!(graph.relation(reverse).in_neighbors(1), [0]);
        assert_eq!((graph.num_nodes(), graph.num_edges()), (5, 6));
    }
}
